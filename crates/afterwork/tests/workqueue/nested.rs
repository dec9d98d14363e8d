//! Items that wait for items.

use std::{cell::RefCell, thread};

use afterwork::{
    params::Params,
    workqueue::{AffinityScope, JoinError, Work, Workqueue},
};

use crate::support::*;

fn fib(queue: &Workqueue, n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (left, right) = (queue.clone(), queue.clone());
    let left = queue.spawn(move || fib(&left, n - 1));
    let right = queue.spawn(move || fib(&right, n - 2));
    left.join().unwrap() + right.join().unwrap()
}

#[test]
fn items_that_spawn_and_join_their_own_kind_end_under_any_limit_with_help() {
    for max in [1, 2, 3, 8] {
        ends(move || {
            let queue = queue("fib")
                .max_active(max)
                .build_in(&registry("2 core"))
                .unwrap();
            let inner = queue.clone();
            assert_eq!(queue.spawn(move || fib(&inner, 12)).join().unwrap(), 144);
            drop(queue);
        });
    }
}

#[test]
fn nested_items_end_under_any_limit_when_no_joiner_stands_outside() {
    for max in [1, 2, 3] {
        ends(move || {
            let queue = queue("fib")
                .max_active(max)
                .build_in(&registry("2 core"))
                .unwrap();
            let (inner, (send, receive)) = (queue.clone(), std::sync::mpsc::channel());
            queue
                .spawn_detached(move || send.send(fib(&inner, 11)).unwrap())
                .unwrap();
            assert_eq!(receive.recv_timeout(PATIENCE / 2), Ok(89));
            queue.drain().unwrap();
        });
    }
}

#[test]
fn a_limit_of_one_holds_for_threads_while_items_nest() {
    ends(|| {
        let queue = queue("nest")
            .max_active(1)
            .build_in(&registry("2 core"))
            .unwrap();
        let (a, b) = (queue.clone(), queue.clone());
        let most = queue
            .spawn(move || a.spawn(move || b.stats().nr_active).join().unwrap())
            .join()
            .unwrap();
        assert_eq!(most, 1);
        queue.drain().unwrap();
        assert_eq!(queue.stats().nr_active, 0);
    });
}

#[test]
fn nested_items_of_two_queues_in_turn_end() {
    ends(|| {
        /// Returns the depth that it reached.
        fn dive(here: &Workqueue, there: &Workqueue, depth: u32) -> u32 {
            if depth == 0 {
                return 0;
            }
            let (a, b) = (here.clone(), there.clone());
            let joiner = thread::current().id();
            let inner = there.spawn(move || {
                // If a worker runs the item, it has no seat for the inner items.
                let helped = thread::current().id() == joiner;
                1 + if helped { dive(&b, &a, depth - 1) } else { 0 }
            });
            inner.join().unwrap()
        }
        let registry = registry("2 core");
        let first = queue("first").max_active(1).build_in(&registry).unwrap();
        let second = queue("second").max_active(1).build_in(&registry).unwrap();
        while dive(&first, &second, 40) < 40 {}
        first.drain().unwrap();
        second.drain().unwrap();
    });
}

#[test]
fn nested_items_end_without_help_while_there_are_seats() {
    for scope in [AffinityScope::System, AffinityScope::Cpu] {
        ends(move || {
            let queue = queue("fib").help(false).affinity(scope).max_active(512);
            let queue = queue.build_in(&registry("2 core")).unwrap();
            let inner = queue.clone();
            assert_eq!(queue.spawn(move || fib(&inner, 8)).join().unwrap(), 21);
            assert_eq!(queue.stats().helped, 0);
            drop(queue);
        });
    }
}

#[test]
fn a_deep_chain_of_joins_ends() {
    fn dive(queue: &Workqueue, depth: u32) -> u32 {
        if depth == 0 {
            return 0;
        }
        let inner = queue.clone();
        1 + queue.spawn(move || dive(&inner, depth - 1)).join().unwrap()
    }
    ends(|| {
        let queue = alone_on_two(queue("deep"));
        assert_eq!(dive(&queue, 300), 300);
        let without = queue_without_help();
        assert_eq!(dive(&without, 60), 60);
    });
}

fn queue_without_help() -> Workqueue {
    alone_on_two(queue("deep").help(false))
}

#[test]
fn a_panic_climbs_through_nested_joins() {
    ends(|| {
        let queue = alone_on_two(queue("climb"));
        let inner = queue.clone();
        let outer = queue.spawn(move || {
            let Err(error) = inner.spawn(|| panic!("deep down")).join();
            error.resume_unwind();
        });
        match outer.join() {
            Err(error @ JoinError::Panicked(_)) => {
                assert_eq!(error.to_string(), "the work item panicked: deep down");
            }
            other => panic!("{other:?}"),
        }
        queue.drain().unwrap();
        assert_eq!(queue.stats().panicked, 2);
    });
}

