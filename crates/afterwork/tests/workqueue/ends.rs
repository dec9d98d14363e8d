//! Destroying queues: on threads that must not wait, and while timers fire.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::{Context, Wake, Waker},
    thread,
    time::Duration,
};

use afterwork::{
    params::Params,
    rcu,
    workqueue::{Busy, DelayedWork, ItemPanic, RcuWork, Registry, Work, Workqueue},
};

use crate::support::*;

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_micros(50);

/// Returns a queue whose only seat is in use, and that has `nr_items` items that wait for it.
fn stuck(registry: &Registry, nr_items: usize) -> (Workqueue, Plug, Count) {
    let queue = queue("stuck").max_active(1).build_in(registry).unwrap();
    let (plug, count) = (plug_into(&queue), Count::default());
    for _ in 0..nr_items {
        let count = count.clone();
        queue.spawn_detached(move || count.add()).unwrap();
    }
    (queue, plug, count)
}

fn all_gone(registry: Registry) {
    eventually("all queues have gone", || registry.pool_stats().is_empty());
    shut_down(registry);
}

#[test]
fn a_bottom_half_item_that_drops_the_last_handle_of_another_queue_does_not_wait() {
    ends(|| {
        let registry = registry("2 core");
        let bh = queue("bh").bh().build_in(&registry).unwrap();
        for _ in 0..20 {
            let (queue, plug, count) = stuck(&registry, 100);
            bh.spawn(move || drop(queue)).join().unwrap();
            assert_eq!(count.get(), 0);
            plug.release();
            eventually("all items have run", || count.get() == 100);
        }
        drop(bh);
        all_gone(registry);
    });
}

#[test]
fn a_callback_of_rcu_that_drops_the_last_handle_does_not_wait() {
    ends(|| {
        let registry = registry("2 core");
        let (queue, plug, count) = stuck(&registry, 1);
        rcu::call(move || drop(queue));
        rcu::barrier();
        assert_eq!(count.get(), 0);
        plug.release();
        all_gone(registry);
        assert_eq!(count.get(), 1);
    });
}

#[test]
fn the_manager_that_drops_the_last_handle_does_not_wait() {
    ends(|| {
        let registry = registry("2 core");
        let (queue, plug, count) = stuck(&registry, 1);
        let (timers, others) = (
            crate::support::queue("timers").build_in(&registry).unwrap(),
            crate::support::queue("others").build_in(&registry).unwrap(),
        );
        let census = Census::default();
        let owned = (census.life(), queue);
        let work = DelayedWork::new(move || {
            let _ = &owned;
        });
        timers.enqueue_after(&work, Duration::from_millis(1));
        drop(work);
        // The manager then drops the item's last handle, unless the timer has fired before.
        let ender = thread::spawn(move || drop(timers));
        census.all_dropped(1);
        let (send, receive) = mpsc::channel();
        others.enqueue_after(&DelayedWork::new(move || send.send(()).unwrap()), SOON);
        assert_eq!(receive.recv_timeout(PATIENCE), Ok(()), "no timer fires");
        assert_eq!(count.get(), 0);
        plug.release();
        drop(others);
        ender.join().unwrap();
        all_gone(registry);
        assert_eq!(count.get(), 1);
    });
}

/// Blocks an item of `queue` that owns a handle of the queue.
fn plugged_by_its_owner(queue: &Workqueue) -> Plug {
    let own = queue.clone();
    let (plug, hole) = stopper();
    queue
        .spawn_detached(move || {
            hole.sit();
            drop(own);
        })
        .unwrap();
    plug.wait_until_stuck();
    plug
}

#[test]
fn an_end_that_gets_no_thread_is_carried_out_all_the_same() {
    ends(|| {
        for reclaims in [false, true] {
            let registry = registry("2 core");
            let builder = queue("own").max_active(1);
            let builder = if reclaims {
                builder.with_rescuer()
            } else {
                builder
            };
            let queue = builder.build_in(&registry).unwrap();
            let count = Count::default();
            let plug = plugged_by_its_owner(&queue);
            registry.refuse_threads(true);
            for _ in 0..10 {
                let count = count.clone();
                queue.spawn_detached(move || count.add()).unwrap();
            }
            drop(queue);
            plug.release();
            all_gone(registry);
            assert_eq!(count.get(), 10);
        }
    });
}

