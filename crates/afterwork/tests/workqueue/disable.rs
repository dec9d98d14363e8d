//! Disabling and enabling items, and their state.

use std::sync::{Arc, Mutex};

use afterwork::workqueue::Work;

use crate::support::*;

#[test]
fn disabling_counts_and_the_last_enable_lets_it_be_queued() {
    let queue = alone_on_two(queue("disable"));
    let count = Count::default();
    let work = counting(&count);
    assert!(!work.disable() && !work.disable(), "it was not pending");
    assert!(!queue.enqueue(&work));
    assert!(!work.enable());
    assert!(!queue.enqueue(&work));
    assert!(work.enable());
    assert!(queue.enqueue(&work));
    queue.drain().unwrap();
    assert_eq!(count.get(), 1);
}

#[test]
fn disabling_cancels_a_pending_item_and_says_so() {
    for ordered in [false, true] {
        let builder = queue("disable");
        let queue = alone_on_two(if ordered {
            builder.ordered()
        } else {
            builder.max_active(1)
        });
        let plug = plug_into(&queue);
        let count = Count::default();
        let work = counting(&count);
        assert!(queue.enqueue(&work));
        assert!(work.disable());
        assert!(!work.is_busy());
        plug.release();
        queue.drain().unwrap();
        assert_eq!(count.get(), 0);
    }
}

#[test]
fn disabling_leaves_the_present_run_and_disable_sync_waits_for_it() {
    let queue = alone_on_two(queue("disable"));
    let (plug, hole) = stopper();
    let over = Count::default();
    let ended = over.clone();
    let work = Work::new(move || {
        hole.sit();
        ended.add();
    });
    queue.enqueue(&work);
    plug.wait_until_stuck();
    assert!(queue.enqueue(&work));
    assert!(work.disable(), "the run that was queued behind it");
    let waiter = {
        let (work, over) = (work.clone(), over.clone());
        std::thread::spawn(move || (work.disable_sync(), over.get()))
    };
    eventually("it sleeps", || is_slept_for(&work));
    plug.release();
    assert_eq!(waiter.join().unwrap(), (false, 1));
}

#[test]
fn an_item_that_disables_itself_cannot_queue_itself() {
    let queue = alone_on_two(queue("disable"));
    let count = Count::default();
    let (runs, again) = (count.clone(), queue.clone());
    let said = Arc::new(Mutex::new(Vec::new()));
    let says = said.clone();
    let work = Work::with_handle(move |this| {
        runs.add();
        let disabled = this.disable_sync();
        says.lock().unwrap().push((disabled, again.enqueue(this)));
    });
    queue.enqueue(&work);
    queue.drain().unwrap();
    assert_eq!(*said.lock().unwrap(), [(false, false)]);
    assert!(work.enable() && queue.enqueue(&work));
    queue.drain().unwrap();
    assert_eq!(count.get(), 2);
}

#[test]
fn enable_and_queue_queues_only_at_the_last_enable() {
    let queue = alone_on_two(queue("disable"));
    let count = Count::default();
    let work = counting(&count);
    work.disable();
    work.disable();
    assert!(!(work.enable() && queue.enqueue(&work)));
    assert!(work.enable() && queue.enqueue(&work));
    queue.drain().unwrap();
    assert_eq!(count.get(), 1);
}

#[test]
#[should_panic(expected = "enabled more often than disabled")]
fn enabling_what_is_not_disabled_panics() {
    Work::new(|| ()).enable();
}

#[test]
fn cancel_sync_leaves_a_disabled_item_disabled() {
    let queue = alone_on_two(queue("disable"));
    let work = Work::new(|| ());
    work.disable();
    assert!(!work.cancel_sync());
    assert!(!queue.enqueue(&work));
    assert!(work.enable());
}

#[test]
fn busy_distinguishes_pending_from_executing() {
    let queue = alone_on_two(queue("busy").max_active(1));
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
    plug.release();
    queue.drain().unwrap();
    assert_eq!(of(&work), (false, false));
}

#[test]
fn an_item_is_disabled_as_often_as_can_be_counted_and_no_more() {
    let queue = alone_on_two(queue("disable"));
    let count = Count::default();
    let work = counting(&count);
    for _ in 0..u16::MAX {
        work.disable();
    }
    let once_more = std::panic::AssertUnwindSafe(|| work.disable());
    assert!(std::panic::catch_unwind(once_more).is_err());
    for nth in 1..=u16::MAX {
        assert_eq!(work.enable(), nth == u16::MAX);
    }
    assert!(queue.enqueue(&work));
    work.flush().unwrap();
    assert_eq!(count.get(), 1);
}
