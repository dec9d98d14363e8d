//! Readers that report: quiescent-state-based RCU for worker and event loops.
//!
//! A loop that comes round often need not mark each look at what RCU protects. It is in a section all the time, and
//! says at a place of its choice that it holds no reference just now: it *reports*. Reading then costs nothing at all.
//!
//! # One machine for both
//!
//! An online [`Reader`] *is* a section of its thread that has not ended, to a driver no different from a
//! [`Guard`](super::Guard): a grace period waits for both, by the same words. A report ends that section and begins the
//! next one in a single store of the present `gp_seq` (`Slot::renew`):
//!
//! ```text
//! reader: (its accesses);  load gp_seq  Acquire;  ctr = nested, gp_seq  Release;  asked? answer
//! driver: gp_seq = odd  Release;  ask;  heavy;  load ctr  Acquire: nested, older: count it, wait for the answer
//! ```
//!
//! The driver never sees a word that is not nested, so it lets the reader pass for one of two reasons:
//!
//! - *The reader answered.* Its read-modify-write releases what came before the report, and acquires the question, with
//!   which came what was removed.
//! - *The word has the driver's own number.* Its store released what came before the report; the load of the number
//!   acquired what was removed.
//!
//! Each has a twin with the order taken away, and as there is no fence to hide behind, the models see the difference. A
//! report that comes too early to see the question is no loss: the driver waits, and the next report answers. That is why
//! a reader that does not report has to say so ([`Reader::offline`]), by the way that guards end.
//!
//! # Work items and mailboxes
//!
//! A work item that makes a [`Reader`] first is one section from there to its end: its worker is quiescent between
//! items, and online for the sake of no item that does not read. (A worker that was online in *every* item would hold
//! up each grace period for as long as any item takes, and for ever where an item waits for one that waits for a grace
//! period.) [`Mailbox::serve`](crate::task_work::Mailbox::serve) is a loop that reports between drains. Who goes to
//! sleep in this library, a worker, an owner, or anybody else outside of a section, counts as offline at once.

use std::marker::PhantomData;

use super::{
    local::{enter, global, rest},
    polled,
    slot::Slot,
};

/// Makes this thread a reader that is online, from report to report, until it is dropped.
///
/// A reference to it stands for a guard: see [`Rcu::load`](super::Rcu::load).
///
/// # Guarantees
///
/// What is read under a `&Reader` stays valid until the next [`quiescent`](Self::quiescent) or
/// [`offline`](Self::offline), which the compiler keeps from happening while a reference is in use. Reading compiles to
/// the load of the pointer and nothing else. Sections, and other readers of this thread, may be open around it or within;
/// a report then counts when the outermost of them reports or ends.
///
/// While it is online every grace period of the process waits for its reports: report often, and go offline for what
/// takes long. One that is forgotten (`mem::forget`) holds up every grace period to the end of the process. Its thread is
/// not boosted (`rcu.boost`), for its rounds may be long.
///
/// Differs from Linux: there it is the scheduler that reports, and it knows when a thread sleeps. Differs from liburcu:
/// its flavors do not share grace periods.
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
/// and is not there while the reader is offline:
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
#[derive(Debug)]
#[must_use = "a reader is online until it is dropped"]
pub struct Reader {
    slot: &'static Slot,
    /// A section belongs to its thread.
    _not_send: PhantomData<*mut ()>,
}

impl Reader {
    /// Makes this thread a reader, online.
    ///
    /// # Blocking
    ///
    /// Never. The first section of a thread allocates.
    ///
    /// # Panics
    ///
    /// As [`read`](super::read).
    #[inline]
    pub fn new() -> Self {
        Self {
            slot: online(),
            _not_send: PhantomData,
        }
    }

    /// Reports that this thread holds no reference.
    ///
    /// Costs three loads of lines that are this CPU's most of the time, and a store when a grace period has begun or
    /// ended since the last report. No fence and no locked instruction, but to answer a grace period that waits.
    ///
    /// # Blocking
    ///
    /// Never; a system call when it is the last that a grace period waits for.
    #[inline]
    pub fn quiescent(&mut self) {
        self.slot.renew(global());
    }

    /// Calls `body`, which may take long or sleep, while no grace period waits for this reader.
    ///
    /// Costs four locked instructions and a fence.
    ///
    /// # Blocking
    ///
    /// As `body` does.
    ///
    /// # Panics
    ///
    /// When `body` does. It aborts the process when it leaves so many sections open that this reader cannot come back.
    pub fn offline<R>(&mut self, body: impl FnOnce() -> R) -> R {
        let _online = Offline::go(self);
        // What is open around this reader stays open.
        rest();
        body()
    }

    /// Waits as [`synchronize`](super::synchronize) does, which would wait for this reader.
    ///
    /// # Blocking
    ///
    /// As `synchronize`. This reader is offline meanwhile.
    ///
    /// # Panics
    ///
    /// When this thread is in another section, or has another reader.
    pub fn synchronize(&mut self) {
        let _online = Offline::go(self);
        polled::synchronize();
    }
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

/// A reader that is offline until this is dropped, also by a panic.
struct Offline<'a>(&'a mut Reader);

impl<'a> Offline<'a> {
    fn go(reader: &'a mut Reader) -> Self {
        end(reader.slot);
        Self(reader)
    }
}

impl Drop for Offline<'_> {
    fn drop(&mut self) {
        if !sync::twin::torn_down() {
            let must_succeed = Abort;
            // Another slot perhaps: a thread that is ending gives its slot back with its section.
            self.0.slot = online();
            std::mem::forget(must_succeed);
        }
    }
}

/// Ends the process when dropped: a reader that cannot come back online must not be read with.
struct Abort;

impl Drop for Abort {
    fn drop(&mut self) {
        if !sync::twin::torn_down() {
            std::process::abort();
        }
    }
}

fn online() -> &'static Slot {
    let slot = enter();
    slot.count_loops(1);
    slot
}

fn end(slot: &'static Slot) {
    slot.count_loops(-1);
    slot.unlock(global());
}
