//! Scopes, `for_each_*` and `join`: borrowed data, and owners that depend on no other thread.

use crate::support::*;

fn pool() -> Workqueue {
    queue("scope").alone()
}

fn meet(barrier: &Barrier) {
    barrier.wait();
}

fn increment(count: &AtomicUsize) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// Checks that a scope, `for_each_range` and `join` run on the calling thread alone.
fn owner_does_it_all(queue: &Workqueue) {
    let me = thread::current().id();
    let is_me = || assert_eq!(thread::current().id(), me);
    let nr_done = AtomicUsize::new(0);
    queue.scope(|s| {
        for _ in 0..100 {
            s.spawn(|| {
                is_me();
                increment(&nr_done);
            });
        }
    });
    queue.for_each_range(0..1000, |range| {
        is_me();
        nr_done.fetch_add(range.len(), Ordering::Relaxed);
    });
    assert_eq!(nr_done.into_inner(), 1100);
    queue.join(is_me, is_me);
}

#[test]
fn items_of_a_scope_change_borrowed_data() {
    let mut numbers = vec![0u64; 1000];
    let (large, sum) = ([7u8; 1000], AtomicUsize::new(0));
    let result = pool().scope(|s| {
        for (i, chunk) in numbers.chunks_mut(7).enumerate() {
            s.spawn(move || chunk.fill(i as u64));
        }
        let sum = &sum;
        s.spawn(move || {
            sum.fetch_add(large.iter().map(|&it| usize::from(it)).sum(), Ordering::Relaxed);
        });
        s.spawn(move || _ = sum.fetch_add(1, Ordering::Relaxed));
        "the result of the body"
    });
    assert!((0..).zip(numbers).all(|(i, number)| number == i / 7));
    assert_eq!((result, sum.into_inner()), ("the result of the body", 7001));
    // Items of items end before the scope does.
    let queue = pool();
    for _ in 0..50 {
        let nr_ended = AtomicUsize::new(0);
        queue.scope(|s| {
            for _ in 0..10 {
                s.spawn(|| (0..10).for_each(|_| s.spawn(|| increment(&nr_ended))));
            }
        });
        assert_eq!(nr_ended.into_inner(), 100);
    }
}

#[test]
fn items_that_wait_for_each_other_run_on_as_many_threads() {
    let (queue, all) = (pool(), Barrier::new(2));
    queue.scope(|s| (0..2).for_each(|_| s.spawn(|| meet(&all))));
    // The owner and one guest run one of the two elements each.
    queue.for_each_range(0..2, |_| meet(&all));
}

#[test]
fn an_owner_of_a_scope_needs_no_seat_and_no_other_thread() {
    owner_does_it_all(&queue("scope").paused());
    // The only seat is in use, and another thread drains the queue.
    let (full, plug) = queue("full").max_active(1).plugged();
    owner_does_it_all(&full);
    let drainer = drain_begun(&full);
    owner_does_it_all(&full);
    plug.release_and_join(drainer);
    // The manager runs the first item, because there is no other thread.
    let (registry, [sleeps, alone]) = ["sleeps", "alone"].map(queue).on_own(registry("1 core"));
    registry.refuse_threads(true);
    let plug = plug_into(&sleeps);
    owner_does_it_all(&alone);
    plug.release();
    // The owner may be an item of the queue.
    for queue in ordered_and_narrow() {
        queue.spawn_own(owner_does_it_all).join().unwrap();
    }
    // The queue may be drained and destroyed inside its own scope.
    let queue = pool();
    let nr_ended = AtomicUsize::new(0);
    let end = || increment(&nr_ended);
    queue.scope(|s| {
        s.spawn(end);
        queue.drain().unwrap();
        s.spawn(end);
        queue.shutdown(Duration::MAX).unwrap();
        s.spawn(end);
    });
    assert_eq!(nr_ended.load(Ordering::Relaxed), 3);
    owner_does_it_all(&queue);
}

