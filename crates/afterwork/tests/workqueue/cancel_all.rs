//! Bulk cancels: they call user code after their last change, and return an exact count.

use crate::support::*;

/// The calls that cancel everything on a queue.
const WAYS: [fn(&Workqueue); 2] =
    [|queue| _ = queue.cancel_all(), |queue| queue.clone().shutdown_background()];

const ORDERS: [[u32; 2]; 2] = [[0, 1], [1, 0]];

fn two_pods(registry: &Registry) -> Workqueue {
    let queue = queue("pods").affinity(Cpu).on(registry);
    queue.pause();
    queue
}

fn joins(handle: JoinHandle<()>) -> impl FnOnce() + Send {
    move || assert!(is_cancelled(handle.join()))
}

#[test]
fn destructors_and_wakers_join_items_that_are_cancelled() {
    let registry = registry("2 core");
    for (way, [first, second]) in WAYS.into_iter().flat_map(|way| ORDERS.map(|order| (way, order)))
    {
        let queue = two_pods(&registry);
        let joining = |cpu| joins(on_cpu(&queue, cpu).spawn(|| ()));
        let guard = at_drop(joining(second));
        let holder = on_cpu(&queue, first).spawn(move || drop(guard));
        // Each waker joins an item of the pod of the awaited item. The joined item is queued after
        // the awaited one in the first pod, and before it in the second pod.
        let awaited = on_cpu(&queue, first).spawn(|| ());
        let wakers = [first, second].map(|cpu| waker_once(joining(cpu)));
        let other = on_cpu(&queue, second).spawn(|| ());
        let [awaited, other] = [polled(awaited, &wakers[0]), polled(other, &wakers[1])];
        way(&queue);
        assert!(holder.join().is_err());
        assert!(awaited.join().is_err());
        assert!(other.join().is_err());
        queue.resume_and_drain();

        // The waker of a drain joins such an item.
        let queue = two_pods(&registry);
        let handle = on_cpu(&queue, first).spawn(|| ());
        let (joins, joined) = (joins(on_cpu(&queue, second).spawn(|| ())), Count::default());
        let waker = waker_once(move || {
            joins();
            joined.add();
        });
        let _drain = polled(queue.drain_async(), &waker);
        way(&queue);
        assert!(handle.join().is_err());
        wait_until(|| joined.get() == 1);
    }
}

#[test]
fn destructors_join_cancelled_items_without_threads() {
    for [first, second] in ORDERS {
        let registry = threadless("2 core");
        let queue = two_pods(&registry);
        let (dropped, all_dropped) = mpsc::channel::<()>();
        let joins = at_drop(joins(on_cpu(&queue, second).spawn(|| ())));
        let holder = on_cpu(&queue, first).spawn(move || drop((joins, dropped)));
        queue.shutdown_background();
        assert!(holder.join().is_err());
        // The closure has been dropped, although no thread can be created.
        assert!(all_dropped.recv_timeout(PATIENCE).is_err());
        registry.refuse_threads(false);
        shut_down(registry);
    }
}

#[test]
fn a_destructor_waits_for_a_producer_a_flush_or_a_drain() {
    /// A capacity and an act. With a capacity of 1, the second item is rejected.
    type Act = (usize, fn(&Workqueue));
    let acts: [Act; 3] = [
        (1, |queue| drop(queue.task().wait_for_capacity().try_spawn(|| ()))),
        (2, |queue| queue.flush().unwrap()),
        (2, |queue| queue.drain().unwrap()),
    ];
    for (way, (capacity, act)) in WAYS.into_iter().flat_map(|way| acts.map(|act| (way, act))) {
        let queue = queue("pods").affinity(Cpu).capacity(capacity).paused();
        let (go, gone) = mpsc::channel::<()>();
        let other = beside(&queue, move |queue| {
            gone.recv().unwrap();
            act(&queue);
        });
        let guard = at_drop(|| other.join().unwrap());
        let handle = on_cpu(&queue, 0).try_spawn(move || drop(guard)).unwrap();
        assert_eq!(on_cpu(&queue, 1).try_spawn(|| ()).is_ok(), capacity > 1);
        go.send(()).unwrap();
        way(&queue);
        assert!(handle.join().is_err());
        queue.resume_and_drain();
    }
}

