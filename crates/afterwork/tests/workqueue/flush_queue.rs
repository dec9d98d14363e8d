//! Flushes of a queue.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use afterwork::workqueue::{AffinityScope, Work, Workqueue};

use crate::support::*;

/// Returns the number of threads that wait for items of the queue.
fn nr_waiting(queue: &Workqueue) -> usize {
    let text = format!("{queue:?}");
    let (_, count) = text.split_once("nr_waiting: ").unwrap();
    let count: String = count.chars().take_while(char::is_ascii_digit).collect();
    count.parse().unwrap()
}

/// Starts a flush of a queue that has a blocked item. Returns when the flush sleeps.
fn flusher(queue: &Workqueue) -> thread::JoinHandle<()> {
    let before = nr_waiting(queue);
    let flushed = queue.clone();
    let flusher = thread::spawn(move || flushed.flush().unwrap());
    eventually("the flush sleeps", || nr_waiting(queue) > before);
    flusher
}

/// Returns `true` if the flush ends within 10 ms.
fn has_ended(flusher: &thread::JoinHandle<()>) -> bool {
    holds_within(std::time::Duration::from_millis(10), || {
        flusher.is_finished()
    })
}

#[test]
fn flush_of_an_empty_queue_returns_at_once() {
    let queue = alone_on_two(queue("flush"));
    queue.flush().unwrap();
    queue.spawn(|| ()).join().unwrap();
    queue.flush().unwrap();
}

#[test]
fn flush_waits_for_all_that_was_queued_on_whatever_pool() {
    for max in [1, 3, 256] {
        let queue = queue("flush")
            .affinity(AffinityScope::Cpu)
            .max_active(max)
            .build_in(&registry("64 core"))
            .unwrap();
        let count = Count::default();
        for round in 1..30 {
            threads(4, |i| {
                pin(i);
                for _ in 0..50 {
                    let count = count.clone();
                    queue.spawn_detached(move || count.add()).unwrap();
                }
            });
            queue.flush().unwrap();
            assert_eq!(count.get(), round * 200);
        }
    }
}

#[test]
fn items_queued_after_a_flush_do_not_hold_it_up() {
    ends(|| {
        for max in [2, 256] {
            let queue = alone_on_two(queue("flush").max_active(max));
            let (first, first_hole) = stopper();
            queue.spawn_detached(move || first_hole.sit()).unwrap();
            first.wait_until_stuck();
            let flusher = flusher(&queue);
            assert!(!has_ended(&flusher));
            let (second, second_hole) = stopper();
            queue.spawn_detached(move || second_hole.sit()).unwrap();
            second.wait_until_stuck();
            first.release();
            flusher.join().unwrap();
            second.release();
            queue.drain().unwrap();
        }
    });
}

#[test]
fn a_stream_of_new_items_does_not_hold_up_a_flush() {
    ends(|| {
        let queue = alone_on_two(queue("flush"));
        let (stop, again) = (Arc::new(AtomicBool::new(false)), queue.clone());
        let stopped = stop.clone();
        let works: Vec<_> = (0..4)
            .map(|_| {
                let (stopped, again) = (stopped.clone(), again.clone());
                Work::with_handle(move |this| {
                    if !stopped.load(Ordering::SeqCst) {
                        again.enqueue(this);
                    }
                })
            })
            .collect();
        queue.enqueue_all(&works);
        for _ in 0..200 {
            queue.flush().unwrap();
        }
        stop.store(true, Ordering::SeqCst);
        queue.drain().unwrap();
    });
}