#[test]
fn items_of_a_scope_on_an_ordered_queue_run_in_order() {
    let queue = queue("ordered").ordered().alone();
    let (gauge, log) = (Gauge::default(), Log::default());
    for _ in 0..20 {
        queue.scope(|s| {
            for i in 0..50 {
                s.spawn(move || {
                    gauge.within(|| {
                        thread::yield_now();
                        log.push(i);
                    })
                });
            }
        });
        assert!(log.take().into_iter().eq(0..50));
    }
    assert_eq!(gauge.most(), 1);
}

#[test]
fn an_owner_that_waits_starts_items_of_a_guest() {
    // With one seat there is one guest.
    let queue = queue("one").max_active(1).alone();
    for _ in 0..20 {
        let (send, receive) = mpsc::channel();
        let (has_started, owner) = (Count::default(), thread::current().id());
        queue.scope(|s| {
            s.spawn(move || {
                has_started.add();
                s.spawn(move || send.send(thread::current().id()).unwrap());
                assert_eq!(receive.recv_timeout(PATIENCE), Ok(owner));
            });
            wait_until(|| has_started.get() > 0);
        });
    }
}

/// An item takes a lock and joins a second part that another thread has taken. At the same time an
/// item arrives that needs the lock. A thread that runs any item while it waits would run this one
/// inside the first, and deadlock.
#[test]
fn an_owner_that_holds_a_lock_never_runs_items_that_need_it() {
    let queue = queue("locks").max_active(16).alone();
    let lock = Mutex::new(0);
    let (taken, came) = (Barrier::new(3), AtomicBool::new(false));
    queue.scope(|s| {
        s.spawn(|| {
            let mut locked = lock.lock().unwrap();
            let second = || {
                meet(&taken);
                while !came.load(Ordering::Acquire) {
                    thread::yield_now();
                }
            };
            queue.join(|| meet(&taken), second);
            *locked += 1;
        });
        meet(&taken);
        s.spawn(|| *lock.lock().unwrap() += 1);
        queue.detach(|| ());
        came.store(true, Ordering::Release);
    });
    assert_eq!(lock.into_inner().unwrap(), 2);
}

#[test]
fn scopes_under_a_lock_that_their_siblings_need_end() {
    for max_active in [1, 2, 16] {
        let queue = queue("locks").max_active(max_active).alone();
        let lock = Mutex::new(0);
        let hold_it = || {
            let mut locked = lock.lock().unwrap();
            let sum = AtomicUsize::new(0);
            queue.scope(|inner| {
                for _ in 0..10 {
                    inner.spawn(|| {
                        thread::yield_now();
                        increment(&sum);
                    });
                }
            });
            queue.join(thread::yield_now, thread::yield_now);
            queue.for_each_range(0..10, |_| thread::yield_now());
            *locked += sum.into_inner();
        };
        queue.scope(|outer| (0..50).for_each(|_| outer.spawn(hold_it)));
        assert_eq!(lock.into_inner().unwrap(), 500);
    }
}

#[test]
fn unused_tickets_do_not_accumulate() {
    for builder in [queue("paused").max_active(4), queue("paused").ordered()] {
        let (registry, queue) = builder.on_own(registry("2 core"));
        queue.pause();
        for _ in 0..3000 {
            queue.scope(|s| s.spawn(|| ()));
            queue.join(|| (), || ());
            queue.for_each_range(0..2, |_| ());
        }
        let nr_pending: usize = registry.pool_stats().iter().map(|it| it.nr_pending).sum();
        let nr_inactive = waiting(&queue);
        assert!(nr_pending + nr_inactive < 1000, "{nr_pending} {nr_inactive}");
    }
}

/// Returns a part that meets the other one, and then panics.
fn panics(both: &Barrier, text: &'static str) -> impl Fn() + Copy {
    move || {
        meet(both);
        panic_any(text)
    }
}

fn panic_of(body: impl FnOnce()) -> &'static str {
    let payload = catch_unwind(AssertUnwindSafe(body)).expect_err("it panics");
    payload.downcast_ref::<&str>().unwrap()
}

fn panic_of_join<T: Send, U: Send>(
    queue: &Workqueue,
    first: impl FnOnce() -> T,
    second: impl FnOnce() -> U + Send,
) -> &'static str {
    panic_of(|| drop(queue.join(first, second)))
}

