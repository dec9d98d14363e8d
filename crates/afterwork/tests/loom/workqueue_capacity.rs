//! A queue with a capacity: the first waiter acquires a freed capacity permit, once.

use crate::support::*;

fn full(capacity: usize) -> Arc<Capacity> {
    let permits = Arc::new(permits(capacity));
    for _ in 0..capacity {
        assert!(permits.try_take());
    }
    permits
}

fn one_permit() {
    let permits = full(1);
    let inside = Arc::new(AtomicBool::new(false));
    let (held, is_held) = (permits.clone(), inside.clone());
    let hold = move || {
        assert!(!is_held.swap(true, Ordering::Relaxed), "one permit for two");
        is_held.store(false, Ordering::Relaxed);
        held.release(1);
    };
    let waiter = spawn_with((permits.clone(), hold.clone()), move |(permits, hold)| {
        assert!(permits.wait(None), "without an end");
        hold();
    });
    let comer = spawn_with(permits.clone(), move |permits| {
        if permits.try_take() {
            hold();
        }
    });
    assert!(!inside.load(Ordering::Relaxed), "one permit for two");
    permits.release(1);
    waiter.join().unwrap();
    comer.join().unwrap();
    assert_eq!(permits.nr_free(), 1, "the capacity is exceeded");
}

/// Of two waiters, the first cancels while the permit is released, and the second acquires it.
fn waiter_that_leaves() {
    let permits = full(1);
    let on_turn = || on_turn_of_task(&Context::from_waker(Waker::noop()));
    let [first, mut second] = [(); 2].map(|()| {
        let mut turn = None;
        assert!(!permits.poll(&mut turn, on_turn), "all permits are in use");
        turn
    });
    let giver = spawn_with(permits.clone(), move |permits| permits.release(1));
    permits.leave(first);
    giver.join().unwrap();
    assert!(permits.poll(&mut second, on_turn), "it was admitted");
    assert_eq!(permits.nr_free(), 0);
    permits.release(1);
    assert_eq!(permits.nr_free(), 1);
}

fn a_task() {
    let permits = full(1);
    let mut turn = None;
    let on_turn = || on_turn_of_task(&Context::from_waker(Waker::noop()));
    assert!(!permits.poll(&mut turn, on_turn), "all permits are in use");
    let giver = spawn_with(permits.clone(), move |permits| permits.release(1));
    let mut task = Task::new();
    let waker = task.waker();
    let has_permit = permits.poll(&mut turn, || on_turn_of_task(&Context::from_waker(&waker)));
    giver.join().unwrap();
    if has_permit {
        permits.release(1);
    } else {
        assert!(task.was_woken(), "the task is not woken");
        permits.leave(turn);
    }
    assert_eq!(permits.nr_free(), 1);
}

/// An item of a queue with capacity 1 is cancelled while a worker reaches it. If the queue is not
/// ordered, this thread acts as the worker, which saves the model a thread.
fn an_item(ordered: bool) {
    let machine = machine(1 + usize::from(ordered), 1);
    let queue = plain().capacity(1);
    let queue = if ordered { queue.ordered() } else { queue };
    let queue = queue.build_in(machine.registry()).unwrap();
    let work = Work::new(|| ());
    if !ordered {
        machine.pretend_busy(true);
    }
    assert_eq!(queue.try_enqueue(&work), Ok(true));
    assert_eq!(queue.report().free_capacity, Some(0));
    if ordered {
        machine.make_workers();
    } else {
        machine.pretend_busy(false);
    }
    let canceller = spawn_with(work.clone(), move |work| work.cancel());
    if !ordered {
        machine.help_out();
    }
    canceller.join().unwrap();
    work.flush().unwrap();
    assert_eq!(queue.report().free_capacity, Some(1));
    wind_up(queue);
}

/// Cancels a future of a queue with capacity 1 while a worker may poll it for the first time. If
/// `others` is set, another thread cancels it, too.
fn a_future(worker_first: bool, others: bool) {
    let (machine, queue) = set_up(2, 1, plain().capacity(1));
    let mut canceller = afterwork::workqueue::CancelHandle::default();
    let mut handle = queue.task().cancel_handle(&mut canceller).spawn_async(async {});
    assert_eq!(queue.report().free_capacity, Some(0));
    if worker_first {
        machine.start_workers(1);
    }
    let canceller = others.then(|| spawn(move || canceller.cancel()));
    let mut is_cancelled = handle.cancel();
    if let Some(canceller) = canceller {
        is_cancelled |= canceller.join().unwrap();
    }
    if !worker_first {
        assert!(is_cancelled && handle.is_finished());
        assert_eq!(queue.report().free_capacity, Some(1), "no worker has taken it");
        machine.start_workers(1);
    }
    let _ = handle.join();
    assert_eq!(queue.report().free_capacity, Some(1));
    wind_up(queue);
}

models! {
    fn a_cancelled_future_frees_its_capacity_once() =
        bounded(2, || a_future(true, false)),
        bounded(2, || a_future(false, true)),
        bounded(1, || a_future(true, true));
    fn released_permit_is_granted_once() =
        bounded(3, one_permit).detects([
            "capacity: no check after joining",
            "capacity: a release overlooks the waiters",
            "capacity: a recount reads an old count",
            "capacity: admits too many",
        ]);
    fn leaving_waiter_passes_its_permit_on() =
        exhaustive(waiter_that_leaves).detects(["capacity: a leaving waiter keeps its permit"]);
    fn task_that_waits_for_capacity_is_woken() = exhaustive(a_task);
    fn item_releases_its_permit_once() =
        bounded(2, || an_item(false)).detects(["capacity: a start keeps its permit"]),
        bounded(2, || an_item(true));
}
