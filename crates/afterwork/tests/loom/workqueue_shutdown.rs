//! Bulk cancels during queueing, help, a run or a firing timer, and a drain that a task awaits.

use crate::support::*;

fn is_cancelled<T>(outcome: &Result<T, JoinError>) -> bool {
    matches!(outcome, Err(JoinError::Cancelled))
}

fn cancel_all_races_with_queueing() {
    let (machine, queue) = held(false);
    let before = queue.spawn(|| ());
    let other = spawn_with(queue.clone(), move |queue| queue.spawn(|| 7));
    let nr_cancelled = queue.cancel_all();
    assert!(before.is_finished(), "it was queued before");
    assert!(is_cancelled(&before.join()));
    let beside = other.join().unwrap();
    go(&machine);
    let beside = beside.join();
    assert_eq!(nr_cancelled, 1 + usize::from(is_cancelled(&beside)));
    assert!(is_cancelled(&beside) || matches!(beside, Ok(7)));
    wind_up(queue);
}

fn cancel_all_races_with_a_worker() {
    let (_machine, queue) = queue(1, false);
    let ran = Arc::new(Plain::default());
    let runs = ran.clone();
    let first = queue.spawn(move || runs.set(1));
    let cancelled = queue.cancel_all() == 1;
    let first = first.join();
    assert_eq!(is_cancelled(&first), cancelled);
    // Races with the run if the run has not ended.
    assert_eq!(ran.get(), u32::from(!cancelled));
    wind_up(queue);
}

fn item_cancels_the_local_batch_of_its_worker() {
    let params = Params { max_workers: 1, max_batch: 2, ..Params::default() };
    let machine = Machine::new(&Topology::synthetic("1 core").unwrap(), params);
    let queue = plain().build_in(machine.registry()).unwrap();
    machine.pretend_busy(true);
    let own = queue.clone();
    let first = queue.spawn(move || own.cancel_all());
    let second = queue.spawn(|| ());
    go(&machine);
    assert_eq!(first.join().unwrap(), 1);
    assert!(is_cancelled(&second.join()));
    wind_up(queue);
}

/// A joiner claims an item of a paused queue, finds no seat, and puts the item back.
fn cancel_all_races_with_a_helper() {
    let (_machine, queue) = held(true);
    queue.pause();
    let handle = queue.spawn(|| ());
    let joiner = spawn(move || handle.join());
    queue.cancel_all();
    assert!(is_cancelled(&joiner.join().unwrap()));
    wind_up(queue);
}

/// A pwq receives a seat for an item, and its queue is paused again before the run.
fn pause_races_with_a_transferred_seat() {
    let (machine, queue) = set_up(1, 1, plain());
    machine.start_workers(1);
    queue.pause();
    // The flags are set if the item must not start, and if it has started nevertheless.
    let flags = Arc::new(Mutex::new([false; 2]));
    let seen = flags.clone();
    let item = Work::new(move || {
        let [is_paused, has_started] = &mut *seen.lock().unwrap();
        *has_started |= *is_paused;
    });
    queue.enqueue(&item);
    queue.resume();
    queue.pause();
    // An item that a worker took before the pause may start.
    if queue.stats().nr_inactive == 1 {
        flags.lock().unwrap()[0] = true;
        flags.lock().unwrap()[0] = false;
    }
    queue.resume();
    item.flush().unwrap();
    assert!(!flags.lock().unwrap()[1]);
    wind_up(queue);
}

/// Cancels all items of a queue during a run of an item that is queued again. If `anew` is set, the
/// item is cancelled before it is queued again, so that it may return to its old position.
fn cancel_all_races_with_a_run(anew: bool) {
    let machine = Arc::new(machine(2, 2));
    let queue = plain().build_in(machine.registry()).unwrap();
    let pretend_both_busy = |busy| (0..2).for_each(|_| machine.pretend_busy(busy));
    pretend_both_busy(true);
    let count = Arc::new(AtomicU32::new(0));
    // Only the first run uses these handles, so that the item does not keep its queue alive.
    let (counts, mut own) = (count.clone(), Some((machine.clone(), queue.clone())));
    let work = Work::with_handle(move |work| {
        counts.fetch_add(1, Ordering::Relaxed);
        let Some((machine, queue)) = own.take() else {
            return;
        };
        // No worker is requested.
        machine.pretend_busy(true);
        queue.enqueue(work);
        if anew {
            work.cancel();
            queue.enqueue(work);
        }
        let worker = spawn(move || go(&machine));
        queue.cancel_all();
        // A panic here would be caught, so the failure is counted.
        if !work.is_busy() {
            counts.fetch_add(100, Ordering::Relaxed);
        }
        worker.join().unwrap();
    });
    queue.enqueue(&work);
    pretend_both_busy(false);
    machine.help_out();
    machine.help_out();
    assert!(!work.is_busy());
    let count = count.load(Ordering::Relaxed);
    assert!(count < 100, "its run was ended");
    assert_eq!(count, 1, "it was queued before");
    wind_up(queue);
}

