//! One thread sleeps until it receives a token.
//!
//! # States
//!
//! | word | meaning | next transition |
//! |---|---|---|
//! | `EMPTY` | no token, the owner is awake | owner → `PARKED`, waker → `TOKEN` |
//! | `PARKED` | the owner sleeps or is about to | waker → `TOKEN`, and then wakes the futex |
//! | `TOKEN` | a token waits | owner → `EMPTY` |
//!
//! All transitions are read-modify-writes on one word, so they have one order:
//!
//! - A waker that finds `EMPTY` stores a token. The owner's next attempt to park finds it and does
//!   not sleep.
//! - A waker that finds `PARKED` replaces it with `TOKEN` and wakes the futex. If the owner already
//!   sleeps, this ends its sleep. Otherwise the kernel rejects the sleep, because the word is no
//!   longer `PARKED`.
//!
//! An early wake-up is therefore never lost. A parker without the token, which only sets a flag and
//! wakes the futex, loses it (twin `park: no token`).

use std::mem::ManuallyDrop;
use std::ptr;
use std::task::{RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

use sync::atomic::Ordering;
use sync::futex::{Futex, Key};
use sync::unmodelled::Arc;
use sync::{time, twin};

use super::report;
use super::spin::{DEFAULT_SPIN_LIMIT, SpinBudget};

const EMPTY: u32 = 0;
const TOKEN: u32 = 1;
const PARKED: u32 = 2;

#[derive(Debug)]
struct Token(Futex);

/// Lets its owner sleep until another thread stores a token.
///
/// # Guarantees
///
/// - A token stored at any time ends the current or the next [`park`](Self::park).
/// - Tokens do not add up: several calls to [`Unparker::unpark`] may leave one token.
/// - Everything that the waker wrote before `unpark` is visible after `park` returns.
/// - `park` never returns without a token, which may be older than the condition that the owner now
///   waits for. Check the condition again.
///
/// # Examples
///
/// ```
/// use afterwork::wake::Parker;
///
/// let mut parker = Parker::new();
/// let unparker = parker.unparker();
/// std::thread::spawn(move || unparker.unpark());
/// parker.park();
/// ```
#[derive(Debug)]
#[doc(hidden)]
pub struct Parker {
    token: Arc<Token>,
    spin: SpinBudget,
    spin_limit: u32,
}

/// Stores the token for the owner of a [`Parker`].
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Unparker {
    token: Arc<Token>,
}

impl Parker {
    /// Creates a parker without a token. It spins at most 64 rounds, about 20 µs, before it sleeps.
    pub fn new() -> Self {
        Self::with_spin_limit(DEFAULT_SPIN_LIMIT)
    }

    /// Creates a parker that spins at most `spin_limit` rounds before it sleeps; see
    /// [`SpinBudget`].
    pub fn with_spin_limit(spin_limit: u32) -> Self {
        Self { token: Arc::new(Token(Futex::new(EMPTY))), spin: SpinBudget::new(), spin_limit }
    }

    /// Returns the handle with which other threads wake the owner.
    #[inline]
    pub fn unparker(&self) -> Unparker {
        Unparker { token: self.token.clone() }
    }

    /// Takes the token if there is one. Returns `true` on success. Never blocks.
    #[inline]
    pub fn try_park(&mut self) -> bool {
        // Even a failed compare-exchange would take the cache line from the waker.
        self.token.0.word().load(Ordering::Relaxed) == TOKEN && self.token.take()
    }

    /// Waits for the token and takes it.
    ///
    /// # Blocking
    ///
    /// Blocks until [`Unparker::unpark`] is called. Spins first, if spinning was useful before.
    pub fn park(&mut self) {
        self.park_until(|| None);
    }

    /// Waits for the token for at most `timeout`. Returns `true` if the token was taken.
    ///
    /// # Blocking
    ///
    /// Blocks for at most `timeout`. In a model it never times out.
    pub fn park_timeout(&mut self, timeout: Duration) -> bool {
        self.park_until(|| Some(time::ns_after(timeout)))
    }

    /// Waits for the token, until the time of `end_ns`, if any. Returns `true` if it was taken.
    pub(super) fn park_until(&mut self, end_ns: impl FnOnce() -> Option<u64>) -> bool {
        let word = self.token.0.word();
        let is_given = || word.load(Ordering::Relaxed) == TOKEN;
        self.spin.spin(self.spin_limit, is_given) && self.token.take()
            || report::while_asleep(|| self.sleep(end_ns()))
    }

    fn sleep(&self, end_ns: Option<u64>) -> bool {
        if !self.token.announce() {
            return true;
        }
        loop {
            match end_ns.map(|end_ns| end_ns.saturating_sub(time::now_ns())) {
                None => self.token.0.wait(PARKED),
                // If a waker's swap comes first, we take its token, and acquire as in `take`. If
                // our swap comes first, the waker finds `EMPTY`, and its token remains for the next
                // park.
                Some(0) => return self.token.0.word().swap(EMPTY, Ordering::Acquire) == TOKEN,
                Some(left_ns) => {
                    self.token.0.wait_timeout(PARKED, Duration::from_nanos(left_ns));
                }
            }
            if twin::armed("park: no token") || self.token.take() {
                return true;
            }
        }
    }
}

impl Default for Parker {
    fn default() -> Self {
        Self::new()
    }
}

impl Token {
    /// Announces that the owner is about to sleep, or takes the token and returns `false`.
    fn announce(&self) -> bool {
        let announced =
            self.0.word().compare_exchange(EMPTY, PARKED, Ordering::Relaxed, Ordering::Relaxed);
        announced.is_ok() || {
            let taken = self.take();
            debug_assert!(taken, "only the owner takes a token");
            false
        }
    }

    #[inline]
    fn take(&self) -> bool {
        // ORDER(token): publish and consume, other end in `give`.
        //   give: condition = true; swap TOKEN Release
        //   take: TOKEN -> EMPTY Acquire; the owner re-checks the condition
        // If the swap comes first, we take the token and see everything that the waker wrote. If
        // our exchange comes first, it fails, and the next attempt finds the token.
        // Test: parker_publishes_writes_of_the_waker
        let order = twin::order("park: relaxed take", Ordering::Acquire);
        self.0.word().compare_exchange(TOKEN, EMPTY, order, Ordering::Relaxed).is_ok()
    }

    /// Stores a token. Returns the key to wake if the owner is parked.
    #[inline]
    fn give(&self) -> Option<Key> {
        // The owner may free the word as soon as it has the token, so the key is created first.
        let key = self.0.key();
        // ORDER(token): other end in `take`. If the owner's `announce` comes first, we find PARKED
        // and wake it. If our swap comes first, `announce` fails and the owner takes the token.
        let order = twin::order("park: relaxed give", Ordering::Release);
        let before = if twin::armed("park: no token") {
            self.0.word().load(Ordering::Relaxed)
        } else {
            self.0.word().swap(TOKEN, order)
        };
        (before == PARKED).then_some(key)
    }
}

impl Unparker {
    /// Stores a token for the owner, and wakes it if it sleeps.
    ///
    /// # Blocking
    ///
    /// Never blocks. Costs one locked instruction, and a system call if the owner sleeps. A work
    /// item may call it. Do not call it while you hold a lock that the owner acquires (see
    /// [`WakeQ`](super::WakeQ)).
    #[inline]
    pub fn unpark(&self) {
        if let Some(key) = self.token.give() {
            key.wake(1);
        }
    }

    /// Returns `true` if there is a token that the owner has not taken.
    #[doc(hidden)]
    #[inline]
    pub fn is_given(&self) -> bool {
        self.token.0.word().load(Ordering::Relaxed) == TOKEN
    }

    /// Returns `true` if both handles belong to the same parker.
    #[inline]
    pub fn same_as(&self, other: &Unparker) -> bool {
        Arc::ptr_eq(&self.token, &other.token)
    }

    /// # Safety
    ///
    /// 1. `data` belongs to a waker with the table [`WAKER`], which is not used again, or is not
    ///    dropped before the result.
    unsafe fn of(data: *const ()) -> Self {
        // SAFETY: (1): the pointer came from `Arc::into_raw`, and the result takes over or borrows
        // the waker's reference count.
        let token = unsafe { Arc::from_raw(data.cast()) };
        Self { token }
    }
}

/// A waker that stores the token.
impl From<Unparker> for Waker {
    #[inline]
    fn from(unparker: Unparker) -> Self {
        // SAFETY: as the table's functions require, each waker owns one reference count of the
        // token.
        unsafe { Waker::from_raw(raw(unparker)) }
    }
}

#[inline]
fn raw(unparker: Unparker) -> RawWaker {
    RawWaker::new(Arc::into_raw(unparker.token).cast(), &WAKER)
}

/// Stores the token of a parker's waker, which runs no user code. Returns any other waker.
#[inline]
pub fn unpark(waker: Waker) -> Option<Waker> {
    if !ptr::eq(waker.vtable(), &WAKER) {
        return Some(waker);
    }
    // SAFETY: the waker is consumed.
    unsafe { Unparker::of(ManuallyDrop::new(waker).data()) }.unpark();
    None
}

static WAKER: RawWakerVTable = RawWakerVTable::new(
    |data| {
        // SAFETY: the value is borrowed from the waker, which exists while it is cloned.
        let lent = ManuallyDrop::new(unsafe { Unparker::of(data) });
        raw(Unparker::clone(&lent))
    },
    // SAFETY: the waker is consumed.
    |data| unsafe { Unparker::of(data) }.unpark(),
    // SAFETY: the value is borrowed from the waker, which exists until this function returns.
    |data| ManuallyDrop::new(unsafe { Unparker::of(data) }).unpark(),
    // SAFETY: the waker is consumed.
    |data| drop(unsafe { Unparker::of(data) }),
);

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn early_token_ends_the_next_park() {
        let mut parker = Parker::new();
        parker.unparker().unpark();
        parker.unparker().unpark();
        parker.park();
        assert!(!parker.try_park(), "tokens do not add up");
    }

    #[test]
    fn waker_of_a_parker_grants_its_token() {
        let mut parker = Parker::with_spin_limit(0);
        let waker = Waker::from(parker.unparker());
        assert!(unpark(Waker::noop().clone()).is_some());
        assert!(unpark(waker.clone()).is_none() && parker.try_park());
        waker.wake_by_ref();
        assert!(parker.try_park());
        let another = waker.clone();
        assert!(another.will_wake(&waker));
        drop(waker);
        another.wake();
        assert!(parker.try_park());
        assert_eq!(Arc::strong_count(&parker.token), 1);
    }

    #[test]
    fn park_without_a_token_times_out() {
        let mut parker = Parker::with_spin_limit(0);
        assert!(!parker.park_timeout(Duration::from_millis(1)));
        parker.unparker().unpark();
        assert!(parker.park_timeout(Duration::ZERO));
    }

    #[test]
    fn threads_take_turns_by_tokens() {
        let nr_turns = if cfg!(miri) { 50 } else { 1000 };
        let mut here = Parker::with_spin_limit(8);
        let mut there = Parker::with_spin_limit(0);
        let (wake_here, wake_there) = (here.unparker(), there.unparker());
        let thread = std::thread::spawn(move || {
            for _ in 0..nr_turns {
                there.park();
                wake_here.unpark();
            }
        });
        for _ in 0..nr_turns {
            wake_there.unpark();
            here.park();
        }
        thread.join().unwrap();
    }
}
