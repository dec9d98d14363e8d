//! Scopes, `for_each_*` and `join`: borrowed data, and owners that depend on no other thread.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, panic_any},
    sync::{
        Barrier, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, ThreadId},
};

use afterwork::workqueue::{Builder, Workqueue};

use crate::support::*;

fn pool() -> Workqueue {
    alone_on_two(queue("scope"))
}

/// Runs a scope of `count` items. Returns the threads that ran them.
fn threads_of(queue: &Workqueue, count: usize) -> Vec<ThreadId> {
    let threads = Mutex::new(Vec::new());
    queue.scope(|s| {
        for _ in 0..count {
            s.spawn(|| threads.lock().unwrap().push(thread::current().id()));
        }
    });
    let threads = threads.into_inner().unwrap();
    assert_eq!(threads.len(), count);
    threads
}

/// Checks that a scope, `for_each_range` and `join` run on the calling thread alone.
fn owner_does_it_all(queue: &Workqueue) {
    let me = thread::current().id();
    assert!(threads_of(queue, 100).iter().all(|&it| it == me));
    let is_me = || assert_eq!(thread::current().id(), me);
    let nr_done = AtomicUsize::new(0);
    queue.for_each_range(0..1000, |range| {
        is_me();
        nr_done.fetch_add(range.len(), Ordering::Relaxed);
    });
    assert_eq!(nr_done.into_inner(), 1000);
    queue.join(is_me, is_me);
}

#[test]
fn items_of_a_scope_change_what_they_borrow() {
    ends(|| {
        let queue = pool();
        let mut numbers = vec![0u64; 1000];
        queue.scope(|s| {
            for (i, chunk) in numbers.chunks_mut(7).enumerate() {
                s.spawn(move || chunk.fill(i as u64));
            }
        });
        for (i, number) in numbers.into_iter().enumerate() {
            assert_eq!(number, i as u64 / 7);
        }
    });
}

#[test]
fn a_scope_returns_what_its_body_returns_and_may_be_empty() {
    assert_eq!(pool().scope(|_| 7), 7);
}

#[test]
fn items_that_items_bring_end_before_the_scope_does() {
    ends(|| {
        let queue = pool();
        let nr_ended = AtomicUsize::new(0);
        for _ in 0..50 {
            nr_ended.store(0, Ordering::Relaxed);
            queue.scope(|s| {
                for _ in 0..10 {
                    s.spawn(|| {
                        for _ in 0..10 {
                            s.spawn(|| {
                                nr_ended.fetch_add(1, Ordering::Relaxed);
                            });
                        }
                    });
                }
            });
            assert_eq!(nr_ended.load(Ordering::Relaxed), 100);
        }
    });
}

#[test]
fn workers_start_items_while_the_body_is_under_way() {
    ends(|| {
        let queue = pool();
        let both = Barrier::new(2);
        queue.scope(|s| {
            s.spawn(|| {
                both.wait();
            });
            both.wait();
        });
    });
}

#[test]
fn items_that_wait_for_each_other_run_on_as_many_threads() {
    ends(|| {
        let queue = pool();
        let all = Barrier::new(2);
        queue.scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    all.wait();
                });
            }
        });
        // The owner and one guest run one of the two elements each.
        queue.for_each_range(0..2, |_| {
            all.wait();
        });
        queue.join(|| all.wait(), || all.wait());
    });
}

#[test]
fn the_owner_of_a_scope_does_all_itself_on_a_paused_queue() {
    ends(|| {
        let queue = pool();
        queue.pause();
        owner_does_it_all(&queue);
        queue.resume();
    });
}

#[test]
fn a_scope_needs_no_seat() {
    ends(|| {
        let queue = alone_on_two(queue("full").max_active(1));
        let plug = plug_into(&queue);
        owner_does_it_all(&queue);
        plug.release();
    });
}

