//! Cancelling, disabling and enabling items.

use crate::support::*;

#[test]
fn a_pending_item_that_is_cancelled_does_not_run() {
    for queue in ordered_and_narrow() {
        let (plug, (work, count)) = (plug_into(&queue), counted());
        assert!(queue.enqueue(&work) && work.cancel(), "{work:?}");
        assert!(!work.is_busy() && !work.cancel(), "{work:?}");
        assert_eq!(plug.release_and_count(&queue, count), 0);
        assert!(queue.enqueue(&work));
        assert_eq!(count.after_drain(&queue), 1);
    }
}

#[test]
fn neither_a_running_nor_an_idle_item_is_cancelled() {
    let (queue, idle) = (queue("cancel").alone(), Work::new(|| ()));
    assert_eq!((idle.cancel(), idle.cancel_sync()), (false, false));
    assert!(queue.enqueue(&idle));
    let (work, plug) = stuck_in(&queue);
    assert!(!work.cancel());
    plug.release_and_drain(&queue);
    assert!(!work.cancel());
}

#[test]
fn cancel_sync_waits_until_a_run_has_ended() {
    let queue = queue("sync").alone();
    let (work, plug, [_, over]) = stuck_counting(&queue);
    queue.enqueue(&work);
    let canceller = beside(&work, move |work| (work.cancel_sync(), over.get()));
    wait_until(|| is_slept_for(&work));
    assert!(!queue.enqueue(&work), "rejected during the cancel");
    assert_eq!(plug.release_and_join(canceller), (true, 1), "was pending, nr of runs");
    assert!(!work.is_busy());
}

#[test]
fn cancel_sync_stops_an_item_that_queues_itself() {
    let queue = queue("sync").alone();
    for _ in 0..200 {
        let work = restless(&queue, Count::default());
        queue.enqueue(&work);
        work.cancel_sync();
        assert!(!work.is_busy(), "{work:?}");
        assert!(queue.enqueue(&work));
        work.cancel_sync();
    }
}

#[test]
fn cancel_sync_from_inside_does_not_wait_for_itself() {
    let queue = queue("sync").alone();
    let (again, outcomes) = (queue.clone(), Log::default());
    let work = Work::with_handle(move |this| {
        outcomes.push((again.enqueue(this), this.cancel_sync(), this.cancel_sync()));
    });
    queue.enqueue(&work);
    queue.drain().unwrap();
    assert_eq!(outcomes.take(), [(true, true, false)]);
    assert!(!work.is_busy());
}

#[test]
fn many_may_cancel_at_once_while_others_queue() {
    let queues = [queue("a").alone(), queue("b").ordered().alone()];
    let (work, count) = counted();
    threads(8, |i| {
        for n in 0..3000 {
            if i % 2 == 0 {
                queues[n % 2].enqueue(&work);
            } else if n % 7 == 0 {
                work.cancel_sync();
            } else {
                work.cancel();
            }
        }
    });
    work.cancel_sync();
    assert!(!work.is_busy(), "{work:?}");
    let before = count.get();
    assert!(queues[0].enqueue(&work));
    work.flush().unwrap();
    queues[0].drain().unwrap();
    assert_eq!(count.get(), before + 1);
}

#[test]
fn an_item_cancelled_on_a_stuck_queue_runs_from_another() {
    let [stuck, other] = [queue("stuck").max_active(1), queue("other")].map(On::alone);
    let (plug, (work, count)) = (plug_into(&stuck), counted());
    assert!(stuck.enqueue(&work));
    assert!(!other.enqueue(&work), "pending there");
    assert!(work.cancel() && other.enqueue(&work), "{work:?}");
    assert_eq!(count.after_drain(&other), 1);
    assert_eq!(plug.release_and_count(&stuck, count), 1);
}

#[test]
fn queue_may_be_destroyed_while_a_cancelled_item_runs() {
    let (first, second) = (queue("first").alone(), queue("second").ordered().alone());
    let (work, plug) = stuck_with(&first, |hole| {
        hole.sit();
        panic!("on purpose");
    });
    assert!(second.enqueue(&work) && work.cancel(), "{work:?}");
    second.drain().unwrap();
    drop(second);
    plug.release_and_drain(&first);
    assert_eq!(first.stats().panicked, 1, "counted where it ran");
    let (first, second) = (queue("first").alone(), queue("second").max_active(1).alone());
    let (keeps_seat, mut fails) = (plug_into(&second), true);
    let (work, plug) = stuck_with(&first, move |hole| {
        if mem::take(&mut fails) {
            hole.sit();
            panic!("on purpose");
        }
    });
    assert!(second.enqueue(&work));
    plug.release_and_drain(&first);
    keeps_seat.release_and_drain(&second);
    assert_eq!((first.stats().panicked, second.stats().panicked), (1, 0));
}

