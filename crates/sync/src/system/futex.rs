//! Words on which a thread can sleep.
//!
//! A sleeper passes the value that it has read. The kernel puts it to sleep only if the word still
//! has that value. A waker changes the word first and wakes afterwards. If the change comes before
//! the kernel's check, the sleep is rejected. If it comes after, the wake ends the sleep. Every
//! wait may return early, so callers loop.
//!
//! The sleeper may free the word as soon as a waker has changed it. The waker therefore reads the
//! *address* first, with [`Futex::key`]. If the word has been freed, a wake of the key has no
//! effect, or it wakes another sleeper, which checks its own word again.

#[cfg(not(any(loom, shuttle)))]
use std::ffi::{c_int, c_long};
use std::time::Duration;

pub use backend::Key;

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::const_unless_model;

/// Declares a word to sleep on. The kernel compares the 32 bits at its address, the low ones.
macro_rules! futex {
    ($(#[$doc:meta])* $name:ident, $value:ty, $atomic:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name {
            word: $atomic,
            waiters: backend::Waiters,
        }

        impl $name {
            const_unless_model! {
                /// Creates a word that holds `value`.
                pub fn new(value: $value) -> Self {
                    Self { word: <$atomic>::new(value), waiters: backend::Waiters::new() }
                }
            }

            /// Returns the word itself.
            #[inline(always)]
            pub fn word(&self) -> &$atomic {
                &self.word
            }

            /// Returns the key, with which sleepers can be woken after the word is freed.
            #[inline(always)]
            pub fn key(&self) -> Key {
                self.waiters.key((&raw const self.word).cast())
            }

            /// Sleeps while the low 32 bits equal those of `expected`. May return early.
            #[cfg_attr(sim, track_caller)]
            pub fn wait(&self, expected: $value) {
                self.sleep(expected, None);
            }

            /// Sleeps as [`wait`](Self::wait) does, for at most `timeout`, which never ends in a
            /// model. A short timeout is punctual: it sets the thread's timer slack, which is 50 us
            /// by default, to 1 ns while the thread sleeps. This costs three system calls of about
            /// 0.1 us each.
            #[cfg_attr(sim, track_caller)]
            pub fn wait_timeout(&self, expected: $value, timeout: Duration) {
                self.sleep(expected, Some(timeout));
            }

            #[cfg_attr(sim, track_caller)]
            fn sleep(&self, expected: $value, timeout: Option<Duration>) {
                let load = || self.word.load(Ordering::Relaxed) as u32;
                // Miri reports a futex that compares half of an atomic as a race of mixed sizes.
                // Miri's clock counts the interpreted steps, so a short sleep costs nothing.
                if cfg!(miri) && size_of::<$value>() == 8 {
                    if load() == expected as u32 {
                        let short_sleep = Duration::from_micros(100);
                        std::thread::sleep(timeout.map_or(short_sleep, |timeout| timeout.min(short_sleep)));
                    }
                    return;
                }
                let word = (&raw const self.word).cast();
                self.waiters.wait(word, expected as u32, load, timeout);
            }
        }
    };
}

futex! {
    /// A 32-bit word to sleep on.
    Futex, u32, AtomicU32
}
futex! {
    /// A 64-bit word on which threads sleep. Only its low 32 bits are compared.
    Futex64, u64, AtomicU64
}

impl Futex {
    /// Wakes up to `count` sleepers, like [`Key::wake`].
    pub fn wake(&self, count: u32) {
        self.key().wake(count);
    }
}

#[cfg(not(any(loom, shuttle)))]
mod backend {
    use std::time::Duration;

    /// The sleepers of a word, which the kernel or the simulation's engine records.
    #[derive(Debug)]
    pub struct Waiters;

    /// Wakes the sleepers of a word without accessing the word.
    #[derive(Clone, Debug)]
    pub struct Key(*const u32);

    // SAFETY: a key is an address by which the kernel finds sleepers. It is never dereferenced.
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

