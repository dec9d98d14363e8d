//! Sleepable sections of many threads, guards that move between threads, callbacks and barriers.

use crate::*;

#[derive(Default)]
struct Scene {
    domain: Domain,
    versions: Versions,
    /// Guards that another thread will drop, with the version that each protects.
    travelling: Mutex<Vec<(OwnedGuard, Seen)>>,
}

impl Scene {
    fn read(&self) {
        if thread_rng().gen_bool(0.5) {
            let guard = self.domain.read();
            let seen = self.versions.look();
            thread::yield_now();
            self.versions.check(seen);
            drop(guard);
        } else {
            let guard = self.domain.read_owned();
            let seen = self.versions.look();
            self.travelling.lock().push((guard, seen));
        }
        let arrived = self.travelling.lock().pop();
        if let Some((guard, seen)) = arrived {
            self.versions.check(seen);
            drop(guard);
        }
    }
}

/// Three readers, two of which also update by callback, and an updater that waits.
fn versions() {
    let scene = Arc::<Scene>::default();
    let shared = scene.clone();
    let readers = spawn_each(3, move |number| {
        shared.read();
        shared.read();
        if number > 0 {
            let (theirs, old) = (shared.clone(), shared.versions.replace().unwrap());
            shared.domain.call(move || theirs.versions.free(old));
        }
    });
    for _ in 0..2 {
        let old = scene.versions.replace().unwrap();
        scene.domain.synchronize();
        scene.versions.free(old);
    }
    join_all(readers);
    // A guard that no thread dropped would block the barrier.
    scene.travelling.lock().clear();
    scene.domain.barrier();
    scene.versions.assert_all_free();
}

/// The runner runs a callback that blocks until a waiter's grace period ends.
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
    fn a_waiter_does_not_depend_on_the_runners() =
        explore(5_000, waiter),
        must_fail("rcu: a driver that stops wakes one", || explore(50_000, waiter));
    fn no_srcu_reader_sees_a_freed_version() =
        explore(1_000, versions),
        must_fail("srcu: single flip", || explore(20_000, versions));
}
