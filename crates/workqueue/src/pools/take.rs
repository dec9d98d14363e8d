//! Takes batches of items, each with a seat in the queue, and releases their in-flight counts.
//!
//! `seats.rs` acquires and releases the seats, which `active.rs` counts.

use base::internal::trace;
use base::internal::wake::lane::Lane;
use item::internal::head::Head;
use item::internal::list::{self, Color, List};
use sync::atomic::Ordering;
use sync::thread::ThreadId;
use sync::{time, twin};

use super::dispatch::{Dispatch, home, home_slot};
use super::policy;
use super::pool::PoolGuard;
use super::worker::{MAX_LOCAL_BATCH, Worker};

impl PoolGuard<'_> {
    /// Takes the next batch for `worker`, whose last batch was [retired](Self::retire). Returns the
    /// size of the new batch.
    pub(crate) fn take(&mut self, worker: &Worker) -> usize {
        let pool = self.pool();
        let max = pool.params.max_batch.min(MAX_LOCAL_BATCH);
        // The clock is read once per batch.
        let now = time::cycles();
        if self.is_shared() {
            // If the first item of a pwq arrived during the last batch, that pwq already had work
            // for the pool during the batch. It is therefore added before the batch is charged.
            self.adopt_at(now, &pool.injector);
        }
        self.record(worker);
        loop {
            if self.pending.is_empty() || self.adopts_early() {
                self.adopt_at(now, &pool.injector);
            }
            if self.is_shared() {
                // Give up the seat, so that the pwq that the worker just served competes for the
                // next turn too.
                self.give_up_seat(worker);
            }
            let limit =
                |nr_waiting| policy::batch_size(worker.item_ns(), nr_waiting, pool.target(), max);
            self.ready_first = !self.ready_first;
            if (self.ready_first || self.pending.is_empty() || !self.seated.is_empty())
                && let Some(slot) = self.next_ready(worker)
            {
                let limit = self
                    .share_limit(slot, max)
                    .unwrap_or_else(|| limit(self.pwq(slot).nr_waiting()));
                let nr_taken = self.take_inactive(worker, slot, limit);
                if nr_taken > 0 {
                    return self.note_batch(worker, now, slot, nr_taken);
                }
                continue;
            }
            let Some(item) = self.pending.first() else {
                self.give_up_seat(worker);
                // The released seat may have made a pwq of this pool ready.
                if !self.has_ready() {
                    self.rest();
                    self.note_pace(now);
                    return 0;
                }
                continue;
            };
            let slot = home_slot(item);
            if !self.find_seat(worker, slot) {
                self.pending.pop_front();
                self.pwq_mut(slot).lane_mut(Lane::Ordinary).push_back(item);
                continue;
            }
            let limit = self.limit(slot, limit(self.pending.len()));
            // The batch has one home, because items of a slot in different lanes go into different
            // batches.
            let (color, nr_taken) = hold_first(worker, &mut self.pending, limit);
            self.enlisted_mut(worker).color = color;
            return self.note_batch(worker, now, slot, nr_taken);
        }
    }

    /// Records the batch of `worker`, taken at the time `now` in cycles, and returns its size.
    pub(crate) fn note_batch(
        &mut self,
        worker: &Worker,
        now: u64,
        slot: usize,
        nr_taken: usize,
    ) -> usize {
        let pool = self.pool();
        self.nr_taken += nr_taken as u64;
        let pwq = self.dispatch.pwq_mut(slot);
        self.effects.traced.activate(|| {
            let items = worker.held(nr_taken).filter(|item| is_there(*item));
            let items = items.map(|item| trace::Item {
                address: item.addr(),
                // SAFETY: the item is linked, so it is alive.
                func: unsafe { &*item }.vtable().name,
                queue: &pwq.core.name,
                pool: pool.number,
            });
            items.collect()
        });
        pwq.counts.nr_started += nr_taken as u64;
        pwq.counts.nr_repatriated += u64::from(worker.takes_after_return());
        // A batch has one lane.
        let lane = worker.first_held().map_or(Lane::default(), |item| home(item).lane);
        let every_us = pool.params.wait_sample;
        if every_us > 0 {
            self.sample(worker, now, (slot, lane), nr_taken, every_us);
        }
        self.pwq_mut(slot).nr_listed[lane as usize] -= nr_taken;
        if self.is_shared() {
            self.pay(worker, slot, nr_taken);
        }
        nr_taken
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
        self.sample_from(worker, slot);
        let sampling = &mut self.enlisted_mut(worker).sampling;
        if !sampling.takes(nr_taken as u64, now, every_us) {
            return;
        }
        // The item in the middle represents the batch, or the nearest one that was not cancelled or
        // helped.
        let alive = worker.held(nr_taken).enumerate().filter(|(_, it)| is_there(*it));
        let nth = alive.map(|(nth, _)| nth).min_by_key(|nth| nth.abs_diff(nr_taken / 2));
        if let Some(nth) = nth
            && let Some(arrived) = self.pwq(slot).arrived_at(lane, nth)
        {
            let waited = now.saturating_sub(arrived);
            let count = self.enlisted_mut(worker).sampling.record(waited, now);
            if let Some(times) = &mut self.pwq_mut(slot).observed {
                times.wait.add(waited, count);
            }
        }
    }

    /// Acquires the seats for `worker` to run items of `slot`, and returns `true`. If a gate has no
    /// free seat, the pwq joins the wait queue of that gate.
    fn find_seat(&mut self, worker: &Worker, slot: usize) -> bool {
        let pwq = self.pwq(slot);
        if pwq.waits.is_some() {
            // Older items of this pwq are waiting, or were cancelled.
            return false;
        }
        let seat = self.enlisted(worker).seat;
        if seat == Some(slot) && pwq.may_stay() {
            return true;
        }
        self.give_up_seat(worker);
        // If the pwq gets no seat, it joins the wait queue, and its items wait as inactive. A later
        // seat is transferred to it under this pool's lock, which we hold, so its items are set
        // aside before that.
        let seated = self.enter_queue(slot) && self.climb(slot);
        if seated {
            self.enlisted_mut(worker).seat = Some(slot);
        }
        seated
    }

    /// Takes inactive items of a pwq that just got a seat. If items remain, the pwq waits for a
    /// seat again.
    pub(crate) fn take_inactive(&mut self, worker: &Worker, slot: usize, limit: usize) -> usize {
        let limit = self.limit(slot, limit);
        self.enlisted_mut(worker).seat = Some(slot);
        let pwq = self.pwq_mut(slot);
        if !pwq.gate.may_start() && !twin::armed("take: overlooks a pause") {
            // The queue was paused after the seat was transferred to this pwq.
            self.request_seat(slot);
            return 0;
        }
        if pwq.has_lanes && !twin::armed("lanes: a seat does not recheck") {
            // Items pushed since the last adoption, before we got the seat, may be urgent.
            let pool = self.pool();
            self.adopt(&pool.injector);
        }
        let (color, nr_taken) = hold_first(worker, self.pwq_mut(slot).next_lane(), limit);
        self.enlisted_mut(worker).color = color;
        self.request_seat(slot);
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
            let color = enlisted.color;
            self.retire_from(slot, color, count);
        }
    }

    /// Releases the in-flight counts of all items that `worker` has run, and puts the others of its
    /// local batch back into the lists.
    pub(crate) fn reclaim(&mut self, worker: &Worker) {
        self.retire(worker);
        let items = worker.disown();
        // Their wait is recorded when they are taken again.
        self.unrecord(worker, items.len() as u64);
        for item in items.into_iter().rev() {
            self.pwq_mut(home_slot(item)).counts.nr_started -= 1;
            self.put_back(item);
        }
    }

    /// Releases `count` in-flight counts of a pwq.
    pub(crate) fn retire_from(&mut self, slot: usize, color: Color, count: usize) {
        let pwq = self.dispatch.pwq_mut(slot);
        let flushes = pwq.in_flight.retire(color, count);
        let drains = pwq.in_flight.nr_in_flight() == 0 && pwq.drain_waits;
        pwq.drain_waits &= !drains;
        if drains || flushes && !twin::armed("flush: the last item of a color does not notify") {
            self.effects.settled.push(pwq.core.clone());
        }
    }
}