#[test]
fn joining_in_a_pool_of_few_workers_without_help_needs_no_watch() {
    ends(|| {
        // The monitor does not run, so only reports of joiners can start more workers.
        let params = Params {
            watch_tick_us: 3_600_000_000,
            ..Params::default()
        };
        let registry = registry_with("1 core", params);
        let queue = queue("report").help(false).build_in(&registry).unwrap();
        let inner = queue.clone();
        assert_eq!(queue.spawn(move || fib(&inner, 6)).join().unwrap(), 8);
        drop(queue);
    });
}

#[test]
fn an_item_may_flush_and_cancel_what_belongs_to_others() {
    ends(|| {
        let registry = registry("2 core");
        let (outer, inner) = (queue("outer"), queue("inner"));
        let (outer, inner) = (
            outer.build_in(&registry).unwrap(),
            inner.build_in(&registry).unwrap(),
        );
        let count = Count::default();
        let handles: Vec<_> = (0..50)
            .map(|_| {
                let (inner, work) = (inner.clone(), counting(&count));
                outer.spawn(move || {
                    inner.enqueue(&work);
                    work.flush().unwrap();
                    inner.enqueue(&work);
                    inner.flush().unwrap();
                    inner.enqueue(&work);
                    work.cancel_sync();
                    assert!(!work.is_busy());
                })
            })
            .collect();
        for handle in handles {
            handle.join().unwrap();
        }
        assert!(count.get() >= 100);
    });
}

#[test]
fn an_item_that_cancels_itself_from_within_one_that_it_helps_does_not_wait() {
    ends(|| {
        let queue = alone_on_two(queue("own").max_active(1));
        let inner_queue = queue.clone();
        let (send, receive) = std::sync::mpsc::channel();
        let work = Work::with_handle(move |this| {
            let (outer, send) = (this.clone(), send.clone());
            // We hold the only seat, so no worker can run the inner item.
            let inner = Work::new(move || send.send(outer.cancel_sync()).unwrap());
            inner_queue.enqueue(&inner);
            inner.flush().unwrap();
        });
        queue.enqueue(&work);
        assert_eq!(receive.recv_timeout(PATIENCE / 4), Ok(false));
        queue.drain().unwrap();
    });
}

/// Spawns an item that calls `descend` with `depth - 1`. Returns the depth that it reached.
fn descend(queue: &Workqueue, depth: usize) -> usize {
    if depth == 0 {
        return 0;
    }
    let inner = queue.clone();
    let deeper = queue.spawn(move || descend(&inner, depth - 1));
    deeper.join().unwrap() + 1
}

#[test]
fn joins_nested_ten_thousand_deep_end_under_any_limit() {
    for max in [1, 2, 16] {
        ends(move || {
            let queue = queue("deep").max_active(max);
            let queue = queue.build_in(&registry("2 core")).unwrap();
            assert_eq!(descend(&queue, 10_000), 10_000);
        });
    }
}

/// A closure that a thread runs when it exits.
struct AtExit(Option<Box<dyn FnOnce()>>);

impl Drop for AtExit {
    fn drop(&mut self) {
        if let Some(body) = self.0.take() {
            body();
        }
    }
}

thread_local! {
    static AT_EXIT: RefCell<AtExit> = const { RefCell::new(AtExit(None)) };
}

#[test]
fn locals_of_the_thread_of_a_deep_join_are_dropped_outside_all_items() {
    fn dive(queue: &Workqueue, depth: u32, bottom: Box<dyn FnOnce() + Send>) {
        let inner = queue.clone();
        let deeper = queue.spawn(move || match depth {
            0 => bottom(),
            _ => dive(&inner, depth - 1, bottom),
        });
        deeper.join().unwrap();
    }
    ends(|| {
        // No other worker replaces the blocked one, so joiners help at every level.
        let registry = unwatched("1 core");
        let other = queue("other").build_in(&registry).unwrap();
        let plug = plug_into(&other);
        let queue = queue("deep").build_in(&registry).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let (go, may_go) = std::sync::mpsc::channel();
        let theirs = queue.clone();
        let at_exit = move || {
            may_go.recv().unwrap();
            sender.send(theirs.drain()).unwrap();
        };
        let bottom = || AT_EXIT.with(|place| place.borrow_mut().0 = Some(Box::new(at_exit)));
        dive(&queue, 200, Box::new(bottom));
        plug.release();
        go.send(()).unwrap();
        assert_eq!(receiver.recv_timeout(PATIENCE / 2), Ok(Ok(())));
    });
}