#[test]
fn a_scope_ends_inside_an_item_of_its_own_queue() {
    for kind in [|it: Builder| it.max_active(1), |it: Builder| it.ordered()] {
        ends(move || {
            let queue = alone_on_two(kind(queue("own")));
            let inner = queue.clone();
            queue
                .spawn(move || owner_does_it_all(&inner))
                .join()
                .unwrap();
        });
    }
}

#[test]
fn a_scope_needs_no_thread() {
    ends(|| {
        let registry = registry("1 core");
        let sleeps = queue("sleeps").build_in(&registry).unwrap();
        let queue = queue("scope").build_in(&registry).unwrap();
        registry.refuse_threads(true);
        let (plug, hole) = stopper();
        // The manager runs this item, because there is no other thread.
        sleeps.spawn_detached(move || hole.sit()).unwrap();
        plug.wait_until_stuck();
        owner_does_it_all(&queue);
        plug.release();
    });
}

#[test]
fn a_scope_ends_while_its_queue_is_drained_by_another_thread() {
    ends(|| {
        let queue = pool();
        let plug = plug_into(&queue);
        let drains = queue.clone();
        let drainer = thread::spawn(move || drains.drain().unwrap());
        eventually("it is drained", || queue.try_spawn(|| ()).is_err());
        owner_does_it_all(&queue);
        plug.release();
        drainer.join().unwrap();
    });
}

#[test]
fn a_queue_may_be_drained_and_destroyed_inside_a_scope_of_its_own() {
    ends(|| {
        let queue = pool();
        let nr_ended = AtomicUsize::new(0);
        let end = || {
            nr_ended.fetch_add(1, Ordering::Relaxed);
        };
        queue.scope(|s| {
            s.spawn(end);
            queue.drain().unwrap();
            s.spawn(end);
            queue.destroy().unwrap();
            s.spawn(end);
        });
        assert_eq!(nr_ended.load(Ordering::Relaxed), 3);
        owner_does_it_all(&queue);
    });
}

#[test]
fn items_of_a_scope_on_an_ordered_queue_run_one_at_a_time_in_their_order() {
    ends(|| {
        let queue = alone_on_two(queue("ordered").ordered());
        let gauge = Gauge::default();
        for _ in 0..20 {
            let order = Mutex::new(Vec::new());
            queue.scope(|s| {
                for i in 0..50 {
                    let (gauge, order) = (&gauge, &order);
                    s.spawn(move || {
                        gauge.within(|| {
                            thread::yield_now();
                            order.lock().unwrap().push(i);
                        })
                    });
                }
            });
            assert_eq!(order.into_inner().unwrap(), (0..50).collect::<Vec<_>>());
        }
        assert_eq!(gauge.most(), 1);
    });
}

#[test]
fn an_owner_that_waits_starts_what_a_guest_brings() {
    ends(|| {
        // With one seat there is one guest.
        let queue = alone_on_two(queue("one").max_active(1));
        for _ in 0..20 {
            let (send, receive) = mpsc::channel();
            let (started, has_started) = mpsc::channel();
            let owner = thread::current().id();
            queue.scope(|s| {
                s.spawn(move || {
                    started.send(()).unwrap();
                    s.spawn(move || send.send(thread::current().id()).unwrap());
                    assert_eq!(receive.recv_timeout(PATIENCE), Ok(owner));
                });
                has_started.recv_timeout(PATIENCE).unwrap();
            });
        }
    });
}

