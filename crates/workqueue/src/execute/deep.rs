//! Joins that are nested deeper than a stack.
//!
//! A joiner who helps runs an item on his own stack; if that item joins another one, and so on, the chain ends where the
//! stack does. To wait from some depth on would not do: the runs further out hold the seats that the item may need. So
//! from some depth on a thread of its own, with a stack of its own, goes on with the same runs, and who helps waits for it.

use std::ptr::NonNull;

use base::internal::{panics::or_abort, wake::EventCount};
use sync::{Mutex, thread, unmodelled::Arc};

use super::current::{Runs, depth, is_bottom_half};
use crate::item::head::Head;

/// How many runs there may be on one stack. A guess: of 2 MiB, what a thread has if nobody says otherwise, each may use
/// 16 KiB. The more, the sooner a stack overflows; the fewer, the more often a chain pays for a thread.
const MAX_DEPTH: u32 = if cfg!(miri) { 2 } else { 128 };
const RUN_BYTES: usize = (2 << 20) / 128;

/// How many runs there may be on the smallest of stacks, so that for most joins nobody asks how large this one is.
const FEW: u32 = if cfg!(miri) { 2 } else { 4 };

/// An item that another thread runs.
struct Errand(NonNull<Head>);

// SAFETY: whoever hands it over has a handle, and waits until the other thread is done with it.
unsafe impl Send for Errand {}

impl Errand {
    fn item(&self) -> NonNull<Head> {
        self.0
    }
}

/// What became of an errand.
#[derive(Debug, Default)]
struct Answer {
    answer: Mutex<Option<bool>>,
    given: EventCount,
}

/// Returns what `help` does of `item`, for which the caller has a handle; called by another thread if this one's stack has
/// many runs already.
///
/// Where no thread can be had the stack grows on.
#[inline]
pub(crate) fn within_a_stack(item: NonNull<Head>, help: fn(NonNull<Head>) -> bool) -> bool {
    if depth() < FEW {
        return help(item);
    }
    on_a_deep_stack(item, help)
}

#[cold]
fn on_a_deep_stack(item: NonNull<Head>, help: fn(NonNull<Head>) -> bool) -> bool {
    let nr_runs = thread::stack_size() / RUN_BYTES;
    if depth() < MAX_DEPTH.min(nr_runs as u32) {
        return help(item);
    }
    // An item of a bottom half may not wait, not even for that.
    if is_bottom_half() {
        return help(item);
    }
    let runs = Runs::of_this_thread();
    let (errand, answer) = (Errand(item), Arc::new(Answer::default()));
    let ours = answer.clone();
    let started = thread::spawn("aw/deep", move || {
        or_abort("a helper of a nested join panicked", || {
            // SAFETY: whose runs they are waits below for the answer.
            let helped = unsafe { runs.go_on(|| help(errand.item())) };
            *answer.answer.lock() = Some(helped);
            answer.given.notify_all();
        });
    });
    if started.is_err() {
        return help(item);
    }
    let mut helped = None;
    ours.given.wait_until(|| {
        helped = *ours.answer.lock();
        helped.is_some()
    });
    helped.is_some_and(|helped| helped)
}
