//! Bulk cancels: they call user code after their last change, and return an exact count.

use std::{
    pin::{Pin, pin},
    sync::{Arc, Mutex, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use afterwork::workqueue::{
    AffinityScope, CpuId, DelayedWork, FlushError, JoinError, JoinHandle, Registry, TaskSet, Work,
    Workqueue, block_on,
};

use crate::support::*;

const LATER: Duration = Duration::from_secs(3600);

/// The calls that cancel everything on a queue.
const WAYS: [fn(&Workqueue); 2] = [
    |queue| _ = queue.cancel_all(),
    |queue| queue.clone().shutdown_background(),
];

/// Builds a paused queue with a pool for each of two CPUs.
fn two_pods(registry: &Registry) -> Workqueue {
    let queue = queue("pods").affinity(AffinityScope::Cpu);
    let queue = queue.build_in(registry).unwrap();
    queue.pause();
    queue
}

/// Both orders of the two CPUs.
const ORDERS: [[u32; 2]; 2] = [[0, 1], [1, 0]];

/// Joins an item when it is dropped or woken.
#[derive(Default)]
struct Joins(Mutex<Option<JoinHandle<()>>>);

impl Joins {
    fn of(handle: JoinHandle<()>) -> Self {
        Self(Mutex::new(Some(handle)))
    }

    fn join(&self) {
        let handle = self.0.lock().unwrap().take();
        if let Some(handle) = handle {
            assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
        }
    }
}

impl Drop for Joins {
    fn drop(&mut self) {
        self.join();
    }
}

impl Wake for Joins {
    fn wake(self: Arc<Self>) {
        self.join();
    }
}

fn is_pending_for(future: Pin<&mut impl Future>, waker: Waker) -> bool {
    matches!(future.poll(&mut Context::from_waker(&waker)), Poll::Pending)
}

#[test]
fn a_destructor_joins_an_item_of_another_pod_that_is_cancelled() {
    ends(|| {
        let registry = registry("2 core");
        for [first, second] in ORDERS {
            for way in WAYS {
                let queue = two_pods(&registry);
                let joined = queue.task().on_cpu(CpuId::new(second)).spawn(|| ());
                let joins = Joins::of(joined);
                let holder = queue
                    .task()
                    .on_cpu(CpuId::new(first))
                    .spawn(move || drop(joins));
                way(&queue);
                assert!(holder.join().is_err());
                queue.resume();
                queue.drain().unwrap();
            }
        }
    });
}

#[test]
fn destructors_join_cancelled_items_without_threads() {
    ends(|| {
        for [first, second] in ORDERS {
            let registry = registry("2 core");
            registry.refuse_threads(true);
            let queue = two_pods(&registry);
            let (dropped, all_dropped) = mpsc::channel::<()>();
            let joins = Joins::of(queue.task().on_cpu(CpuId::new(second)).spawn(|| ()));
            let holder = queue
                .task()
                .on_cpu(CpuId::new(first))
                .spawn(move || drop((joins, dropped)));
            queue.shutdown_background();
            assert!(holder.join().is_err());
            // By then the closure has been dropped.
            assert!(all_dropped.recv_timeout(PATIENCE).is_err());
            registry.refuse_threads(false);
        }
    });
}

#[test]
fn a_waker_of_a_cancelled_item_joins_another_one() {
    ends(|| {
        let registry = registry("2 core");
        for [first, second] in ORDERS {
            for way in WAYS {
                let queue = two_pods(&registry);
                let mut awaited = queue.task().on_cpu(CpuId::new(first)).spawn(|| ());
                // One item of the same pod, and one of the other pod.
                let others =
                    [first, second].map(|cpu| queue.task().on_cpu(CpuId::new(cpu)).spawn(|| ()));
                let joins = others.map(|other| Arc::new(Joins::of(other)));
                assert!(is_pending_for(
                    Pin::new(&mut awaited),
                    joins[0].clone().into()
                ));
                let mut other = queue.task().on_cpu(CpuId::new(second)).spawn(|| ());
                assert!(is_pending_for(
                    Pin::new(&mut other),
                    joins[1].clone().into()
                ));
                way(&queue);
                assert!(awaited.join().is_err() && other.join().is_err());
                queue.resume();
                queue.drain().unwrap();
            }
        }
    });
}

#[test]
fn a_waker_of_a_drain_joins_an_item_that_is_cancelled() {
    ends(|| {
        let registry = registry("2 core");
        for [first, second] in ORDERS {
            for way in WAYS {
                let queue = two_pods(&registry);
                let handle = queue.task().on_cpu(CpuId::new(first)).spawn(|| ());
                let joins = Arc::new(Joins::of(
                    queue.task().on_cpu(CpuId::new(second)).spawn(|| ()),
                ));
                let other = queue.clone();
                let mut drain = pin!(other.drain_async());
                assert!(is_pending_for(drain.as_mut(), joins.clone().into()));
                way(&queue);
                assert!(handle.join().is_err());
                eventually("the waker was called", || {
                    joins.0.try_lock().is_ok_and(|it| it.is_none())
                });
            }
        }
    });
}

/// Joins a thread when it is dropped.
struct JoinsThread(Option<thread::JoinHandle<()>>);

impl Drop for JoinsThread {
    fn drop(&mut self) {
        self.0.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_destructor_waits_for_a_producer_that_waits_for_room() {
    ends(|| {
        for way in WAYS {
            let queue = alone_on_two(queue("room").capacity(1));
            queue.pause();
            let (give, take) = mpsc::channel::<()>();
            let other = queue.clone();
            let producer = thread::spawn(move || {
                take.recv().unwrap();
                drop(other.task().wait_for_capacity().try_spawn(|| ()));
            });
            let guard = JoinsThread(Some(producer));
            let handle = queue.try_spawn(move || drop(guard)).unwrap();
            give.send(()).unwrap();
            way(&queue);
            assert!(handle.join().is_err());
            queue.resume();
            queue.drain().unwrap();
        }
    });
}

#[test]
fn a_destructor_waits_for_a_thread_that_flushes_or_drains() {
    ends(|| {
        let waits: [fn(&Workqueue); 2] = [
            |queue| queue.flush().unwrap(),
            |queue| queue.drain().unwrap(),
        ];
        for (way, wait) in WAYS
            .into_iter()
            .flat_map(|way| waits.map(|wait| (way, wait)))
        {
            let queue = two_pods(&registry("2 core"));
            let (go, gone) = mpsc::channel::<()>();
            let other = queue.clone();
            let flusher = thread::spawn(move || {
                gone.recv().unwrap();
                wait(&other);
            });
            let guard = JoinsThread(Some(flusher));
            let handle = queue
                .task()
                .on_cpu(CpuId::new(0))
                .spawn(move || drop(guard));
            drop(queue.task().on_cpu(CpuId::new(1)).spawn(|| ()));
            go.send(()).unwrap();
            way(&queue);
            assert!(handle.join().is_err());
        }
    });
}

/// Joins an item of a queue, which may have run, when it is dropped.
struct JoinsRun(Option<JoinHandle<()>>);

impl Drop for JoinsRun {
    fn drop(&mut self) {
        self.0.take().unwrap().join().unwrap();
    }
}

#[test]
fn the_end_of_a_paused_queue_resumes_it_before_dropping_timers() {
    ends(|| {
        let ways: [fn(Workqueue); 4] = [
            |queue| queue.destroy().unwrap(),
            drop,
            Workqueue::close_in_background,
            |queue| {
                queue.spawn(|| ()).cancel();
                drop(queue);
            },
        ];
        for way in ways {
            let registry = registry("2 core");
            let queue = queue("paused").help(false).build_in(&registry).unwrap();
            queue.pause();
            let joins = JoinsRun(Some(queue.spawn(|| ())));
            let work = DelayedWork::new(move || _ = &joins);
            assert!(queue.enqueue_after(&work, LATER));
            drop(work);
            way(queue);
            shut_down(registry);
        }
    });
}

#[test]
fn tickets_of_scopes_are_cancelled_and_not_counted() {
    ends(|| {
        let queue = alone_on_two(queue("tickets"));
        queue.pause();
        let count = Count::default();
        let nr_cancelled = queue.scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| count.add());
            }
            let work = counting(&count);
            assert!(queue.enqueue(&work));
            queue.cancel_all()
        });
        assert_eq!((nr_cancelled, count.get()), (1, 5));
        queue.resume();
    });
}

