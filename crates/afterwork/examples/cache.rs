//! A cache of limited size, whose readers take no lock and share no counter.
//!
//! | promise | kept by |
//! |---|---|
//! | a read waits for no writer; an insert copies one part of 64 | `Rcu`, `update` |
//! | entries above the limit are dropped in the background, recently read ones last | `Work` |
//! | expired entries are not read, and are dropped in the background | `every` |
//! | a dropped entry is freed after its last reader | a grace period: `barrier` waits for it |
//!
//! `cargo run --release --example cache`

use std::cmp::Reverse;
use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use afterwork::rcu::{self, Rcu};
use afterwork::workqueue::{Periodic, Registry, Work, Workqueue};

type Failure = Box<dyn Error + Send + Sync>;

const NR_PARTS: u64 = 64;
/// The number of entries that a part keeps.
const PART_SIZE: usize = 16;
const LIFETIME: Duration = Duration::from_secs(60);

struct Entry {
    value: String,
    expires: Instant,
    /// Set by the first read after an eviction.
    was_read: AtomicBool,
}

type Part = Rcu<HashMap<u64, Arc<Entry>>>;

struct Cache {
    parts: Arc<[Part]>,
    registry: Registry,
    queue: Workqueue,
    evict: Work,
    _expire: Periodic,
}

impl Cache {
    fn new(registry: &Registry) -> Result<Self, Failure> {
        let parts: Arc<[Part]> = (0..NR_PARTS).map(|_| Rcu::new(HashMap::new())).collect();
        let queue = Workqueue::builder("cache").build_in(registry)?;
        let (all, clock) = (parts.clone(), registry.clone());
        let sweep = move || all.iter().for_each(|part| sweep(part, clock.now()));
        Ok(Self {
            parts,
            registry: registry.clone(),
            _expire: queue.every(LIFETIME, sweep.clone())?,
            evict: Work::new(sweep),
            queue,
        })
    }

    fn part(&self, key: u64) -> &Part {
        &self.parts[(key % NR_PARTS) as usize]
    }

    fn read<R>(&self, key: u64, f: impl FnOnce(&str) -> R) -> Option<R> {
        let guard = rcu::read();
        let entry = self.part(key).load(&guard).get(&key)?;
        if !entry.was_read.load(Relaxed) {
            entry.was_read.store(true, Relaxed);
        }
        (self.registry.now() < entry.expires).then(|| f(&entry.value))
    }

    fn insert(&self, key: u64, value: String) {
        let entry = Arc::new(Entry {
            value,
            expires: self.registry.now() + LIFETIME,
            was_read: AtomicBool::new(false),
        });
        let mut len = 0;
        self.part(key).update(|old| {
            let mut new = old.clone();
            new.insert(key, entry.clone());
            len = new.len();
            new
        });
        if len > PART_SIZE {
            self.queue.enqueue(&self.evict);
        }
    }
}

/// Drops entries that have expired, and those above the limit.
fn sweep(part: &Part, now: Instant) {
    let guard = rcu::read();
    let entries = part.load(&guard);
    if entries.len() <= PART_SIZE && entries.values().all(|it| now < it.expires) {
        return;
    }
    part.update(|old| {
        let mut entries: Vec<_> = old.iter().filter(|it| now < it.1.expires).collect();
        entries.sort_by_cached_key(|it| Reverse((it.1.was_read.load(Relaxed), it.1.expires)));
        let kept = entries.into_iter().take(PART_SIZE);
        kept.map(|(key, entry)| (*key, entry.clone())).collect()
    });
    for entry in entries.values() {
        entry.was_read.store(false, Relaxed);
    }
}

/// Tests each promise. Only `advance` moves the clock.
pub fn main() -> Result<(), Failure> {
    let mut registry = Registry::for_tests()?;
    let cache = Cache::new(&registry)?;
    (0..NR_PARTS * PART_SIZE as u64).for_each(|key| cache.insert(key, key.to_string()));
    assert_eq!(cache.read(7, str::len), Some(1));
    cache.insert(7 + 1000 * NR_PARTS, "one entry too many".into());
    cache.queue.flush()?;
    assert_eq!(cache.read(7, str::len), Some(1), "it was read, so it stays");

    let use_it = |thread| {
        for key in (0..100_000_u64).map(|read| read * 31 % 4096 + thread) {
            cache.read(key, |value| assert_eq!(value, key.to_string()));
            if key % 10 == 0 {
                cache.insert(key, key.to_string());
            }
        }
    };
    thread::scope(|threads| (0..4).for_each(|thread| _ = threads.spawn(move || use_it(thread))));
    cache.queue.flush()?;
    let len = |part: &Part| part.load(&rcu::read()).len();
    assert!(cache.parts.iter().all(|part| len(part) <= PART_SIZE));

    registry.advance(LIFETIME / 2);
    cache.insert(7, "seven".into());
    let entry = Arc::downgrade(&cache.part(7).load(&rcu::read())[&7]);
    registry.advance(LIFETIME);
    assert_eq!(cache.read(7, str::len), None, "it has expired");
    registry.advance(LIFETIME);
    assert_eq!(cache.parts.iter().map(len).sum::<usize>(), 0);
    rcu::barrier();
    assert!(entry.upgrade().is_none(), "it is freed");
    Ok(())
}
