//! Closures that run once, and the handles of items and queues.

use std::marker::PhantomPinned;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::spawn_async::yields;
use crate::support::*;

#[test]
fn join_returns_the_result_of_the_closure() {
    for help in [true, false] {
        let queue = queue("join").help(help).alone();
        for i in 0..2000 {
            assert_eq!(queue.spawn(move || i + 1).join().unwrap(), i + 1);
        }
        assert_eq!(queue.stats().helped > 0, help);
    }
}

#[test]
fn a_closure_is_cancelled_before_it_starts_and_dropped_at_once() {
    for queue in ordered_and_narrow() {
        let (plug, census) = (plug_into(&queue), Census::default());
        let mut handle = queue.spawn(census.closure());
        assert!(handle.cancel());
        assert_eq!(census.dropped(), 1);
        assert_eq!((handle.cancel(), handle.is_finished()), (false, true));
        assert!(is_cancelled(handle.join()));
        plug.release_and_drain(&queue);
        census.all_dropped(1);
    }
}

#[test]
fn a_closure_that_runs_or_has_ended_is_not_cancelled() {
    let queue = queue("cancel").alone();
    let (mut handle, plug) = stuck(|hole| {
        queue.spawn(move || {
            hole.sit();
            5
        })
    });
    assert!(handle.try_join().is_none(), "it still runs");
    assert_eq!((handle.is_finished(), handle.cancel()), (false, false));
    plug.release();
    wait_until(|| handle.is_finished());
    assert!(!handle.cancel());
    assert_eq!(handle.try_join().expect("it has ended").unwrap(), 5);
}

#[test]
fn closure_and_result_are_dropped_once_for_every_handle_use() {
    let queue = queue("drops").alone();
    let (closures, results) = (Census::default(), Census::default());
    for i in 0..500 {
        let (closure, result) = (closures.life(), results.life());
        let mut handle = queue.spawn(move || {
            drop(closure);
            result
        });
        match i % 6 {
            0 => drop(handle),
            1 => drop(handle.join().unwrap()),
            2 => drop(handle.cancel()),
            3 => wait_until(|| handle.is_finished()),
            4 => drop(handle.try_join()),
            _ if handle.cancel() => (),
            _ => drop(handle.join().unwrap()),
        }
    }
    queue.drain().unwrap();
    closures.all_dropped(500);
    results.all_dropped(500);
}

#[test]
fn closures_and_results_of_any_size_arrive_whole() {
    fn check<const N: usize>(queue: &Workqueue) {
        let sent: [u8; N] = std::array::from_fn(|i| (i * 7 + N) as u8);
        assert!(queue.spawn(move || sent).join().unwrap() == sent, "{N} bytes");
        let (send, receive) = mpsc::channel();
        queue.detach(move || send.send(sent.to_vec()).unwrap());
        assert!(receive.recv_timeout(PATIENCE).unwrap() == sent, "{N} bytes, detached");
        let future = queue.spawn_async(async move {
            yields().await;
            sent
        });
        assert!(future.join().unwrap() == sent, "{N} bytes, in a future");
    }
    let queue = queue("sizes").alone();
    let small: [fn(&Workqueue); 5] =
        [check::<0>, check::<1>, check::<16>, check::<17>, check::<80>];
    let around_256 = [check::<207>, check::<208>, check::<209>, check::<256>, check::<257>];
    for _ in 0..20 {
        small.iter().chain(&around_256).for_each(|check| check(&queue));
        check::<5000>(&queue);
    }
    // The result is larger than the closure, or smaller.
    assert_eq!(queue.spawn(|| [3u64; 400]).join().unwrap(), [3; 400]);
    let large = [1u64; 400];
    assert_eq!(queue.spawn(move || large.iter().sum::<u64>()).join().unwrap(), 400);
}

