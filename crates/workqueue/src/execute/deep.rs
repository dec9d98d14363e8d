//! Joins that are nested too deeply for one stack.
//!
//! A joiner that helps runs an item on its own stack. If that item joins another one, and so on,
//! the stack bounds the chain. From some depth on, a joiner must not simply wait, because the outer
//! runs hold seats that the item may need. Instead, a new thread with its own stack continues the
//! same runs, and the joiner waits for it.

use std::ptr::NonNull;

use base::internal::{panics::or_abort, wake::EventCount};
use sync::{Mutex, thread, unmodelled::Arc};

use super::current::{Runs, depth, is_bottom_half};
use crate::item::head::Head;

/// Maximum number of runs on one stack. A guess: on a default stack of 2 MiB, each run may use 16
/// KiB. With a larger value a stack may overflow. With a smaller one a chain starts more threads.
const MAX_DEPTH: u32 = if cfg!(miri) { 2 } else { 128 };
const RUN_BYTES: usize = (2 << 20) / 128;

/// Number of runs that fit even on the smallest stack, so that most joins skip the size query.
const FEW: u32 = if cfg!(miri) { 2 } else { 4 };

/// An item that another thread runs.
struct Errand(NonNull<Head>);

// SAFETY: the sender has a handle, and waits until the other thread is done with the item.
unsafe impl Send for Errand {}

impl Errand {
    fn item(&self) -> NonNull<Head> {
        self.0
    }
}

/// The result of an errand.
#[derive(Debug, Default)]
struct Answer {
    answer: Mutex<Option<bool>>,
    given: EventCount,
}

/// Calls `help` for `item`, for which the caller has a handle, and returns its result. If this
/// thread's stack has many runs already, another thread calls `help`.
///
/// If no thread can be started, the stack grows further.
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
    // An item of a bottom half must not wait, even for the other thread.
    if is_bottom_half() {
        return help(item);
    }
    let runs = Runs::of_this_thread();
    let (errand, answer) = (Errand(item), Arc::new(Answer::default()));
    let ours = answer.clone();
    let started = thread::spawn("aw/deep", move || {
        or_abort("a helper of a nested join panicked", || {
            // SAFETY: the thread that the runs belong to waits below for the answer.
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
