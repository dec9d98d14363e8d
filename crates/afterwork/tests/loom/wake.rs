//! Sleeping and waking.

use std::sync::Arc;

use afterwork::wake::{EventCount, Parker, WakeQ, Wakeup};
use sync::{
    Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
    twin::must_fail,
};

use crate::support::{Plain, bounded, exhaustive, spawn};

/// Two wakers. The owner parks until both have written, and reads both values.
fn hand_over() {
    let mut parker = Parker::new();
    let written = Arc::new([Plain::default(), Plain::default()]);
    let nr_written = Arc::new(AtomicUsize::new(0));
    for from in 0..2 {
        let (unparker, written, nr_written) =
            (parker.unparker(), written.clone(), nr_written.clone());
        spawn(move || {
            written[from].set(1);
            nr_written.fetch_add(1, Ordering::Release);
            unparker.unpark();
        });
    }
    while nr_written.load(Ordering::Acquire) < 2 {
        parker.park();
    }
    assert_eq!(written[0].get() + written[1].get(), 2);
}

/// One waker whose token alone orders its write before the owner's read.
fn token_alone() {
    let mut parker = Parker::new();
    let written = Arc::new(Plain::default());
    let (unparker, theirs) = (parker.unparker(), written.clone());
    spawn(move || {
        theirs.set(1);
        unparker.unpark();
    });
    parker.park();
    assert_eq!(written.get(), 1);
}

#[test]
fn no_wake_up_is_lost_between_two_wakers() {
    bounded(3, hand_over);
}

#[test]
fn parker_publishes_writes_of_the_waker() {
    exhaustive(token_alone);
}

#[test]
fn parking_without_a_token_loses_the_wake_up() {
    must_fail("park: no token", || exhaustive(token_alone));
}

#[test]
fn taking_the_token_needs_acquire() {
    must_fail("park: relaxed take", || exhaustive(token_alone));
}

#[test]
fn granting_the_token_needs_release() {
    must_fail("park: relaxed give", || exhaustive(token_alone));
}

/// `nr_waiters` threads wait for a notifier; no other synchronization orders them.
fn event_count(nr_waiters: usize) {
    let event = Arc::new(EventCount::new());
    let ready = Arc::new(AtomicBool::new(false));
    for _ in 0..nr_waiters {
        let (event, ready) = (event.clone(), ready.clone());
        spawn(move || event.wait_until(|| ready.load(Ordering::Relaxed)));
    }
    ready.store(true, Ordering::Relaxed);
    event.notify_all();
}

#[test]
fn event_count_wakes_a_waiter_that_saw_no_condition() {
    exhaustive(|| event_count(1));
}

#[test]
fn event_count_wakes_two_waiters() {
    bounded(3, || event_count(2));
}

#[test]
fn preparing_a_wait_needs_its_fence() {
    must_fail("event count: no fence in prepare", || {
        exhaustive(|| event_count(1))
    });
}

#[test]
fn notifying_needs_its_fence() {
    must_fail("event count: no fence in notify", || {
        exhaustive(|| event_count(1))
    });
}

/// Two threads collect the wake-ups of sleepers under a lock, and fire them after releasing it.
fn collected() {
    let mut parker = Parker::new();
    let sleepers = Arc::new(Mutex::new(vec![parker.unparker()]));
    let nr_turns = Arc::new(AtomicUsize::new(0));
    for _ in 0..2 {
        let (sleepers, nr_turns) = (sleepers.clone(), nr_turns.clone());
        spawn(move || {
            let mut wakeq = WakeQ::new();
            let mut locked = sleepers.lock();
            nr_turns.fetch_add(1, Ordering::Relaxed);
            if let Some(sleeper) = locked.pop() {
                wakeq.push(Wakeup::unpark(sleeper));
            }
            drop(locked);
            wakeq.fire();
        });
    }
    parker.park();
    assert!(nr_turns.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_wake_up_fired_after_the_lock_is_never_lost() {
    exhaustive(collected);
}
