//! Wakers that threads may fire on which others depend.

use std::task::{RawWakerVTable, Waker};

use sync::fork::PerProcess;

/// The table of dedicated workers' wakers, of which this folder knows no more. Compared by what is in it, for the compiler may make
/// several of one.
static HARMLESS: PerProcess<RawWakerVTable> = PerProcess::new();

/// Notes that all wakers with the table of this one run no users' code, and wait for nobody.
pub(crate) fn note_harmless(waker: &Waker) {
    if HARMLESS.get().is_none() {
        HARMLESS.get_or_set(*waker.vtable());
    }
}

/// Returns `true` if firing `waker` runs no users' code and waits for nobody. After `false` it may be so all the same.
pub(crate) fn is_harmless(waker: &Waker) -> bool {
    HARMLESS.get().is_some_and(|known| known == waker.vtable())
}
