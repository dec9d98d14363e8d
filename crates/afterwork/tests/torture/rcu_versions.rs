//! The versions that readers read while the torture, or a model, replaces them.
//!
//! Each has a *generation*, which is odd while the version may be seen, and becomes even when it is
//! freed. If a reader finds an even or changed one at the end of its section, that is a fault.

use std::sync::Mutex;

use sync::atomic::*;

/// Large enough that a version is free for the writer, and small enough for quick reuse.
const NR_VERSIONS: usize = 16;

/// A ring of versions, one of them published.
pub struct Versions {
    current: AtomicUsize,
    /// Odd while a reader may see the version.
    generations: [AtomicU64; NR_VERSIONS],
    /// Versions with an even generation that no thread writes.
    free: Mutex<Vec<usize>>,
}

/// The version and generation that a reader read when its section began.
#[derive(Clone, Copy)]
pub struct Seen {
    version: usize,
    generation: u64,
}

impl Default for Versions {
    fn default() -> Self {
        let versions = Self {
            current: AtomicUsize::new(0),
            generations: Default::default(),
            free: Mutex::new((1..NR_VERSIONS).collect()),
        };
        versions.generations[0].store(1, Ordering::Relaxed);
        versions
    }
}

impl Versions {
    /// Reads the published version.
    // Relaxed on both sides: only grace periods may keep a version from being freed.
    #[inline(always)]
    pub fn look(&self) -> Seen {
        let version = self.current.load(Ordering::Relaxed);
        let generation = self.generations[version].load(Ordering::Relaxed);
        Seen { version, generation }
    }

    /// Fails if the version was freed before or after it was read.
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

    /// Publishes a free version. Returns the replaced one, or `None` if no version is free.
    pub fn replace(&self) -> Option<usize> {
        let new = self.free.lock().unwrap().pop()?;
        self.generations[new].fetch_add(1, Ordering::Relaxed);
        Some(self.current.swap(new, Ordering::AcqRel))
    }

    /// Fails if a version other than the published one has not been freed.
    pub fn assert_all_free(&self) {
        let nr_free = self.free.lock().unwrap().len();
        assert_eq!(nr_free, NR_VERSIONS - 1, "a version was not freed");
    }

    pub fn free(&self, version: usize) {
        let before = self.generations[version].fetch_add(1, Ordering::Relaxed);
        assert_eq!(before % 2, 1, "freed twice");
        self.free.lock().unwrap().push(version);
    }
}
