//! Wakers that threads may fire on which others depend.

use std::task::{RawWakerVTable, Waker};

use sync::fork::PerProcess;

use super::parker::is_unparker;

/// The table of dedicated workers' wakers, of which this folder knows no more. Compared by what is in it, for the compiler may make
/// several of one.
static HARMLESS: PerProcess<RawWakerVTable> = PerProcess::new();

/// Notes that all wakers with the table of this one run no users' code, and wait for nobody.
pub fn note_harmless(waker: &Waker) {
    if HARMLESS.get().is_none() {
        HARMLESS.get_or_set(*waker.vtable());
    }
}

/// The table of the wakers of futures.
static FUTURE: PerProcess<RawWakerVTable> = PerProcess::new();
/// The table of the wakers that task sets leave with their items.
static TASK_SET: PerProcess<RawWakerVTable> = PerProcess::new();

/// The makers of wakers that never block in [`wake_by_ref`](Waker::wake_by_ref). To drop such a
/// waker may run users' code.
#[derive(Clone, Copy, Debug)]
pub enum Maker {
    Future,
    TaskSet,
}

/// Notes that all wakers of `maker` have this table.
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

/// Returns `true` if firing `waker` runs no users' code and waits for nobody. After `false` it may be so all the same.
#[inline]
pub fn is_harmless(waker: &Waker) -> bool {
    HARMLESS.get().is_some_and(|known| known == waker.vtable())
}