#[test]
fn many_flushes_at_once_all_end_when_what_they_wait_for_has() {
    ends(|| {
        // Uses more flushes than there are colors, each with an item of its own.
        let queue = alone_on_two(queue("colors").max_active(512));
        let mut waits = Vec::new();
        for _ in 0..40 {
            let (plug, hole) = stopper();
            queue.spawn_detached(move || hole.sit()).unwrap();
            plug.wait_until_stuck();
            waits.push((plug, flusher(&queue)));
        }
        for (_, flusher) in &waits {
            assert!(!flusher.is_finished());
        }
        // All items but the first are released. Each flush also waits for the first, so none ends.
        for (plug, _) in waits.iter().skip(1).rev() {
            plug.release();
        }
        for (_, flusher) in &waits {
            assert!(!flusher.is_finished());
        }
        waits[0].0.release();
        for (_, flusher) in waits {
            flusher.join().unwrap();
        }
        queue.flush().unwrap();
    });
}

#[test]
fn flush_waits_for_an_item_that_its_joiner_runs() {
    ends(|| {
        for pushed_by_other in [false, true] {
            let queue = alone_on_two(queue("helped"));
            let (plug, hole) = stopper();
            let over = Arc::new(AtomicBool::new(false));
            let ended = over.clone();
            if pushed_by_other {
                // The earlier item wakes a worker, which may adopt both before the joiner helps.
                queue.spawn_detached(|| ()).unwrap();
            }
            let handle = queue.spawn(move || {
                hole.sit();
                ended.store(true, Ordering::SeqCst);
            });
            let joiner = thread::spawn(move || handle.join().unwrap());
            plug.wait_until_stuck();
            let flusher = flusher(&queue);
            assert!(!has_ended(&flusher));
            plug.release();
            flusher.join().unwrap();
            assert!(over.load(Ordering::SeqCst));
            joiner.join().unwrap();
        }
    });
}

#[test]
fn an_item_helped_after_the_flush_began_does_not_hold_it_up() {
    ends(|| {
        let queue = alone_on_two(queue("helped").max_active(256));
        let first = plug_into(&queue);
        let flusher = flusher(&queue);
        assert!(!has_ended(&flusher));
        let (second, hole) = stopper();
        let handle = queue.spawn(move || hole.sit());
        let joiner = thread::spawn(move || handle.join().unwrap());
        second.wait_until_stuck();
        first.release();
        flusher.join().unwrap();
        second.release();
        joiner.join().unwrap();
    });
}

#[test]
fn what_is_helped_later_does_not_hold_up_a_flush_that_waits_for_a_helper() {
    ends(|| {
        let queue = alone_on_two(queue("helped").max_active(256));
        // Retries until the joiner, with a seat that its CPU kept, runs the item before a worker.
        let helped = |queue: &Workqueue| loop {
            let ((plug, hole), own) = (stopper(), queue.clone());
            let (sender, receiver) = mpsc::channel();
            let joiner = thread::spawn(move || {
                pin(0);
                (0..50).for_each(|_| own.spawn(|| ()).join().unwrap());
                let joiner = thread::current().id();
                let item = move || {
                    sender.send(thread::current().id() == joiner).unwrap();
                    hole.sit();
                };
                own.spawn(item).join().unwrap();
            });
            if receiver.recv().unwrap() {
                return (plug, joiner);
            }
            plug.release();
            joiner.join().unwrap();
        };
        let (first, first_joiner) = helped(&queue);
        let flusher = flusher(&queue);
        let (second, second_joiner) = helped(&queue);
        first.release();
        first_joiner.join().unwrap();
        flusher.join().unwrap();
        second.release();
        second_joiner.join().unwrap();
        queue.drain().unwrap();
    });
}

#[test]
fn flush_waits_for_items_that_have_no_seat_yet() {
    ends(|| {
        let queue = alone_on_two(queue("inactive").max_active(1).help(false));
        let plug = plug_into(&queue);
        let count = Count::default();
        let works: Vec<_> = (0..10).map(|_| counting(&count)).collect();
        assert_eq!(queue.enqueue_all(&works), 10);
        let flusher = flusher(&queue);
        assert!(!has_ended(&flusher));
        plug.release();
        flusher.join().unwrap();
        assert_eq!(count.get(), 10);
    });
}

