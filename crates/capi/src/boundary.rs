//! Where C ends and Rust begins.

use std::panic::{AssertUnwindSafe, catch_unwind};

use afterwork::rcu::raw;
use sync::process::{self, die};

/// Invalid argument.
pub(crate) const EINVAL: i32 = 22;
/// There is no such thread.
pub(crate) const ESRCH: i32 = 3;
/// Not permitted.
pub(crate) const EPERM: i32 = 1;
/// It cannot be done at the moment.
pub(crate) const EBUSY: i32 = 16;
/// Out of memory, or of threads.
pub(crate) const ENOMEM: i32 = 12;

/// Calls `body`, which C called as `name`: should it panic, the process ends. What it panicked with has been told.
#[inline]
pub(crate) fn within<R>(name: &str, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| failed(name))
}

/// Calls `body`, which is the function `func` of C's; should it leave a section of RCU open, or end one of another's, the process
/// ends: no grace period would.
pub(crate) fn balanced(what: &str, func: usize, body: impl FnOnce()) {
    let nesting = raw::nesting();
    body();
    if raw::nesting() != nesting {
        die(&format!(
            "the {what} {func:#x} returned in another read-side critical section than it was called in"
        ));
    }
}

#[cold]
fn failed(name: &str) -> ! {
    die(&format!("{name} could not go on"))
}

/// Tells that C called `name` as it must not: ends the process in a debug build, else goes on with `answer`.
#[cold]
pub(crate) fn misuse<R>(name: &str, what: &dyn std::fmt::Display, answer: R) -> R {
    let line = format!("{name}: {what}");
    if cfg!(debug_assertions) {
        die(&line);
    }
    process::write_line(&line);
    answer
}
