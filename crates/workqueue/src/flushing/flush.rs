//! Flushing a whole queue: waiting for what it holds now, and for nothing that comes later.
//!
//! # The protocol
//!
//! What was queued before the flush is in one of three places, and each tells it from later items:
//!
//! 1. *Counted in flight by a link*: in a list, in a worker's hand, running, or popped while it ran. It has a colour
//!    (`colour.rs`). The flush closes the present colour of each link under the pool lock and waits until nothing of it
//!    is counted.
//! 2. *In an injector*, which counts nothing. The flush adopts it, under that same lock, before it closes the colour.
//! 3. *Taken back from an injector by a helper*, and counted by no link ever. The helper has entered the gate before
//!    that, in the present phase (`active.rs`). The flush notes the phase after it has adopted all injectors, and waits
//!    until nobody helps any more who did then.
//!
//! A future keeps the count of its first poll, and the colour of that, until it ends, so it is waited for like an item
//! that runs.
//!
//! An item that a helper takes after it was adopted keeps its count until the helper's run has ended: a worker that
//! meets its link hands the count over to the run. But who queues such an item elsewhere meanwhile takes the link out, and
//! the count is given back. That is noted before (`QueueCore::nr_cut`), and a flush that finds it so when nothing is counted
//! any more waits for all who help then. So whoever comes later, with a newer colour or in a newer phase, is
//! not waited for, but in three cases: that one; a cancelled item whose place in the list is of an old colour, and which is queued
//! anew into that place; and helpers when two flushes meet, of whom only two phases can be told apart.
//!
//! The waiter sleeps on `QueueCore::settled`. It is told by whoever gives back the last count of a closed colour
//! (`dispatch.rs`) and by the last helper of a phase that was waited for (`active.rs`); both write what the waiter
//! reads before they look for waiters.

use std::fmt;

use base::internal::wake::report;
use sync::{
    atomic::{Ordering, fence},
    unmodelled::Arc,
};

use crate::{
    execute::dependency::{self, reported},
    item::colour::UpTo,
    limit::active::{Closed, Gate, Phase},
    pools::pwq::{Pwq, Seeker},
    queues::queue::{Inner, Workqueue},
};

/// The error of an item that was about to wait for its own queue, and so for itself. Also the error
/// of draining a process-wide queue, which would stop the queue for all its users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnQueueError {
    queue: Box<str>,
    /// `true` if the queue is process-wide.
    for_all: bool,
}

impl OwnQueueError {
    /// Returns the queue's name.
    pub fn queue(&self) -> &str {
        &self.queue
    }
}

impl fmt::Display for OwnQueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = &self.queue;
        if self.for_all {
            return write!(
                f,
                "workqueue {queue:?} is for the whole process, so one of its users cannot stop it"
            );
        }
        write!(
            f,
            "an item of workqueue {queue:?} cannot wait for its own queue"
        )
    }
}

impl std::error::Error for OwnQueueError {}

/// A flush under way.
pub(crate) struct Flush<'a> {
    /// Those that have something in flight which it waits for; they stay until the queue goes.
    links: Vec<(Arc<Pwq>, UpTo)>,
    /// Of each gate where somebody may still help, what was the present phase when all injectors had been looked at.
    /// Once nobody does the gate is left alone: whoever helps there later may count in the same phase.
    phases: Option<Vec<(Closed<Seeker>, Phase)>>,
    /// How many links of running items had been cut out when it began; `None` when it has looked again.
    nr_cut: Option<u64>,
    inner: &'a Inner,
}

