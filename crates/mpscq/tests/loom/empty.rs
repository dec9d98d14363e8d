//! *Empty* is a claim: the queue contains no item of a completed push.

use std::sync::Arc;

use afterwork_mpscq::Pop;
use sync::atomic::{AtomicBool, Ordering};

use crate::support::{Item, Items, exhaustive, must_fail, pusher, spawn};

/// Two producers push. Once the second one reports a complete push, a pop must not return *empty*.
///
/// The first one may be blocked between its swap and its link store for the whole run.
fn completed_push_is_never_called_empty() {
    let queue = Arc::new(Items::new());
    let completed = Arc::new(AtomicBool::new(false));
    let first = pusher(&queue, 0, 1);
    let second = spawn({
        let (queue, completed) = (queue.clone(), completed.clone());
        move || {
            queue.push(Item::new(1, 0));
            completed.store(true, Ordering::Release);
        }
    });
    let mut consumer = queue.try_consumer().unwrap();
    if completed.load(Ordering::Acquire) {
        assert!(!queue.is_empty(), "is_empty with a completed push inside");
        assert!(!matches!(consumer.pop(), Pop::Empty), "Empty with a completed push inside");
    }
    first.join().unwrap();
    second.join().unwrap();
}

#[test]
fn empty_is_never_returned_while_a_completed_push_is_inside() {
    exhaustive(completed_push_is_never_called_empty);
}

#[test]
fn empty_by_the_missing_link_alone_is_detected() {
    let failure = must_fail("empty: no check of the tail", completed_push_is_never_called_empty);
    assert!(failure.contains("Empty with a completed push inside"), "{failure}");
}

#[test]
fn incomplete_is_returned_only_during_a_push() {
    exhaustive(|| {
        let queue = Arc::new(Items::new());
        let completed = Arc::new(AtomicBool::new(false));
        let producer = spawn({
            let (queue, completed) = (queue.clone(), completed.clone());
            move || {
                queue.push(Item::new(0, 0));
                queue.push(Item::new(0, 1));
                completed.store(true, Ordering::Release);
            }
        });
        let mut consumer = queue.try_consumer().unwrap();
        let mut popped = 0;
        if completed.load(Ordering::Acquire) {
            assert!(matches!(consumer.pop(), Pop::Item(_)));
            popped += 1;
        }
        let _ = consumer.pop();
        producer.join().unwrap();
        while let Pop::Item(_) = consumer.pop() {
            popped += 1;
        }
        assert!(popped >= 1);
        assert!(matches!(consumer.pop(), Pop::Empty));
    });
}
