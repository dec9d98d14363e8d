//! What readers look at while the torture replaces it.
//!
//! Versions lie in static memory and are never really freed: each has a *generation*, odd while it is published or may
//! still be seen, even once its grace period is over. A reader looks at the generation when its section begins and
//! again when it ends; an even one, or another one, is a fault. So a fault is a count and no crash.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// Versions in turn: enough that one is free when the writer wants one, few enough to be used again at once.
const NR_VERSIONS: usize = 16;

/// Versions in turn, one of them published.
pub struct Versions {
    current: AtomicUsize,
    /// Odd while somebody may see it.
    generations: [AtomicU64; NR_VERSIONS],
    /// Whose generation is even and whom nobody writes.
    free: Mutex<Vec<usize>>,
}

/// What a reader saw when its section began.
#[derive(Clone, Copy)]
pub struct Seen {
    version: usize,
    generation: u64,
}

impl Versions {
    /// Publishes the first of them.
    pub fn new() -> Self {
        let versions = Self {
            current: AtomicUsize::new(0),
            generations: Default::default(),
            free: Mutex::new((1..NR_VERSIONS).collect()),
        };
        versions.generations[0].store(1, Ordering::Relaxed);
        versions
    }

    /// Looks at the published one.
    // Relaxed on both sides: nothing but grace periods is to keep a version from being freed.
    #[inline(always)]
    pub fn look(&self) -> Seen {
        let version = self.current.load(Ordering::Relaxed);
        let generation = self.generations[version].load(Ordering::Relaxed);
        Seen {
            version,
            generation,
        }
    }

    /// Fails if what was seen has been freed since, or had been before.
    #[inline(always)]
    pub fn check(&self, seen: Seen) {
        let now = self.generations[seen.version].load(Ordering::Relaxed);
        assert!(
            seen.generation % 2 == 1 && now == seen.generation,
            "version {} was freed under a reader: generation {} when its section began, {now} at its end",
            seen.version,
            seen.generation,
        );
    }

    /// Publishes a free version; returns the one that it replaced, or nothing when none is free.
    pub fn replace(&self) -> Option<usize> {
        let new = self.free.lock().unwrap().pop()?;
        self.generations[new].fetch_add(1, Ordering::Relaxed);
        Some(self.current.swap(new, Ordering::AcqRel))
    }

    /// Fails if versions other than the published one have not been freed.
    pub fn assert_all_free(&self) {
        let nr_free = self.free.lock().unwrap().len();
        assert_eq!(nr_free, NR_VERSIONS - 1, "a version was not freed");
    }

    /// Frees a version whose grace period is over.
    pub fn free(&self, version: usize) {
        let before = self.generations[version].fetch_add(1, Ordering::Relaxed);
        assert_eq!(before % 2, 1, "freed twice");
        self.free.lock().unwrap().push(version);
    }
}