/// An item takes a lock and joins a second part that another thread has taken. At the same time an
/// item arrives that needs the lock. A thread that runs any item while it waits would run this one
/// inside the first, and deadlock.
#[test]
fn an_owner_that_holds_a_lock_never_runs_what_wants_it() {
    ends(|| {
        let queue = alone_on_two(queue("locks").max_active(16));
        let lock = Mutex::new(0);
        let (taken, came) = (Barrier::new(3), AtomicBool::new(false));
        queue.scope(|s| {
            s.spawn(|| {
                let mut locked = lock.lock().unwrap();
                let first = || {
                    taken.wait();
                };
                let second = || {
                    taken.wait();
                    while !came.load(Ordering::Acquire) {
                        thread::yield_now();
                    }
                };
                queue.join(first, second);
                *locked += 1;
            });
            taken.wait();
            s.spawn(|| *lock.lock().unwrap() += 1);
            queue.spawn_detached(|| ()).unwrap();
            came.store(true, Ordering::Release);
        });
        assert_eq!(lock.into_inner().unwrap(), 2);
    });
}

#[test]
fn scopes_end_that_are_opened_under_a_lock_which_their_siblings_want() {
    ends(|| {
        for max_active in [1, 2, 16] {
            let queue = alone_on_two(queue("locks").max_active(max_active));
            let lock = Mutex::new(0);
            queue.scope(|outer| {
                for _ in 0..50 {
                    outer.spawn(|| {
                        let mut locked = lock.lock().unwrap();
                        let sum = AtomicU32::new(0);
                        queue.scope(|inner| {
                            for _ in 0..10 {
                                inner.spawn(|| {
                                    thread::yield_now();
                                    sum.fetch_add(1, Ordering::Relaxed);
                                });
                            }
                        });
                        queue.join(thread::yield_now, thread::yield_now);
                        queue.for_each_range(0..10, |_| thread::yield_now());
                        *locked += sum.into_inner();
                    });
                }
            });
            assert_eq!(lock.into_inner().unwrap(), 500);
        }
    });
}

#[test]
fn tickets_that_nobody_came_to_do_not_pile_up() {
    ends(|| {
        for kind in [|it: Builder| it.max_active(4), |it: Builder| it.ordered()] {
            let registry = registry("2 core");
            let queue = kind(queue("paused")).build_in(&registry).unwrap();
            queue.pause();
            for _ in 0..3000 {
                queue.scope(|s| s.spawn(|| ()));
                queue.join(|| (), || ());
                queue.for_each_range(0..2, |_| ());
            }
            let nr_pending: usize = registry.pool_stats().iter().map(|it| it.nr_pending).sum();
            let nr_inactive = queue.stats().nr_inactive;
            assert!(
                nr_pending + nr_inactive < 1000,
                "{nr_pending} {nr_inactive}"
            );
            queue.resume();
        }
    });
}

fn text_of(payload: Box<dyn std::any::Any + Send>) -> &'static str {
    payload.downcast_ref::<&str>().unwrap()
}

fn panic_of(body: impl FnOnce()) -> &'static str {
    text_of(catch_unwind(AssertUnwindSafe(body)).expect_err("it panics"))
}

#[test]
fn the_first_panic_goes_on_when_all_items_have_ended_and_others_are_told() {
    ends(|| {
        let nr_reported = Count::default();
        let in_handler = nr_reported.clone();
        let queue = alone_on_two(queue("panics").on_panic(move |_| in_handler.add()));
        queue.pause();
        let nr_ended = AtomicUsize::new(0);
        let text = panic_of(|| {
            queue.scope(|s| {
                s.spawn(|| panic_any("first"));
                for _ in 0..5 {
                    s.spawn(|| {
                        nr_ended.fetch_add(1, Ordering::Relaxed);
                    });
                    s.spawn(|| panic_any("later"));
                }
            });
        });
        assert_eq!((text, nr_ended.into_inner()), ("first", 5));
        assert_eq!((nr_reported.get(), queue.stats().panicked), (5, 6));
        queue.resume();
    });
}

#[test]
fn a_panic_on_a_worker_is_the_owners() {
    ends(|| {
        let queue = pool();
        let both = Barrier::new(2);
        let text = panic_of(|| {
            queue.scope(|s| {
                s.spawn(|| {
                    both.wait();
                    panic_any("on a worker");
                });
                both.wait();
            });
        });
        assert_eq!(text, "on a worker");
        let text = panic_of(|| {
            queue.join(
                || both.wait(),
                || {
                    both.wait();
                    panic_any("second");
                },
            );
        });
        assert_eq!(text, "second");
    });
}

