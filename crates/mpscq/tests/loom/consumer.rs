//! The right to pop moves from thread to thread.

use std::sync::Arc;

use afterwork_mpscq::Pop;
use sync::models;

use crate::support::{Item, Items, exhaustive, must_fail, spawn};

/// Two threads try to become the consumer of two items. A thread that finds another consumer gives
/// up.
fn two_threads_pop_in_turn() {
    let queue = Arc::new(Items::new());
    queue.push(Item::new(0, 0));
    queue.push(Item::new(0, 1));
    let pop = |queue: &Items| {
        queue.try_consumer().map(|mut consumer| match consumer.pop() {
            Pop::Item(item) => {
                item.check();
                item.number
            }
            nothing => panic!("lost: {nothing:?}"),
        })
    };
    let other = spawn({
        let queue = queue.clone();
        move || _ = pop(&queue)
    });
    pop(&queue);
    other.join().unwrap();
}

models! {
    fn consumers_take_turns() = exhaustive(two_threads_pop_in_turn);
    fn consumer_claim_needs_acquire() =
        must_fail("consumer: relaxed claim", two_threads_pop_in_turn);
    fn consumer_leave_needs_release() =
        must_fail("consumer: relaxed leave", two_threads_pop_in_turn);
}
