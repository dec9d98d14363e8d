//! Disabling and enabling items, and their state.

use crate::support::*;

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
    let (work, plug, over) = stuck_uncounted(&queue);
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
    work.disable();
    work.disable();
    assert!(!(work.enable() && queue.enqueue(&work)));
    assert!(work.enable() && queue.enqueue(&work));
    assert_eq!(count.after_drain(&queue), 1);
    // The depth has a maximum.
    let (work, count) = counted();
    (0..u16::MAX).for_each(|_| _ = work.disable());
    assert!(catch_unwind(AssertUnwindSafe(|| work.disable())).is_err());
    for nth in 1..=u16::MAX {
        assert_eq!(work.enable(), nth == u16::MAX);
    }
    assert!(queue.enqueue(&work));
    work.flush().unwrap();
    assert_eq!(count.get(), 1);
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
