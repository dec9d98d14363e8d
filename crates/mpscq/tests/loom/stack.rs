//! Models of the LIFO list.

use std::sync::Arc;

use afterwork_mpscq::{Node, Stack};
use sync::models;

use crate::support::{Got, Item, exhaustive, must_fail, spawn};

/// Two threads push, one of them twice, and a third takes everything once at the same time. The
/// taker starts last. Otherwise loom would never explore its swap between a pusher's load of the
/// head and its exchange, because loom checks for a conflict only at the last access to a word.
fn two_push_one_takes() {
    let stack = Arc::new(Stack::<Node<Item>>::new());
    let pushers = [2, 1].map(|nr_items| {
        let stack = stack.clone();
        spawn(move || {
            for number in 0..nr_items {
                stack.push(Item::new(nr_items, number));
            }
        })
    });
    let taker = spawn({
        let stack = stack.clone();
        move || {
            let mut got = Got::default();
            stack.take_all_fifo().for_each(|item| got.take(&item));
            got
        }
    });
    pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
    let mut got = taker.join().unwrap();
    stack.take_all_fifo().for_each(|item| got.take(&item));
    assert_eq!(got.total, 3);
}

models! {
    fn the_lifo_list_loses_nothing() = exhaustive(two_push_one_takes);
    fn stack_push_needs_release() =
        must_fail("stack: relaxed push", two_push_one_takes);
    fn stack_take_needs_acquire() =
        must_fail("stack: relaxed take", two_push_one_takes);
}
