//! Two threads are asked one after the other where they are; the first may answer late.

use std::sync::Arc;

use afterwork::workqueue::model::Desk;
use sync::twin::must_fail;

use crate::support::{exhaustive, spawn};

const FIRST: u32 = 1;
const SECOND: u32 = 2;

/// Looks twice for an answer of `thread`, then gives up.
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

/// Two who want to know ask at once.
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
