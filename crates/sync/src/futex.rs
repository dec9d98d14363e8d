//! Words on which a thread can sleep.
//!
//! A sleeper passes the value that it has read. The kernel lets it sleep only while the word still
//! has that value. A waker changes the word first and wakes afterwards. If the change comes before
//! the kernel's check, the sleep is rejected. If it comes after, the wake ends the sleep. Every
//! wait may return early, so callers loop.
//!
//! Once a waker has changed the word, the sleeper may free it. The waker therefore takes the
//! *address* first, with [`Futex::key`]. Waking a key accesses no memory. If the word has been
//! freed, the wake has no effect, or wakes a thread that loops.

use std::time::Duration;

use crate::{
    atomic::{AtomicU32, AtomicU64},
    const_unless_model,
};

#[cfg(any(loom, shuttle))]
use model as backend;
#[cfg(not(any(loom, shuttle, sim)))]
use real as backend;
#[cfg(sim)]
use simulated as backend;

/// A 32-bit word on which threads can sleep.
#[derive(Debug)]
pub struct Futex {
    word: AtomicU32,
    waiters: backend::Waiters,
}

/// A 64-bit word on which threads can sleep. Only its low 32 bits are compared.
#[derive(Debug)]
pub struct Futex64 {
    word: AtomicU64,
    waiters: backend::Waiters,
}

/// Wakes the sleepers of a word without accessing the word.
#[derive(Clone, Debug)]
pub struct Key(backend::Key);

impl Futex {
    const_unless_model! {
        /// Creates a word with this value.
        pub fn new(value: u32) -> Self {
            Self { word: AtomicU32::new(value), waiters: backend::Waiters::new() }
        }
    }

    /// Returns the word itself.
    #[inline(always)]
    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// Returns the key that wakes sleepers even after the word is freed.
    #[inline(always)]
    pub fn key(&self) -> Key {
        Key(self.waiters.key((&raw const self.word).cast()))
    }

    /// Sleeps while the word equals `expected`. May return early.
    ///
    /// # Blocking
    ///
    /// Blocks until [`wake`](Self::wake), or forever.
    #[cfg_attr(sim, track_caller)]
    pub fn wait(&self, expected: u32) {
        self.waiters.wait(
            (&raw const self.word).cast(),
            expected,
            || load32(&self.word),
            None,
        );
    }

    /// Sleeps like [`wait`](Self::wait), at most for `timeout`. Never times out in a model.
    ///
    /// A short timeout is punctual: the thread's timer slack, 50 us by default, is set to 1 ns
    /// during the sleep. That costs three system calls of some 0.1 us each.
    #[cfg_attr(sim, track_caller)]
    pub fn wait_timeout(&self, expected: u32, timeout: Duration) {
        self.waiters.wait(
            (&raw const self.word).cast(),
            expected,
            || load32(&self.word),
            Some(timeout),
        );
    }

    /// Wakes up to `count` sleepers. Makes a system call even if there is none.
    pub fn wake(&self, count: u32) {
        self.key().wake(count);
    }
}

impl Futex64 {
    const_unless_model! {
        /// Creates a word with this value.
        pub fn new(value: u64) -> Self {
            Self { word: AtomicU64::new(value), waiters: backend::Waiters::new() }
        }
    }

    /// Returns the word itself.
    #[inline(always)]
    pub fn word(&self) -> &AtomicU64 {
        &self.word
    }

    /// Returns the key that wakes sleepers even after the word is freed.
    #[inline(always)]
    pub fn key(&self) -> Key {
        Key(self.waiters.key((&raw const self.word).cast()))
    }

    /// Sleeps while the low half of the word equals the low half of `expected`.
    ///
    /// # Blocking
    ///
    /// Blocks until the key is woken, or forever. May return early.
    #[cfg_attr(sim, track_caller)]
    pub fn wait(&self, expected: u64) {
        #[cfg(miri)]
        return self.nap(expected, Duration::MAX);
        #[cfg(not(miri))]
        self.waiters.wait(
            (&raw const self.word).cast(),
            expected as u32,
            || load64(&self.word) as u32,
            None,
        );
    }

    /// Like [`wait`](Self::wait), at most for `timeout`; as punctual as [`Futex::wait_timeout`].
    #[cfg_attr(sim, track_caller)]
    pub fn wait_timeout(&self, expected: u64, timeout: Duration) {
        #[cfg(miri)]
        return self.nap(expected, timeout);
        #[cfg(not(miri))]
        self.waiters.wait(
            (&raw const self.word).cast(),
            expected as u32,
            || load64(&self.word) as u32,
            Some(timeout),
        );
    }

    /// Replaces a wait under Miri, which reports a race of mixed sizes for a futex on half of an
    /// atomic. Miri's clock counts interpreted instructions, so a short sleep costs nothing.
    #[cfg(miri)]
    fn nap(&self, expected: u64, timeout: Duration) {
        if load64(&self.word) as u32 == expected as u32 {
            std::thread::sleep(timeout.min(Duration::from_micros(100)));
        }
    }
}

impl Key {
    /// Wakes up to `count` sleepers, without accessing their memory.
    #[inline]
    pub fn wake(&self, count: u32) {
        self.0.wake(count);
    }
}

fn load32(word: &AtomicU32) -> u32 {
    word.load(crate::atomic::Ordering::Relaxed)
}

fn load64(word: &AtomicU64) -> u64 {
    word.load(crate::atomic::Ordering::Relaxed)
}

#[cfg(sim)]
mod simulated {
    use std::time::Duration;

    #[derive(Debug)]
    pub struct Waiters;

    #[derive(Clone, Copy, Debug)]
    pub struct Key(*const u32);

