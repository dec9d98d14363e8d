//! The slot in which an interrupted thread stores its answer.
//!
//! ```text
//!            ask                  begin                 end
//!   FREE ─────────► ASKED(thread) ─────► WRITING ───────────► WRITTEN
//!    ▲                 │                    │ give up            │
//!    │◄── give up ─────┘                    ▼        end         │
//!    │◄─────────────────────────────── ABANDONED ────────► FREE  │
//!    └◄──────────────────────────── read ────────────────────────┘
//! ```
//!
//! The asked thread answers from a signal handler, perhaps after the asking thread has given up and
//! another thread has been asked. *Two threads must never write at the same time, and no thread may
//! write while another reads.* A thread therefore begins with a compare-exchange that succeeds only
//! if the word still holds a request for this thread (twin `answer slot: begun without a claim`). A
//! thread that gives up frees the slot only if the asked thread has not begun; otherwise the writer
//! frees it (twin `answer slot: taken from its writer`).

use sync::atomic::{AtomicU64, Ordering};
use sync::cell::UnsafeCell;
use sync::twin;

const FREE: u64 = 0;
/// States are multiples of 2^32; the low half holds the ID of the asked thread.
const ASKED: u64 = 1 << 32;
const WRITING: u64 = 2 << 32;
const WRITTEN: u64 = 3 << 32;
const ABANDONED: u64 = 4 << 32;

/// A slot for one answer.
#[derive(Debug)]
pub struct AnswerSlot<T> {
    /// A: see the top of the file.
    state: AtomicU64,
    /// Accessed by the thread to which `state` grants access.
    answer: UnsafeCell<T>,
}

// SAFETY: the protocol lets only one thread at a time access the answer.
unsafe impl<T: Send> Sync for AnswerSlot<T> {}

impl<T> AnswerSlot<T> {
    sync::const_unless_model! {
        /// Creates a free slot.
        pub fn new(answer: T) -> Self {
            Self {
                state: AtomicU64::new(FREE),
                answer: UnsafeCell::new(answer),
            }
        }
    }

    /// Asks `thread`. Returns `false` if the slot is not free.
    pub fn ask(&self, thread: u32) -> bool {
        // Acquire pairs with the Release with which the writer of an abandoned request ends.
        let (from, to) = (FREE, ASKED | u64::from(thread));
        self.exchange(from, to, Ordering::Acquire)
    }

    /// Answers as the thread `me`, from a signal handler. Does nothing unless `me` was asked.
    pub fn answer(&self, me: u32, write: impl FnOnce(&mut T)) {
        let asked = ASKED | u64::from(me);
        if twin::armed("answer slot: begun without a claim") {
            if self.state.load(Ordering::Acquire) != asked {
                return;
            }
            self.state.store(WRITING, Ordering::Relaxed);
        } else if !self.exchange(asked, WRITING, Ordering::Acquire) {
            return;
        }
        // SAFETY: we have claimed the slot, so no other thread can ask until the exchange below.
        self.answer.with_mut(|answer| write(unsafe { &mut *answer }));
        if !self.exchange(WRITING, WRITTEN, Ordering::Release) {
            self.state.store(FREE, Ordering::Release);
        }
    }

    /// Passes the answer, if there is one, to `read`, which must not unwind. The asking thread
    /// calls this until it returns a value or [`give_up`](Self::give_up) has been called.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> Option<R> {
        if self.state.load(Ordering::Acquire) != WRITTEN {
            return None;
        }
        // SAFETY: the writer has finished. We are the asking thread, so no other thread reads or
        // asks before the store.
        let what = self.answer.with(|answer| read(unsafe { &*answer }));
        self.state.store(FREE, Ordering::Release);
        Some(what)
    }

    /// Ends the request to `thread`. Returns `true` if there is an answer, which must be read.
    pub fn give_up(&self, thread: u32) -> bool {
        if twin::armed("answer slot: taken from its writer") {
            self.state.store(FREE, Ordering::Relaxed);
            return false;
        }
        let asked = ASKED | u64::from(thread);
        !self.exchange(asked, FREE, Ordering::Relaxed)
            && !self.exchange(WRITING, ABANDONED, Ordering::Relaxed)
    }

    /// Frees the slot in a child of `fork`.
    pub fn reset(&self) {
        self.state.store(FREE, Ordering::Relaxed);
    }

    fn exchange(&self, from: u64, to: u64, success: Ordering) -> bool {
        let state = &self.state;
        state.compare_exchange(from, to, success, Ordering::Relaxed).is_ok()
    }
}
