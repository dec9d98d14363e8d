//! Readers that report: quiescent-state-based RCU for worker and event loops.
//!
//! ```
//! use afterwork::rcu::{Rcu, qsbr::Reader};
//!
//! let routes = Rcu::new(vec![1, 2]);
//! let mut reader = Reader::new();
//! for _round in 0..3 {
//!     assert_eq!(routes.load(&reader).len(), 2); // no guard
//!     reader.quiescent(); // once a round: no reference is in use
//! }
//! ```
//!
//! A loop need not mark each read as a section. Instead, its thread is in a section all the time,
//! and *reports* once per round that it holds no reference. Reading then costs the load of a
//! pointer, but each grace period of the process waits for the current round, and still waits for
//! guards ([`read`](super::read)).
//!
//! # Work items and mailboxes
//!
//! A work item that reads often should create a [`Reader`] and drop it at its end. Workers are not
//! online by default, because a long-running item would delay every grace period, and an item that
//! waits for a grace period would wait for itself.
//!
//! `Mailbox::serve` is a loop that reports between drains. A thread that sleeps in this library
//! outside of sections immediately counts as offline.

use std::marker::PhantomData;

use base::internal::panics;

use super::local::{OnItsThreadUseSrcuAcrossAwait, enter, global, park_if_idle};
use super::polled;
use super::slot::Slot;

/// Makes this thread an online reader until it is dropped.
///
/// A `&Reader` serves as a guard; see [`Rcu::load`](super::Rcu::load).
///
/// # Guarantees
///
/// - A value read under a `&Reader` stays valid until the next [`quiescent`](Self::quiescent) or
///   [`offline`](Self::offline). The compiler rejects either while a reference is in use.
/// - A read compiles to the load of the pointer and nothing else.
/// - Other sections and readers of this thread may be open at the same time. In that case, the
///   thread is quiescent when the outermost of them reports or ends.
///
/// While the reader is online, every grace period of the process waits for its reports. Report
/// often, and go offline around long operations. A reader that is leaked (`mem::forget`) delays
/// every grace period until the process ends. Its thread is not boosted (`rcu.boost`), because its
/// rounds may be long.
///
/// Differs from Linux: there the scheduler reports quiescent states, and detects that a thread
/// sleeps. Differs from liburcu: its flavors do not share grace periods.
///
/// # Examples
///
/// ```
/// use afterwork::rcu::{Rcu, qsbr::Reader};
/// use std::sync::{Arc, mpsc};
///
/// let routes = Arc::new(Rcu::new(vec![1, 2]));
/// let (requests, inbox) = mpsc::channel::<usize>();
/// let server = std::thread::spawn({
///     let routes = routes.clone();
///     move || {
///         let mut reader = Reader::new();
///         let mut sum = 0;
///         while let Ok(request) = reader.offline(|| inbox.recv()) {
///             sum += routes.load(&reader)[request];
///             reader.quiescent();
///         }
///         sum
///     }
/// });
/// requests.send(1).unwrap();
/// routes.replace_sync(vec![1, 3]);
/// requests.send(0).unwrap();
/// drop(requests);
/// assert!(matches!(server.join().unwrap(), 3..=4));
/// ```
///
/// A reference does not outlive the next report:
///
/// ```compile_fail,E0502
/// # use afterwork::rcu::{Rcu, qsbr::Reader};
/// # let routes = Rcu::new(vec![1, 2]);
/// let mut reader = Reader::new();
/// let seen = routes.load(&reader);
/// reader.quiescent();
/// assert_eq!(*seen, [1, 2]);
/// ```
///
/// A reader cannot be used while it is offline:
///
/// ```compile_fail,E0502
/// # use afterwork::rcu::{Rcu, qsbr::Reader};
/// # let routes = Rcu::new(vec![1, 2]);
/// let mut reader = Reader::new();
/// reader.offline(|| routes.load(&reader).len());
/// ```
///
/// A reader stays on its thread:
///
/// ```compile_fail,E0277
/// let reader = afterwork::rcu::qsbr::Reader::new();
/// std::thread::spawn(move || drop(reader));
/// ```
#[doc(alias = "urcu_qsbr_register_thread")]
#[must_use = "a reader is online until it is dropped"]
pub struct Reader {
    slot: &'static Slot,
    // A section belongs to its thread.
    _not_send: PhantomData<OnItsThreadUseSrcuAcrossAwait>,
}

impl Reader {
    /// Makes this thread an online reader.
    ///
    /// # Blocking
    ///
    /// Never blocks. The first section of a thread allocates.
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`read`](super::read).
    #[inline]
    pub fn new() -> Self {
        Self { slot: online(), _not_send: PhantomData }
    }

    /// Reports that this thread holds no reference.
    ///
    /// Costs three loads, usually from this CPU's cache, and one store if a grace period has begun
    /// or ended since the last report. Costs a locked instruction only if a grace period waits for
    /// this thread, and never a fence.
    ///
    /// # Blocking
    ///
    /// Never blocks. Makes a system call if this is the last reader that a grace period waits for.
    #[doc(alias = "urcu_qsbr_quiescent_state")]
    #[inline]
    #[doc(alias("cond_resched_tasks_rcu_qs", "rcu_softirq_qs", "rcu_quiescent_state"))]
    pub fn quiescent(&mut self) {
        self.slot.renew(global());
    }

    /// Calls `body`, which may sleep or run for a long time. No grace period waits for this reader
    /// during the call.
    ///
    /// Costs four locked instructions and a fence.
    ///
    /// # Blocking
    ///
    /// Blocks if `body` does.
    ///
    /// # Panics
    ///
    /// Panics if `body` panics. The process is aborted if this reader cannot go online again
    /// because `body` left too many sections open.
    #[doc(alias("urcu_qsbr_thread_offline", "rcu_thread_offline", "rcu_thread_online"))]
    pub fn offline<R>(&mut self, body: impl FnOnce() -> R) -> R {
        end(self.slot);
        let _online = Offline(self);
        // This has no effect in an outer section.
        park_if_idle();
        body()
    }

    /// Waits as [`synchronize`](super::synchronize) does, while this reader is offline.
    /// `synchronize` itself would wait for this reader.
    ///
    /// # Blocking
    ///
    /// The same as `synchronize`.
    ///
    /// # Panics
    ///
    /// Panics if this thread is in another section, or has another reader.
    #[doc(alias = "urcu_qsbr_synchronize_rcu")]
    pub fn synchronize(&mut self) {
        end(self.slot);
        let _online = Offline(self);
        polled::synchronize();
    }
}

base::internal::impl_debug! {
    impl[] Reader;
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Reader {
    #[inline]
    fn drop(&mut self) {
        if !sync::twin::torn_down() {
            end(self.slot);
        }
    }
}

/// Keeps a reader offline until it is dropped, even during a panic.
struct Offline<'a>(&'a mut Reader);

sync::on_drop!(Offline<'_>, it => {
    // An exiting thread releases its slot when its section ends, so the slot may have changed.
    it.0.slot = panics::or_abort("a QSBR reader cannot go online again", online);
});

/// Makes this thread an online reader until [`end`] is called on the slot.
pub(super) fn online() -> &'static Slot {
    let slot = enter();
    slot.count_loops(1);
    slot
}

pub(super) fn end(slot: &'static Slot) {
    slot.count_loops(-1);
    slot.unlock(global());
}