impl Workqueue {
    /// Waits until every item that is queued or running now has ended, or was cancelled.
    ///
    /// A future is one item, from its first poll to its end.
    ///
    /// Items that are queued later do not hold it up, also not those that its own items queue. An item that is queued
    /// again into the place of one that was cancelled may, once; and where two flushes meet, an item that began to run
    /// on its joiner's thread before the earlier flush ended; and what runs on joiners' threads when the last item ends, if
    /// one of them was queued elsewhere meanwhile.
    ///
    /// # Blocking
    ///
    /// Until then. Called from a work item of another queue it lets the pool get another worker. While the queue is
    /// [paused](Self::pause) nothing that waits in it ends.
    ///
    /// # Panics
    ///
    /// Inside an item of a bottom-half queue, which must not wait.
    ///
    /// # Errors
    ///
    /// [`OwnQueueError`] from inside an item of this queue: the flush would wait for itself.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// # use std::sync::atomic::{AtomicU32, Ordering};
    /// static NR_DONE: AtomicU32 = AtomicU32::new(0);
    /// let queue = Workqueue::builder("example").build()?;
    /// for _ in 0..100 {
    ///     queue.spawn_detached(|| { NR_DONE.fetch_add(1, Ordering::Relaxed); });
    /// }
    /// queue.flush()?;
    /// assert_eq!(NR_DONE.load(Ordering::Relaxed), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "flush_workqueue")]
    #[doc(alias = "async_synchronize_full")]
    pub fn flush(&self) -> Result<(), OwnQueueError> {
        self.inner.may_wait()?;
        dependency::before_flushing(&self.inner.core);
        let mut flush = Flush::new(&self.inner);
        let settled = &self.inner.core.settled;
        settled.wait_until(|| flush.has_ended());
        Ok(())
    }
}

impl Inner {
    /// Returns `true` if this thread may wait for the queue. Asked before anything is changed.
    ///
    /// # Panics
    ///
    /// In a child of `fork`, and inside an item of a bottom-half queue.
    pub(crate) fn may_wait(&self) -> Result<(), OwnQueueError> {
        self.may_be_awaited()?;
        report::must_be_free_to_sleep();
        Ok(())
    }

    /// Returns `true` if a task may wait for the queue, which blocks nobody. Asked before anything is changed.
    ///
    /// # Panics
    ///
    /// In a child of `fork`.
    pub(crate) fn may_be_awaited(&self) -> Result<(), OwnQueueError> {
        self.must_be_at_home();
        if self.runs_here() {
            return Err(reported(self.refusal(false)));
        }
        Ok(())
    }

    /// Checks that a drain, which rejects the items of other users, is allowed on this queue.
    pub(crate) fn may_be_stopped(&self) -> Result<(), OwnQueueError> {
        if self.for_all {
            Err(self.refusal(true))
        } else {
            Ok(())
        }
    }

    fn refusal(&self, for_all: bool) -> OwnQueueError {
        let queue = self.core.name.clone();
        OwnQueueError { queue, for_all }
    }
}

impl<'a> Flush<'a> {
    pub(crate) fn new(inner: &'a Inner) -> Self {
        let nr_cut = Some(inner.core.nr_cut.load(Ordering::Relaxed));
        let links = inner.plan.lock().links().to_vec();
        let links = links.into_iter().map(|link| {
            let up_to = link.pool.close_colour(link.slot);
            (link, up_to)
        });
        Self {
            links: links.collect(),
            phases: None,
            nr_cut,
            inner,
        }
    }

    /// Takes what steps can be taken; returns `true` if nothing is left to wait for.
    pub(crate) fn has_ended(&mut self) -> bool {
        let is_left = |(link, up_to): &(Arc<Pwq>, UpTo)| !link.pool.has_flushed(link.slot, *up_to);
        self.links.retain(is_left);
        let none_left = self.links.is_empty();
        // Relaxed: written before the count was given back under the pool lock, under which it was seen to be gone.
        if none_left
            && let Some(before) = self.nr_cut.take()
            && self.inner.core.nr_cut.load(Ordering::Relaxed) != before
            && !sync::twin::armed("flush: looks for helpers once")
        {
            // Who helps now may have begun before, and later ones wait for those of the phase before theirs.
            self.phases = None;
        }
        let phases = self.phases.get_or_insert_with(|| {
            // ORDER(taken-back): publish and consume, other end in `Injector::take_back`.
            //   help: enters the gate;  injector = without the item, Release
            //   here: injector is empty (read by `adopt`);  fence Acquire;  who helps?
            // Test: a_flush_waits_for_all_that_was_queued_before_it
            if !sync::twin::armed("flush: no fence") {
                fence(Ordering::Acquire);
            }
            let gates = self.inner.plan.lock().gates();
            let phases = gates.into_iter().map(|gate| {
                // Who counts in a stock now has begun before.
                let gate = Gate::closed(gate);
                let phase = gate.phase();
                (gate, phase)
            });
            phases.collect()
        });
        // Each where somebody helps will tell.
        phases.retain(|(gate, phase)| !gate.has_helped(*phase));
        let helped = phases.is_empty() || sync::twin::armed("flush: forgets who helps");
        none_left && helped
    }
}