#[test]
fn a_queue_that_goes_with_an_item_cancelled_in_it_ends() {
    ends(|| {
        for refuses in [false, true] {
            let registry = registry("2 core");
            let (queue, plug, count) = stuck(&registry, 0);
            let own = queue.clone();
            let runs = count.clone();
            let work = Work::new(move || {
                let _ = &own;
                runs.add();
            });
            assert!(queue.enqueue(&work) && work.cancel());
            registry.refuse_threads(refuses);
            // From now on only the item owns the queue, and only the list refers to the item.
            drop((work, queue));
            plug.release();
            all_gone(registry);
            assert_eq!(count.get(), 0);
        }
    });
}

#[test]
fn a_panic_handler_whose_drop_waits_for_a_worker_holds_up_no_manager() {
    ends(|| {
        /// Waits for a message when it is dropped.
        struct Waits(std::sync::mpsc::Receiver<()>);
        impl Drop for Waits {
            fn drop(&mut self) {
                self.0.recv().ok();
            }
        }
        let registry = registry("2 core");
        let other = queue("other").help(false).build_in(&registry).unwrap();
        let (go, gate) = std::sync::mpsc::channel();
        let waits = std::sync::Mutex::new(Waits(gate));
        let handler = move |_: &ItemPanic<'_>| drop(waits.lock());
        let queue = queue("own")
            .nice(3)
            .on_panic(handler)
            .build_in(&registry)
            .unwrap();
        let plug = plugged_by_its_owner(&queue);
        registry.refuse_threads(true);
        drop(queue);
        plug.release();
        // The manager may be in that drop by now. It still fires timers and destroys queues.
        let has_gone = || registry.pool_stats().iter().all(|pool| pool.nice != 3);
        eventually("the queue has gone", has_gone);
        let timed = DelayedWork::new(|| ());
        assert!(other.enqueue_after(&timed, Duration::from_millis(1)));
        eventually("a timer fires", || !timed.is_pending());
        registry.refuse_threads(false);
        go.send(()).unwrap();
        drop((other, timed));
        all_gone(registry);
    });
}

#[test]
fn the_last_handle_waits_for_all_items_while_timers_fire_and_are_flushed() {
    ends(|| {
        let work = DelayedWork::new(|| ());
        let stop = Arc::new(AtomicBool::new(false));
        let flushers: Vec<_> = (0..2)
            .map(|_| {
                let (work, stop) = (work.clone(), stop.clone());
                thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        work.flush().unwrap();
                        thread::yield_now();
                    }
                })
            })
            .collect();
        for round in 0..20 {
            let registry = registry("2 core");
            for _ in 0..50 {
                let queue = queue("brief").build_in(&registry).unwrap();
                queue.enqueue_after(&work, if round % 2 == 0 { SOON } else { HOUR });
                let count = Count::default();
                for _ in 0..4 {
                    let count = count.clone();
                    queue.spawn_detached(move || count.add()).unwrap();
                }
                drop(queue);
                assert_eq!(count.get(), 4, "the drop did not wait");
                work.cancel_sync();
            }
            registry.shutdown().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        flushers.into_iter().for_each(|it| it.join().unwrap());
    });
}

#[test]
fn a_timer_goes_with_the_last_handle_of_its_queue() {
    let registry = registry("2 core");
    let other = queue("other").build_in(&registry).unwrap();
    let count = Count::default();
    let runs = count.clone();
    let work = DelayedWork::new(move || runs.add());
    let armed = || {
        let queue = queue("brief").build_in(&registry).unwrap();
        assert!(queue.enqueue_after(&work, HOUR) && work.is_pending());
        drop(queue);
    };
    armed();
    assert_eq!(work.busy(), Busy::default());
    armed();
    assert!(!work.cancel());
    armed();
    assert_eq!(work.flush(), Ok(false));
    armed();
    assert!(!other.reschedule(&work, HOUR));
    assert!(work.cancel());
    armed();
    assert!(other.enqueue_after(&work, Duration::ZERO));
    work.flush().unwrap();
    assert_eq!(count.get(), 1);
}

