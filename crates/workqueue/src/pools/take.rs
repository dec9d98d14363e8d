//! Takes batches of items, each with a seat of the queue's gate, and releases their in-flight
//! counts.
//!
//! `active.rs` counts the seats.

use base::internal::trace;
use sync::{atomic::Ordering, thread::ThreadId, time, twin, unmodelled::Arc};

use super::{
    dispatch::{Dispatch, home, home_slot},
    policy,
    pool::PoolGuard,
    pwq::Seeker,
    worker::{MAX_HAND, Taken, Worker},
};
use crate::{
    item::{
        head::Head,
        lane::Lane,
        list::{self, Colour},
    },
    limit::active::{Gate, Holds},
};

impl PoolGuard<'_> {
    /// Takes the next batch for `worker`, whose last batch was [retired](Self::retire).
    pub(crate) fn take(&mut self, worker: &Worker) -> Taken {
        let pool = self.pool();
        let max = pool.params.max_batch.min(MAX_HAND);
        // Read once per batch.
        let now = time::cycles();
        if self.is_shared() {
            // If the first item of a pwq arrived during the last batch, that pwq already had work
            // for the pool then. It is therefore added before the batch is charged.
            self.adopt_at(now, &pool.injector);
        }
        self.tell(worker);
        loop {
            if self.pending.is_empty() || self.adopts_early() {
                self.adopt_at(now, &pool.injector);
            }
            if self.is_shared() {
                // So that the pwq which the worker just served competes for the next turn too.
                self.give_up_seat(worker);
            }
            let limit =
                |nr_waiting| policy::batch_size(worker.item_ns(), nr_waiting, pool.target(), max);
            self.ready_first = !self.ready_first;
            if (self.ready_first || self.pending.is_empty())
                && let Some(slot) = self.next_ready()
            {
                self.give_up_seat(worker);
                let limit = self
                    .share_limit(slot, max)
                    .unwrap_or_else(|| limit(self.link(slot).nr_waiting()));
                let nr_taken = self.take_inactive(worker, slot, limit);
                self.hold_active_slot(worker, slot);
                if nr_taken > 0 {
                    return self.taken(worker, now, slot, nr_taken);
                }
                continue;
            }
            let Some(item) = self.pending.pop_front() else {
                self.give_up_seat(worker);
                // The released seat may have made a pwq of this pool ready.
                if self.ready.is_empty() {
                    self.rest();
                    self.note_pace(now);
                    return Taken::Nothing;
                }
                continue;
            };
            let slot = home_slot(item);
            if !self.find_seat(worker, slot) {
                self.link_mut(slot).inactive.push_back(item);
                continue;
            }
            let limit = self.limit(slot, limit(self.pending.len() + 1));
            let colour = list::colour(item);
            worker.hold(0, item);
            let mut nr_taken = 1;
            while nr_taken < limit
                && let Some(next) = self.pending.first()
                && home_slot(next) == slot
                && list::colour(next) == colour
            {
                self.pending.pop_front();
                worker.hold(nr_taken, next);
                nr_taken += 1;
            }
            self.enlisted_mut(worker).colour = colour;
            return self.taken(worker, now, slot, nr_taken);
        }
    }

    /// Records the batch of `worker`, taken at the time `now` in cycles.
    pub(crate) fn taken(
        &mut self,
        worker: &Worker,
        now: u64,
        slot: usize,
        nr_taken: usize,
    ) -> Taken {
        let pool = self.pool();
        self.nr_taken += nr_taken as u64;
        let link = self.dispatch.link_mut(slot);
        self.effects.traced.activate(|| {
            let items = worker.held(nr_taken).filter(|item| is_there(*item));
            let items = items.map(|item| trace::Item {
                address: item.addr(),
                // SAFETY: the item is linked, so it is alive.
                func: unsafe { &*item }.vtable().name,
                queue: &link.core.name,
                pool: pool.number,
            });
            items.collect()
        });
        link.counts.nr_started += nr_taken as u64;
        link.counts.nr_repatriated += u64::from(worker.takes_after_return());
        // A batch has one lane.
        let lane = worker
            .first_held()
            .map_or(Lane::default(), |item| home(item).lane);
        let every_us = pool.params.wait_sample;
        if every_us > 0 {
            self.sample(worker, now, (slot, lane), nr_taken, every_us);
        }
        self.link_mut(slot).pass_line(lane, nr_taken);
        if self.is_shared() {
            self.pay(worker, slot, nr_taken);
        }
        Taken::Items(nr_taken)
    }

    /// Every `every_us` microseconds, records how long the items of the pwq waited. One item
    /// represents all that `worker` has taken since the last sample.
    fn sample(
        &mut self,
        worker: &Worker,
        now: u64,
        (slot, lane): (usize, Lane),
        nr_taken: usize,
        every_us: u64,
    ) {
        let sampling = &mut self.enlisted_mut(worker).sampling;
        if sampling.slot() != slot {
            let (before, rest) = (sampling.slot(), sampling.take_rest());
            self.tell_rest(before, rest);
        }
        let sampling = &mut self.enlisted_mut(worker).sampling;
        if !sampling.takes(slot, nr_taken as u64, now, every_us) {
            return;
        }
        // The item in the middle represents the batch, or the nearest one that was not cancelled or
        // helped.
        let alive = worker
            .held(nr_taken)
            .enumerate()
            .filter(|(_, it)| is_there(*it));
        let nth = alive
            .map(|(nth, _)| nth)
            .min_by_key(|nth| nth.abs_diff(nr_taken / 2));
        if let Some(nth) = nth
            && let Some(came) = self.link(slot).came_at(lane, nth)
        {
            let waited = now.saturating_sub(came);
            let count = self.enlisted_mut(worker).sampling.tells(waited, now);
            if let Some(times) = self.link_mut(slot).times_mut() {
                times.wait.add(waited, count);
            }
        }
    }

    /// Acquires a seat for `worker` to run items of `slot`. Otherwise the pwq joins the wait queue
    /// of its gate.
    pub(crate) fn find_seat(&mut self, worker: &Worker, slot: usize) -> bool {
        let pool = self.pool();
        let link = self.link(slot);
        if !link.inactive.is_empty() {
            // Older items of this pwq already wait.
            return false;
        }
        let seat = self.enlisted(worker).seat;
        if seat == Some(slot) && link.gate.may_stay() {
            return true;
        }
        self.give_up_seat(worker);
        let link = self.link(slot);
        // If the pwq gets no seat, it joins the wait queue, and its items wait as inactive. A later
        // seat is transferred to it under this pool's lock, which we hold, so its items are set
        // aside before that.
        let seated = link.gate.enter_or_queue(link.node, || Seeker {
            pool: pool.clone(),
            slot,
        });
        if seated {
            self.hold_active_slot(worker, slot);
        }
        seated
    }

    /// Takes inactive items of a pwq that just got a seat. If items remain, the pwq waits for a
    /// seat again.
    pub(crate) fn take_inactive(&mut self, worker: &Worker, slot: usize, limit: usize) -> usize {
        let limit = self.limit(slot, limit);
        let link = self.link_mut(slot);
        if !link.gate.may_start() && !twin::armed("take: overlooks a pause") {
            // The queue was paused after the seat was transferred to this pwq.
            self.line_up(slot);
            return 0;
        }
        if link.has_lanes && !twin::armed("lanes: a seat does not look again") {
            // Items pushed since the last adoption, before we got the seat, may be urgent.
            let pool = self.pool();
            self.adopt(&pool.injector);
        }
        let items = self.link_mut(slot).next_lane();
        let colour = items.first().map(list::colour).unwrap_or_default();
        let mut nr_taken = 0;
        // A batch has one colour, so that its in-flight counts can be released as one number.
        while nr_taken < limit
            && let Some(item) = items.first()
            && list::colour(item) == colour
        {
            items.pop_front();
            worker.hold(nr_taken, item);
            nr_taken += 1;
        }
        self.enlisted_mut(worker).colour = colour;
        self.line_up(slot);
        nr_taken
    }

    /// Releases the in-flight counts of all items that `worker` has run.
    pub(crate) fn retire(&mut self, worker: &Worker) {
        let enlisted = self.enlisted_mut(worker);
        let nr_done = enlisted.worker.nr_done();
        let count = nr_done.wrapping_sub(enlisted.nr_retired) as usize;
        if count > 0 {
            enlisted.nr_retired = nr_done;
            let slot = enlisted.seat.expect("a worker that ran items holds a seat");
            let colour = enlisted.colour;
            self.retire_from(slot, colour, count);
        }
    }

    /// Releases `count` in-flight counts of a pwq.
    pub(crate) fn retire_from(&mut self, slot: usize, colour: Colour, count: usize) {
        let link = self.dispatch.link_mut(slot);
        let flushes = link.in_flight.retire(colour, count);
        let drains = link.in_flight.nr_in_flight() == 0 && link.drain_waits;
        link.drain_waits &= !drains;
        if drains || flushes && !twin::armed("flush: the last of a colour tells nobody") {
            self.effects.settled.push(link.core.clone());
        }
    }

    pub(crate) fn give_up_seat(&mut self, worker: &Worker) {
        let Some(slot) = self.enlisted_mut(worker).seat.take() else {
            return;
        };
        let link = self.link(slot);
        let left = Gate::leave(&link.gate, &link.core, link.node, Holds::Seat);
        self.effects.settled.extend(left.settled);
        match left.seeker {
            Some(seeker) if Arc::ptr_eq(self.pool(), &seeker.pool) => self.seat(seeker.slot),
            seeker => self.effects.seats.extend(seeker),
        }
    }
}