#[test]
fn results_may_have_any_alignment_or_no_value() {
    #[repr(align(128))]
    struct Wide(u8);
    #[repr(align(4096))]
    struct Page(u8);
    let queue = queue("align").alone();
    for i in 0..100u8 {
        let is_aligned =
            move |wide: &Wide| wide.0 == i && std::ptr::from_ref(wide).addr().is_multiple_of(128);
        let [joined, detached] = [Wide(i), Wide(i)];
        let handle = queue.spawn(move || {
            let wide = joined;
            assert!(is_aligned(&wide));
            (wide, Page(i))
        });
        let (wide, page) = handle.join().unwrap();
        assert_eq!((wide.0, page.0), (i, i));
        queue.detach(move || assert!(is_aligned(&detached)));
    }
    assert_eq!(queue.drained().panicked, 0);
    enum Never {}
    let handle = queue.spawn(|| -> Never { panic!("never") });
    assert!(matches!(handle.join(), Err(JoinError::Panicked(_))));
}

#[test]
fn join_error_converts_like_an_error_of_a_thread() {
    fn fails() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        // The payload of a panic need not be `Sync`.
        let payload = std::cell::Cell::new(1);
        let panics = move || panic_any(payload);
        queue("error").alone().spawn(panics).join().map_err(Into::into)
    }
    let error = fails().unwrap_err().downcast::<JoinError>();
    let Ok(JoinError::Panicked(payload)) = error.map(|it| *it) else {
        panic!("another error");
    };
    assert_eq!((payload.text(), payload.downcast_ref::<u64>()), (None, None));
    assert!(payload.into_inner().is::<std::cell::Cell<i32>>());
}

#[test]
fn the_payload_of_a_panic_reaches_the_joiner() {
    for help in [true, false] {
        let queue = queue("panics").help(help).alone();
        let failed = |panics: fn()| queue.spawn(panics).join().unwrap_err();
        assert_eq!(failed(|| panic!("a text")).to_string(), "the work item panicked: a text");
        let error = failed(|| panic!("number {}", std::hint::black_box(7)));
        assert_eq!(error.to_string(), "the work item panicked: number 7");
        let error = failed(|| panic_any(41u64));
        assert_eq!(error.to_string(), "the work item panicked");
        let JoinError::Panicked(payload) = error else {
            panic!("{error}");
        };
        assert_eq!(payload.into_inner().downcast_ref::<u64>(), Some(&41));
        let error = failed(|| panic!("on"));
        let gone_on = catch_unwind(AssertUnwindSafe(|| error.resume_unwind()));
        assert_eq!(gone_on.unwrap_err().downcast_ref::<&str>(), Some(&"on"));
        assert_eq!(queue.stats().panicked, 4);
    }
}

#[test]
fn one_shots_of_threads_that_exit_leave_nothing_behind() {
    let queue = queue("many").affinity(Cpu).on(&registry("64 core"));
    let (closures, results) = (Census::default(), Census::default());
    // The threads of each round inherit the item memory of earlier threads.
    for _ in 0..5 {
        let barrier = Barrier::new(4);
        threads(4, |i| {
            pin(i);
            barrier.wait();
            let spawn = |_| {
                let (closure, result) = (closures.life(), results.life());
                queue.spawn(move || {
                    drop(closure);
                    result
                })
            };
            let kept: Vec<_> = (0..5000).map(spawn).step_by(10).collect();
            kept.into_iter().for_each(|it| drop(it.join().unwrap()));
        });
    }
    queue.drain().unwrap();
    closures.all_dropped(100_000);
    results.all_dropped(100_000);
    assert!(queue.stats().started <= 100_000);
}

#[test]
fn many_closures_are_queued_in_their_order_and_each_runs_once() {
    let (queue, log) = (queue("all").ordered().alone(), Log::default());
    // These counts need full chains, a partial chain, or no chain.
    for count in [0, 1, 63, 64, 65, 1000] {
        assert_eq!(queue.task().spawn_detached_all((0..count).map(|i| log.note(i))), count);
        queue.drain().unwrap();
        assert!(log.take().into_iter().eq(0..count));
    }
    // A full queue accepts closures up to its capacity.
    let queue = self::queue("all").capacity(3).paused();
    assert_eq!(queue.task().spawn_detached_all((0..10).map(|_| || ())), 3);
    assert_eq!((waiting(&queue), queue.stats().refused), (3, 7));
    queue.resume_and_drain();
}

