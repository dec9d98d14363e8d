//! The runs that a thread is in. Runs nest: a run may wait for an item, and run that item itself.

use std::{
    cell::Cell,
    ptr::{self, NonNull},
};

use sync::unmodelled::Arc;

use crate::{item::head::Head, limit::queue_core::QueueCore, pools::pwq::Pwq};

/// A run that this thread is in.
#[derive(Clone, Copy)]
struct Frame {
    /// Null for an item without handles, and after the item's end, when it may be freed.
    item: *const Head,
    /// The pwq from which it runs; null once the run does not keep the pwq alive any more.
    home: *const Pwq,
    /// The enclosing run, on this stack or on that of a thread that waits for us; null if none.
    outer: *const Frame,
    /// The number of runs on this thread's stack, including this one.
    depth: u32,
    /// `true` if the thread has a seat of the home's queue, until `forget_home`.
    has_seat: bool,
    /// Set in [`block_on`](super::block_on::block_on), where a polled future delays the run.
    blocks: bool,
}

sync::thread_local! {
    static INNERMOST: Cell<Frame> = Cell::new(Frame {
        item: ptr::null(),
        home: ptr::null(),
        outer: ptr::null(),
        depth: 0,
        has_seat: false,
        blocks: false,
    })
}

/// The runs of one thread, which another thread continues.
pub(crate) struct Runs(Frame);

// SAFETY: the frames stay valid while another thread reads them: see (1) of `Runs::go_on`.
unsafe impl Send for Runs {}

impl Runs {
    pub(crate) fn of_this_thread() -> Self {
        Self(INNERMOST.with(Cell::get))
    }

    /// Calls `body`, which must not unwind, with this thread inside these runs.
    ///
    /// # Safety
    ///
    /// 1. The thread that the runs belong to waits until `body` has returned.
    pub(crate) unsafe fn go_on<R>(self, body: impl FnOnce() -> R) -> R {
        let frame = Frame { depth: 0, ..self.0 };
        let before = INNERMOST.with(|innermost| innermost.replace(frame));
        let result = body();
        INNERMOST.with(|innermost| innermost.set(before));
        result
    }
}

fn inside(mut test: impl FnMut(Frame) -> bool) -> bool {
    let mut frame = INNERMOST.with(Cell::get);
    loop {
        if test(frame) {
            return true;
        }
        if frame.outer.is_null() {
            return false;
        }
        // SAFETY: `within_frame` keeps the outer frame on its stack, unmoved, until the inner run
        // is over. A frame of another thread is kept by (1) of `Runs::go_on`.
        frame = unsafe { *frame.outer };
    }
}

pub(crate) fn is_current(item: NonNull<Head>) -> bool {
    inside(|frame| ptr::eq(frame.item, item.as_ptr()))
}

/// Returns `true` if this thread is inside a run of the queue `core`, or is freeing one of its
/// items that is in flight. The queue is not destroyed before the thread leaves.
pub(crate) fn is_inside(core: &Arc<QueueCore>) -> bool {
    inside(|frame| is_of(frame, core))
}

/// Returns `true` if this thread has a seat of the queue `core`. It may lend the seat to an item
/// that it waits for.
pub(crate) fn is_seated(core: &Arc<QueueCore>) -> bool {
    inside(|frame| frame.has_seat && is_of(frame, core))
}

fn is_of(frame: Frame, core: &Arc<QueueCore>) -> bool {
    // SAFETY: the run keeps a home that is not null alive: see `with_current`.
    let home = unsafe { frame.home.as_ref() };
    home.is_some_and(|home| Arc::ptr_eq(&home.core, core))
}

/// Returns `true` if this thread is in a run whose pwq passes `test`, and has a seat for it.
pub(crate) fn has_seat_of(test: impl Fn(&Pwq) -> bool) -> bool {
    inside(|frame| {
        // SAFETY: as in `is_of`.
        let home = unsafe { frame.home.as_ref() };
        frame.has_seat && home.is_some_and(&test)
    })
}

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

/// Returns the number of runs on this thread's own stack.
#[inline]
pub fn depth() -> u32 {
    INNERMOST.with(|innermost| innermost.get().depth)
}

pub(crate) fn is_bottom_half() -> bool {
    inside(|frame| {
        // SAFETY: as in `is_of`.
        let home = unsafe { frame.home.as_ref() };
        home.is_some_and(|home| home.core.bh)
    })
}

/// Calls `body` with the pwq of this thread's innermost run whose pwq is `chosen`, if any.
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

pub(crate) fn current_home() -> *const Pwq {
    INNERMOST.with(Cell::get).home
}

pub(crate) fn current_item() -> Option<NonNull<Head>> {
    NonNull::new(INNERMOST.with(Cell::get).item.cast_mut())
}

/// Records that the item of the innermost run has ended, and that another thread may free it.
pub(crate) fn forget_item() {
    INNERMOST.with(|innermost| {
        let item = ptr::null();
        innermost.set(Frame {
            item,
            ..innermost.get()
        });
    });
}

/// Records that the innermost run does not keep its home alive any more.
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
/// 1. `home` stays valid until `body` returns or calls [`forget_home`].
/// 2. `item` is null, or stays valid until `body` returns or calls [`forget_item`].
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
