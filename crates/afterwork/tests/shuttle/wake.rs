//! Many wakers and many waiters.

use crate::*;

fn turns() {
    const NR_WAITERS: usize = 8;
    let event = Arc::new(EventCount::new());
    let count = Arc::new(AtomicUsize::new(0));
    let (awaited, counted) = (event.clone(), count.clone());
    let waiters = spawn_each(NR_WAITERS, move |turn| {
        awaited.wait_until(|| counted.load(Ordering::Acquire) > turn);
    });
    spawn_each(4, move |_| {
        for _ in 0..NR_WAITERS / 4 {
            count.fetch_add(1, Ordering::Release);
            event.notify_all();
        }
    });
    join_all(waiters);
}

fn collected() {
    let sleepers = Arc::new(Mutex::new(Vec::new()));
    let parked: Vec<_> = (0..6)
        .map(|_| {
            let mut parker = Parker::new();
            sleepers.lock().push(parker.unparker());
            thread::spawn(move || parker.park())
        })
        .collect();
    spawn_each(3, move |_| {
        let mut wakeq = WakeQ::new();
        let mut locked = sleepers.lock();
        for _ in 0..2 {
            wakeq.push(locked.pop().expect("two for each"));
        }
        drop(locked);
        wakeq.fire();
    });
    join_all(parked);
}

models! {
    fn every_waiter_of_an_event_count_is_woken() = explore(3_000, turns);
    fn every_wake_up_that_was_collected_is_fired() = explore(3_000, collected);
}