impl Dispatch {
    /// Returns the maximum size of a batch. Items of an ordered queue are taken one at a time, so
    /// that a cancelled one can be removed from its list. Long items are taken one at a time so
    /// that other workers can start some, and those of a queue with an urgent lane so that no local
    /// batch delays an urgent item.
    pub(crate) fn limit(&self, slot: usize, limit: usize) -> usize {
        let pwq = self.pwq(slot);
        if pwq.gate.max() == 1 || pwq.core.cpu_intensive || pwq.has_lanes { 1 } else { limit }
    }

    /// Returns the maximum size of a batch of a pwq in a pool whose pwqs have shares. It depends
    /// only on the average run time of the pwq's own items, because the run times of other pwqs'
    /// items can differ.
    fn share_limit(&self, slot: usize, max: usize) -> Option<usize> {
        if !self.is_shared() {
            return None;
        }
        let pwq = self.pwq(slot);
        let item_ns = pwq.account.item_ns().unwrap_or(u64::MAX);
        Some(policy::batch_size(item_ns, pwq.nr_waiting(), 1, max))
    }

    /// Adds the worker's counters to its pwq. The worker calls this between two batches.
    pub(crate) fn record(&mut self, worker: &Worker) {
        let counts = worker.tally.take(ThreadId(worker.thread.load(Ordering::Relaxed)));
        if counts.nr_not_run > 0 {
            self.unrecord(worker, counts.nr_not_run.into());
        }
        let enlisted = self.enlisted_mut(worker);
        if let Some(slot) = enlisted.seat {
            let ran = enlisted.sampling.ran(slot, &counts);
            let pwq = self.pwq_mut(slot);
            if let (Some(ran), Some(times)) = (ran, &mut pwq.observed) {
                times.run.add_measured(counts.first_cycles, ran.count, ran.cycles);
            }
            pwq.counts.nr_started -= u64::from(counts.nr_not_run);
            pwq.counts.nr_completed += u64::from(counts.nr_run);
            pwq.counts.cpu_ns += counts.cpu_ns;
        }
        if self.is_shared() {
            let nr_items = u64::from(counts.nr_run + counts.nr_not_run);
            self.charge(worker, nr_items, counts.used_ns());
        }
    }
}

/// Moves up to `limit` items from the front of a list to the local batch of `worker`. Returns their
/// color and their number. All items of a batch have one color, so that their in-flight counts can
/// be released together.
fn hold_first(worker: &Worker, items: &mut List, limit: usize) -> (Color, usize) {
    items.first().map_or_else(Default::default, |first| {
        let color = list::color(first);
        (color, items.pop_alike(first, limit, |nth, item| worker.hold(nth, item)))
    })
}

/// Returns `true` if an item in a local batch is pending. If it was cancelled, or its joiner runs
/// it, only its tombstone is left. A detached closure has no link flag, and is never cancelled in
/// place.
fn is_there(item: *const Head) -> bool {
    // SAFETY: the item is linked, so it is alive.
    let state = unsafe { &*item }.load();
    state.is_pending() || !state.has_link()
}
