//! Flushes of items and of queues.

use crate::spawn_async::Door;
use crate::support::*;

#[test]
fn flush_of_an_idle_item_returns_false() {
    assert_eq!(Work::new(|| ()).flush(), Ok(false));
}

#[test]
fn flush_waits_for_the_run_and_sees_its_writes() {
    for help in [true, false] {
        let queue = queue("flush").help(help).alone();
        let written = Shared::new(AtomicUsize::new(0));
        let work = Work::new(move || {
            written.store(written.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        });
        for i in 1..5000 {
            assert!(queue.enqueue(&work));
            work.flush().unwrap();
            assert_eq!(written.load(Ordering::Relaxed), i);
        }
    }
}

#[test]
fn flush_waits_for_the_present_run_and_the_one_that_is_queued() {
    let queue = queue("flush").alone();
    let (work, plug, [_, nr_ended]) = stuck_counting(&queue);
    assert!(queue.enqueue(&work));
    let flusher = beside(&work, move |work| (work.flush(), nr_ended.get()));
    wait_until(|| is_slept_for(&work));
    plug.release();
    plug.wait_until_stuck();
    wait_until(|| is_slept_for(&work));
    assert_eq!(plug.release_and_join(flusher), (Ok(true), 2));
}

#[test]
fn flush_does_not_wait_for_runs_that_are_queued_later() {
    let (queue, stop) = (queue("flush").alone(), Count::default());
    let work = restless(&queue, stop);
    queue.enqueue(&work);
    for _ in 0..100 {
        assert_eq!(work.flush(), Ok(true));
    }
    stop.add();
    queue.drain().unwrap();
}

#[test]
fn flush_waits_for_the_run_although_a_later_one_is_cancelled() {
    for builder in [queue("flush"), queue("flush").ordered()] {
        let queue = builder.alone();
        let (work, plug, [_, over]) = stuck_counting(&queue);
        let flusher = beside(&work, move |work| (work.flush().unwrap(), over.get()).1);
        wait_until(|| is_slept_for(&work));
        assert!(queue.enqueue(&work) && work.cancel());
        // Gives a flusher that wakes too early the time to return. The test passes without this
        // wait.
        holds_within(50 * MS, || flusher.is_finished());
        assert_eq!(plug.release_and_join(flusher), 1, "the flush ended before the run");
        queue.drain().unwrap();
    }
}

#[test]
fn flush_of_a_pending_item_ends_when_it_is_cancelled() {
    for queue in ordered_and_narrow() {
        let (plug, work) = (plug_into(&queue), Work::new(|| ()));
        assert!(queue.enqueue(&work));
        let flusher = flush_begun(&work);
        assert!(work.cancel());
        assert_eq!(flusher.join().unwrap(), Ok(true));
        plug.release_and_drain(&queue);
    }
}

#[test]
fn flush_ends_when_the_pending_run_behind_a_run_is_cancelled() {
    let queue = queue("flush").alone();
    let (work, plug) = stuck_in(&queue);
    assert!(queue.enqueue(&work));
    let flusher = flush_begun(&work);
    assert!(work.cancel());
    assert_eq!(plug.release_and_join(flusher), Ok(true));
}

#[test]
fn many_flushers_of_one_item_all_wake() {
    let queue = queue("flush").help(false).alone();
    let (work, plug) = stuck_in(&queue);
    let flushers = [(); 8].map(|()| beside(&work, |work| work.flush()));
    wait_until(|| is_slept_for(&work));
    plug.release();
    assert!(flushers.into_iter().all(|it| it.join().unwrap().is_ok()));
}

#[test]
fn an_item_that_flushes_itself_gets_an_error() {
    let (queue, outcomes) = (queue("own").alone(), Log::default());
    queue.enqueue(&Work::with_handle(move |this| outcomes.push(this.flush())));
    queue.drain().unwrap();
    // The same holds if a helper runs the item, and if the item is pending again.
    let again = queue.clone();
    let work = in_first_run(move |this| {
        outcomes.push(this.flush());
        again.enqueue(this);
        outcomes.push(this.flush());
    });
    queue.enqueue(&work);
    work.flush().unwrap();
    queue.drain().unwrap();
    assert_eq!(outcomes.take(), [Err(FlushError::OwnItem); 3]);
}

#[test]
fn an_item_that_flushes_itself_while_helping_gets_an_error() {
    let (queue, outcomes) = (queue("own").max_active(1).alone(), Log::default());
    let own = queue.clone();
    queue.enqueue(&Work::with_handle(move |this| {
        let outer = this.clone();
        // This item holds the only seat, so no worker can run the inner item.
        let inner = Work::new(move || outcomes.push((outer.flush(), outer.cancel_sync())));
        own.enqueue(&inner);
        inner.flush().unwrap();
    }));
    queue.drain().unwrap();
    assert_eq!(outcomes.take(), [(Err(FlushError::OwnItem), false)]);
}

#[test]
fn a_panicked_run_is_reported_and_a_good_one_clears_it() {
    for help in [true, false] {
        let queue = queue("panics").help(help).alone();
        let mut nr_runs = 0;
        let work = Work::new(move || {
            nr_runs += 1;
            assert!(nr_runs != 2, "the second run fails");
        });
        for outcome in [Ok(true), Err(FlushError::Panicked), Ok(true)] {
            let plug = (!help).then(|| plug_into(&queue));
            queue.enqueue(&work);
            let flusher = beside(&work, |work| work.flush());
            plug.iter().for_each(Plug::release);
            let flushed = flusher.join().unwrap();
            // The run may have ended before the flush began.
            assert!([outcome, Ok(false)].contains(&flushed), "{flushed:?} for {outcome:?}");
            queue.drain().unwrap();
        }
        assert_eq!(queue.stats().panicked, 1);
    }
}

#[test]
fn a_flush_that_helps_reports_the_panic() {
    // With a limit of one, no worker can start the item before the flusher.
    let queue = queue("panics").max_active(1).alone();
    let work = Work::new(|| panic!("on purpose"));
    let plug = plug_into(&queue);
    queue.enqueue(&work);
    let flusher = flush_begun(&work);
    assert_eq!(plug.release_and_join(flusher), Err(FlushError::Panicked));
    assert_eq!(FlushError::Panicked.to_string(), "the work item panicked");
    assert_eq!(FlushError::OwnItem.to_string(), "a work item cannot wait for its own end");
    // So does a flush after the run.
    let work = in_first_run(|_| panic_any("the first run"));
    assert_eq!(work.flush(), Ok(false));
    queue.enqueue(&work);
    queue.flush().unwrap();
    for _ in 0..2 {
        assert_eq!(work.flush(), Err(FlushError::Panicked));
    }
    queue.enqueue(&work);
    queue.flush().unwrap();
    assert_eq!(work.flush(), Ok(false));
}

#[test]
fn flushing_from_another_item_does_not_block_the_pool() {
    // The pool has one CPU and no helper runs the item: the flusher's worker sleeps, so another
    // worker must run the flushed item.
    let queue = queue("chain").help(false).affinity(System);
    let queue = queue.on(&registry("1 core"));
    let (mut work, count) = counted();
    queue.enqueue(&work);
    for _ in 0..20 {
        let (inner, again) = (work, queue.clone());
        work = Work::new(move || {
            again.enqueue(&inner);
            inner.flush().unwrap();
            count.add();
        });
    }
    queue.enqueue(&work);
    work.flush().unwrap();
    assert!(count.get() >= 21, "{}", count.get());
}

fn nr_waiting(queue: &Workqueue) -> u32 {
    number_after(&format!("{queue:?}"), "nr_waiting: ")
}

/// Starts a flush of a queue that has a blocked item, waits until the flush sleeps, and checks that
/// it does not end.
fn flusher(queue: &Workqueue) -> thread::JoinHandle<()> {
    let before = nr_waiting(queue);
    let flusher = beside(queue, |queue| queue.flush().unwrap());
    wait_until(|| nr_waiting(queue) > before);
    assert!(!holds_within(10 * MS, || flusher.is_finished()));
    flusher
}

/// Blocks an item that its joiner runs, unless a worker takes it first, and counts its end.
pub fn joined_item(queue: &Workqueue) -> (Plug, thread::JoinHandle<()>, Count) {
    let ended = Count::default();
    let (joiner, plug) = stuck(|hole| {
        let handle = queue.spawn(move || {
            hole.sit();
            ended.add();
        });
        thread::spawn(move || handle.join().unwrap())
    });
    (plug, joiner, ended)
}

#[test]
fn flush_of_an_empty_queue_returns_at_once() {
    let queue = queue("flush").alone();
    queue.flush().unwrap();
    queue.spawn(|| ()).join().unwrap();
    queue.flush().unwrap();
}

/// Queues items from four CPUs, and checks that `wait` waits for all of them.
pub fn waits_for_all_items(queue: &Workqueue, wait: fn(&Workqueue) -> Result<(), OwnQueueError>) {
    let count = Count::default();
    for round in 1..50 {
        threads(4, |i| {
            pin(i);
            count.spawn(50, queue);
        });
        wait(queue).unwrap();
        assert_eq!(count.get(), round * 200);
    }
}

#[test]
fn flush_waits_for_all_queued_items_on_all_pools() {
    for max in [1, 3, 256] {
        let queue = queue("flush").affinity(Cpu).max_active(max);
        waits_for_all_items(&queue.on(&registry("64 core")), Workqueue::flush);
    }
}

#[test]
fn items_queued_after_a_flush_do_not_delay_it() {
    for max in [2, 256] {
        let (queue, first) = queue("flush").max_active(max).plugged();
        let flusher = flusher(&queue);
        let second = plug_into(&queue);
        first.release_and_join(flusher);
        second.release_and_drain(&queue);
    }
}

#[test]
fn a_stream_of_new_items_does_not_delay_a_flush() {
    let (queue, stop) = (queue("flush").alone(), Count::default());
    queue.task().enqueue_all(&[(); 4].map(|()| restless(&queue, stop)));
    (0..200).for_each(|_| queue.flush().unwrap());
    stop.add();
    queue.drain().unwrap();
}

#[test]
fn many_flushes_at_once_all_end_after_their_items() {
    // Uses more flushes than there are colors, each with an item of its own.
    let queue = queue("colors").max_active(512).alone();
    let waits = [(); 40].map(|()| (plug_into(&queue), flusher(&queue)));
    let none_has_ended = || waits.iter().all(|(_, flusher)| !flusher.is_finished());
    assert!(none_has_ended());
    // All items but the first are released. Each flush also waits for the first, so none ends.
    waits[1..].iter().rev().for_each(|(plug, _)| plug.release());
    assert!(none_has_ended());
    waits[0].0.release();
    waits.into_iter().for_each(|(_, flusher)| flusher.join().unwrap());
    queue.flush().unwrap();
}

#[test]
fn flush_waits_for_an_item_that_its_joiner_runs() {
    for pushed_by_other in [false, true] {
        let queue = queue("helped").alone();
        if pushed_by_other {
            // The earlier item wakes a worker, which may adopt both before the joiner helps.
            queue.detach(|| ());
        }
        let (plug, joiner, ended) = joined_item(&queue);
        let flusher = flusher(&queue);
        plug.release_and_join(flusher);
        assert_eq!(ended.get(), 1);
        joiner.join().unwrap();
    }
}

#[test]
fn an_item_helped_after_the_flush_began_does_not_delay_it() {
    let (queue, first) = queue("helped").max_active(256).plugged();
    let flusher = flusher(&queue);
    let (second, joiner, _) = joined_item(&queue);
    first.release_and_join(flusher);
    second.release_and_join(joiner);
}

#[test]
fn a_later_helper_delays_no_flush_that_waits_for_a_helper() {
    let queue = queue("helped").max_active(256).alone();
    // Retries until the joiner, with a seat that its CPU kept, runs the item before a worker.
    let helped = || loop {
        let ((plug, hole), (send, is_helped)) = (stopper(), mpsc::channel());
        let joiner = beside(&queue, move |own| {
            pin(0);
            (0..50).for_each(|_| own.spawn(|| ()).join().unwrap());
            let joiner = thread::current().id();
            let item = move || {
                send.send(thread::current().id() == joiner).unwrap();
                hole.sit();
            };
            own.spawn(item).join().unwrap();
        });
        if is_helped.recv().unwrap() {
            return (plug, joiner);
        }
        plug.release_and_join(joiner);
    };
    let (first, first_joiner) = helped();
    let flusher = flusher(&queue);
    let (second, second_joiner) = helped();
    first.release_and_join(first_joiner);
    flusher.join().unwrap();
    second.release_and_join(second_joiner);
    queue.drain().unwrap();
}

#[test]
fn flush_waits_for_items_that_have_no_seat_yet() {
    let queue = one_seat("inactive").alone();
    let (plug, count) = (plug_into(&queue), Count::default());
    assert_eq!(queue.task().enqueue_all(&[(); 10].map(|()| counting(count))), 10);
    let flusher = flusher(&queue);
    plug.release_and_join(flusher);
    assert_eq!(count.get(), 10);
}

#[test]
fn flush_waits_for_an_item_that_was_queued_again_while_it_ran() {
    let queue = queue("again").alone();
    let (work, plug) = stuck_in(&queue);
    assert!(queue.enqueue(&work));
    let flusher = flusher(&queue);
    plug.release();
    plug.wait_until_stuck();
    assert!(!holds_within(10 * MS, || flusher.is_finished()));
    plug.release_and_join(flusher);
    assert!(!work.is_busy());
}

#[test]
fn a_cancelled_item_does_not_delay_a_flush() {
    for queue in ordered_and_narrow() {
        let (plug, (work, count)) = (plug_into(&queue), counted());
        queue.enqueue(&work);
        let flusher = flusher(&queue);
        assert!(work.cancel());
        plug.release_and_join(flusher);
        assert_eq!(count.get(), 0);
    }
}

#[test]
fn an_item_may_flush_another_queue_of_a_pool_of_one_worker() {
    // The monitor does not run, so only the flush itself can wake another worker.
    let [outer, inner] = ["outer", "inner"].map(queue).on(&unwatched("1 core"));
    let count = Count::default();
    for inner in vec![inner; 50] {
        outer.detach(move || {
            inner.detach(count.adder());
            inner.flush().unwrap();
        });
    }
    outer.flush().unwrap();
    assert_eq!(count.get(), 50);
}

#[test]
fn flush_waits_for_earlier_futures_and_for_no_later_ones() {
    let (queue, door) = (queue("futures").alone(), Door::default());
    let first = queue.spawn_async(door.clone());
    wait_until(|| door.nr_waiting() == 1);
    let flusher = flusher(&queue);
    let mut second = queue.spawn_async(pending::<()>());
    door.open();
    flusher.join().unwrap();
    first.join().unwrap();
    assert!(second.cancel());
    queue.drain().unwrap();
}
