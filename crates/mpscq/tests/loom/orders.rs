//! Each ordering of the queue weakened by one step: every model here must fail.

use std::sync::Arc;

use afterwork_mpscq::{Linked, Node, Pop, RawCursor, RawQueue};
use sync::models;

use crate::support::{Item, exhaustive, must_fail};
use crate::transfer::singles;

/// Runs the smallest case that needs all of the orderings, with one of them weakened.
fn weakened(name: &'static str) -> String {
    must_fail(name, || singles(&[2, 1], 2))
}

models! {
    fn case_passes_without_the_bug() = exhaustive(|| singles(&[2, 1], 2));
    fn tail_swap_needs_acquire() = weakened("tail: swap without acquire");
    fn tail_swap_needs_release() = weakened("tail: swap without release");
    fn link_store_needs_release() = weakened("link: relaxed store");
    fn first_load_needs_acquire() = weakened("link: relaxed load of the first item");
    fn next_load_needs_acquire() = weakened("link: relaxed load of the next item");
}

/// The consumer peeks at the first item and at its successor, without popping either.
fn peeks_without_taking() {
    let queue = Arc::new(RawQueue::<Node<Item>>::new());
    let thread = loom::thread::spawn({
        let queue = queue.clone();
        move || {
            for number in 0..2 {
                let item = Node::into_raw(Item::new(0, number));
                // SAFETY: the handle was just given up, and the queue outlives the items.
                unsafe { queue.push(item) };
            }
        }
    });
    let mut cursor = RawCursor::new();
    // SAFETY: the queue has one cursor, on one thread.
    if let Pop::Item(first) = unsafe { queue.peek(&mut cursor) } {
        // SAFETY: the item is in the queue, and has not been popped.
        unsafe { first.as_ref() }.check();
        // SAFETY: `peek` returned the item.
        match unsafe { queue.after(first) } {
            // SAFETY: the item is in the queue, and has not been popped.
            Pop::Item(second) => unsafe { second.as_ref() }.check(),
            Pop::Empty => {}
            Pop::MidPush => assert!(!queue.is_newest(first)),
        }
    }
    thread.join().unwrap();
    for number in 0..2 {
        // SAFETY: the queue has one cursor, on one thread.
        let Pop::Item(item) = (unsafe { queue.pop(&mut cursor) }) else {
            panic!("both were pushed");
        };
        // SAFETY: the item is popped once.
        assert_eq!(unsafe { Node::from_raw(item) }.number, number);
    }
}

models! {
    fn peeked_item_is_complete() = exhaustive(peeks_without_taking);
    fn after_load_needs_acquire() =
        must_fail("link: relaxed load of the next item", peeks_without_taking);
    fn stub_back_needs_release() = weakened("stub: relaxed compare-exchange");
    fn the_kernels_form_is_a_race_in_this_memory_model() =
        weakened("kernel: full barrier, plain link, dependent loads");
    fn a_dependent_load_does_not_acquire_even_a_released_link() =
        weakened("kernel: release link, dependent loads");
}

#[test]
fn full_barrier_may_replace_the_release_if_loads_acquire() {
    // This form is correct, but slower than the shipped one wherever a fence has a cost.
    let refused =
        std::panic::catch_unwind(|| weakened("kernel: full barrier, plain link, acquire loads"));
    let refused = *refused.unwrap_err().downcast::<String>().unwrap();
    assert!(refused.contains("the model passed"), "{refused}");
}
