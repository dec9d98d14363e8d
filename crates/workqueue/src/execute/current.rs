//! The runs that a thread is in. Runs nest: a run may wait for an item and run it by that.

use std::{
    cell::Cell,
    ptr::{self, NonNull},
};

use sync::unmodelled::Arc;

use crate::{item::head::Head, limit::queue_core::QueueCore, pools::pwq::Pwq};

/// A run that this thread is in.
#[derive(Clone, Copy)]
struct Frame {
    /// Null for an item that has no handles, and once it has ended: it may be gone then.
    item: *const Head,
    /// The link from which it runs; null once the run has given up what keeps that.
    home: *const Pwq,
    /// The run around it, on the stack of this thread or of one that waits for this one; null for none.
    outer: *const Frame,
    /// How many runs there are on this thread's stack, with this one.
    depth: u32,
    /// `true` if the thread has a seat of the home's queue until this frame ends or forgets its
    /// home.
    has_seat: bool,
    /// Set if the run is in [`block_on`](super::block_on::block_on): a future polled there delays
    /// the run.
    blocks: bool,
}

sync::thread_local! {
    /// The innermost run.
    static INNERMOST: Cell<Frame> = Cell::new(Frame {
        item: ptr::null(),
        home: ptr::null(),
        outer: ptr::null(),
        depth: 0,
        has_seat: false,
        blocks: false,
    })
}

/// The runs that a thread is in, to be gone on with by another thread.
pub(crate) struct Runs(Frame);

// SAFETY: what it points to is shared by what keeps it there: see `Runs::go_on`.
unsafe impl Send for Runs {}

impl Runs {
    pub(crate) fn of_this_thread() -> Self {
        Self(INNERMOST.with(Cell::get))
    }

    /// Calls `body`, which does not unwind, with this thread in these. Its locals may be dropped much later.
    ///
    /// # Safety
    ///
    /// 1. The thread of which they are waits until `body` has returned.
    pub(crate) unsafe fn go_on<R>(self, body: impl FnOnce() -> R) -> R {
        let frame = Frame { depth: 0, ..self.0 };
        let before = INNERMOST.with(|innermost| innermost.replace(frame));
        let result = body();
        INNERMOST.with(|innermost| innermost.set(before));
        result
    }
}

/// Returns `true` if this thread is inside a run for which `test` holds.
fn inside(mut test: impl FnMut(Frame) -> bool) -> bool {
    let mut frame = INNERMOST.with(Cell::get);
    loop {
        if test(frame) {
            return true;
        }
        if frame.outer.is_null() {
            return false;
        }
        // SAFETY: `with_current` keeps the frame around a run on its stack, unmoved, until that run is over; one of another
        // thread is kept by (1) of `Runs::go_on`.
        frame = unsafe { *frame.outer };
    }
}

/// Returns `true` if this thread is inside a run of `item`.
pub(crate) fn is_current(item: NonNull<Head>) -> bool {
    inside(|frame| ptr::eq(frame.item, item.as_ptr()))
}

/// Returns `true` if this thread is inside a run of the queue `core`, or is freeing one of its
/// items that is in flight. The queue does not end before the thread has left.
pub(crate) fn is_inside(core: &Arc<QueueCore>) -> bool {
    inside(|frame| is_of(frame, core))
}

/// Returns `true` if this thread has a seat of the queue `core`, which it may lend to an item that it waits for.
pub(crate) fn is_seated(core: &Arc<QueueCore>) -> bool {
    inside(|frame| frame.has_seat && is_of(frame, core))
}

fn is_of(frame: Frame, core: &Arc<QueueCore>) -> bool {
    // SAFETY: a home that is not null is kept by what its run holds: see `with_current`.
    let home = unsafe { frame.home.as_ref() };
    home.is_some_and(|home| Arc::ptr_eq(&home.core, core))
}

/// Returns `true` if this thread is inside a run from a pwq for which `test` holds, and has a seat
/// for that run.
pub(crate) fn has_seat_of(test: impl Fn(&Pwq) -> bool) -> bool {
    inside(|frame| {
        // SAFETY: as in `is_seated`.
        let home = unsafe { frame.home.as_ref() };
        frame.has_seat && home.is_some_and(&test)
    })
}

/// Returns `true` if this thread's innermost run is in [`block_on`](super::block_on::block_on).
pub(crate) fn is_blocking() -> bool {
    INNERMOST.with(Cell::get).blocks
}