#[test]
fn an_item_that_waits_for_readers_is_free_when_its_queue_has_gone() {
    let registry = registry("2 core");
    let other = queue("other").build_in(&registry).unwrap();
    let brief = queue("brief").build_in(&registry).unwrap();
    let count = Count::default();
    let runs = count.clone();
    let work = RcuWork::new(move || runs.add());
    let guard = rcu::read();
    assert!(brief.task().enqueue_rcu(&work) && work.is_pending());
    drop(brief);
    assert!(!work.is_pending());
    assert!(other.task().enqueue_rcu(&work) && work.is_pending());
    drop(guard);
    // The item may have run already.
    work.flush().unwrap();
    assert_eq!(count.get(), 1);
}

/// Arms an item without handles for an hour. It owns a life of `census`.
fn arm_for_an_hour(queue: &Workqueue, census: &Census) {
    let life = census.life();
    let work = DelayedWork::new(move || {
        let _ = &life;
    });
    assert!(queue.enqueue_after(&work, HOUR));
}

#[test]
fn what_far_timers_would_have_run_goes_with_the_last_handle_of_their_queue() {
    ends(|| {
        let registry = registry("2 core");
        let (brief, other) = (
            queue("brief").build_in(&registry).unwrap(),
            queue("other").build_in(&registry).unwrap(),
        );
        let (census, others) = (Census::default(), Census::default());
        for _ in 0..100 {
            arm_for_an_hour(&brief, &census);
            arm_for_an_hour(&other, &others);
        }
        let kept = DelayedWork::new(|| ());
        assert!(brief.enqueue_after(&kept, HOUR));
        drop(brief);
        assert_eq!(census.alive(), 0);
        assert_eq!(others.alive(), 100);
        // A handle that survives its queue can be armed on another queue.
        assert!(other.enqueue_after(&kept, HOUR) && kept.cancel() && !kept.cancel());
        drop((kept, other));
        assert_eq!(others.alive(), 0);
        registry.shutdown().unwrap();
    });
}

#[test]
fn what_far_timers_would_have_run_goes_where_the_end_must_not_wait() {
    ends(|| {
        for refuses in [false, true] {
            let registry = registry("2 core");
            let queue = queue("own").build_in(&registry).unwrap();
            let census = Census::default();
            arm_for_an_hour(&queue, &census);
            let (own, (plug, hole)) = (queue.clone(), stopper());
            queue
                .spawn_detached(move || {
                    hole.sit();
                    drop(own);
                })
                .unwrap();
            plug.wait_until_stuck();
            registry.refuse_threads(refuses);
            drop(queue);
            plug.release();
            eventually("the queue has gone", || registry.pool_stats().is_empty());
            registry.refuse_threads(false);
            census.all_dropped(1);
            shut_down(registry);
        }
    });
}

/// An item of the queue waits for the destructor of a timer's item.
#[test]
fn the_end_drops_what_its_timers_would_have_run_before_it_waits_for_items() {
    ends(|| {
        let queue = alone_on_two(queue("brief"));
        let (send, receive) = mpsc::channel::<()>();
        let work = DelayedWork::new(move || drop(send.clone()));
        assert!(queue.enqueue_after(&work, HOUR));
        drop(work);
        queue
            .spawn_detached(move || _ = receive.recv().unwrap_err())
            .unwrap();
        drop(queue);
    });
}

#[test]
fn a_waker_that_a_worker_calls_between_items_may_drop_the_last_handle_of_what_it_took_next() {
    /// Drops a handle when it is woken.
    struct Drops(Mutex<Option<Workqueue>>, mpsc::Sender<()>);
    impl Wake for Drops {
        fn wake(self: Arc<Self>) {
            let handle = self.0.lock().unwrap().take();
            drop(handle);
            self.1.send(()).unwrap();
        }
    }
    ends(|| {
        let params = Params {
            max_workers: 1,
            ..Params::default()
        };
        let registry = registry_with("1 core", params);
        let build = |name| queue(name).help(false).build_in(&registry).unwrap();
        let (first, second) = (build("first"), build("second"));
        let plug = plug_into(&first);
        let items: Vec<_> = (0..4).map(|i| second.spawn(move || i)).collect();
        let (send, receiver) = mpsc::channel();
        let waker = Waker::from(Arc::new(Drops(Mutex::new(Some(second)), send)));
        let mut drain = first.drain_async();
        let polled = Pin::new(&mut drain).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        drop(plug);
        receiver.recv().unwrap();
        for (i, item) in items.into_iter().enumerate() {
            assert_eq!(item.join().unwrap(), i);
        }
        drop(drain);
        drop(first);
        shut_down(registry);
    });
}
