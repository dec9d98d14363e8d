//! Flushes a queue: waits for all items that are in flight now, and for no later ones.
//!
//! # The protocol
//!
//! Items queued before the flush can be in three places, and the flush distinguishes them from
//! later items in a different way in each:
//!
//! 1. *Counted in flight by a pwq*: in a list, in a worker's local batch, running, or popped while
//!    it ran. Such an item has a color (`list.rs`). The flush closes the current color of each
//!    pwq under the pool lock, and waits until the count of that color is zero.
//! 2. *In an injector*, which has no count. The flush adopts the injector under the same lock,
//!    before it closes the color.
//! 3. *Taken back from an injector by a helper*, and never counted by a pwq. The helper entered the
//!    gate before that, in the current phase (`active.rs`). After adopting all injectors, the flush
//!    reads the phase, and waits until no helper of that phase is left.
//!
//! A future keeps the count and the color of its first poll until it ends, like a running item.
//!
//! If a helper takes an item that was adopted, the item keeps its count until the helper's run
//! ends: a worker that pops it transfers the count to the run. If a producer queues that item
//! elsewhere before the run ends, it increments `QueueCore::nr_cut`, cuts the item out and releases
//! the count. A flush that finds `nr_cut` changed when all counts are zero waits for all current
//! helpers.
//!
//! A flush therefore waits for later items only in three cases: these helpers; a cancelled item
//! that is queued again into its old list position, which has an old color; and helpers when two
//! flushes overlap, because only two phases can be distinguished.
//!
//! The flusher sleeps on `QueueCore::settled`, notified by the thread that releases the last count
//! of a closed color (`dispatch.rs`), and by the last helper of a phase (`active.rs`). Both write
//! their state before they check for waiters.

use std::fmt;

use base::internal::wake::report;
use item::internal::list::UpTo;
use limit::internal::active::{Closed, Gate, Phase};
use sync::atomic::{Ordering, fence};
use sync::unmodelled::Arc;

use crate::execute::wait::{self, reported};
use crate::pools::pwq::{Pwq, WaitingPwq};
use crate::queues::queue::{Inner, Workqueue};

/// The error of an item that would wait for its own queue or group, and therefore for itself. It is
/// also the error of draining a process-wide queue, which would stop the queue for all its users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnQueueError {
    queue: Box<str>,
    refusal: Refusal,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    OwnQueue,
    OwnGroup,
    ForAll,
}

impl OwnQueueError {
    pub(super) fn new(queue: &str, refusal: Refusal) -> Self {
        let queue = queue.into();
        Self { queue, refusal }
    }

    /// Returns the name of the queue or group.
    pub fn queue(&self) -> &str {
        &self.queue
    }
}

impl fmt::Display for OwnQueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = &self.queue;
        match self.refusal {
            Refusal::OwnQueue => {
                write!(f, "an item of workqueue {queue:?} cannot wait for its own queue")
            }
            Refusal::OwnGroup => {
                write!(f, "an item of group {queue:?} cannot wait for its own group")
            }
            Refusal::ForAll => write!(
                f,
                "workqueue {queue:?} is for the whole process, so one of its users cannot stop it"
            ),
        }
    }
}

impl std::error::Error for OwnQueueError {}

base::internal::into_io_error!(OwnQueueError, |_| ErrorKind::Other);

pub(crate) struct Flush<'a> {
    /// The pwqs whose items the flush waits for. They exist until the queue is destroyed.
    pwqs: Vec<(Arc<Pwq>, UpTo)>,
    /// The gates that may still have helpers, each with its phase when all injectors had been
    /// adopted. A gate without such helpers is removed, because later helpers may be counted in the
    /// same phase.
    phases: Option<Vec<(Closed<WaitingPwq>, Phase)>>,
    /// The value of `QueueCore::nr_cut` when the flush began; `None` once it has been compared.
    nr_cut: Option<u64>,
    inner: &'a Inner,
}

