//! Many wakers and many waiters.

use crate::workqueue::explore;
use crate::*;

/// Eight threads each wait for their own number. Four others raise the count and wake them.
fn turns() {
    const NR_WAITERS: usize = 8;
    let event = Arc::new(EventCount::new());
    let count = Arc::new(AtomicUsize::new(0));
    let waiters: Vec<_> = (1..=NR_WAITERS)
        .map(|turn| {
            let (event, count) = (event.clone(), count.clone());
            thread::spawn(move || event.wait_until(|| count.load(Ordering::Acquire) >= turn))
        })
        .collect();
    for _ in 0..4 {
        let (event, count) = (event.clone(), count.clone());
        thread::spawn(move || {
            for _ in 0..NR_WAITERS / 4 {
                count.fetch_add(1, Ordering::Release);
                event.notify_all();
            }
        });
    }
    waiters.into_iter().for_each(|it| it.join().unwrap());
}

/// Six parked threads are on a list. Three others remove some under a lock, and wake them later.
fn collected() {
    let sleepers = Arc::new(Mutex::new(Vec::new()));
    let parked: Vec<_> = (0..6)
        .map(|_| {
            let mut parker = Parker::new();
            sleepers.lock().push(parker.unparker());
            thread::spawn(move || parker.park())
        })
        .collect();
    for _ in 0..3 {
        let sleepers = sleepers.clone();
        thread::spawn(move || {
            let mut wakeq = WakeQ::new();
            let mut locked = sleepers.lock();
            for _ in 0..2 {
                wakeq.push(locked.pop().expect("two for each"));
            }
            drop(locked);
            wakeq.fire();
        });
    }
    parked.into_iter().for_each(|it| it.join().unwrap());
}

models! {
    fn every_waiter_of_an_event_count_is_woken() = explore(3_000, turns);
    fn every_wake_up_that_was_collected_is_fired() = explore(3_000, collected);
}