        #[cfg_attr(sim, track_caller)]
        pub fn wait(
            &self,
            word: *const u32,
            expected: u32,
            _load: impl Fn() -> u32,
            timeout: Option<Duration>,
        ) {
            #[cfg(sim)]
            // SAFETY: (1): the callers of this module borrow the word until they return.
            unsafe {
                crate::sim::futex::wait(word, expected, timeout)
            };
            #[cfg(not(sim))]
            {
                if crate::fault::fails(crate::fault::Point::Sleep) {
                    return;
                }
                let _wait = crate::slice::Wait::begin();
                let _punctual = timeout.and_then(crate::system::punctual::Punctual::for_span);
                super::sleep_on(word, libc::FUTEX_PRIVATE_FLAG, expected, timeout);
            }
        }
    }

    impl Key {
        /// Wakes up to `count` sleepers. Makes a system call even if there are none.
        pub fn wake(&self, count: u32) {
            #[cfg(sim)]
            crate::sim::futex::wake(self.0, count);
            #[cfg(not(sim))]
            super::wake_at(self.0, libc::FUTEX_PRIVATE_FLAG, count);
        }
    }
}

/// Sleeps while the word is `expected`, for at most `timeout`. Returns the system call's result.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn sleep_on(
    word: *const u32,
    flags: c_int,
    expected: u32,
    timeout: Option<Duration>,
) -> c_long {
    let timeout = timeout.map(crate::time::timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let operation = libc::FUTEX_WAIT | flags;
    // SAFETY: the kernel checks whether the word is readable. `timeout` is on this stack, or null.
    unsafe { libc::syscall(libc::SYS_futex, word, operation, expected, timeout) }
}

/// Wakes up to `count` threads that sleep on `word`.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn wake_at(word: *const u32, flags: c_int, count: u32) {
    let (operation, count) = (libc::FUTEX_WAKE | flags, count.min(i32::MAX as u32));
    // SAFETY: the kernel uses the address only to identify sleepers, and reads nothing through it.
    unsafe { libc::syscall(libc::SYS_futex, word, operation, count) };
}

#[cfg(any(loom, shuttle))]
mod backend {
    use std::mem::ManuallyDrop;
    #[cfg(shuttle)]
    use std::sync::Arc;
    use std::time::Duration;

    use crate::backend::sync::{Condvar, Mutex};
    #[cfg(loom)]
    use loom::sync::Arc;

    /// The kernel's side of a futex. The model's own reference count shows words that leak.
    #[derive(Clone, Debug)]
    pub struct Sleepers {
        shared: ManuallyDrop<Arc<(Mutex<()>, Condvar)>>,
    }

    pub use Sleepers as Key;
    pub use Sleepers as Waiters;

    crate::on_drop! {
        Sleepers, this => {
            // SAFETY: the field is not used again; `Drop` runs once.
            unsafe { ManuallyDrop::drop(&mut this.shared) }
        }
    }

    impl Sleepers {
        pub(super) fn new() -> Self {
            Self { shared: ManuallyDrop::new(Arc::new((Mutex::new(()), Condvar::new()))) }
        }

        pub(super) fn key(&self, _word: *const u32) -> Key {
            self.clone()
        }

        /// Compares the word and starts the sleep in one atomic step.
        pub(super) fn wait(
            &self,
            _word: *const u32,
            expected: u32,
            load: impl Fn() -> u32,
            _timeout: Option<Duration>,
        ) {
            let (lock, condition) = &**self.shared;
            let guard = lock.lock().unwrap();
            if load() == expected {
                drop(condition.wait(guard).unwrap());
            }
        }

        /// Wakes one sleeper if `count` is 1, and otherwise all.
        pub fn wake(&self, count: u32) {
            let (lock, condition) = &**self.shared;
            let _guard = lock.lock().unwrap();
            match count {
                1 => condition.notify_one(),
                _ => condition.notify_all(),
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn wait_sleeps_only_if_the_low_half_is_unchanged() {
        Futex::new(1).wait(0);
        Futex64::new(7 << 32 | 1).wait(0);
        let word = Futex64::new(5 << 32);
        word.wait_timeout(0, Duration::from_millis(1));
        assert_eq!(word.word().load(Ordering::Relaxed), 5 << 32);
    }

    #[test]
    fn a_sleeper_is_woken_by_its_key() {
        let word = Futex::new(0);
        let sleeps = || {
            while word.word().load(Ordering::Acquire) == 0 {
                word.wait(0);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(sleeps);
            word.word().store(1, Ordering::Release);
            word.key().wake(1);
        });
    }
}
