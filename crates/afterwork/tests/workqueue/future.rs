//! Handles as futures, on an executor of ten lines.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
};

use afterwork::{
    wake::{Parker, Unparker},
    workqueue::JoinError,
};

use crate::support::*;

struct Unpark(Unparker);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut parker = Parker::new();
    let waker = Waker::from(Arc::new(Unpark(parker.unparker())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => parker.park(),
        }
    }
}

struct WakeFlag(Count);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.add();
    }
}

fn wake_flag() -> (Waker, Count) {
    let count = Count::default();
    (Waker::from(Arc::new(WakeFlag(count.clone()))), count)
}

#[test]
fn a_handle_is_a_future() {
    ends(|| {
        let queue = alone_on_two(queue("future"));
        for i in 0..3000 {
            assert_eq!(block_on(queue.spawn(move || i)).unwrap(), i);
        }
        assert_eq!(queue.stats().helped, 0, "a poll never runs the closure");
    });
}

#[test]
fn awaiting_many_handles_yields_all_results() {
    ends(|| {
        let queue = alone_on_two(queue("future"));
        let sum = block_on(async {
            let handles: Vec<_> = (0..500u64).map(|i| queue.spawn(move || i)).collect();
            let mut sum = 0;
            for handle in handles {
                sum += handle.await.unwrap();
            }
            sum
        });
        assert_eq!(sum, 499 * 500 / 2);
    });
}

#[test]
fn a_panic_reaches_who_awaits() {
    let queue = alone_on_two(queue("future"));
    let error = block_on(queue.spawn(|| panic!("async"))).unwrap_err();
    assert_eq!(error.to_string(), "the work item panicked: async");
}

#[test]
fn the_waker_of_the_last_poll_is_woken_once_and_no_other() {
    let queue = alone_on_two(queue("wakers"));
    let (plug, hole) = stopper();
    let mut handle = pin!(queue.spawn(move || hole.sit()));
    plug.wait_until_stuck();
    let (first, first_rung) = wake_flag();
    let (last, last_rung) = wake_flag();
    for _ in 0..3 {
        for waker in [&first, &last] {
            let polled = handle.as_mut().poll(&mut Context::from_waker(waker));
            assert!(polled.is_pending());
        }
    }
    plug.release();
    eventually("the waker is woken", || last_rung.get() > 0);
    queue.drain().unwrap();
    assert_eq!((first_rung.get(), last_rung.get()), (0, 1));
    let polled = handle.as_mut().poll(&mut Context::from_waker(&first));
    assert!(polled.is_ready());
}

#[test]
fn polls_with_ever_new_wakers_never_lose_the_last_one() {
    ends(|| {
        let queue = alone_on_two(queue("wakers"));
        for _ in 0..1000 {
            let mut handle = pin!(queue.spawn(|| 9));
            loop {
                let (waker, rung) = wake_flag();
                match handle.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(value) => break assert_eq!(value.unwrap(), 9),
                    Poll::Pending => {
                        let (newer, newer_rung) = wake_flag();
                        if handle
                            .as_mut()
                            .poll(&mut Context::from_waker(&newer))
                            .is_pending()
                        {
                            eventually("the newer waker is woken", || newer_rung.get() == 1);
                            assert!(rung.get() <= 1);
                        } else {
                            break;
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn a_polled_handle_may_be_joined_cancelled_or_dropped() {
    let queue = alone_on_two(queue("polled").max_active(1));
    let (waker, rung) = wake_flag();
    let census = Census::default();
    let poll = |handle: &mut afterwork::workqueue::JoinHandle<Life>| {
        pin!(handle)
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    };
    let plug = plug_into(&queue);
    let spawn = || {
        let life = census.life();
        queue.spawn(move || life)
    };
    let (mut joined, mut cancelled, mut dropped) = (spawn(), spawn(), spawn());
    assert!(poll(&mut joined) && poll(&mut cancelled) && poll(&mut dropped));
    assert!(cancelled.cancel());
    assert!(matches!(cancelled.join(), Err(JoinError::Cancelled)));
    drop(dropped);
    plug.release();
    drop(joined.join().unwrap());
    queue.drain().unwrap();
    census.all_dropped(3);
    assert!(rung.get() <= 2, "only those that ran tell");
}

#[test]
fn wakers_are_dropped_with_their_handles() {
    struct Held(#[expect(dead_code, reason = "held to be counted")] Life);
    impl Wake for Held {
        fn wake(self: Arc<Self>) {}
    }
    let queue = alone_on_two(queue("wakers").max_active(1));
    let census = Census::default();
    for i in 0..200 {
        let plug = plug_into(&queue);
        let waker = Waker::from(Arc::new(Held(census.life())));
        let mut handle = queue.spawn(|| ());
        assert!(
            pin!(&mut handle)
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        drop(waker);
        match i % 3 {
            0 => drop(handle),
            1 => drop(handle.cancel()),
            _ => {
                plug.release();
                handle.join().unwrap();
                continue;
            }
        }
        plug.release();
    }
    queue.drain().unwrap();
    census.all_dropped(200);
}

#[test]
fn a_future_moves_between_threads_while_it_waits() {
    ends(|| {
        let queue = alone_on_two(queue("moves"));
        for i in 0..500 {
            let handle = Arc::new(Mutex::new(Some(queue.spawn(move || i))));
            let (waker, _) = wake_flag();
            let there = handle.clone();
            std::thread::spawn(move || {
                let mut handle = there.lock().unwrap();
                let polled = pin!(handle.as_mut().unwrap()).poll(&mut Context::from_waker(&waker));
                if let Poll::Ready(value) = polled {
                    assert_eq!(value.unwrap(), i);
                    handle.take();
                }
            })
            .join()
            .unwrap();
            let left = handle.lock().unwrap().take();
            if let Some(handle) = left {
                assert_eq!(block_on(handle).unwrap(), i);
            }
        }
    });
}