#[test]
fn a_queue_drains_although_a_helped_item_moves_during_its_run() {
    let (registry, second) = queue("second").affinity(System).on_own(registry("2 core"));
    for _ in 0..300 {
        let first = queue("first").affinity(System).on(&registry);
        let to = second.clone();
        let work = in_first_run(move |this| {
            assert!(to.enqueue(this));
            if this.cancel() {
                to.enqueue(this);
            }
        });
        first.task().enqueue_all(&[(); 20].map(|()| Work::new(|| ())));
        first.enqueue(&work);
        work.flush().unwrap();
        drop(first);
        second.drain().unwrap();
        assert!(!work.is_busy(), "{work:?}");
    }
}

/// Queues and cancels 100,000 closures and 100,000 items, among ten that wait. Returns the smallest
/// growth of the process during a tenth of them, in KiB. The other tenths do not count, because
/// cancelled items remain while a preempted thread holds the pool lock. If all of them remained,
/// the growth would be 1.5 MiB.
fn storm(queue: &Workqueue, log: Log<usize>, name: &str) -> usize {
    let mut sizes = Vec::new();
    for i in 0..100_000 {
        if i % 10_000 == 0 {
            queue.detach(log.note(i));
        }
        if i % 10_000 == 9_999 {
            sizes.push(resident_kib());
        }
        assert!(queue.spawn(|| ()).cancel());
        let work = Work::new(|| ());
        assert!(queue.enqueue(&work) && work.cancel(), "{work:?}");
    }
    assert!(waiting(queue) <= 30, "{name}: {:?}", queue.stats());
    let grown = sizes.windows(2).map(|two| two[1].saturating_sub(two[0]));
    grown.min().unwrap()
}

#[test]
fn cancelled_items_leave_a_full_or_paused_queue() {
    in_own_process(|| {
        let queue = one_seat("full").alone();
        let (log, plug) = (Log::default(), plug_into(&queue));
        let full_kib = storm(&queue, log, "full");
        queue.pause();
        plug.release();
        let paused_kib = storm(&queue, log, "paused");
        assert!(full_kib < 512 && paused_kib < 512, "{full_kib}, {paused_kib} KiB");
        queue.resume_and_drain();
        let all = (0..100_000).step_by(10_000);
        assert!(log.take().into_iter().eq(all.clone().chain(all)));
    });
}

/// If each queue counted only its own tombstones, none of the three would ever remove any.
#[test]
fn items_cancelled_by_queues_in_turn_leave_a_busy_pool() {
    let registry = unwatched("1 core");
    let queues = [(); 3].map(|()| queue("turns").on(&registry));
    let (plug, count) = (plug_into(&queues[0]), Count::default());
    let waiting = [(); 30].map(|()| counting(count));
    assert_eq!(queues[0].task().enqueue_all(&waiting), 30);
    let nr_pending = (0..20_000).map(|_| {
        queues.iter().for_each(|queue| assert!(queue.spawn(|| ()).cancel()));
        registry.pool_stats()[0].nr_pending
    });
    let most = nr_pending.max().unwrap();
    // The bound is the number of waiting items plus the cancels in each queue between two checks.
    assert!(most <= 2 * waiting.len() + 3 * 64, "{most} in the list");
    plug.release();
    queues.iter().for_each(|queue| queue.drain().unwrap());
    assert_eq!(count.get(), waiting.len());
}

#[test]
fn a_cancelled_item_of_a_full_queue_is_not_inactive() {
    let (queue, plug) = one_seat("counts").plugged();
    let mut handles = [(); 10].map(|()| queue.spawn(|| ()));
    wait_until(|| waiting(&queue) == 10);
    assert!(handles.iter_mut().take(7).all(JoinHandle::cancel));
    assert_eq!(waiting(&queue), 3);
    // The item's values may wait for anything, so a canceller of another item must not drop them.
    let (send, receive) = mpsc::channel();
    let work = Work::new(owning(at_drop(move || send.send(thread::current()).unwrap())));
    assert!(queue.enqueue(&work) && work.cancel(), "{work:?}");
    drop(work);
    assert_eq!(waiting(&queue), 3);
    assert_eq!(receive.recv_timeout(PATIENCE).unwrap().name(), Some("aw/reaper"));
    plug.release_and_drain(&queue);
    assert!(handles.iter().all(JoinHandle::is_finished));
}