#[test]
fn scopes_and_joins_resume_their_first_panic() {
    let handled = Count::default();
    let queue = queue("panics").on_panic(move |_| handled.add()).paused();
    let nr_ended = AtomicUsize::new(0);
    let text = panic_of(|| {
        queue.scope(|s| {
            s.spawn(|| panic_any("first"));
            for _ in 0..5 {
                s.spawn(|| increment(&nr_ended));
                s.spawn(|| panic_any("later"));
            }
        });
    });
    assert_eq!((text, nr_ended.into_inner()), ("first", 5));
    assert_eq!((handled.get(), queue.stats().panicked), (5, 6));
    // A join drops the part that no guest took.
    let (queue, lives, nr_runs) =
        (self::queue("scope").paused(), Census::default(), Count::default());
    let second = keeping(lives.life(), nr_runs.adder());
    assert_eq!(panic_of_join(&queue, || panic_any("first"), second), "first");
    assert_eq!(nr_runs.get(), 0);
    lives.all_dropped(1);
    assert_eq!(panic_of_join(&queue, || 1, || panic_any("second")), "second");
    queue.resume();
    let both = Barrier::new(2);
    let [first, second] = ["first", "second"].map(|text| panics(&both, text));
    assert_eq!(panic_of_join(&queue, first, second), "first");
}

#[test]
fn a_panic_on_a_worker_reaches_the_owner() {
    let (queue, both) = (pool(), Barrier::new(2));
    let panics = panics(&both, "on a worker");
    let of_scope = || {
        queue.scope(|s| {
            s.spawn(panics);
            meet(&both);
        });
    };
    assert_eq!(panic_of(of_scope), "on a worker");
    assert_eq!(panic_of_join(&queue, || meet(&both), panics), "on a worker");
    // A body that panics waits for its items first.
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
}

