//! Sections of a sleepable domain, and its grace periods.

use crate::support::*;

/// Two versions of a value. A thread that unlinked a version overwrites it after a grace period.
#[derive(Clone)]
struct Versions {
    domain: Domain,
    current: Arc<AtomicUsize>,
    values: Arc<[Plain; 2]>,
}

impl Versions {
    fn new() -> Self {
        Self {
            domain: Domain::new(),
            current: Arc::new(AtomicUsize::new(0)),
            values: Arc::default(),
        }
    }

    /// Reads the current version; loom reports a race if it is being overwritten.
    fn look(&self) {
        self.values[self.current.load(Ordering::Acquire)].get();
    }

    fn read(&self) {
        let guard = self.domain.read();
        self.look();
        drop(guard);
    }

    fn unlink(&self) {
        self.current.store(1, Ordering::Release);
    }

    fn free(&self) {
        self.values[0].set(9);
    }

    fn replace(&self) {
        self.unlink();
        self.domain.synchronize();
        self.free();
    }

    fn spawn_reader(&self) {
        spawn_with(self.clone(), |theirs| theirs.read());
    }
}

fn section() {
    let versions = Versions::new();
    versions.spawn_reader();
    versions.replace();
}

/// Like [`section`], with a reader that is not parked. Drivers rely on its barriers.
fn again() {
    let versions = Versions::new();
    spawn_with(versions.clone(), move |theirs| {
        drop(theirs.domain.read());
        theirs.read();
    });
    versions.replace();
}

/// Without light barriers, only answers and the unparking of a reader order memory accesses.
fn unaided(nr_sections: usize) {
    let versions = Versions::new();
    spawn_with(versions.clone(), move |theirs| {
        for _ in 0..nr_sections {
            theirs.read();
        }
    });
    versions.unlink();
    if passes_unaided(&versions.domain) {
        versions.free();
    }
}

/// A section begins here and ends on another thread, which has not yet read in this domain.
fn moved() {
    let versions = Versions::new();
    let (guard, theirs) = (versions.domain.read_owned(), versions.clone());
    spawn(move || {
        theirs.look();
        drop(guard);
    });
    versions.replace();
}

/// A grace period that flips precedes the one under test, so the reader may use the old parity.
fn late() {
    let versions = Versions::new();
    let held = versions.domain.read();
    versions.spawn_reader();
    let before = spawn_with(versions.domain.clone(), |domain| domain.synchronize());
    // Both threads can begin here without using up the preemption bound.
    loom::thread::yield_now();
    drop(held);
    before.join().unwrap();
    versions.replace();
}

/// Of two readers, one may begin and end its section while the other stays in its own.
fn pair() {
    let versions = Versions::new();
    versions.spawn_reader();
    versions.spawn_reader();
    versions.replace();
}

fn polled() {
    let versions = Versions::new();
    let driver = spawn_with(versions.domain.clone(), |domain| domain.synchronize());
    versions.spawn_reader();
    let updater = spawn_with(versions.clone(), move |theirs| {
        theirs.unlink();
        let cookie = theirs.domain.get_state();
        driver.join().unwrap();
        if theirs.domain.poll_state(cookie) {
            theirs.free();
        }
    });
    updater.join().unwrap();
}

fn shared() {
    let domain = Domain::new();
    spawn_with(domain.clone(), |domain| domain.synchronize());
    let cookie = domain.get_state();
    domain.synchronize();
    assert!(domain.poll_state(cookie));
}

/// Two threads each queue a callback. The barrier must wait for the callback of its own thread.
fn barrier() {
    let domain = Domain::new();
    let written = Arc::new(Plain::default());
    spawn_with(domain.clone(), |domain| domain.call(|| ()));
    let ours = written.clone();
    domain.call(move || ours.set(1));
    domain.barrier();
    assert_eq!(written.get(), 1);
}

/// One thread waits in a barrier, and the grace period of a callback waits for a reader.
fn aside() {
    let domain = Domain::new();
    let guard = domain.read_owned();
    let written = Arc::new(Plain::default());
    let ours = written.clone();
    domain.call(move || ours.set(1));
    spawn(move || drop(guard));
    domain.barrier();
    assert_eq!(written.get(), 1);
}

#[test]
fn srcu_answer_replaces_a_barrier() {
    with("srcu: no fence in enter", || bounded(4, || unaided(2)));
    with("srcu: no fence in enter + srcu: answers unasked", || bounded(4, || unaided(2)));
    // The answer does not rely on the light barrier after a section either.
    with("srcu: no fence in enter + srcu: no fence in leave + srcu: answers unasked", || {
        bounded(4, || unaided(2))
    });
}

models! {
    fn callbacks_run_after_their_reader_leaves() =
        bounded(2, aside).detects(["srcu: the runners are not notified"]);
    fn srcu_reader_protects_its_data() =
        exhaustive(section).detects([
            "srcu: no fence in leave",
            "srcu: no fence before the sleep",
            "srcu: relaxed unlock",
            "srcu: parity read again at the end",
        ]);
    fn unparked_srcu_reader_protects_its_data() =
        bounded(3, again).detects(["srcu: no fence in enter"]);
    fn parked_srcu_reader_resumes() =
        with("srcu: no fence in enter", || bounded(3, || unaided(1))),
        must_fail("srcu: no fence in enter + rcu: no fence after parking",
            || bounded(3, || unaided(1))),
        must_fail("srcu: no fence in enter + srcu: answers unasked + rcu: relaxed answer",
            || bounded(3, || unaided(2))),
        must_fail("srcu: no fence in enter + srcu: no fence in leave + rcu: relaxed answer",
            || bounded(3, || unaided(2)));
    fn a_srcu_section_may_end_on_another_thread() = exhaustive(moved);
    fn late_srcu_reader_protects_its_data() =
        bounded(2, late),
        must_fail("srcu: single flip", || bounded(3, late));
    fn two_srcu_readers_protect_their_data() =
        bounded(2, pair),
        must_fail("srcu: locks summed first", || bounded(3, pair));
    fn srcu_cookie_covers_a_whole_grace_period() =
        bounded(2, polled),
        must_fail("rcu: no fence before the cookie", || bounded(3, polled));
    fn srcu_waiter_is_served_by_any_driver() = bounded(3, shared);
    fn srcu_barrier_waits_for_every_callback() =
        bounded(2, barrier).detects(["srcu: relaxed end of a batch"]);
}