#[test]
fn a_body_that_panics_waits_for_its_items_first() {
    ends(|| {
        let queue = pool();
        for _ in 0..100 {
            let mut numbers = [0; 64];
            let text = panic_of(|| {
                queue.scope(|s| {
                    for number in &mut numbers {
                        s.spawn(|| *number = 1);
                    }
                    s.spawn(|| panic_any("an item"));
                    panic_any("the body")
                });
            });
            assert_eq!((text, numbers), ("the body", [1; 64]));
        }
    });
}

/// A value whose destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic_any("a bomb")
    }
}

#[test]
fn what_parts_returned_may_panic_when_it_is_dropped_beside_another_panic() {
    ends(|| {
        let queue = pool();
        let of_scope = || {
            queue.scope(|s| {
                s.spawn(|| panic_any("an item"));
                Bomb
            });
        };
        assert_eq!(panic_of(of_scope), "an item");
        // The owner's part continues when a guest has arrived.
        let both = Barrier::new(2);
        let panics = |what| {
            both.wait();
            panic_any(what)
        };
        let returns = || {
            both.wait();
            Bomb
        };
        assert_eq!(
            panic_of(|| {
                queue.join(|| panics("first"), returns);
            }),
            "first"
        );
        assert_eq!(
            panic_of(|| {
                queue.join(returns, || panics("second"));
            }),
            "second"
        );
    });
}

#[test]
fn of_a_join_the_first_panic_goes_on_and_a_second_part_that_was_not_taken_is_dropped() {
    ends(|| {
        let queue = pool();
        queue.pause();
        let lives = Census::default();
        let life = lives.life();
        let second_ran = AtomicBool::new(false);
        let second = || {
            let _life = life;
            second_ran.store(true, Ordering::Relaxed);
        };
        assert_eq!(
            panic_of(|| {
                queue.join(|| panic_any("first"), second);
            }),
            "first"
        );
        assert!(!second_ran.into_inner());
        lives.all_dropped(1);
        assert_eq!(
            panic_of(|| {
                queue.join(|| 1, || panic_any("second"));
            }),
            "second"
        );
        queue.resume();
        let both = Barrier::new(2);
        let first = || {
            both.wait();
            panic_any("first")
        };
        let second = || {
            both.wait();
            panic_any("second")
        };
        assert_eq!(
            panic_of(|| {
                queue.join(first, second);
            }),
            "first"
        );
    });
}

/// Calls `for_each_range`, and checks that it visits each element once.
fn covers(queue: &Workqueue, range: Range<usize>, work: impl Fn() + Sync) {
    let marks: Vec<_> = range.clone().map(|_| AtomicU32::new(0)).collect();
    queue.for_each_range(range.clone(), |part| {
        assert!(!part.is_empty());
        for i in part {
            marks[i - range.start].fetch_add(1, Ordering::Relaxed);
            work();
        }
    });
    assert!(marks.into_iter().all(|mark| mark.into_inner() == 1));
}

#[test]
fn pieces_cover_a_range_once_whatever_an_element_takes() {
    ends(|| {
        let queue = pool();
        for len in (0..40).chain([1000, 1001, 65_536]) {
            covers(&queue, 0..len, || ());
            covers(&queue, 17..17 + len, || ());
        }
        covers(&queue, usize::MAX - 100..usize::MAX, thread::yield_now);
        covers(&queue, 0..200, || {
            let end = sync::time::now_ns() + 50_000;
            while sync::time::now_ns() < end {}
        });
        #[expect(clippy::reversed_empty_ranges)]
        queue.for_each_range(5..3, |_| unreachable!("it is empty"));
    });
}