#[test]
fn an_item_behind_its_run_is_cancelled_and_not_counted() {
    ends(|| {
        for is_left in [false, true] {
            let queue = alone_on_two(queue("behind"));
            let (plug, hole) = stopper();
            let count = Count::default();
            let runs = count.clone();
            let work = Work::new(move || {
                runs.add();
                hole.sit();
            });
            assert!(queue.enqueue(&work));
            plug.wait_until_stuck();
            if !is_left {
                queue.pause();
            }
            assert!(queue.enqueue(&work));
            if is_left {
                eventually("a worker found the item", || {
                    format!("{work:?}").contains("handoff")
                });
                queue.pause();
            }
            let other = counting(&count);
            assert!(queue.enqueue(&other));
            assert_eq!(queue.cancel_all(), 1, "left: {is_left}");
            assert_eq!(queue.cancel_all(), 0);
            queue.resume();
            plug.release();
            queue.drain().unwrap();
            assert_eq!(count.get(), 1);
        }
    });
}

#[test]
fn an_item_that_cancels_all_is_still_the_current_one() {
    ends(|| {
        let queue = alone_on_two(queue("current"));
        let own = queue.clone();
        let (send, receive) = mpsc::channel();
        let work = Work::with_handle(move |work| {
            let awaiting = Arc::new(Joins::default());
            let mut handle = own.spawn(|| ());
            assert!(is_pending_for(Pin::new(&mut handle), awaiting.into()));
            let nr_cancelled = own.cancel_all();
            send.send((nr_cancelled, work.flush())).unwrap();
        });
        // Items that this item queues do not start.
        queue.set_max_active(1).unwrap();
        assert!(queue.enqueue(&work));
        let received = receive.recv_timeout(PATIENCE).unwrap();
        assert_eq!(received, (1, Err(FlushError::OwnItem)));
    });
}

