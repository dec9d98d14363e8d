//! User code on the library's threads: destructors, handlers and sources that panic or block.

use std::{
    cell::RefCell,
    future,
    sync::{
        Arc, Mutex,
        mpsc::{self, Sender},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use afterwork::{
    params::Params,
    workqueue::{CpuId, DelayedWork, JoinError, Registry, Work, Workqueue, blocking},
};
use topology::Topology;

use crate::support::*;

/// Calls a closure when it is dropped.
struct AtDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn at_drop<F: FnMut()>(func: F) -> AtDrop<F> {
    AtDrop(func)
}

/// Panics, unless the test has failed already.
fn explode() {
    if !std::thread::panicking() {
        panic!("dropped");
    }
}

/// Fails unless the manager creates a worker for a pool that has none, and fires timers.
fn assert_managed(registry: &Registry) {
    let queue = queue("later").nice(7).help(false);
    let queue = queue.build_in(registry).unwrap();
    let (send, receive) = mpsc::channel();
    let timed = DelayedWork::new(move || send.send("fired").unwrap());
    assert!(queue.enqueue_after(&timed, Duration::from_millis(1)));
    assert_eq!(receive.recv_timeout(PATIENCE), Ok("fired"));
}

/// Leaves `owned` to the registry, which must not drop it on a service thread. A delayed item
/// without handles owns it, and the item's queue is destroyed by one of its own items.
fn forget_armed(registry: &Registry, owned: impl Send + 'static) {
    let timers = queue("timers").build_in(registry).unwrap();
    let work = DelayedWork::new(move || {
        let _ = &owned;
    });
    assert!(timers.enqueue_after(&work, Duration::from_secs(3600)));
    drop(work);
    let (own, (plug, hole)) = (timers.clone(), stopper());
    timers
        .spawn_detached(move || {
            hole.sit();
            drop(own);
        })
        .unwrap();
    plug.wait_until_stuck();
    drop(timers);
    plug.release();
}

#[test]
fn the_drop_of_a_timed_item_whose_queue_is_gone_may_panic() {
    let registry = registry("2 core");
    let (send, receive) = mpsc::channel();
    let bomb = at_drop(move || {
        send.send(()).unwrap();
        explode();
    });
    forget_armed(&registry, bomb);
    receive.recv_timeout(PATIENCE).unwrap();
    assert_managed(&registry);
}

#[test]
fn a_timed_item_whose_queue_is_gone_holds_up_none_that_needs_a_worker() {
    const SLACK: Duration = Duration::from_millis(20);
    let registry = registry("2 core");
    let (send, receive) = mpsc::channel();
    let gone = queue("gone").build_in(&registry).unwrap();
    let forgotten = DelayedWork::new(|| ()).with_slack(SLACK);
    assert!(gone.enqueue_after(&forgotten, SLACK));
    // They expire at the same time, and each one belongs to a pool without workers.
    let live = (1..8).map(|nice| {
        let send = send.clone();
        let queue = queue("live").nice(nice).help(false);
        let queue = queue.build_in(&registry).unwrap();
        let timed = DelayedWork::new(move || send.send(nice).unwrap()).with_slack(SLACK);
        assert!(queue.enqueue_after(&timed, SLACK));
        (queue, timed)
    });
    let live: Vec<_> = live.collect();
    drop((gone, forgotten));
    let mut fired: Vec<_> = live
        .iter()
        .map(|_| receive.recv_timeout(PATIENCE).unwrap())
        .collect();
    fired.sort();
    assert_eq!(fired, Vec::from_iter(1..8));
}

/// Blocks an item on `busy`. Once released, it waits for a new worker and then counts its end.
fn needs_a_worker_once_released(registry: &Registry, busy: &Workqueue) -> (Plug, Count) {
    let third = queue("third").nice(3).help(false);
    let third = third.build_in(registry).unwrap();
    let (plug, hole) = stopper();
    let ended = Count::default();
    let ends = ended.clone();
    busy.spawn_detached(move || {
        hole.sit();
        third.spawn(|| ()).join().unwrap();
        ends.add();
    })
    .unwrap();
    plug.wait_until_stuck();
    (plug, ended)
}

#[test]
fn the_drop_of_a_timed_item_may_wait_for_a_worker_that_must_be_made() {
    let registry = registry("2 core");
    let busy = queue("busy").build_in(&registry).unwrap();
    let (plug, ended) = needs_a_worker_once_released(&registry, &busy);
    let (send, receive) = mpsc::channel();
    // A tuple drops its fields in this order.
    forget_armed(&registry, (at_drop(move || send.send(()).unwrap()), busy));
    receive.recv_timeout(PATIENCE).unwrap();
    plug.release();
    eventually("the item of the dropped queue ends", || ended.get() == 1);
    assert_managed(&registry);
}

#[test]
fn workers_are_made_while_the_locals_of_one_that_left_wait_for_an_item() {
    struct AtEnd(Workqueue, Sender<()>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            self.0.spawn(|| ()).join().unwrap();
            let _ = self.1.send(());
        }
    }
    thread_local!(static LOCAL: RefCell<Option<AtEnd>> = const { RefCell::new(None) });
    let params = Params {
        idle_timeout_ms: 1,
        ..Params::default()
    };
    let registry = registry_with("2 core", params);
    let first = queue("first").build_in(&registry).unwrap();
    let second = queue("second").nice(4).help(false);
    let second = second.build_in(&registry).unwrap();
    let (send, receive) = mpsc::channel();
    // Creates six workers at once, so that some are culled.
    let all_in = Arc::new(std::sync::Barrier::new(6));
    for _ in 0..6 {
        let (second, send, all_in) = (second.clone(), send.clone(), all_in.clone());
        first
            .spawn_detached(move || {
                LOCAL.set(Some(AtEnd(second, send)));
                blocking(|| all_in.wait());
            })
            .unwrap();
    }
    receive.recv_timeout(PATIENCE).expect("no worker was made");
    assert_managed(&registry);
}

#[test]
fn a_source_that_panics_is_asked_again() {
    let params = Params {
        topology_refresh_ms: 1,
        ..Params::default()
    };
    let asked = Count::default();
    let asks = asked.clone();
    let registry = Registry::watching(Topology::synthetic("2 core").unwrap(), params, move || {
        asks.add();
        panic!("cannot read the machine now");
    });
    let registry = registry.unwrap();
    assert!(!registry.refresh_topology() && asked.get() == 1);
    let queue = queue("waits").build_in(&registry).unwrap();
    // The manager reads the source while items wait for a worker.
    eventually("the manager asks", || {
        (0..4).for_each(|_| {
            queue
                .spawn_detached(|| std::thread::sleep(Duration::from_millis(2)))
                .unwrap()
        });
        asked.get() >= 3
    });
    assert_managed(&registry);
}

#[test]
fn a_report_handler_that_is_dropped_may_give_another() {
    ends(|| {
        let registry = registry("2 core");
        let (again, dropped) = (registry.clone(), Count::default());
        let drops = dropped.clone();
        let first = at_drop(move || {
            again.on_report(|_| ());
            drops.add();
            explode();
        });
        registry.on_report(move |_| {
            let _ = &first;
        });
        registry.on_report(|_| ());
        assert_eq!(dropped.get(), 1);
    });
}

/// A worker may drop the last reference to a queue's core.
#[test]
fn the_panic_handler_goes_with_the_last_handle_of_its_queue() {
    let dropped = Count::default();
    let drops = dropped.clone();
    let handler = at_drop(move || {
        drops.add();
        explode();
    });
    let queue = alone_on_two(queue("handled").on_panic(move |_| {
        let _ = &handler;
    }));
    let kept: Arc<Mutex<Option<Waker>>> = Arc::default();
    let keeps = kept.clone();
    let ended = queue.spawn_async(future::poll_fn(move |context| {
        *keeps.lock().unwrap() = Some(context.waker().clone());
        Poll::Ready(())
    }));
    ended.join().unwrap();
    drop(queue);
    assert_eq!(dropped.get(), 1);
    drop(kept);
}

#[test]
fn a_report_handler_may_drop_the_last_handle_of_a_queue_that_needs_a_worker() {
    let params = Params {
        watchdog_thresh_ms: 20,
        ..Params::default()
    };
    let registry = registry_with("1 core", params);
    let busy = queue("busy").nice(2).build_in(&registry).unwrap();
    let (plug, ended) = needs_a_worker_once_released(&registry, &busy);
    let (send, receive) = mpsc::channel();
    let busy = Mutex::new(Some(busy));
    registry.on_report(move |_| {
        let last = busy.lock().unwrap().take();
        if last.is_some() {
            send.send(()).unwrap();
        }
        drop(last);
    });
    // Only one worker runs the items of a bottom-half queue, and no other worker replaces it.
    let stalls = queue("stalls").bh().build_in(&registry).unwrap();
    let (stuck, held) = mpsc::channel::<()>();
    stalls
        .spawn_detached(move || {
            let _ = held.recv();
        })
        .unwrap();
    let waits = stalls.spawn(|| ());
    receive.recv_timeout(PATIENCE).expect("no stall is told");
    plug.release();
    eventually("the item of the dropped queue ends", || ended.get() == 1);
    drop(stuck);
    waits.join().unwrap();
    assert_managed(&registry);
}

#[test]
fn what_no_reaper_could_be_had_for_is_dropped_by_the_reserve_one_by_one() {
    let registry = registry("2 core");
    let dropped = Count::default();
    let arm = || {
        let drops = dropped.clone();
        forget_armed(&registry, at_drop(move || drops.add()));
    };
    // No thread can be created at the last drop, so the fallback reaper drops the item.
    let refused = || {
        registry.refuse_threads(true);
        arm();
        eventually("the queue has gone", || registry.pool_stats().is_empty());
    };
    refused();
    eventually("the reserve comes", || dropped.get() == 1);
    let (go, gate) = mpsc::channel::<()>();
    forget_armed(&registry, at_drop(move || _ = gate.recv()));
    eventually("it waits", || registry.pool_stats().is_empty());
    refused();
    assert_eq!(dropped.get(), 1);
    drop(go);
    ends(move || shut_down(registry));
    eventually("it goes with the registry", || dropped.get() == 2);
}

#[test]
fn what_a_queue_refuses_may_change_its_attributes_when_dropped() {
    ends(|| {
        let queue = queue("shut").ordered().build_in(&registry("2 core"));
        let queue = queue.unwrap();
        queue.destroy().unwrap();
        let (closures, futures) = (queue.clone(), queue.clone());
        let dropped = at_drop(move || closures.set_attrs(|attrs| attrs.nice = 3).unwrap());
        let refused = queue.spawn(move || drop(dropped)).join();
        assert!(matches!(refused, Err(JoinError::Closed)));
        let dropped = at_drop(move || futures.set_attrs(|attrs| attrs.nice = 4).unwrap());
        let refused = queue.spawn_async(async move { drop(dropped) }).join();
        assert!(matches!(refused, Err(JoinError::Closed)));
    });
}

/// Calls a closure when it is first woken.
struct AtWake(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for AtWake {
    fn wake(self: Arc<Self>) {
        if let Some(func) = self.0.lock().unwrap().take() {
            func();
        }
    }
}

/// Makes a task that awaits a drain call `func`. The drain ends when `enqueue` queues an item that
/// was cancelled on the drained queue.
fn awaits_a_drain(enqueue: impl FnOnce(&Work), func: impl FnOnce() + Send + 'static) {
    let registry = registry("1 core");
    let other = queue("other").build_in(&registry).unwrap();
    other.pause();
    let work = Work::new(|| ());
    assert!(other.enqueue(&work));
    let waker = Waker::from(Arc::new(AtWake(Mutex::new(Some(Box::new(func))))));
    let mut drain = std::pin::pin!(other.drain_async());
    let polled = drain.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending() && work.cancel());
    enqueue(&work);
    work.flush().unwrap();
}

type Enqueue = fn(&Workqueue, &Work) -> bool;

#[test]
fn a_task_that_an_enqueue_tells_of_a_drain_may_change_the_queues_attributes() {
    let ways: [Enqueue; 5] = [
        |queue, work| queue.enqueue(work),
        |queue, work| queue.task().on_cpu(CpuId::new(0)).enqueue(work),
        |queue, work| queue.task().on_node(0).enqueue(work),
        |queue, work| queue.enqueue_all(std::slice::from_ref(work)) == 1,
        |queue, work| queue.task().try_reserve().unwrap().enqueue(work),
    ];
    for way in ways {
        ends(move || {
            let ordered = queue("ordered").ordered();
            let ordered = ordered.build_in(&registry("1 core")).unwrap();
            let (theirs, (send, receive)) = (ordered.clone(), mpsc::channel());
            let change = move || {
                theirs.set_attrs(|attrs| attrs.nice = 3).unwrap();
                send.send(()).unwrap();
            };
            awaits_a_drain(|work| assert!(way(&ordered, work)), change);
            receive.recv_timeout(PATIENCE).unwrap();
            assert_eq!(ordered.attrs().nice, 3);
        });
    }
}

#[test]
fn a_task_that_is_told_of_a_drain_may_want_what_is_queued_with_the_others() {
    ends(|| {
        let registry = registry("1 core");
        let [all, third] = ["all", "third"].map(|it| queue(it).build_in(&registry).unwrap());
        all.pause();
        let (first, count) = (Work::new(|| ()), Count::default());
        let (theirs, third_too) = (first.clone(), third.clone());
        let counted = count.clone();
        let move_it = move || {
            assert!(theirs.cancel() && third_too.enqueue(&theirs));
            counted.add();
        };
        let both = |work: &Work| {
            assert_eq!(all.enqueue_all(&[first.clone(), work.clone()]), 2);
            all.resume();
        };
        awaits_a_drain(both, move_it);
        assert_eq!(count.get(), 1);
        first.flush().unwrap();
        third.drain().unwrap();
    });
}

#[test]
fn a_task_that_a_cancel_tells_of_a_drain_may_want_the_item() {
    let wishes: [fn(&Work, &Workqueue); 4] = [
        |work, _| assert!(!work.cancel()),
        |work, _| assert!(!work.cancel_sync()),
        |work, _| _ = work.flush(),
        |work, other| assert!(other.enqueue(work)),
    ];
    for wish in wishes {
        ends(move || {
            let registry = registry("1 core");
            let ordered = queue("ordered").ordered().build_in(&registry).unwrap();
            let other = queue("other").build_in(&registry).unwrap();
            ordered.pause();
            let (work, (send, receive)) = (Work::new(|| ()), mpsc::channel());
            assert!(ordered.enqueue(&work));
            let theirs = work.clone();
            let want = move || {
                wish(&theirs, &other);
                send.send(()).unwrap();
            };
            let waker = Waker::from(Arc::new(AtWake(Mutex::new(Some(Box::new(want))))));
            let mut drain = std::pin::pin!(ordered.drain_async());
            let polled = drain.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending() && work.cancel());
            receive.recv_timeout(PATIENCE).unwrap();
        });
    }
}