#[test]
fn flush_waits_for_an_item_that_was_queued_again_while_it_ran() {
    ends(|| {
        let queue = alone_on_two(queue("again"));
        let (plug, hole) = stopper();
        let count = Count::default();
        let runs = count.clone();
        let work = Work::new(move || {
            hole.sit();
            runs.add();
        });
        queue.enqueue(&work);
        plug.wait_until_stuck();
        assert!(queue.enqueue(&work));
        let flusher = flusher(&queue);
        assert!(!has_ended(&flusher));
        plug.release();
        plug.wait_until_stuck();
        assert!(!has_ended(&flusher));
        plug.release();
        flusher.join().unwrap();
        assert_eq!(count.get(), 2);
    });
}

#[test]
fn a_cancelled_item_does_not_hold_up_a_flush() {
    ends(|| {
        for ordered in [false, true] {
            let builder = queue("cancel").max_active(1);
            let queue = alone_on_two(if ordered { builder.ordered() } else { builder });
            let plug = plug_into(&queue);
            let count = Count::default();
            let work = counting(&count);
            queue.enqueue(&work);
            let flusher = flusher(&queue);
            assert!(work.cancel());
            plug.release();
            flusher.join().unwrap();
            assert_eq!(count.get(), 0);
        }
    });
}

#[test]
fn flushing_a_queue_from_its_own_item_is_refused_by_name() {
    let queue = alone_on_two(queue("own"));
    let own = queue.clone();
    let error = queue
        .spawn(move || own.flush())
        .join()
        .unwrap()
        .unwrap_err();
    assert_eq!(error.queue(), "own");
    let (own, (send, receive)) = (queue.clone(), mpsc::channel());
    queue
        .spawn_detached(move || send.send(own.flush()).unwrap())
        .unwrap();
    assert!(receive.recv_timeout(PATIENCE).unwrap().is_err());
    queue.flush().unwrap();
}

#[test]
fn an_item_may_flush_another_queue_although_its_pool_has_one_worker() {
    ends(|| {
        // The monitor does not run, so only the flush itself can wake another worker.
        let registry = registry_with(
            "1 core",
            afterwork::params::Params {
                watch_tick_us: 3_600_000_000,
                ..Default::default()
            },
        );
        let outer = queue("outer").build_in(&registry).unwrap();
        let inner = queue("inner").build_in(&registry).unwrap();
        let count = Count::default();
        for _ in 0..50 {
            let (inner, count) = (inner.clone(), count.clone());
            outer
                .spawn_detached(move || {
                    let runs = count.clone();
                    inner.spawn_detached(move || runs.add()).unwrap();
                    inner.flush().unwrap();
                })
                .unwrap();
        }
        outer.flush().unwrap();
        assert_eq!(count.get(), 50);
    });
}

#[test]
fn flush_waits_for_futures_that_began_before_it_and_for_no_later_ones() {
    use std::future::{pending, poll_fn};
    ends(|| {
        let queue = alone_on_two(queue("futures"));
        let (open, waker) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(std::sync::Mutex::new(None)),
        );
        let (is_open, left) = (open.clone(), waker.clone());
        let first = queue.spawn_async(poll_fn(move |context| {
            *left.lock().unwrap() = Some(context.waker().clone());
            if is_open.load(Ordering::SeqCst) {
                std::task::Poll::Ready(7)
            } else {
                std::task::Poll::Pending
            }
        }));
        eventually("it waits", || waker.lock().unwrap().is_some());
        let flusher = flusher(&queue);
        assert!(!has_ended(&flusher));
        let mut second = queue.spawn_async(pending::<()>());
        open.store(true, Ordering::SeqCst);
        waker.lock().unwrap().take().unwrap().wake();
        flusher.join().unwrap();
        assert_eq!(first.join().unwrap(), 7);
        assert!(second.cancel());
        queue.drain().unwrap();
    });
}