/// Calls a closure, which waits, when it is woken.
struct WaitsWhenWoken(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl WaitsWhenWoken {
    fn waker(wait: impl FnOnce() + Send + 'static) -> Waker {
        Waker::from(Arc::new(Self(Mutex::new(Some(Box::new(wait))))))
    }
}

impl Wake for WaitsWhenWoken {
    fn wake(self: Arc<Self>) {
        let wait = self.0.lock().unwrap().take();
        if let Some(wait) = wait {
            wait();
        }
    }
}

#[test]
fn a_waker_waits_for_a_task_set_with_an_item_that_is_cancelled() {
    ends(|| {
        let queue = alone_on_two(queue("all"));
        let other = alone_on_two(self::queue("other"));
        queue.pause();
        let mut first = queue.spawn(|| ());
        let mut set = TaskSet::new(&other);
        set.add(queue.spawn(|| ()));
        let waker = WaitsWhenWoken::waker(move || {
            let result = set.join_next_blocking();
            assert!(matches!(result, Some(Err(JoinError::Cancelled))));
        });
        assert!(is_pending_for(Pin::new(&mut first), waker));
        assert_eq!(queue.cancel_all(), 2);
        queue.resume();
    });
}

#[test]
fn a_waker_waits_for_a_thread_and_a_future_that_await_items_that_are_cancelled() {
    ends(|| {
        let queue = alone_on_two(queue("all"));
        let other = alone_on_two(self::queue("other"));
        queue.pause();
        let mut first = queue.spawn(|| ());
        let [second, third] = [queue.spawn(|| ()), queue.spawn(|| ())];
        let (send, polled) = mpsc::channel();
        let note = move |mut handle: JoinHandle<()>| {
            let send = send.clone();
            std::future::poll_fn(move |context| {
                let poll = Pin::new(&mut handle).poll(context);
                send.send(()).unwrap();
                poll.map(drop)
            })
        };
        let (blocked, future) = (note(second), other.spawn_async(note(third)));
        let thread = thread::spawn(|| block_on(blocked));
        polled.recv_timeout(PATIENCE).unwrap();
        polled.recv_timeout(PATIENCE).unwrap();
        let waker = WaitsWhenWoken::waker(|| {
            thread.join().unwrap();
            future.join().unwrap();
        });
        assert!(is_pending_for(Pin::new(&mut first), waker));
        assert_eq!(queue.cancel_all(), 3);
        queue.resume();
    });
}