fn cancel_all_races_with_firing() {
    let (machine, queue) = held(false);
    let work = DelayedWork::new(|| unreachable!("cancelled"));
    assert!(queue.enqueue_after(&work, SOON));
    let firing = spawn_with(machine.clone(), move |machine| machine.fire_timers(2 * SOON));
    queue.cancel_all();
    assert!(!work.is_pending(), "it was armed before");
    firing.join().unwrap();
    assert!(!work.is_pending());
    go(&machine);
    wind_up(queue);
}

/// A thread that may have seen the queue open arms a timer while the queue is destroyed.
fn destroy_races_with_arming() {
    let (machine, queue) = set_up(1, 1, plain());
    let work = DelayedWork::new(|| unreachable!("cancelled"));
    let arming = spawn_with((queue.clone(), work.clone()), move |(queue, work)| {
        _ = queue.enqueue_after(&work, SOON)
    });
    queue.shutdown(Duration::MAX).unwrap();
    arming.join().unwrap();
    assert!(!work.is_pending());
    machine.fire_timers(2 * SOON);
    machine.help_out();
    wind_up(queue);
}

fn a_drain_is_awaited() {
    let (mut machine, queue) = queue(1, false);
    let ran = Arc::new(Plain::default());
    let runs = ran.clone();
    queue.spawn_detached(move || runs.set(1)).unwrap();
    let waker = foreign_waker(machine.notifier());
    let mut context = Context::from_waker(&waker);
    // An earlier notification would end the wait below, and hide a lost wake-up.
    machine.was_notified();
    {
        let mut drain = pin!(queue.drain_async());
        while drain.as_mut().poll(&mut context) != Poll::Ready(Ok(())) {
            machine.wait();
            machine.reap();
        }
    }
    // Races with the run if the run has not ended.
    assert_eq!(ran.get(), 1);
    wind_up(queue);
}

models! {
    fn earlier_items_are_cancelled_and_concurrent_ones_may_run() =
        bounded(3, cancel_all_races_with_queueing).detects(["cancel all: forgets the injector"]);
    fn item_that_a_worker_takes_during_a_cancel_ends_once() =
        bounded(2, cancel_all_races_with_a_worker);
    fn items_of_a_local_batch_are_cancelled() =
        bounded(2, item_cancels_the_local_batch_of_its_worker)
            .detects(["cancel all: forgets the local batches"]);
    fn item_released_by_a_helper_is_cancelled_by_it() =
        bounded(3, cancel_all_races_with_a_helper).detects(["cancel all: forgets returned items"]);
    fn item_that_waits_after_a_pause_does_not_start() =
        bounded(3, pause_races_with_a_transferred_seat).detects(["take: overlooks a pause"]);
    fn item_requeued_during_its_run_is_cancelled() =
        bounded(2, || cancel_all_races_with_a_run(true)).detects(["revival: is always younger"]);
    fn item_queued_behind_a_run_is_cancelled() =
        bounded(2, || cancel_all_races_with_a_run(false))
            .detects(["cancel all: forgets returned items", "cancel all: ends a running item"]);
    fn armed_timer_is_cancelled_or_has_fired() =
        bounded(3, cancel_all_races_with_firing).detects(["cancel all: forgets firing timers"]);
    fn timer_is_not_armed_for_a_destroyed_queue() =
        bounded(3, destroy_races_with_arming).detects(["destroy: forgets arming timers"]);
    fn a_task_that_awaits_a_drain_is_woken() =
        bounded(2, a_drain_is_awaited).detects([
            "settled: tasks are not woken",
            "drain: registers its waker after the check",
        ]);
}