impl Workqueue {
    /// Waits until every item that is queued or running now has ended or been cancelled.
    ///
    /// A future counts as one item, from its first poll to its end.
    ///
    /// The flush does not wait for later items, even if its own items queue them, except:
    ///
    /// - An item that is queued again into the list position of a cancelled one may be waited for,
    ///   once.
    /// - If two flushes overlap, this one may wait for an item that started on its joiner's thread
    ///   before the earlier flush ended.
    /// - If an item that runs on its joiner's thread is queued on another queue, the flush waits
    ///   for all items that run on joiners' threads when its last item ends.
    ///
    /// # Blocking
    ///
    /// Blocks until these items end. If a work item of another queue calls this, its pool may start
    /// another worker. While the queue is [paused](Self::pause), its pending items do not end.
    ///
    /// # Errors
    ///
    /// Returns [`OwnQueueError`] from inside an item of this queue, or a running item that is also
    /// queued on this queue, because that item would wait for itself.
    ///
    /// # Panics
    ///
    /// Panics inside an item of a bottom-half queue, which must not wait.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// # use std::sync::atomic::{AtomicU32, Ordering};
    /// static NR_DONE: AtomicU32 = AtomicU32::new(0);
    /// let queue = Workqueue::builder("example").build()?;
    /// for _ in 0..100 {
    ///     queue.spawn_detached(|| { NR_DONE.fetch_add(1, Ordering::Relaxed); }).unwrap();
    /// }
    /// queue.flush()?;
    /// assert_eq!(NR_DONE.load(Ordering::Relaxed), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("flush_workqueue", "async_synchronize_full"))]
    pub fn flush(&self) -> Result<(), OwnQueueError> {
        self.inner.may_wait()?;
        wait::before_flushing(&self.inner.core);
        let mut flush = Flush::new(&self.inner);
        let settled = &self.inner.core.settled;
        settled.wait_until(|| flush.has_ended());
        Ok(())
    }
}

impl Inner {
    /// Checks, before any change, that this thread may wait for the queue. Panics in a child of
    /// `fork`, and inside an item of a bottom-half queue.
    pub(crate) fn may_wait(&self) -> Result<(), OwnQueueError> {
        self.may_be_awaited()?;
        report::must_be_free_to_sleep();
        Ok(())
    }

    /// Checks, before any change, that a task may await the queue. Panics in a child of `fork`.
    pub(crate) fn may_be_awaited(&self) -> Result<(), OwnQueueError> {
        self.must_be_at_home();
        if self.waits_for_this_thread() {
            let error = OwnQueueError::new(&self.core.name, Refusal::OwnQueue);
            return Err(reported(error));
        }
        Ok(())
    }

    /// Checks that a drain, which rejects the items of other users, is allowed on this queue.
    pub(crate) fn may_be_stopped(&self) -> Result<(), OwnQueueError> {
        if self.for_all {
            Err(OwnQueueError::new(&self.core.name, Refusal::ForAll))
        } else {
            Ok(())
        }
    }
}

impl<'a> Flush<'a> {
    pub(crate) fn new(inner: &'a Inner) -> Self {
        let nr_cut = Some(inner.core.nr_cut.load(Ordering::Relaxed));
        let pwqs = inner.plan.lock().pwqs.clone();
        let pwqs = pwqs.into_iter().map(|pwq| {
            let up_to = pwq.pool.close_color(pwq.slot);
            (pwq, up_to)
        });
        Self { pwqs: pwqs.collect(), phases: None, nr_cut, inner }
    }

    /// Advances the flush as far as possible. Returns `true` if it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.pwqs.retain(|(pwq, up_to)| {
            let mut dispatch = pwq.pool.lock();
            !dispatch.pwq_mut(pwq.slot).in_flight.has_reached(*up_to)
        });
        let none_left = self.pwqs.is_empty();
        // Relaxed suffices, because the counter is incremented before the release, under the pool
        // lock, of a count that we saw as zero.
        if none_left
            && let Some(before) = self.nr_cut.take()
            && self.inner.core.nr_cut.load(Ordering::Relaxed) != before
            && !sync::twin::armed("flush: checks for helpers once")
        {
            // Current helpers may predate the flush. Later ones wait for the previous phase.
            self.phases = None;
        }
        let phases = self.phases.get_or_insert_with(|| {
            // ORDER(taken-back): publish and consume, other end in `Injector::take_back`.
            //   help: enter the gate;  injector = without the item, Release
            //   here: injector is empty (read by `adopt`);  fence Acquire;  read the helpers
            // If the removal comes first, we find the helper. If our read comes first, we find the
            // item.
            // Test: flush_waits_for_all_items_queued_before_it
            if !sync::twin::armed("flush: no fence") {
                fence(Ordering::Acquire);
            }
            let gates = self.inner.plan.lock().gates();
            let phases = gates.into_iter().map(|gate| {
                // A helper that a stock counts at this point has already started.
                let gate = Gate::closed(gate);
                let phase = gate.phase();
                (gate, phase)
            });
            phases.collect()
        });
        // Each remaining gate notifies `settled` later.
        phases.retain(|(gate, phase)| !gate.has_helped(*phase));
        let helped = phases.is_empty() || sync::twin::armed("flush: forgets the helpers");
        none_left && helped
    }
}