#[test]
fn no_closure_is_queued_after_its_iterator_destroys_the_queue() {
    let (queue, census) = (queue("all").alone(), Census::default());
    let funcs = (0..100).map(|i| {
        if i == 70 {
            queue.shutdown(Duration::MAX).unwrap();
        }
        census.closure()
    });
    // The first chain was queued before the queue was destroyed. Items collected after that are
    // rejected, as are later ones.
    assert_eq!(queue.task().spawn_detached_all(funcs), 64);
    let stats = queue.stats();
    assert_eq!((stats.completed, stats.refused), (64, 36));
    census.all_dropped(100);
    // The closures that were yielded before a panic of the iterator run.
    let (queue, census) = (self::queue("all").alone(), Census::default());
    let funcs = (0..100).map(|i| {
        assert!(i < 70, "no more");
        census.closure()
    });
    assert!(catch_unwind(AssertUnwindSafe(|| queue.task().spawn_detached_all(funcs))).is_err());
    assert_eq!(queue.drained().completed, 70);
    census.all_dropped(70);
}

#[test]
fn a_handle_is_unpin_and_unwind_safe_for_every_result() {
    fn is_free<T: Unpin + UnwindSafe + RefUnwindSafe + Send + Sync>(_: &T) {}
    let queue = queue("handles").alone();
    let handle: JoinHandle<PhantomPinned> = queue.spawn(|| PhantomPinned);
    is_free(&handle);
    is_free(&handle.cancel_on_drop());
    let handle: JoinHandle<&mut (dyn FnMut() + Send)> = queue.spawn(|| panic_any("none"));
    let _: &dyn UnwindSafe = &handle;
    is_free(&queue);
    drop(handle);
}

#[test]
fn a_timed_join_returns_the_handle_and_runs_no_item() {
    let queue = queue("timed").paused();
    let mut handle = queue.spawn(|| 7);
    let start = Instant::now();
    assert!(handle.join_timeout(Duration::ZERO).is_none());
    assert!(handle.join_timeout(2 * MS).is_none());
    assert!(start.elapsed() >= 2 * MS, "{:?}", start.elapsed());
    queue.resume();
    assert_eq!(handle.join_timeout(Duration::MAX).unwrap().unwrap(), 7);
    let mut handle = queue.spawn(|| 8);
    wait_until(|| handle.is_finished());
    assert_eq!(handle.join_timeout(Duration::ZERO).unwrap().unwrap(), 8);
    let (queue, plug) = self::queue("one").max_active(1).plugged();
    let mut handle = queue.spawn(|| 7);
    let waiter = thread::spawn(move || handle.join_timeout(PATIENCE));
    plug.release();
    assert_eq!(waiter.join().unwrap().unwrap().unwrap(), 7);
    let mut handle = queue.spawn(|| panic_any("an item"));
    assert!(matches!(handle.join_timeout(PATIENCE), Some(Err(JoinError::Panicked(_)))));
    queue.pause();
    let mut handle = queue.spawn(|| ());
    assert!(handle.cancel() && handle.join_timeout(PATIENCE).is_some_and(is_cancelled));
}

type Func = Box<dyn FnOnce() + Send>;

fn joins_itself(spawn: fn(&Workqueue, Func) -> JoinHandle<()>) {
    type Join = fn(JoinHandle<()>) -> Result<(), JoinError>;
    let joins: [Join; 2] = [JoinHandle::join, |mut own| own.join_timeout(Duration::MAX).unwrap()];
    for join in joins {
        let (queue, outcome) = (queue("handles").alone(), Log::default());
        let (give, take) = mpsc::channel();
        let joins = Box::new(move || outcome.push(join(take.recv().unwrap())));
        give.send(spawn(&queue, joins)).unwrap();
        queue.drain().unwrap();
        let error = outcome.take().remove(0).unwrap_err();
        assert!(matches!(error, JoinError::OwnItem), "{error}");
        assert_eq!(error.to_string(), "a work item cannot join itself");
    }
}

#[test]
fn a_closure_that_joins_itself_gets_an_error() {
    joins_itself(|queue, joins| queue.spawn(joins));
}

#[test]
fn a_future_that_joins_itself_gets_an_error() {
    joins_itself(|queue, joins| queue.spawn_async(async move { joins() }));
}

