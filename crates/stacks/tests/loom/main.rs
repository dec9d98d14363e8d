//! Two threads are asked for their stacks one after the other; the first may answer late.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p afterwork-stacks --release --test loom`
//!
//! The models have no bound on preemptions.
#![cfg(loom)]

use std::sync::Arc;

use afterwork_stacks::answer_slot::AnswerSlot;
use loom::model as exhaustive;
use loom::thread::spawn;
use sync::models;
use sync::twin::must_fail;

const FIRST: u32 = 1;
const SECOND: u32 = 2;

/// Checks twice for an answer from `thread`, and then gives up.
fn ask(answer_slot: &AnswerSlot<u32>, thread: u32) -> bool {
    if !answer_slot.ask(thread) {
        return false;
    }
    let read = || answer_slot.read(|answer| assert_eq!(*answer, thread));
    read().is_some() || read().is_some() || answer_slot.give_up(thread) && read().is_some()
}

fn requested_in_turns() {
    let answer_slot = Arc::new(AnswerSlot::new(0));
    for me in [FIRST, SECOND] {
        let answer_slot = answer_slot.clone();
        spawn(move || answer_slot.answer(me, |answer| *answer = me));
    }
    ask(&answer_slot, FIRST);
    ask(&answer_slot, SECOND);
}

/// Two threads ask at the same time.
fn requested_by_two() {
    let answer_slot = Arc::new(AnswerSlot::new(0));
    for (me, of) in [(FIRST, SECOND), (SECOND, FIRST)] {
        let answer_slot = answer_slot.clone();
        spawn(move || {
            answer_slot.answer(me, |answer| *answer = me);
            ask(&answer_slot, of);
        });
    }
}

models! {
    fn answer_is_from_the_requested_thread() =
        exhaustive(requested_in_turns), exhaustive(requested_by_two);
    fn an_answer_has_one_writer() =
        must_fail("answer slot: begun without a claim", || exhaustive(requested_in_turns)),
        must_fail("answer slot: taken from its writer", || exhaustive(requested_in_turns));
}