#[test]
fn a_range_of_any_length_is_walked() {
    ends(|| {
        let queue = pool();
        let (least, most) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
        let nr_elements = AtomicUsize::new(0);
        let len = (1 << 40) + 12_345;
        queue.for_each_range(7..7 + len, |part| {
            least.fetch_min(part.start, Ordering::Relaxed);
            most.fetch_max(part.end, Ordering::Relaxed);
            nr_elements.fetch_add(part.len(), Ordering::Relaxed);
        });
        let ends = (least.into_inner(), most.into_inner());
        assert_eq!((ends, nr_elements.into_inner()), ((7, 7 + len), len));
    });
}

#[test]
fn chunks_are_changed_in_place() {
    ends(|| {
        let queue = pool();
        let mut texts: Vec<_> = (0..5000).map(|i| i.to_string()).collect();
        for size in [1, 7, 4999, 5000, usize::MAX] {
            queue.for_each_chunk_mut(&mut texts, size, |_, chunk| {
                for text in chunk {
                    text.push('!');
                }
            });
            let nr_chunks = AtomicUsize::new(0);
            queue.for_each_chunk(&texts, size, |number, chunk| {
                nr_chunks.fetch_add(1, Ordering::Relaxed);
                let start = number * size;
                assert!(chunk[0].starts_with(&start.to_string()));
                assert_eq!(chunk.len(), size.min(5000 - start), "a whole chunk");
            });
            assert_eq!(nr_chunks.into_inner(), 5000_usize.div_ceil(size));
        }
        assert!(
            texts
                .iter()
                .enumerate()
                .all(|(i, it)| *it == format!("{i}!!!!!"))
        );
        queue.for_each_chunk_mut(&mut [(); 0], 1, |_, _| unreachable!("it is empty"));
    });
}

#[test]
fn results_of_pieces_are_reduced_to_one() {
    ends(|| {
        let queue = pool();
        let sum = |range: std::ops::Range<usize>| range.sum::<usize>();
        for len in [1, 2, 1000, 100_000] {
            let all = queue.map_reduce(0..len, sum, |a, b| a + b);
            assert_eq!(all, Some(len * (len - 1) / 2));
        }
        assert_eq!(queue.map_reduce(5..5, sum, |a, b| a + b), None);
        let text = panic_of(|| {
            _ = queue.map_reduce(0..1000, sum, |_, _| panic!("in a reduction"));
        });
        assert_eq!(text, "in a reduction");
    });
}

#[test]
fn no_piece_is_started_after_one_panicked_and_the_panic_goes_on() {
    ends(|| {
        let queue = pool();
        queue.pause();
        let nr_started = AtomicUsize::new(0);
        let text = panic_of(|| {
            queue.for_each_range(0..100, |_| {
                if nr_started.fetch_add(1, Ordering::Relaxed) == 3 {
                    panic_any("a piece");
                }
            });
        });
        assert_eq!((text, nr_started.into_inner()), ("a piece", 4));
        queue.resume();
    });
}

fn fib(queue: &Workqueue, n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (left, right) = queue.join(|| fib(queue, n - 1), || fib(queue, n - 2));
    left + right
}

#[test]
fn joins_nest() {
    for max_active in [1, 2, 8] {
        ends(move || {
            let queue = alone_on_two(queue("fib").max_active(max_active));
            assert_eq!(fib(&queue, 20), 6765);
            let inner = queue.clone();
            assert_eq!(queue.spawn(move || fib(&inner, 20)).join().unwrap(), 6765);
        });
    }
}

#[test]
fn joins_of_two_queues_nest_in_each_other_and_with_scopes() {
    fn mix(queues: [&Workqueue; 2], depth: u32) -> u32 {
        let Some(less) = depth.checked_sub(1) else {
            return 1;
        };
        let [here, there] = queues;
        let sum = AtomicU32::new(0);
        let add = |part| {
            sum.fetch_add(part, Ordering::Relaxed);
        };
        let (left, right) = here.join(
            || mix([there, here], less),
            || there.scope(|s| s.spawn(|| add(mix(queues, less)))),
        );
        let () = right;
        add(left);
        sum.into_inner()
    }
    ends(|| {
        let (a, b) = (pool(), alone_on_two(queue("other").max_active(1)));
        assert_eq!(mix([&a, &b], 9), 512);
    });
}