#[test]
fn a_cancelling_handle_drops_its_item_unless_it_is_kept() {
    let (queue, lives) = (queue("kept").paused(), Census::default());
    let nr_runs = Count::default();
    let item = || queue.spawn(keeping(lives.life(), nr_runs.adder()));
    drop(item().cancel_on_drop());
    assert_eq!((lives.alive(), nr_runs.get()), (0, 0));
    drop(item().cancel_on_drop().keep());
    let joined = item().cancel_on_drop();
    assert!(!joined.is_finished());
    queue.resume();
    joined.join().unwrap();
    wait_until(|| nr_runs.get() == 2);
    lives.all_dropped(3);
    // It also drops a future, and can be awaited.
    let (queue, lives) = (self::queue("handles").alone(), Census::default());
    let waits = queue.spawn_async(lives.future());
    drop(waits.cancel_on_drop());
    lives.all_dropped(1);
    let inner = queue.clone();
    let outer = queue.spawn_async(async move { inner.spawn(|| 7).cancel_on_drop().await });
    assert_eq!(outer.join().unwrap().unwrap(), 7);
    // The closure may panic when it is dropped.
    let queue = self::queue("panics").paused();
    let bomb = at_drop(|| panic_any("dropped"));
    let item = queue.spawn(move || drop(bomb)).cancel_on_drop();
    // The handle may also be dropped while a panic unwinds.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let _item = item;
        panic_any("the owner");
    }));
    assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"the owner"));
}

#[test]
fn a_weak_handle_upgrades_while_its_queue_exists() {
    let queue = queue("weak").max_active(1).alone();
    let weak = WeakWorkqueue::new(&queue);
    let again = weak.clone().upgrade().expect("it is there");
    assert_eq!(again.spawn(|| 7).join().unwrap(), 7);
    drop(queue);
    assert!(weak.upgrade().is_some(), "the other handle keeps it");
    // The last handle is dropped inside the queue's own item. The queue is destroyed later, and
    // no new handle can be created.
    let (seen, gone, plug) = (weak.clone(), Count::default(), plug_into(&again));
    again.enqueue(&Work::new(move || {
        assert!(seen.upgrade().is_none());
        gone.add();
    }));
    again.close_in_background();
    assert!(weak.upgrade().is_none());
    plug.release();
    wait_until(|| gone.get() == 1);
}

#[test]
fn a_handle_is_a_future() {
    let queue = queue("future").alone();
    for i in 0..3000 {
        assert_eq!(block_on(queue.spawn(move || i)).unwrap(), i);
    }
    assert_eq!(queue.stats().helped, 0, "a poll never runs the closure");
    // A panic reaches the awaiting task.
    let error = block_on(queue.spawn(|| panic!("async"))).unwrap_err();
    assert_eq!(error.to_string(), "the work item panicked: async");
}

#[test]
fn the_waker_of_the_last_poll_is_woken_once_and_no_other() {
    let queue = queue("wakers").alone();
    let (mut handle, plug) = stuck(|hole| queue.spawn(move || hole.sit()));
    let [(first, first_rung), (last, last_rung)] = [counting_waker(), counting_waker()];
    for _ in 0..3 {
        for waker in [&first, &last] {
            assert!(poll_with(&mut handle, waker).is_pending());
        }
    }
    plug.release();
    wait_until(|| last_rung.get() > 0);
    queue.drain().unwrap();
    assert_eq!((first_rung.get(), last_rung.get()), (0, 1));
    assert!(poll_with(&mut handle, &first).is_ready());
    // The last of ever new wakers is not lost.
    for _ in 0..1000 {
        let mut handle = queue.spawn(|| 9);
        loop {
            let [(waker, rung), (newer, newer_rung)] = [counting_waker(), counting_waker()];
            if let Poll::Ready(value) = poll_with(&mut handle, &waker) {
                assert_eq!(value.unwrap(), 9);
                break;
            }
            if poll_with(&mut handle, &newer).is_ready() {
                break;
            }
            wait_until(|| newer_rung.get() == 1);
            assert!(rung.get() <= 1);
        }
    }
}

#[test]
fn wakers_are_dropped_with_their_handles() {
    let (queue, census) = (queue("wakers").max_active(1).alone(), Census::default());
    for i in 0..200 {
        let (plug, life) = (plug_into(&queue), census.life());
        let waker = waker(move || _ = &life);
        let mut handle = polled(queue.spawn(|| ()), &waker);
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