    // SAFETY: a key is an address by which the engine finds sleepers.
    unsafe impl Send for Key {}
    // SAFETY: as above.
    unsafe impl Sync for Key {}

    impl Waiters {
        pub const fn new() -> Self {
            Self
        }

        pub fn key(&self, word: *const u32) -> Key {
            Key(word)
        }

        #[track_caller]
        pub fn wait(
            &self,
            word: *const u32,
            expected: u32,
            _load: impl Fn() -> u32,
            timeout: Option<Duration>,
        ) {
            // SAFETY: 1: the callers of this module borrow the word until they return.
            unsafe { crate::sim::futex::wait(word, expected, timeout) };
        }
    }

    impl Key {
        pub fn wake(&self, count: u32) {
            crate::sim::futex::wake(self.0, count);
        }
    }
}

#[cfg(not(any(loom, shuttle, sim)))]
mod real {
    use std::time::Duration;

    use crate::fault;

    use crate::punctual::Punctual;

    #[derive(Debug)]
    pub struct Waiters;

    #[derive(Clone, Copy, Debug)]
    pub struct Key(*const u32);

    // SAFETY: a key is an address that is passed to the kernel and never dereferenced here.
    unsafe impl Send for Key {}
    // SAFETY: as above.
    unsafe impl Sync for Key {}

    impl Waiters {
        pub const fn new() -> Self {
            Self
        }

        #[inline(always)]
        pub fn key(&self, word: *const u32) -> Key {
            Key(word)
        }

        pub fn wait(
            &self,
            word: *const u32,
            expected: u32,
            _load: impl Fn() -> u32,
            timeout: Option<Duration>,
        ) {
            if fault::fails(fault::Point::Sleep) {
                return;
            }
            let _punctual = timeout.and_then(Punctual::for_span);
            let timeout = timeout.map(|span| libc::timespec {
                tv_sec: span.as_secs().min(i64::MAX as u64) as _,
                tv_nsec: span.subsec_nanos() as _,
            });
            let timeout = timeout
                .as_ref()
                .map_or(std::ptr::null(), |span| span as *const libc::timespec);
            // SAFETY: `word` points to a live atomic (the caller borrows it for the whole wait),
            // and `timeout` is null or points to a timespec on this stack.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    word,
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    expected,
                    timeout,
                );
            }
        }
    }

    impl Key {
        pub fn wake(&self, count: u32) {
            // SAFETY: FUTEX_WAKE identifies sleepers by the address, which is not accessed.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.0,
                    libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                    count.min(i32::MAX as u32),
                );
            }
        }
    }
}

#[cfg(any(loom, shuttle))]
mod model {
    use std::{mem::ManuallyDrop, time::Duration};

    #[cfg(loom)]
    use loom::sync::{Arc, Condvar, Mutex};
    #[cfg(shuttle)]
    use shuttle::sync::{Condvar, Mutex};
    #[cfg(shuttle)]
    use std::sync::Arc;

    /// The sleepers. The count is the model's, so that a model detects a word that is never freed.
    #[derive(Clone, Debug)]
    struct Sleepers {
        shared: ManuallyDrop<Arc<(Mutex<()>, Condvar)>>,
    }

    /// The kernel's side of a futex. Comparing and falling asleep is atomic for wakers.
    #[derive(Debug)]
    pub struct Waiters(Sleepers);

    #[derive(Clone, Debug)]
    pub struct Key(Sleepers);

    impl std::ops::Deref for Sleepers {
        type Target = (Mutex<()>, Condvar);
        fn deref(&self) -> &Self::Target {
            &self.shared
        }
    }

    impl Drop for Sleepers {
        fn drop(&mut self) {
            if !crate::twin::torn_down() {
                // SAFETY: the field is not used again; `Drop` runs once.
                unsafe { ManuallyDrop::drop(&mut self.shared) };
            }
        }
    }

    impl Waiters {
        pub fn new() -> Self {
            let sleepers = Arc::new((Mutex::new(()), Condvar::new()));
            Self(Sleepers {
                shared: ManuallyDrop::new(sleepers),
            })
        }

        pub fn key(&self, _word: *const u32) -> Key {
            Key(self.0.clone())
        }

        pub fn wait(
            &self,
            _word: *const u32,
            expected: u32,
            load: impl Fn() -> u32,
            _timeout: Option<Duration>,
        ) {
            let guard = self.0.0.lock().unwrap();
            if load() == expected {
                drop(self.0.1.wait(guard).unwrap());
            }
        }
    }

    impl Key {
        pub fn wake(&self, count: u32) {
            let guard = self.0.0.lock().unwrap();
            if count == 1 {
                self.0.1.notify_one();
            } else {
                self.0.1.notify_all();
            }
            drop(guard);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::atomic::Ordering;

    #[test]
    fn a_changed_word_is_not_slept_on() {
        Futex::new(1).wait(0);
        Futex64::new(7 << 32 | 1).wait(0);
    }

    #[test]
    fn only_the_low_half_is_compared() {
        let word = Futex64::new(5 << 32);
        word.wait_timeout(0, Duration::from_millis(1));
        assert_eq!(word.word().load(Ordering::Relaxed), 5 << 32);
    }

    #[test]
    fn a_sleeper_is_woken_by_its_key() {
        let word = std::sync::Arc::new(Futex::new(0));
        let key = word.key();
        let sleeper = std::thread::spawn({
            let word = word.clone();
            move || {
                while word.word().load(Ordering::Acquire) == 0 {
                    word.wait(0);
                }
            }
        });
        word.word().store(1, Ordering::Release);
        key.wake(1);
        sleeper.join().unwrap();
    }
}
