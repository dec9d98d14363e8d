//! Tokens: a cancel races with a waiter, a child, and an item that requests its token.

use crate::support::*;

fn cancel_races_with_a_waiter() {
    let token = CancellationToken::new();
    let canceller = spawn_with(token.clone(), move |token| token.cancel());
    block_on(token.cancelled());
    canceller.join().unwrap();
}

fn cancel_races_with_a_child() {
    let token = CancellationToken::new();
    let canceller = spawn_with(token.clone(), move |token| token.cancel());
    let child = token.child();
    drop(token.child());
    canceller.join().unwrap();
    assert!(child.is_cancelled());
}

/// A closure waits for its token, and its handle cancels it before, during or after that.
fn cancel_races_with_an_item() {
    let (_machine, queue) = queue(1, false);
    let mut handle = queue.spawn(|| {
        let token = CancellationToken::current();
        block_on(token.cancelled());
        is_cancelled()
    });
    let is_gone = handle.cancel();
    match handle.join() {
        Ok(knows) => assert!(knows && !is_gone),
        Err(error) => assert!(is_gone && matches!(error, JoinError::Cancelled)),
    }
    wind_up(queue);
}

models! {
    fn child_is_cancelled_whenever_it_is_created() = exhaustive(cancel_races_with_a_child);
    fn a_waiter_ends_with_the_cancel() =
        exhaustive(cancel_races_with_a_waiter).detects(["token: checks before the lock"]);
    fn a_running_item_is_notified_of_its_cancel() =
        bounded(2, cancel_races_with_an_item).detects(["token: overlooks an earlier cancel"]);
}