/// Calls `body` with this thread's innermost run in [`block_on`](super::block_on::block_on).
pub(crate) fn while_blocking<R>(body: impl FnOnce() -> R) -> R {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            if !sync::twin::torn_down() {
                set_blocking(self.0);
            }
        }
    }
    let before = Before(is_blocking());
    set_blocking(true);
    let result = body();
    drop(before);
    result
}

fn set_blocking(blocks: bool) {
    INNERMOST.with(|innermost| {
        innermost.set(Frame {
            blocks,
            ..innermost.get()
        });
    });
}

/// Returns how many runs there are on this thread's own stack.
#[inline]
pub fn depth() -> u32 {
    INNERMOST.with(|innermost| innermost.get().depth)
}

/// Returns `true` if this thread is inside a run of a bottom half.
pub(crate) fn is_bottom_half() -> bool {
    inside(|frame| {
        // SAFETY: as in `is_of`.
        let home = unsafe { frame.home.as_ref() };
        home.is_some_and(|home| home.core.bh)
    })
}

/// Calls `body` with the link of the innermost run of this thread whose link is `chosen`, if there is one.
pub(crate) fn innermost_home(chosen: impl Fn(&Pwq) -> bool, body: impl FnOnce(&Pwq)) {
    let mut body = Some(body);
    inside(|frame| {
        // SAFETY: as in `is_of`.
        let home = unsafe { frame.home.as_ref() };
        let Some(home) = home.filter(|home| chosen(home)) else {
            return false;
        };
        if let Some(body) = body.take() {
            body(home);
        }
        true
    });
}

/// Returns the link from which this thread's innermost run runs.
pub(crate) fn current_home() -> *const Pwq {
    INNERMOST.with(Cell::get).home
}

/// Returns the item of this thread's innermost run.
pub(crate) fn current_item() -> Option<NonNull<Head>> {
    NonNull::new(INNERMOST.with(Cell::get).item.cast_mut())
}

/// Notes that the item of the innermost run has ended, and may be freed by others.
pub(crate) fn forget_item() {
    INNERMOST.with(|innermost| {
        let item = ptr::null();
        innermost.set(Frame {
            item,
            ..innermost.get()
        });
    });
}

/// Notes that the innermost run has given up what kept its home.
pub(crate) fn forget_home() {
    INNERMOST.with(|innermost| {
        let home = ptr::null();
        innermost.set(Frame {
            home,
            ..innermost.get()
        });
    });
}

/// Calls `body` as part of the run of `item` from the pwq `home`, for which this thread has a seat.
///
/// # Safety
///
/// 1. `home` is there until `body` returns or calls [`forget_home`].
/// 2. So is `item`, if it is not null, with [`forget_item`].
#[inline]
pub(crate) unsafe fn with_current<R>(
    item: *const Head,
    home: *const Pwq,
    body: impl FnOnce() -> R,
) -> R {
    // SAFETY: (1), (2).
    unsafe { within_frame(item, home, true, body) }
}

/// Calls `body`, which frees `item`. The pwq `home` still has an in-flight count for the item, but
/// this thread has no seat for it, so any item that `body` waits for needs a seat of its own.
///
/// # Safety
///
/// 1. and 2. as for [`with_current`].
pub(crate) unsafe fn with_freed<R>(
    item: *const Head,
    home: *const Pwq,
    body: impl FnOnce() -> R,
) -> R {
    // SAFETY: (1), (2).
    unsafe { within_frame(item, home, false, body) }
}

/// # Safety
///
/// 1. and 2. as for [`with_current`].
#[inline]
unsafe fn within_frame<R>(
    item: *const Head,
    home: *const Pwq,
    has_seat: bool,
    body: impl FnOnce() -> R,
) -> R {
    struct Outer(Frame);
    impl Drop for Outer {
        fn drop(&mut self) {
            if !sync::twin::torn_down() {
                INNERMOST.with(|innermost| innermost.set(self.0));
            }
        }
    }
    let outer = Outer(INNERMOST.with(Cell::get));
    let frame = Frame {
        item,
        home,
        outer: &raw const outer.0,
        depth: outer.0.depth + 1,
        has_seat,
        blocks: false,
    };
    INNERMOST.with(|innermost| innermost.set(frame));
    body()
}
