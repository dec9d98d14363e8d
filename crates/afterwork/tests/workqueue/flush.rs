//! Flushes of an item.

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
    let (work, plug, nr_ended) = stuck_uncounted(&queue);
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
        let (work, plug, over) = stuck_uncounted(&queue);
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
    let (again, mut is_first) = (queue.clone(), true);
    let work = Work::with_handle(move |this| {
        if mem::take(&mut is_first) {
            outcomes.push(this.flush());
            again.enqueue(this);
            outcomes.push(this.flush());
        }
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
    let mut is_first = true;
    let work = Work::new(move || {
        if mem::take(&mut is_first) {
            panic_any("the first run");
        }
    });
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
