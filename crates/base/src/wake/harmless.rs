//! Records which wakers may be fired by threads that other threads depend on.

use std::task::{RawWakerVTable, Waker};

use sync::fork::PerProcess;

use super::parker::unpark;

/// Fires a waker that has a known function table. The drop of the result may run user code.
pub type Fire = fn(Waker) -> Option<Box<dyn Send>>;

/// A function table, and the function that fires the wakers with this table. The table is compared
/// by value, because the compiler may duplicate it.
type Known = (RawWakerVTable, Fire);

static WORKER: PerProcess<Known> = PerProcess::new();
static FUTURE: PerProcess<Known> = PerProcess::new();
static TASK_SET: PerProcess<Known> = PerProcess::new();

/// The creators of wakers that never block. The drop of a waker of `Future` or `TaskSet` may run
/// user code.
#[derive(Clone, Copy, Debug)]
pub enum Maker {
    Worker,
    Future,
    TaskSet,
}

/// Records that all wakers of `maker` have this function table, and that `fire` fires them.
pub fn note_known(maker: Maker, table: &RawWakerVTable, fire: Fire) {
    let known = match maker {
        Maker::Worker => &WORKER,
        Maker::Future => &FUTURE,
        Maker::TaskSet => &TASK_SET,
    };
    if known.get().is_none() {
        known.get_or_set((*table, fire));
    }
}

/// Records that wakers with the same function table as `waker` run no user code and never block.
pub fn note_harmless(waker: &Waker) {
    note_known(Maker::Worker, waker.vtable(), |waker| {
        waker.wake();
        None
    });
}

/// Fires a waker that never blocks: that of a thread in `block_on`, or of a known [`Maker`]. The
/// drop of the result may run user code. Returns any other waker as the error.
pub fn fire_known(waker: Waker) -> Result<Option<Box<dyn Send>>, Waker> {
    let Some(waker) = unpark(waker) else {
        return Ok(None);
    };
    let known = [&WORKER, &FUTURE, &TASK_SET].map(PerProcess::get);
    match known.into_iter().flatten().find(|it| it.0 == *waker.vtable()) {
        Some((_, fire)) => Ok(fire(waker)),
        None => Err(waker),
    }
}

/// Returns `true` if firing `waker` is known to run no user code and never to block.
pub fn is_harmless(waker: &Waker) -> bool {
    WORKER.get().is_some_and(|known| known.0 == *waker.vtable())
}
