//! Sleeping and waking.

use sync::Mutex;

use crate::support::*;

/// Two wakers write and wake. The owner parks until both have written, and reads both values.
fn hand_over() {
    let mut parker = Parker::new();
    let written = Arc::new([Plain::default(), Plain::default()]);
    let nr_written = Arc::new(AtomicUsize::new(0));
    for from in 0..2 {
        let unparker = parker.unparker();
        spawn_with((written.clone(), nr_written.clone()), move |(written, nr_written)| {
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

/// With a single waker, the token alone orders the waker's write before the owner's read.
fn token_alone() {
    let mut parker = Parker::new();
    let written = Arc::new(Plain::default());
    spawn_with((parker.unparker(), written.clone()), |(unparker, written)| {
        written.set(1);
        unparker.unpark();
    });
    parker.park();
    assert_eq!(written.get(), 1);
}

/// `nr_waiters` threads wait for a notifier; no other synchronization orders them.
fn event_count(nr_waiters: usize) {
    let event = Arc::new(EventCount::new());
    let ready = Arc::new(AtomicBool::new(false));
    for _ in 0..nr_waiters {
        spawn_with((event.clone(), ready.clone()), |(event, ready)| {
            event.wait_until(|| ready.load(Ordering::Relaxed));
        });
    }
    ready.store(true, Ordering::Relaxed);
    event.notify_all();
}

fn collected() {
    let mut parker = Parker::new();
    let sleepers = Arc::new(Mutex::new(vec![parker.unparker()]));
    let nr_turns = Arc::new(AtomicUsize::new(0));
    for _ in 0..2 {
        spawn_with((sleepers.clone(), nr_turns.clone()), |(sleepers, nr_turns)| {
            let mut wakeq = WakeQ::new();
            let mut locked = sleepers.lock();
            nr_turns.fetch_add(1, Ordering::Relaxed);
            if let Some(sleeper) = locked.pop() {
                wakeq.push(sleeper);
            }
            drop(locked);
            wakeq.fire();
        });
    }
    parker.park();
    assert!(nr_turns.load(Ordering::Relaxed) > 0);
}

models! {
    fn no_wake_up_is_lost_between_two_wakers() = bounded(3, hand_over);
    fn parker_publishes_writes_of_the_waker() =
        exhaustive(token_alone)
            .detects(["park: no token", "park: relaxed take", "park: relaxed give"]);
    fn event_count_wakes_a_waiter_that_saw_no_condition() =
        exhaustive(|| event_count(1))
            .detects(["event count: no fence in prepare", "event count: no fence in notify"]);
    fn event_count_wakes_two_waiters() = bounded(3, || event_count(2));
    fn a_wake_up_fired_after_the_lock_is_never_lost() = exhaustive(collected);
}