/// The chain of joins is dismantled while they run: offered, taken, and offered again.
#[test]
fn what_a_join_offers_is_the_outermost_that_was_not() {
    ends(|| {
        let queue = pool();
        let (first, second) = (Barrier::new(2), Barrier::new(2));
        queue.join(
            || {
                first.wait();
                // The outermost join has been taken. This one is offered next, and taken too.
                queue.join(
                    || {
                        second.wait();
                        queue.join(|| (), || ());
                    },
                    || {
                        second.wait();
                    },
                );
            },
            || {
                first.wait();
            },
        );
        queue.join(|| (), || ());
    });
}

#[test]
fn a_scope_is_refused_in_a_bottom_half_before_its_body() {
    ends(|| {
        let registry = registry("1 core");
        let bh = queue("bh").bh().build_in(&registry).unwrap();
        let queue = queue("scope").build_in(&registry).unwrap();
        type Owns = fn(&Workqueue);
        let owns: [Owns; 3] = [
            |queue| queue.scope(|_| unreachable!("refused")),
            |queue| queue.for_each_range(0..2, |_| unreachable!("refused")),
            |queue| {
                queue.join(|| unreachable!("refused"), || ());
            },
        ];
        for owns in owns {
            let queue = queue.clone();
            let panicked = bh.spawn(move || owns(&queue)).join().is_err();
            assert!(panicked);
        }
    });
}

#[test]
fn parts_of_a_bottom_half_queues_scope_may_wait() {
    ends(|| {
        let registry = registry("2 core");
        let bh = queue("bh").bh().build_in(&registry).unwrap();
        let others = queue("others").build_in(&registry).unwrap();
        let waits = || assert_eq!(others.spawn(|| 7).join().unwrap(), 7);
        let nests = || {
            waits();
            bh.scope(|s| s.spawn(waits));
            bh.join(waits, waits);
            others.scope(|s| s.spawn(waits));
        };
        for _ in 0..20 {
            bh.scope(|s| (0..8).for_each(|_| s.spawn(nests)));
            bh.join(nests, || bh.join(nests, nests));
            covers(&bh, 0..64, nests);
            assert_eq!(fib(&bh, 10), 55);
        }
        // The owner may be an item of the queue, although the queue's workers must not block.
        let inner = bh.clone();
        let sum = bh.spawn(move || {
            inner.scope(|s| s.spawn(|| ()));
            fib(&inner, 10)
        });
        assert_eq!(sum.join().unwrap(), 55);
    });
}

#[test]
fn closures_of_any_size_are_brought() {
    ends(|| {
        let queue = pool();
        let large = [7u8; 1000];
        let sum = AtomicU32::new(0);
        queue.scope(|s| {
            let sum = &sum;
            s.spawn(move || {
                let total = large.iter().map(|&it| u32::from(it)).sum();
                sum.fetch_add(total, Ordering::Relaxed);
            });
            s.spawn(move || {
                sum.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(sum.into_inner(), 7001);
    });
}

#[test]
fn many_owners_share_a_queue() {
    ends(|| {
        let queue = alone_on_two(queue("many").max_active(2));
        threads(4, |_| {
            for _ in 0..200 {
                let sum = AtomicU32::new(0);
                queue.scope(|s| {
                    for _ in 0..20 {
                        s.spawn(|| {
                            sum.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
                assert_eq!(sum.into_inner(), 20);
                assert_eq!(fib(&queue, 8), 21);
                covers(&queue, 0..64, || ());
            }
        });
    });
}
