//! Each ordering of the queue weakened by one step: every model here must fail.

use std::sync::Arc;

use afterwork_mpscq::{Linked, Node, Pop, RawCursor, RawQueue};
use sync::twin::must_fail;

use crate::support::{Item, exhaustive};
use crate::transfer::singles;

/// Runs the smallest case that needs all of the orderings, with one of them weakened.
fn weakened(name: &'static str) -> String {
    must_fail(name, || exhaustive(|| singles(&[2, 1], 2)))
}

#[test]
fn case_passes_without_the_bug() {
    exhaustive(|| singles(&[2, 1], 2));
}

#[test]
fn tail_swap_needs_acquire() {
    weakened("tail: swap without acquire");
}

#[test]
fn tail_swap_needs_release() {
    weakened("tail: swap without release");
}

#[test]
fn link_store_needs_release() {
    weakened("link: relaxed store");
}

#[test]
fn first_load_needs_acquire() {
    weakened("link: relaxed load of the first item");
}

#[test]
fn next_load_needs_acquire() {
    weakened("link: relaxed load of the next item");
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
    // SAFETY: one queue, one cursor.
    if let Pop::Item(first) = unsafe { queue.peek(&mut cursor) } {
        // SAFETY: in the queue, and not popped.
        unsafe { first.as_ref() }.check();
        // SAFETY: `peek` returned it.
        match unsafe { queue.after(first) } {
            // SAFETY: in the queue, and not popped.
            Pop::Item(second) => unsafe { second.as_ref() }.check(),
            Pop::Empty => {}
            Pop::MidPush => assert!(!queue.is_newest(first)),
        }
    }
    thread.join().unwrap();
    for number in 0..2 {
        // SAFETY: one queue, one cursor.
        let Pop::Item(item) = (unsafe { queue.pop(&mut cursor) }) else {
            panic!("both were pushed");
        };
        // SAFETY: popped once.
        assert_eq!(unsafe { Node::from_raw(item) }.number, number);
    }
}

#[test]
fn peeked_item_is_complete() {
    exhaustive(peeks_without_taking);
}

#[test]
fn after_load_needs_acquire() {
    must_fail("link: relaxed load of the next item", || {
        exhaustive(peeks_without_taking);
    });
}

#[test]
fn stub_back_needs_release() {
    weakened("stub: relaxed compare-exchange");
}

#[test]
fn the_kernels_form_is_a_race_in_this_memory_model() {
    weakened("kernel: full barrier, plain link, dependent loads");
}

#[test]
fn a_dependent_load_does_not_acquire_even_a_released_link() {
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
