//! Two threads are asked for their stacks one after the other; the first may answer late.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p afterwork-stacks --release --test loom`
//!
//! The models have no bound on preemptions.
#![cfg(loom)]

use std::sync::Arc;

use afterwork_stacks::desk::Desk;
use loom::{model as exhaustive, thread::spawn};
use sync::twin::must_fail;

const FIRST: u32 = 1;
const SECOND: u32 = 2;

/// Checks twice for an answer of `thread`, then gives up.
fn ask(desk: &Desk<u32>, thread: u32) -> bool {
    if !desk.ask(thread) {
        return false;
    }
    let read = || desk.read(|answer| assert_eq!(*answer, thread));
    read().is_some() || read().is_some() || desk.give_up(thread) && read().is_some()
}

fn asked_by_turns() {
    let desk = Arc::new(Desk::new(0));
    for me in [FIRST, SECOND] {
        let desk = desk.clone();
        spawn(move || desk.answer(me, |answer| *answer = me));
    }
    ask(&desk, FIRST);
    ask(&desk, SECOND);
}

/// Two threads ask at the same time.
fn asked_by_two() {
    let desk = Arc::new(Desk::new(0));
    for (me, of) in [(FIRST, SECOND), (SECOND, FIRST)] {
        let desk = desk.clone();
        spawn(move || {
            desk.answer(me, |answer| *answer = me);
            ask(&desk, of);
        });
    }
}

#[test]
fn an_answer_is_of_the_thread_that_was_asked() {
    exhaustive(asked_by_turns);
    exhaustive(asked_by_two);
}

#[test]
fn an_answer_has_one_writer() {
    must_fail("desk: begun without a claim", || exhaustive(asked_by_turns));
    must_fail("desk: taken from its writer", || exhaustive(asked_by_turns));
}