impl Dispatch {
    /// Returns the maximum size of a batch. Items of an ordered queue are taken one at a time, so
    /// that a cancelled one can be removed from its list. Long items are taken one at a time so
    /// that other workers can start some, and those of a queue with an urgent lane so that no local
    /// batch delays an urgent item.
    pub(crate) fn limit(&self, slot: usize, limit: usize) -> usize {
        let link = self.link(slot);
        if link.gate.max() == 1 || link.core.cpu_intensive || link.has_lanes {
            1
        } else {
            limit
        }
    }

    /// Returns the maximum size of a batch of a pwq in a pool whose pwqs have shares. It depends on
    /// the average of the pwq's own items only, because those of other pwqs can differ.
    fn share_limit(&self, slot: usize, max: usize) -> Option<usize> {
        if !self.is_shared() {
            return None;
        }
        let link = self.link(slot);
        let item_ns = link.account.item_ns().unwrap_or(u64::MAX);
        Some(policy::batch_size(item_ns, link.nr_waiting(), 1, max))
    }

    pub(crate) fn hold_active_slot(&mut self, worker: &Worker, slot: usize) {
        self.enlisted_mut(worker).seat = Some(slot);
    }

    /// Adds the worker's counters to its pwq. Called by the worker, between two batches.
    pub(crate) fn tell(&mut self, worker: &Worker) {
        let told = worker
            .tally
            .take(ThreadId(worker.thread.load(Ordering::Relaxed)));
        if told.nr_not_run > 0 {
            self.untell(worker, told.nr_not_run.into());
        }
        let enlisted = self.enlisted_mut(worker);
        if let Some(slot) = enlisted.seat {
            let ran = enlisted.sampling.ran(slot, &told);
            let link = self.link_mut(slot);
            if let (Some(ran), Some(times)) = (ran, link.times_mut()) {
                times
                    .run
                    .add_measured(told.first_cycles, ran.count, ran.cycles);
            }
            link.counts.nr_started -= u64::from(told.nr_not_run);
            link.counts.nr_completed += u64::from(told.nr_run);
            link.counts.cpu_ns += told.cpu_ns;
        }
        if self.is_shared() {
            let nr_items = u64::from(told.nr_run + told.nr_not_run);
            self.charge(worker, nr_items, told.used_ns());
        }
    }
}

/// Returns `true` if an item in a local batch is pending. If it was cancelled, or its joiner runs
/// it, only its tombstone is left. A detached closure has no link flag, and is never cancelled in
/// place.
fn is_there(item: *const Head) -> bool {
    // SAFETY: the item is linked, so it is alive.
    let state = unsafe { &*item }.load();
    state.is_pending() || !state.has_link()
}
