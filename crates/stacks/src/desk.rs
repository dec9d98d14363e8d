//! Where a thread that was interrupted leaves what it was asked for: one place, and nobody waits for it under a lock.
//!
//! ```text
//!            ask                  begin                 end
//!   FREE ─────────► ASKED(thread) ─────► WRITING ───────────► WRITTEN
//!    ▲                 │                    │ give up            │
//!    │◄── give up ─────┘                    ▼        end         │
//!    │◄─────────────────────────────── LEFT ALONE ───────► FREE  │
//!    └◄──────────────────────────── read ────────────────────────┘
//! ```
//!
//! The asked thread answers from a signal's handler, which may come late: after whoever asked has given up, and another thread
//! was asked. What must never happen: *two write, or one writes what another reads*. So a thread begins by a
//! compare-exchange from the very word that asks it (twin `desk: begun without a claim`), and who gives up takes the desk back
//! only from a thread that has not begun; else the writer frees it (twin `desk: taken from its writer`).

use sync::atomic::{AtomicU64, Ordering};
use sync::cell::UnsafeCell;
use sync::twin;

const FREE: u64 = 0;
/// Above the number of the thread that is asked.
const ASKED: u64 = 1 << 32;
const WRITING: u64 = 2 << 32;
const WRITTEN: u64 = 3 << 32;
const LEFT_ALONE: u64 = 4 << 32;

/// One place for one answer.
#[derive(Debug)]
pub struct Desk<T> {
    /// A: see the picture.
    state: AtomicU64,
    /// Of whoever `state` says.
    answer: UnsafeCell<T>,
}

// SAFETY: one thread at a time has the answer, by the protocol.
unsafe impl<T: Send> Sync for Desk<T> {}

impl<T> Desk<T> {
    sync::const_unless_model! {
        /// Makes a free one.
        pub fn new(answer: T) -> Self {
            Self {
                state: AtomicU64::new(FREE),
                answer: UnsafeCell::new(answer),
            }
        }
    }

    /// Asks `thread`. Returns `false` if somebody has asked and not ended, or left a writer alone that has not ended.
    pub fn ask(&self, thread: u32) -> bool {
        // Acquire: the writer that was left alone has ended.
        let (from, to) = (FREE, ASKED | u64::from(thread));
        self.exchange(from, to, Ordering::Acquire)
    }

    /// Answers, as the thread `me`, in a signal's handler. Does nothing unless it is asked.
    pub fn answer(&self, me: u32, write: impl FnOnce(&mut T)) {
        let asked = ASKED | u64::from(me);
        if twin::armed("desk: begun without a claim") {
            if self.state.load(Ordering::Acquire) != asked {
                return;
            }
            self.state.store(WRITING, Ordering::Relaxed);
        } else if !self.exchange(asked, WRITING, Ordering::Acquire) {
            return;
        }
        // SAFETY: claimed: whoever asks next finds the desk taken until the exchange below.
        self.answer
            .with_mut(|answer| write(unsafe { &mut *answer }));
        if !self.exchange(WRITING, WRITTEN, Ordering::Release) {
            self.state.store(FREE, Ordering::Release);
        }
    }

    /// Returns what `read` makes of the answer if there is one. Called by who asked, until it returns a value or
    /// [`give_up`](Self::give_up) was called. `read` must not unwind: nobody would free the desk.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> Option<R> {
        if self.state.load(Ordering::Acquire) != WRITTEN {
            return None;
        }
        // SAFETY: the writer has ended, and we asked: nobody else reads or asks before the store.
        let what = self.answer.with(|answer| read(unsafe { &*answer }));
        self.state.store(FREE, Ordering::Release);
        Some(what)
    }

    /// Ends the asking of `thread`, whatever it does. Returns `true` if it has answered by now: then it is to be read.
    pub fn give_up(&self, thread: u32) -> bool {
        if twin::armed("desk: taken from its writer") {
            self.state.store(FREE, Ordering::Relaxed);
            return false;
        }
        let asked = ASKED | u64::from(thread);
        !self.exchange(asked, FREE, Ordering::Relaxed)
            && !self.exchange(WRITING, LEFT_ALONE, Ordering::Relaxed)
    }

    /// Frees the desk in a child of `fork`, which has none of the threads that used it.
    pub fn reset(&self) {
        self.state.store(FREE, Ordering::Relaxed);
    }

    fn exchange(&self, from: u64, to: u64, success: Ordering) -> bool {
        let state = &self.state;
        state
            .compare_exchange(from, to, success, Ordering::Relaxed)
            .is_ok()
    }
}
