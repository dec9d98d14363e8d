//! Wakers that may be fired by threads on which others depend.

use std::task::{RawWakerVTable, Waker};

use sync::fork::PerProcess;

use super::parker::is_unparker;

/// The table of the wakers of dedicated workers, of which this folder knows nothing else. Compared
/// by value, because the compiler may duplicate it.
static HARMLESS: PerProcess<RawWakerVTable> = PerProcess::new();

/// Records that all wakers with the table of this one run no user code, and never block.
pub fn note_harmless(waker: &Waker) {
    if HARMLESS.get().is_none() {
        HARMLESS.get_or_set(*waker.vtable());
    }
}

/// The table of the wakers of futures.
static FUTURE: PerProcess<RawWakerVTable> = PerProcess::new();
/// The table of the wakers that task sets store with their items.
static TASK_SET: PerProcess<RawWakerVTable> = PerProcess::new();

/// The creators of wakers that never block in [`wake_by_ref`](Waker::wake_by_ref). Dropping such a
/// waker may run user code.
#[derive(Clone, Copy, Debug)]
pub enum Maker {
    Future,
    TaskSet,
}

/// Records that all wakers of `maker` have this table.
pub fn note_known(maker: Maker, table: &RawWakerVTable) {
    let known = match maker {
        Maker::Future => &FUTURE,
        Maker::TaskSet => &TASK_SET,
    };
    if known.get().is_none() {
        known.get_or_set(*table);
    }
}

/// Returns `true` if [`wake_by_ref`](Waker::wake_by_ref) of `waker` never blocks. A waker for which
/// this returns `false` may block.
#[inline]
pub fn is_known(waker: &Waker) -> bool {
    let is_of = |known: &'static PerProcess<RawWakerVTable>| known.get() == Some(waker.vtable());
    is_unparker(waker) || is_harmless(waker) || [&FUTURE, &TASK_SET].into_iter().any(is_of)
}

/// Returns `true` if firing `waker` runs no user code and never blocks. `false` means that this is
/// unknown.
#[inline]
pub fn is_harmless(waker: &Waker) -> bool {
    HARMLESS.get().is_some_and(|known| known == waker.vtable())
}
