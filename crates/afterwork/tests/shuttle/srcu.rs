//! Sleepable sections of many threads, guards that move between threads, callbacks and barriers.

use crate::workqueue::explore;
use crate::*;

const NR_VERSIONS: usize = 6;

/// A value whose versions are each freed once no reader can see them.
struct Versions {
    domain: Domain,
    current: AtomicUsize,
    is_freed: [AtomicBool; NR_VERSIONS],
    /// Guards that another thread will drop, with the version that each protects.
    travelling: Mutex<Vec<(OwnedGuard, usize)>>,
}

impl Versions {
    fn look(&self) -> usize {
        let version = self.current.load(Ordering::Relaxed);
        self.check(version);
        version
    }

    fn check(&self, version: usize) {
        let is_freed = self.is_freed[version].load(Ordering::Relaxed);
        assert!(!is_freed, "version {version} was freed under a reader");
    }

    fn read(&self) {
        if thread_rng().gen_bool(0.5) {
            let guard = self.domain.read();
            let version = self.look();
            thread::yield_now();
            self.check(version);
            drop(guard);
        } else {
            let guard = self.domain.read_owned();
            let version = self.look();
            self.travelling.lock().push((guard, version));
        }
        let arrived = self.travelling.lock().pop();
        if let Some((guard, version)) = arrived {
            self.check(version);
            drop(guard);
        }
    }
}

/// Three readers, two of which also update by callback, and an updater that waits.
fn versions() {
    let versions = Arc::new(Versions {
        domain: Domain::new(),
        current: AtomicUsize::new(0),
        is_freed: Default::default(),
        travelling: Mutex::new(Vec::new()),
    });
    let next = Arc::new(AtomicUsize::new(1));
    let (shared, numbers) = (versions.clone(), next.clone());
    let readers = spawn_each(3, move |number| {
        shared.read();
        shared.read();
        if number > 0 {
            let new = numbers.fetch_add(1, Ordering::Relaxed);
            let old = shared.current.swap(new, Ordering::AcqRel);
            let theirs = shared.clone();
            shared.domain.call(move || theirs.is_freed[old].store(true, Ordering::Relaxed));
        }
    });
    for _ in 0..2 {
        let new = next.fetch_add(1, Ordering::Relaxed);
        let old = versions.current.swap(new, Ordering::AcqRel);
        versions.domain.synchronize();
        versions.is_freed[old].store(true, Ordering::Relaxed);
    }
    join_all(readers);
    // A guard that no thread dropped would block the barrier.
    versions.travelling.lock().clear();
    versions.domain.barrier();
    let nr_freed = versions.is_freed.iter();
    let nr_freed = nr_freed.filter(|freed| freed.load(Ordering::Relaxed)).count();
    assert_eq!(nr_freed, 4, "an old version is left");
}

/// The runner suspends a grace period, and runs a callback that blocks until a waiter's grace
/// period ends.
fn waiter() {
    let (domain, other) = (Domain::new(), Domain::new());
    let passed = Arc::new((AtomicBool::new(false), EventCount::new()));
    let guard = domain.read_owned();
    domain.call(|| ());
    let theirs = passed.clone();
    other.call(move || {
        let (passed, event) = &*theirs;
        event.wait_until(|| passed.load(Ordering::Acquire));
    });
    let theirs = (domain.clone(), passed);
    let waiter = thread::spawn(move || {
        let (domain, passed) = theirs;
        domain.synchronize();
        passed.0.store(true, Ordering::Release);
        passed.1.notify_all();
    });
    thread::yield_now();
    drop(guard);
    waiter.join().unwrap();
    domain.barrier();
    other.barrier();
}

models! {
    fn a_waiter_does_not_depend_on_the_runners() = explore(5_000, waiter);
    fn a_driver_that_stops_midway_must_wake_both_cookies() =
        must_fail("rcu: a driver that stops wakes one", || explore(50_000, waiter));
    fn no_srcu_reader_sees_a_freed_version() = explore(1_000, versions);
    fn draining_one_parity_frees_under_a_reader() =
        must_fail("srcu: single flip", || explore(20_000, versions));
}
