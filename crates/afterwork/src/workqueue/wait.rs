//! Waiting for a work item, on the word of its state.

use super::{head::Head, registry::must_have_workers, state::State};
use crate::wake::{report, spin_as_waiter, yield_as_waiter};

/// Sleeps until the item has reached `turn`.
///
/// # Blocking
///
/// Until then. Woken by whoever ends or cancels the item's run: `run.rs` and `Work::cancel`.
pub(crate) fn until_turn(head: &Head, turn: u64) {
    let ended = || head.load().has_reached(turn);
    let came = if head.load().is_on_one_cpu() {
        yield_as_waiter(ended)
    } else {
        spin_as_waiter(ended)
    };
    if came {
        return;
    }
    must_have_workers();
    report::while_asleep(|| {
        // The flag and the end of the run are steps of one word: either the end sees the flag, or this step
        // fails because the run has ended. Twin `item: completion forgets its sleepers`.
        while let Some((_, state)) =
            head.update(|state| (!state.has_reached(turn)).then(|| State::wait(state)))
        {
            head.state.wait(state.0);
        }
    });
}
