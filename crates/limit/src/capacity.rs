//! The capacity of a queue: the limit on waiting items, and the producers that wait for a permit.
//!
//! A counted item holds a *capacity permit* from before it is queued until it starts or is
//! cancelled. `crates/base/src/admission.rs` describes the protocol. A producer owns its permit as
//! soon as it is admitted. If it gives up its wait at that moment, it releases the permit (twin
//! `capacity: a leaving waiter keeps its permit`).

use std::mem;
use std::time::Duration;

use base::internal::admission::{self, Position, Ticket};
use base::internal::wake::poll_as_waiter;
use base::internal::wake::sleeper::{OnTurn, Sleeper};
use item::internal::cleanups::{self, Reapers};
use sync::twin;
use sync::unmodelled::Arc;

pub struct Capacity {
    capacity: admission::Admission<OnTurn>,
    /// I: runs the wakers that may block.
    reapers: Arc<dyn Reapers>,
}

impl Capacity {
    pub fn new(capacity: usize, reapers: Arc<dyn Reapers>) -> Self {
        let capacity = admission::Admission::new(capacity);
        Self { capacity, reapers }
    }

    pub fn capacity(&self) -> usize {
        self.capacity.capacity()
    }

    pub fn nr_free(&self) -> usize {
        self.capacity().saturating_sub(self.capacity.nr_inside())
    }

    #[inline]
    pub fn try_take(&self) -> bool {
        self.capacity.try_take()
    }

    /// Acquires a permit, or starts or continues a wait for one, identified by `ticket`. Returns
    /// `true` if the caller has a permit. Otherwise the result of `on_turn` is fired when the
    /// caller gets one. Must not be called in a child of `fork`.
    pub fn poll(&self, ticket: &mut Option<Ticket>, on_turn: impl FnOnce() -> OnTurn) -> bool {
        let Some(waits) = *ticket else {
            if self.try_take() {
                return true;
            }
            *ticket = self.capacity.join(on_turn(), || self.let_in()).ok();
            return false;
        };
        let mut on_turn = on_turn();
        // The previous `OnTurn` is dropped with no lock held.
        let position = self.capacity.find(waits, |position| mem::swap(position, &mut on_turn));
        let has_permit = matches!(position, Position::Inside);
        if has_permit {
            *ticket = None;
        }
        has_permit
    }

    /// Acquires a permit, sleeping for at most `timeout` until [`release`](Self::release) releases
    /// one. Returns `true` if it got one. Models never time out.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let (mut sleeper, mut ticket) = (Sleeper::new(timeout), None);
        // Poll first, because the thread that releases a permit must spend a wake-up on each
        // waiter.
        if timeout != Some(Duration::ZERO) && poll_as_waiter(|| self.try_take()) {
            return true;
        }
        let mut in_time = true;
        while !self.poll(&mut ticket, || sleeper.on_turn()) {
            if !in_time {
                self.leave(ticket);
                return false;
            }
            in_time = sleeper.sleep();
        }
        true
    }

    /// Ends a wait. Releases the permit if the waiter was admitted.
    pub fn leave(&self, ticket: Option<Ticket>) {
        let Some(ticket) = ticket.filter(|_| !twin::torn_down() && self.capacity.is_at_home())
        else {
            return;
        };
        let is_inside = self.capacity.leave(ticket).is_none();
        if is_inside && !twin::armed("capacity: a leaving waiter keeps its permit") {
            self.release(1);
        }
    }

    /// Releases `count` permits, to the first waiters if there are any. It may wake a thread, so no
    /// lock may be held.
    #[inline]
    pub fn release(&self, count: usize) {
        if !twin::torn_down() && self.capacity.release(count) {
            self.let_in();
        }
    }

    /// Admits waiters and wakes them. Runs no user code: reapers call the wakers of tasks that may
    /// block, because such a waker may wait for the calling item, or for another waiter's waker.
    #[cold]
    fn let_in(&self) {
        let mut on_turns = Vec::new();
        self.capacity.let_in(|on_turn| on_turns.push(on_turn));
        let left = cleanups::fire_known(on_turns);
        if !left.is_empty() {
            self.reapers.leave(left);
        }
    }
}

base::internal::impl_debug!(Capacity, it => capacity: it.capacity(), nr_free: it.nr_free());
