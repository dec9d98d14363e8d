//! Futures that a queue polls.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
};

use afterwork::workqueue::JoinError;

use crate::support::*;

/// Futures wait for it until any thread opens it.
#[derive(Clone, Default)]
pub struct Door(pub Arc<Mutex<(bool, Vec<Waker>)>>);

impl Door {
    pub fn open(&self) {
        let wakers = {
            let mut inside = self.0.lock().unwrap();
            inside.0 = true;
            std::mem::take(&mut inside.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    pub fn nr_waiting(&self) -> usize {
        self.0.lock().unwrap().1.len()
    }

    pub async fn pass(&self) {
        poll_fn(|context| {
            let mut inside = self.0.lock().unwrap();
            if inside.0 {
                return Poll::Ready(());
            }
            inside.1.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Wakes its own task and returns `Pending` once.
pub async fn yields() {
    let mut waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A future that publishes its task's waker, and is ready once `end` was called.
#[derive(Clone, Default)]
pub struct Lure(Arc<(Mutex<Option<Waker>>, AtomicBool)>);

impl Lure {
    pub fn waker(&self) -> Option<Waker> {
        self.0.0.lock().unwrap().clone()
    }
    pub fn is_polled(&self) -> bool {
        self.0.0.lock().unwrap().is_some()
    }
    pub fn end(&self) {
        self.0.1.store(true, Ordering::Release);
    }
}

impl Future for Lure {
    type Output = ();
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        *self.0.0.lock().unwrap() = Some(context.waker().clone());
        if self.0.1.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

#[test]
fn a_future_yields_its_value_to_the_joiner() {
    let queue = alone_on_two(queue("async"));
    assert_eq!(queue.spawn_async(async { "done" }).join().unwrap(), "done");
}

#[test]
fn a_future_that_waits_is_polled_again_when_woken_from_any_thread() {
    ends(|| {
        let queue = alone_on_two(queue("async"));
        let door = Door::default();
        let inside = door.clone();
        let handle = queue.spawn_async(async move {
            inside.pass().await;
            7
        });
        eventually("it waits", || door.nr_waiting() == 1);
        assert!(!handle.is_finished());
        thread::spawn(move || door.open()).join().unwrap();
        assert_eq!(handle.join().unwrap(), 7);
    });
}

#[test]
fn a_future_that_wakes_itself_in_its_poll_is_polled_again() {
    ends(|| {
        let queue = alone_on_two(queue("async"));
        let handle = queue.spawn_async(async {
            for _ in 0..1000 {
                yields().await;
            }
        });
        handle.join().unwrap();
        assert!(queue.stats().started >= 1001);
    });
}

#[test]
fn a_future_that_wakes_itself_lets_others_run_in_between() {
    ends(|| {
        let queue = alone_on_two(queue("fair").max_active(1));
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let spinner = queue.spawn_async(async move {
            while !seen.load(Ordering::Relaxed) {
                yields().await;
            }
        });
        queue
            .spawn(move || stop.store(true, Ordering::Relaxed))
            .join()
            .unwrap();
        spinner.join().unwrap();
    });
}

#[test]
fn a_future_is_never_polled_twice_at_once_however_often_it_is_woken() {
    ends(|| {
        let queue = alone_on_two(queue("storm"));
        let lure = Lure::default();
        let gauge = Gauge::default();
        let polls = Count::default();
        let handle = queue.spawn_async({
            let (mut lure, gauge, polls) = (lure.clone(), gauge.clone(), polls.clone());
            poll_fn(move |context| {
                gauge.within(|| {
                    polls.add();
                    thread::yield_now();
                    Pin::new(&mut lure).poll(context)
                })
            })
        });
        eventually("it is polled", || lure.is_polled());
        threads(4, |_| {
            let waker = lure.waker().unwrap();
            for _ in 0..2000 {
                waker.wake_by_ref();
            }
        });
        lure.end();
        lure.waker().unwrap().wake();
        handle.join().unwrap();
        assert_eq!(gauge.most(), 1);
        assert!(polls.get() <= 8002, "one poll a wake at most");
    });
}

#[test]
fn a_wake_of_a_pending_future_adds_no_poll() {
    ends(|| {
        let queue = alone_on_two(queue("pending").max_active(1));
        let (lure, polls) = (Lure::default(), Count::default());
        let handle = queue.spawn_async({
            let (mut lure, polls) = (lure.clone(), polls.clone());
            poll_fn(move |context| {
                polls.add();
                Pin::new(&mut lure).poll(context)
            })
        });
        eventually("it is polled", || lure.is_polled());
        let plug = plug_into(&queue);
        let waker = lure.waker().unwrap();
        (0..100).for_each(|_| waker.wake_by_ref());
        lure.end();
        plug.release();
        handle.join().unwrap();
        assert_eq!(polls.get(), 2);
    });
}

#[test]
fn max_active_bounds_the_polls_and_not_the_futures_that_wait() {
    ends(|| {
        let queue = alone_on_two(queue("bound").max_active(2));
        let (door, gauge) = (Door::default(), Gauge::default());
        let handles: Vec<_> = (0..200)
            .map(|_| {
                let (door, gauge) = (door.clone(), gauge.clone());
                queue.spawn_async(async move {
                    door.pass().await;
                    gauge.within(thread::yield_now);
                })
            })
            .collect();
        eventually("all wait", || door.nr_waiting() == 200);
        door.open();
        for handle in handles {
            handle.join().unwrap();
        }
        assert!(gauge.most() <= 2);
    });
}

#[test]
fn an_ordered_queue_polls_in_the_order_of_the_wakes() {
    ends(|| {
        let queue = alone_on_two(queue("ordered").ordered());
        let (door, order) = (Door::default(), Arc::new(Mutex::new(Vec::new())));
        let handles: Vec<_> = (0..50)
            .map(|i| {
                let (door, order) = (door.clone(), order.clone());
                queue.spawn_async(async move {
                    door.pass().await;
                    order.lock().unwrap().push(i);
                })
            })
            .collect();
        eventually("all wait", || door.nr_waiting() == 50);
        door.open();
        for handle in handles {
            handle.join().unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..50).collect::<Vec<_>>());
    });
}

#[test]
fn a_future_that_joins_itself_is_told() {
    ends(|| {
        let queue = alone_on_two(queue("self"));
        let (slot, verdict) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
        let (plug, hole) = stopper();
        let (there, said) = (slot.clone(), verdict.clone());
        let handle = queue.spawn_async(async move {
            hole.sit();
            let own: afterwork::workqueue::JoinHandle<()> = there.lock().unwrap().take().unwrap();
            *said.lock().unwrap() = Some(matches!(own.join(), Err(JoinError::OwnItem)));
        });
        plug.wait_until_stuck();
        *slot.lock().unwrap() = Some(handle);
        plug.release();
        queue.drain().unwrap();
        assert_eq!(*verdict.lock().unwrap(), Some(true));
    });
}

#[test]
fn futures_await_one_another_on_one_worker() {
    ends(|| {
        let queue = queue("nested")
            .max_active(1)
            .build_in(&registry("1 core"))
            .unwrap();
        let inner = queue.clone();
        let sum = queue.spawn_async(async move {
            let mut sum = 0;
            for i in 0..100 {
                sum += inner.spawn_async(async move { i }).await.unwrap();
                sum += inner.spawn(move || i).await.unwrap();
            }
            sum
        });
        assert_eq!(sum.join().unwrap(), 2 * 99 * 100 / 2);
    });
}

#[test]
fn a_large_future_and_its_result_arrive_whole() {
    let queue = alone_on_two(queue("large"));
    let bytes = [7u8; 4096];
    let handle = queue.spawn_async(async move {
        yields().await;
        bytes
    });
    assert_eq!(handle.join().unwrap(), [7; 4096]);
}

#[test]
fn the_task_that_awaits_a_future_is_woken_once_when_it_ends() {
    struct WakeFlag(AtomicUsize);
    impl Wake for WakeFlag {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    ends(|| {
        let queue = alone_on_two(queue("bell"));
        let lure = Lure::default();
        let mut handle = pin!(queue.spawn_async(lure.clone()));
        eventually("it is polled", || lure.is_polled());
        let wake_flag = Arc::new(WakeFlag(AtomicUsize::new(0)));
        let waker = Waker::from(wake_flag.clone());
        let mut context = Context::from_waker(&waker);
        assert!(handle.as_mut().poll(&mut context).is_pending());
        let own = lure.waker().unwrap();
        // A poll that does not complete the future does not wake the task that awaits it.
        own.wake_by_ref();
        lure.end();
        own.wake_by_ref();
        eventually("the bell rings", || wake_flag.0.load(Ordering::SeqCst) == 1);
        assert!(handle.as_mut().poll(&mut context).is_ready());
    });
}

#[test]
fn futures_wander_between_the_pods_of_their_wakers() {
    ends(|| {
        let queue = queue("pods")
            .affinity(afterwork::workqueue::AffinityScope::Cpu)
            .build_in(&registry("2 core"))
            .unwrap();
        threads(2, |i| {
            pin(i);
            let lures: Vec<Lure> = (0..50).map(|_| Lure::default()).collect();
            let handles: Vec<_> = lures
                .iter()
                .map(|lure| queue.spawn_async(lure.clone()))
                .collect();
            pin(i + 1);
            for lure in &lures {
                eventually("it is polled", || lure.is_polled());
                let waker = lure.waker().unwrap();
                waker.wake_by_ref();
                lure.end();
                waker.wake();
            }
            for handle in handles {
                handle.join().unwrap();
            }
        });
        queue.drain().unwrap();
    });
}
