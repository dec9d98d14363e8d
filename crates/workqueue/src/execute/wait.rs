//! Waiting for a work item: the check that there can be a worker, and the sleep on the state word.

use std::time::Duration;

use base::internal::wake::{look_as_waiter, report, yield_as_waiter};
use sync::{
    fork::{self, PerProcess},
    time,
};

use crate::item::{head::Head, state::State};

/// Set if this process ever had a registry, and so may have workers.
static HAS_ANY: PerProcess<()> = PerProcess::new();

/// Records that this process has a registry, and may have workers.
pub(crate) fn note_workers() {
    HAS_ANY.get_or_set(());
}

/// Checks that there can be a worker, before a wait for an item.
///
/// # Panics
///
/// In a child of `fork` that has no worker.
#[inline]
pub fn must_have_workers() {
    assert!(
        !fork::is_child() || HAS_ANY.get().is_some(),
        "the item was queued before the process was forked: no worker will run it here"
    );
}

/// Checks an item that this process may have inherited from its parent, before a use of the item.
///
/// # Panics
///
/// If the item `is_lost`: it was not idle when the process was forked.
#[inline]
#[track_caller]
pub(crate) fn must_not_be_lost(is_lost: bool) {
    assert!(
        !is_lost,
        "the item was in use before the process was forked, and is so for ever here: make one in the child"
    );
}

/// Sleeps until the item's completion sequence number has reached `turn`.
///
/// # Blocking
///
/// Until `run.rs` or `Work::cancel` ends the run.
pub(crate) fn until_turn(head: &Head, turn: u64) {
    if looks_pay_off(head, turn) {
        return;
    }
    must_have_workers();
    report::while_asleep(|| {
        // The flag and the end of the run are transitions of one word: either the end finds the
        // flag, or this one finds the end. Twin `item: completion forgets its sleepers`.
        while let Some((_, state)) =
            head.update(|state| (!state.has_reached(turn)).then(|| State::wait(state)))
        {
            head.state.wait(state.0);
        }
    });
}

/// Sleeps as [`until_turn`] does, for at most `timeout`. Returns `true` if the item has reached
/// `turn`. Models never time out.
///
/// # Blocking
///
/// As [`until_turn`], for at most `timeout`.
pub(crate) fn until_turn_within(head: &Head, turn: u64, timeout: Duration) -> bool {
    let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    // The end time saturates at more than five hundred years, which means no limit.
    let end_ns = time::now_ns().saturating_add(timeout_ns);
    if timeout.is_zero() || looks_pay_off(head, turn) {
        return head.load().has_reached(turn);
    }
    must_have_workers();
    report::while_asleep(|| {
        while let Some((_, state)) =
            head.update(|state| (!state.has_reached(turn)).then(|| State::wait(state)))
        {
            let left_ns = end_ns.saturating_sub(time::now_ns());
            if left_ns == 0 {
                return false;
            }
            head.state
                .wait_timeout(state.0, Duration::from_nanos(left_ns));
        }
        true
    })
}

/// Busy-polls for a short time. Returns `true` if the item has reached `turn`.
fn looks_pay_off(head: &Head, turn: u64) -> bool {
    let ended = || head.load().has_reached(turn);
    if head.load().is_on_one_cpu() {
        yield_as_waiter(ended)
    } else {
        look_as_waiter(ended)
    }
}