#[test]
fn an_enqueue_does_not_wait_for_a_blocking_item_of_the_batch() {
    // Repeats until the worker takes both items. A worker that expects long items takes the first
    // one alone.
    wait_until(|| {
        let (work, count) = counted();
        let (registry, former) =
            queue("former").help(false).max_active(4).on_own(unwatched("1 core"));
        let next = queue("next").help(false).on(&registry);
        let plug = take_a_batch(&former, &next, |former| assert!(former.enqueue(&work)));
        let took_both = waiting(&former) == 0;
        if took_both {
            assert!(work.cancel() && next.enqueue(&work), "{work:?}");
        }
        plug.release_and_drain(&former);
        assert_eq!(count.after_drain(&next), 1);
        took_both
    });
}

#[test]
fn disabling_counts_and_the_last_enable_lets_it_be_queued() {
    let (queue, (work, count)) = (queue("disable").alone(), counted());
    assert!(!work.disable() && !work.disable(), "it was not pending");
    assert!(!queue.enqueue(&work));
    assert!(!work.enable());
    assert!(!queue.enqueue(&work));
    assert!(work.enable());
    assert!(queue.enqueue(&work));
    assert_eq!(count.after_drain(&queue), 1);
}

#[test]
fn disabling_cancels_a_pending_item_and_returns_true() {
    for queue in ordered_and_narrow() {
        let (plug, (work, count)) = (plug_into(&queue), counted());
        assert!(queue.enqueue(&work));
        assert!(work.disable());
        assert!(!work.is_busy());
        assert_eq!(plug.release_and_count(&queue, count), 0);
    }
}

#[test]
fn disable_leaves_the_present_run_and_disable_sync_waits() {
    let queue = queue("disable").alone();
    let (work, plug, [_, over]) = stuck_counting(&queue);
    assert!(queue.enqueue(&work));
    assert!(work.disable(), "the run that was queued behind it");
    let waiter = beside(&work, move |work| (work.disable_sync(), over.get()));
    wait_until(|| is_slept_for(&work));
    plug.release();
    assert_eq!(waiter.join().unwrap(), (false, 1));
}

#[test]
fn an_item_that_disables_itself_cannot_queue_itself() {
    let queue = queue("disable").alone();
    let (log, again) = (Log::default(), queue.clone());
    let work = Work::with_handle(move |this| log.push((this.disable_sync(), again.enqueue(this))));
    queue.enqueue(&work);
    queue.drain().unwrap();
    assert_eq!(log.take(), [(false, false)]);
    assert!(work.enable() && queue.enqueue(&work));
    queue.drain().unwrap();
    assert_eq!(log.take().len(), 1);
}

#[test]
fn enable_and_queue_queues_only_at_the_last_enable() {
    let (queue, (work, count)) = (queue("disable").alone(), counted());
    (0..u16::MAX).for_each(|_| _ = work.disable());
    // The depth has a maximum.
    assert!(catch_unwind(AssertUnwindSafe(|| work.disable())).is_err());
    for nth in 1..=u16::MAX {
        assert_eq!(work.enable() && queue.enqueue(&work), nth == u16::MAX);
    }
    assert_eq!(count.after_drain(&queue), 1);
}

#[test]
#[should_panic(expected = "enabled more often than disabled")]
fn enabling_an_enabled_item_panics() {
    Work::new(|| ()).enable();
}

#[test]
fn cancel_sync_leaves_a_disabled_item_disabled() {
    let queue = queue("disable").alone();
    let work = Work::new(|| ());
    work.disable();
    assert!(!work.cancel_sync());
    assert!(!queue.enqueue(&work));
    assert!(work.enable());
}

#[test]
fn busy_distinguishes_pending_from_executing() {
    let queue = queue("busy").max_active(1).alone();
    let of = |work: &Work| (work.busy().pending, work.busy().executing);
    let (plug, hole) = stopper();
    let work = Work::new(move || hole.sit());
    assert_eq!(of(&work), (false, false));
    let other = plug_into(&queue);
    queue.enqueue(&work);
    assert_eq!(of(&work), (true, false));
    other.release();
    plug.wait_until_stuck();
    assert_eq!(of(&work), (false, true));
    queue.enqueue(&work);
    assert_eq!(of(&work), (true, true));
    assert!(work.cancel());
    plug.release_and_drain(&queue);
    assert_eq!(of(&work), (false, false));
}