#[test]
fn a_result_may_panic_when_dropped_during_another_panic() {
    let queue = pool();
    let bomb = || at_drop(|| panic_any("a bomb"));
    let of_scope = || {
        queue.scope(|s| {
            s.spawn(|| panic_any("an item"));
            bomb()
        });
    };
    assert_eq!(panic_of(of_scope), "an item");
    // The owner's part continues when a guest has arrived.
    let both = Barrier::new(2);
    let panics = panics(&both, "a part");
    let returns = || {
        meet(&both);
        bomb()
    };
    assert_eq!(panic_of_join(&queue, panics, returns), "a part");
    assert_eq!(panic_of_join(&queue, returns, panics), "a part");
    // The owner itself runs both parts, and all pieces.
    queue.pause();
    assert_eq!(panic_of_join(&queue, bomb, || panic_any("alone")), "alone");
    let map = |piece: Range<usize>| {
        if piece.start > 0 {
            panic_any("a piece");
        }
        bomb()
    };
    let reduces = || drop(queue.map_reduce(0..2, map, |_, _| unreachable!("one part returns")));
    assert_eq!(panic_of(reduces), "a piece");
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
fn pieces_cover_a_range_once() {
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
    // The range may be of any length.
    let (least, most) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
    let nr_elements = AtomicUsize::new(0);
    let len = (1 << 40) + 12_345;
    pool().for_each_range(7..7 + len, |part| {
        least.fetch_min(part.start, Ordering::Relaxed);
        most.fetch_max(part.end, Ordering::Relaxed);
        nr_elements.fetch_add(part.len(), Ordering::Relaxed);
    });
    let ends = (least.into_inner(), most.into_inner());
    assert_eq!((ends, nr_elements.into_inner()), ((7, 7 + len), len));
}

#[test]
fn chunks_of_a_given_size_are_changed_in_place() {
    let queue = pool();
    let mut texts: Vec<_> = (0..5000).map(|i| i.to_string()).collect();
    for size in [1, 7, 4999, 5000, usize::MAX] {
        queue.for_each_chunk_mut(&mut texts, size, |_, chunk| {
            chunk.iter_mut().for_each(|text| text.push('!'));
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
    assert!((0..).zip(texts).all(|(i, it)| it == format!("{i}!!!!!")));
    queue.for_each_chunk_mut(&mut [(); 0], 1, |_, _| unreachable!("it is empty"));
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
        let queue = queue("fib").max_active(max_active).alone();
        assert_eq!(fib(&queue, 20), 6765);
        assert_eq!(queue.spawn_own(|own| fib(own, 20)).join().unwrap(), 6765);
    }
    // Joins of two queues nest in each other and with scopes.
    fn mix(queues: [&Workqueue; 2], depth: u32) -> u32 {
        let Some(less) = depth.checked_sub(1) else {
            return 1;
        };
        let [here, there] = queues;
        let sum = AtomicU32::new(0);
        let add = |part| _ = sum.fetch_add(part, Ordering::Relaxed);
        let (left, ()) = here.join(
            || mix([there, here], less),
            || there.scope(|s| s.spawn(|| add(mix(queues, less)))),
        );
        add(left);
        sum.into_inner()
    }
    let other = queue("other").max_active(1).alone();
    assert_eq!(mix([&pool(), &other], 9), 512);
}

/// The outermost join is offered and taken, and then the join inside it.
#[test]
fn a_join_offers_the_outermost_part_first() {
    let queue = pool();
    let (first, second) = (Barrier::new(2), Barrier::new(2));
    let inner = || {
        meet(&second);
        queue.join(|| (), || ());
    };
    let outer = || {
        meet(&first);
        // The outermost join has been taken. This one is offered and taken next.
        queue.join(inner, || meet(&second));
    };
    queue.join(outer, || meet(&first));
    queue.join(|| (), || ());
    // After many short joins, the outermost join is offered by a join inside it.
    let (queue, is_taken) = (pool(), AtomicBool::new(false));
    (0..10_000).for_each(|_| _ = queue.join(|| (), || ()));
    queue.join(
        || {
            while !is_taken.load(Ordering::Relaxed) {
                queue.join(|| (), || ());
            }
        },
        || is_taken.store(true, Ordering::Relaxed),
    );
}

#[test]
fn scope_is_rejected_in_a_bottom_half_before_its_body() {
    let [bh, queue] = [queue("bh").bh(), queue("scope")].on(&registry("1 core"));
    let owns: [fn(&Workqueue); 3] = [
        |queue| queue.scope(|_| unreachable!("refused")),
        |queue| queue.for_each_range(0..2, |_| unreachable!("refused")),
        |queue| _ = queue.join(|| unreachable!("refused"), || ()),
    ];
    owns.into_iter().for_each(|owns| is_rejected_in(&bh, &queue, owns));
}

#[test]
fn parts_of_a_bottom_half_queues_scope_may_wait() {
    let [bh, others] = [queue("bh").bh(), queue("others")].on(&registry("2 core"));
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
    let sum = bh.spawn_own(|own| {
        own.scope(|s| s.spawn(|| ()));
        fib(own, 10)
    });
    assert_eq!(sum.join().unwrap(), 55);
}

#[test]
fn results_of_pieces_are_reduced_to_one() {
    let queue = pool();
    let sum = |range: Range<usize>| range.sum::<usize>();
    for len in [1, 2, 1000, 100_000] {
        assert_eq!(queue.map_reduce(0..len, sum, |a, b| a + b), Some(len * (len - 1) / 2));
    }
    assert_eq!(queue.map_reduce(5..5, sum, |a, b| a + b), None);
    let panics = || _ = queue.map_reduce(0..1000, sum, |_, _| panic!("in a reduction"));
    assert_eq!(panic_of(panics), "in a reduction");
    // No piece starts after a panic.
    let nr_started = AtomicUsize::new(0);
    let piece = |_| {
        if nr_started.fetch_add(1, Ordering::Relaxed) == 3 {
            panic_any("a piece");
        }
    };
    let text = panic_of(|| self::queue("scope").paused().for_each_range(0..100, piece));
    assert_eq!((text, nr_started.into_inner()), ("a piece", 4));
}
