//! Sections of a sleepable domain against its grace periods.

use std::sync::Arc;

use afterwork::rcu::{model::passes_unaided, srcu::Domain};
use sync::{
    atomic::{AtomicUsize, Ordering},
    twin::{must_fail, with},
};

use crate::support::{Plain, bounded, exhaustive, spawn};

/// Two versions of a value; whoever waited for a grace period writes over the one that he had unlinked.
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

    /// Reads the current version; loom objects if it is being written over.
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

    fn spawn_reader(&self) {
        let theirs = self.clone();
        spawn(move || theirs.read());
    }
}

/// One reader, one grace period.
fn section() {
    let versions = Versions::new();
    versions.spawn_reader();
    versions.unlink();
    versions.domain.synchronize();
    versions.free();
}

/// As [`section`], of a reader whose line is not parked: drivers rely on its barriers.
fn again() {
    let versions = Versions::new();
    let theirs = versions.clone();
    spawn(move || {
        drop(theirs.domain.read());
        theirs.read();
    });
    versions.unlink();
    versions.domain.synchronize();
    versions.free();
}

/// The light barrier of sections, which in a model is a full fence, is taken away by the caller: what is left are answers
/// and what a reader does that leaves its parking.
fn unaided(nr_sections: usize) {
    let versions = Versions::new();
    let theirs = versions.clone();
    spawn(move || {
        for _ in 0..nr_sections {
            theirs.read();
        }
    });
    versions.unlink();
    if passes_unaided(&versions.domain) {
        versions.free();
    }
}

/// A section that begins here and ends on another thread, which has not read in this domain before.
fn moved() {
    let versions = Versions::new();
    let (guard, theirs) = (versions.domain.read_owned(), versions.clone());
    spawn(move || {
        theirs.look();
        drop(guard);
    });
    versions.unlink();
    versions.domain.synchronize();
    versions.free();
}

/// A grace period that has to flip, before the one that counts: the reader may be late by a whole one.
fn late() {
    let versions = Versions::new();
    let held = versions.domain.read();
    versions.spawn_reader();
    let theirs = versions.clone();
    let before = spawn(move || theirs.domain.synchronize());
    // Lets them begin without using up the bound.
    loom::thread::yield_now();
    drop(held);
    before.join().unwrap();
    versions.unlink();
    versions.domain.synchronize();
    versions.free();
}

/// Two readers of which one comes and goes while the other stays.
fn pair() {
    let versions = Versions::new();
    versions.spawn_reader();
    versions.spawn_reader();
    versions.unlink();
    versions.domain.synchronize();
    versions.free();
}

/// Somebody drives while another asks whether that was enough for him.
fn polled() {
    let versions = Versions::new();
    let theirs = versions.clone();
    let driver = spawn(move || theirs.domain.synchronize());
    versions.spawn_reader();
    let theirs = versions.clone();
    let updater = spawn(move || {
        theirs.unlink();
        let cookie = theirs.domain.get_state();
        driver.join().unwrap();
        if theirs.domain.poll_state(cookie) {
            theirs.free();
        }
    });
    updater.join().unwrap();
}

/// Two wait, one drives.
fn shared() {
    let domain = Domain::new();
    let theirs = domain.clone();
    spawn(move || theirs.synchronize());
    let cookie = domain.get_state();
    domain.synchronize();
    assert!(domain.poll_state(cookie));
}

/// A callback here, one from elsewhere; a barrier that must see ours.
fn barrier() {
    let domain = Domain::new();
    let theirs = domain.clone();
    let written = Arc::new(Plain::default());
    spawn(move || theirs.call(|| ()));
    let ours = written.clone();
    domain.call(move || ours.set(1));
    domain.barrier();
    assert_eq!(written.get(), 1);
}

/// A callback whose grace period waits for a reader, and a barrier.
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
fn a_reader_that_leaves_lets_callbacks_run() {
    bounded(2, aside);
}

#[test]
fn runners_must_be_notified_by_readers() {
    must_fail("srcu: the runners are not notified", || bounded(2, aside));
}

#[test]
fn a_srcu_reader_keeps_what_it_reached() {
    exhaustive(section);
}

#[test]
fn a_srcu_reader_that_is_not_parked_keeps_what_it_reached() {
    bounded(3, again);
}

#[test]
fn a_srcu_answer_stands_for_a_barrier() {
    with("srcu: no fence in enter", || bounded(4, || unaided(2)));
    with("srcu: no fence in enter + srcu: answers unasked", || {
        bounded(4, || unaided(2))
    });
    // Nor does it rest on the light barrier after a section, which would release the section in any case.
    with(
        "srcu: no fence in enter + srcu: no fence in leave + srcu: answers unasked",
        || bounded(4, || unaided(2)),
    );
}

#[test]
fn a_srcu_answer_needs_both_orders() {
    must_fail(
        "srcu: no fence in enter + srcu: answers unasked + rcu: relaxed answer",
        || bounded(3, || unaided(2)),
    );
    must_fail(
        "srcu: no fence in enter + srcu: no fence in leave + rcu: relaxed answer",
        || bounded(3, || unaided(2)),
    );
}

#[test]
fn a_parked_srcu_reader_comes_back() {
    with("srcu: no fence in enter", || bounded(3, || unaided(1)));
    must_fail(
        "srcu: no fence in enter + rcu: no fence after parking",
        || bounded(3, || unaided(1)),
    );
}

#[test]
fn a_srcu_section_may_end_on_another_thread() {
    exhaustive(moved);
}

#[test]
fn a_late_srcu_reader_keeps_what_it_reached() {
    bounded(2, late);
}

#[test]
fn two_srcu_readers_keep_what_they_reached() {
    bounded(2, pair);
}

#[test]
fn a_srcu_cookie_stands_for_a_whole_grace_period() {
    bounded(2, polled);
}

#[test]
fn a_srcu_waiter_is_served_by_whoever_drives() {
    bounded(3, shared);
}

#[test]
fn srcu_barrier_waits_for_every_callback() {
    bounded(2, barrier);
}

#[test]
fn srcu_section_needs_its_fence() {
    must_fail("srcu: no fence in enter", || bounded(3, again));
}

#[test]
fn srcu_leaving_needs_its_fence() {
    must_fail("srcu: no fence in leave", || exhaustive(section));
    must_fail("srcu: no fence before the sleep", || exhaustive(section));
}

#[test]
fn srcu_unlock_needs_release() {
    must_fail("srcu: relaxed unlock", || exhaustive(section));
}

#[test]
fn srcu_cookie_needs_its_fence() {
    must_fail("rcu: no fence before the cookie", || bounded(3, polled));
}

#[test]
fn draining_one_parity_misses_a_late_reader() {
    must_fail("srcu: single flip", || bounded(3, late));
}

#[test]
fn summing_locks_first_misses_a_reader_behind_another() {
    must_fail("srcu: locks summed first", || bounded(3, pair));
}

#[test]
fn a_section_must_end_under_the_parity_it_began() {
    must_fail("srcu: parity read again at the end", || exhaustive(section));
}

#[test]
fn a_batch_of_srcu_callbacks_ends_with_release() {
    must_fail("srcu: relaxed end of a batch", || bounded(2, barrier));
}