#[test]
fn the_end_of_a_paused_queue_resumes_it_before_dropping_timers() {
    let ways: [fn(Workqueue); 4] = [
        |queue| queue.shutdown(Duration::MAX).unwrap(),
        drop,
        Workqueue::close_in_background,
        |queue| _ = queue.spawn(|| ()).cancel(),
    ];
    for way in ways {
        let (registry, queue) = queue("paused").help(false).on_own(registry("2 core"));
        queue.pause();
        let runs = queue.spawn(|| ());
        arm_for_an_hour(&queue, at_drop(|| runs.join().unwrap()));
        way(queue);
        shut_down(registry);
    }
}

#[test]
fn tickets_and_items_behind_runs_are_cancelled_and_not_counted() {
    for is_left in [false, true] {
        let queue = queue("behind").alone();
        let (work, plug, [count, _]) = stuck_counting(&queue);
        if !is_left {
            queue.pause();
        }
        assert!(queue.enqueue(&work));
        if is_left {
            wait_until(|| is_handed_off(&work));
            queue.pause();
        }
        assert!(queue.enqueue(&counting(count)));
        assert_eq!(queue.cancel_all(), 1, "left: {is_left}");
        assert_eq!(queue.cancel_all(), 0);
        queue.resume();
        assert_eq!(plug.release_and_count(&queue, count), 1);
    }
    let (queue, count) = (queue("tickets").paused(), Count::default());
    let nr_cancelled = queue.scope(|scope| {
        (0..5).for_each(|_| scope.spawn(|| count.add()));
        let work = counting(count);
        assert!(queue.enqueue(&work));
        queue.cancel_all()
    });
    assert_eq!((nr_cancelled, count.get()), (1, 5));
}

#[test]
fn an_item_that_cancels_all_is_still_the_current_one() {
    let queue = queue("current").alone();
    let (own, outcomes) = (queue.clone(), Log::default());
    let work = Work::with_handle(move |work| {
        let _handle = polled(own.spawn(|| ()), &waker(|| ()));
        outcomes.push((own.cancel_all(), work.flush()));
    });
    // Items that this item queues do not start.
    queue.set_max_active(1).unwrap();
    assert!(queue.enqueue(&work));
    queue.drain().unwrap();
    assert_eq!(outcomes.take(), [(1, Err(FlushError::OwnItem))]);
}

#[test]
fn wakers_wait_for_sets_and_threads_that_await_cancelled_items() {
    let [queue, other] = ["all", "other"].map(|name| queue(name).alone());
    queue.pause();
    let first = queue.spawn(|| ());
    let mut set = TaskSet::new(&other);
    set.add(queue.spawn(|| ()));
    let waker = waker_once(move || assert!(is_cancelled(set.join_next_blocking().unwrap())));
    let _first = polled(first, &waker);
    assert_eq!(queue.cancel_all(), 2);
    let [first, second, third] = [(); 3].map(|()| queue.spawn(|| ()));
    let (send, polls) = mpsc::channel();
    let note = move |mut handle: JoinHandle<()>| {
        let send = send.clone();
        poll_fn(move |context| {
            let poll = Pin::new(&mut handle).poll(context);
            send.send(()).unwrap();
            poll.map(drop)
        })
    };
    let (blocked, future) = (note(second), other.spawn_async(note(third)));
    let thread = thread::spawn(|| block_on(blocked));
    polls.recv_timeout(PATIENCE).unwrap();
    polls.recv_timeout(PATIENCE).unwrap();
    let waker = waker_once(|| {
        thread.join().unwrap();
        future.join().unwrap();
    });
    let _first = polled(first, &waker);
    assert_eq!(queue.cancel_all(), 3);
}
