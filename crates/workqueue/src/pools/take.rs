//! Takes batches of items, each with a seat in the queue, and releases their in-flight counts.
//!
//! `seats.rs` acquires and releases the seats, which `active.rs` counts.
//!
//! # Legs
//!
//! A batch consists of *legs*. The items of a leg have one pwq and one color, and no two legs have
//! the same pwq. The worker runs one leg after the other. If items go to many queues in turn, the
//! costs of a batch are therefore paid once for many queues.
//!
//! ```text
//! take:    the pool is locked: the first leg, as many items as fit;  further legs from `pending`
//! run:     no lock: the items of a leg;  its counts, on this worker;  the next leg
//! end:     the pool is locked: release the counts and the seat of each leg
//! reclaim: the pool is locked: release the counts of items that have run;  put the others back;
//!          release the seats of all legs but the one that runs
//! ```
//!
//! *A further leg never keeps a queue from running.* Its seat is used later than it is acquired, so
//! it is acquired only if another one is free. The gate of the first leg must have a free seat too,
//! because that leg keeps its seat until the batch ends. A pwq with a group, with older items in
//! its own lists or with `cpu_intensive` items has no further leg, and none has one in a pool with
//! lanes or shares. The size of a batch is limited as if it had one leg, so long items are taken
//! one at a time. If an item is unexpectedly long, the manager reclaims the batch, even if no item
//! is left in it: a flush may wait for the counts of a leg that has ended, and an item for its
//! seat. Twin `sample: overlooks ended legs`.
//!
//! The first leg keeps its seat if the next batch begins with the same pwq. Twins `take: counts go
//! to the first leg` and `take: a leg without items keeps its seat`.
//!
//! # A deferred item
//!
//! An item does not overlap with itself, even if it is queued on another queue during its run. The
//! worker that pops it then hands it over to that run, whose end puts it back at the front of its
//! list. In an ordered queue, the next item must not start before it. The batch of such a queue is
//! one item, and the worker leaves the queue's seat to it:
//!
//! ```text
//! worker: pop: hand over;  end of the batch: unless the item has returned: pwq.deferred = item
//! run:    end: put the item back;             deferred = none: release the seat
//! cancel: claim: take the item from the run;  deferred = none: release the seat
//! ```
//!
//! The item may return before the batch has ended. The worker, which still has the seat, then keeps
//! it (`Enlisted::returned`). A deferred item has no seat in the group of its queue, because the
//! run may wait for such a seat. Twins `take: a deferred item has no seat`, `take: a returned item
//! is deferred` and `cancel: a deferred item keeps its seat`.

use std::mem;
use std::ops::Range;
use std::ptr::NonNull;

use base::internal::trace;
use base::internal::wake::lane::Lane;
use item::internal::head::Head;
use item::internal::list::{self, Color, List};
use sync::atomic::Ordering;
use sync::thread::ThreadId;
use sync::{time, twin};

use super::dispatch::{Dispatch, Enlisted, home, home_slot};
use super::policy;
use super::pool::PoolGuard;
use super::pwq::PwqState;
use super::worker::{MAX_LEGS, MAX_LOCAL_BATCH, Worker};

impl PoolGuard<'_> {
    /// Ends the last batch of `worker`, and takes the next one. Returns the size of the new batch.
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
        self.end_batch(worker);
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
                    return self.note_leg(worker, now, 0, 0..nr_taken);
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
            self.enlisted_mut(worker).legs[0].color = color;
            if nr_taken < limit && !self.pending.is_empty() && self.may_add_legs(slot) {
                return self.add_legs(worker, now, nr_taken, limit);
            }
            return self.note_leg(worker, now, 0, 0..nr_taken);
        }
    }

    /// Adds items from the front of `pending` to a batch whose first leg has `nr_first` items. The
    /// batch then has at most `limit` items. Returns its size.
    fn add_legs(&mut self, worker: &Worker, now: u64, nr_first: usize, limit: usize) -> usize {
        let mut items: [List; MAX_LEGS] = Default::default();
        let (mut nr_legs, mut nr_free) = (1, limit - nr_first);
        while nr_free > 0
            && let Some(item) = self.pending.first()
        {
            let (slot, color) = (home_slot(item), list::color(item));
            let legs = &self.enlisted(worker).legs[..nr_legs];
            let at = match legs.iter().position(|leg| leg.slot == Some(slot)) {
                Some(at) if legs[at].color == color => at,
                None if nr_legs < MAX_LEGS && self.enter_further(slot) => {
                    let leg = &mut self.enlisted_mut(worker).legs[nr_legs];
                    (leg.slot, leg.has_seat, leg.color) = (Some(slot), true, color);
                    nr_legs += 1;
                    nr_legs - 1
                }
                _ => break,
            };
            self.pending.pop_front();
            items[at].push_back(item);
            nr_free -= 1;
        }
        self.enlisted_mut(worker).nr_legs = nr_legs;
        let (mut start, mut end) = (0, nr_first);
        for (leg, mut items) in items.into_iter().take(nr_legs).enumerate() {
            while let Some(item) = items.pop_front() {
                worker.hold(end, item);
                end += 1;
            }
            self.note_leg(worker, now, leg, start..end);
            start = end;
        }
        end
    }

    /// Records a leg of the batch of `worker`, taken at the time `now` in cycles, with the items at
    /// `places`. Returns the number of these items.
    pub(crate) fn note_leg(
        &mut self,
        worker: &Worker,
        now: u64,
        leg: usize,
        places: Range<usize>,
    ) -> usize {
        let pool = self.pool();
        let nr_taken = places.len();
        let slot = self.enlisted(worker).legs[leg].slot.expect("the pwq of a leg");
        worker.set_leg_end(leg, places.end);
        self.nr_taken += nr_taken as u64;
        let pwq = self.dispatch.pwq_mut(slot);
        self.effects.traced.activate(|| {
            let items = worker.held(places.clone()).filter(|item| is_there(*item));
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
        // A leg has one lane.
        let lane = worker.held_at(places.start).map_or(Lane::default(), |item| home(item).lane);
        let every_us = pool.params.wait_sample;
        if every_us > 0 {
            self.sample(worker, now, (leg, slot, lane), places, every_us);
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
        (leg, slot, lane): (usize, usize, Lane),
        places: Range<usize>,
        every_us: u64,
    ) {
        let nr_taken = places.len();
        self.sample_from(worker, leg, slot);
        let sampling = &mut self.enlisted_mut(worker).legs[leg].sampling;
        if !sampling.takes(nr_taken as u64, now, every_us) {
            return;
        }
        // The item in the middle represents the batch, or the nearest one that was not cancelled or
        // helped.
        let alive = worker.held(places).enumerate().filter(|(_, it)| is_there(*it));
        let nth = alive.map(|(nth, _)| nth).min_by_key(|nth| nth.abs_diff(nr_taken / 2));
        if let Some(nth) = nth
            && let Some(arrived) = self.pwq(slot).arrived_at(lane, nth)
        {
            let waited = now.saturating_sub(arrived);
            let count = self.enlisted_mut(worker).legs[leg].sampling.record(waited, now);
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
        let first = &self.enlisted(worker).legs[0];
        if first.slot == Some(slot) && first.has_seat && pwq.may_stay() {
            return true;
        }
        self.give_up_seat(worker);
        // If the pwq gets no seat, it joins the wait queue, and its items wait as inactive. A later
        // seat is transferred to it under this pool's lock, which we hold, so its items are set
        // aside before that.
        let seated = self.enter_queue(slot) && self.climb(slot);
        if seated {
            self.begin_leg(worker, slot);
        }
        seated
    }

    /// Records that `worker`, which holds no other seat, has the seats of a pwq.
    fn begin_leg(&mut self, worker: &Worker, slot: usize) {
        let first = &mut self.enlisted_mut(worker).legs[0];
        (first.slot, first.has_seat) = (Some(slot), true);
    }

    /// Takes inactive items of a pwq that just got a seat. If items remain, the pwq waits for a
    /// seat again.
    pub(crate) fn take_inactive(&mut self, worker: &Worker, slot: usize, limit: usize) -> usize {
        let limit = self.limit(slot, limit);
        self.begin_leg(worker, slot);
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
        self.enlisted_mut(worker).legs[0].color = color;
        self.request_seat(slot);
        nr_taken
    }

    /// Ends the last batch of `worker`: releases the in-flight counts of all items that it has run,
    /// adds its counters to the pwqs, and releases its seats, except that of the first leg. The
    /// worker calls this between two batches.
    pub(crate) fn end_batch(&mut self, worker: &Worker) {
        let enlisted = self.enlisted_mut(worker);
        let nr_legs = mem::replace(&mut enlisted.nr_legs, 1);
        let returned = mem::take(&mut enlisted.returned);
        for leg in 0..nr_legs {
            self.retire(worker, leg);
            self.record(worker, leg);
            if leg > 0 {
                self.end_leg(worker, leg);
            }
        }
        if worker.has_handed_over() && !returned {
            self.defer(worker);
        }
    }

    /// Leaves the seat of an ordered queue to the item of the batch, which was handed over to an
    /// earlier run.
    #[cold]
    fn defer(&mut self, worker: &Worker) {
        let first = &self.enlisted(worker).legs[0];
        let slot = first.slot.filter(|slot| first.has_seat && self.pwq(*slot).rules.ordered);
        let Some(slot) = slot.filter(|_| !twin::armed("take: a deferred item has no seat")) else {
            return;
        };
        self.enlisted_mut(worker).legs[0].has_seat = false;
        self.pwq_mut(slot).deferred = worker.held_at(0).map(NonNull::addr);
        self.leave_group(slot);
        self.rest_group(slot);
    }

    /// Records that an item has returned from the run that it was handed over to, because the run
    /// has ended or the item is cancelled. Releases the seat that was left to the item.
    pub(crate) fn note_return(&mut self, slot: usize, item: NonNull<Head>) {
        let pwq = self.pwq_mut(slot);
        if !pwq.rules.ordered {
            return;
        }
        if pwq.deferred == Some(item.addr()) {
            pwq.deferred = None;
            self.leave_queue(slot);
            if self.has_work() {
                self.pick_if_needed();
            }
            return;
        }
        // The batch of an ordered queue has one leg, with one item.
        let has_it = |it: &Enlisted| it.legs[0].has_seat && it.worker.held_at(0) == Some(item);
        let worker = self.holders(slot).find(|(it, _)| has_it(it)).map(|(it, _)| it.worker.clone());
        if let Some(worker) = worker.filter(|_| !twin::armed("take: a returned item is deferred")) {
            self.enlisted_mut(&worker).returned = true;
        }
    }

    /// Releases the in-flight counts of all items of a leg that `worker` has run.
    #[inline]
    fn retire(&mut self, worker: &Worker, leg: usize) {
        let nr_done = worker.legs[leg].nr_done();
        let legs = &mut self.enlisted_mut(worker).legs;
        let its = &mut legs[leg];
        let count = nr_done.wrapping_sub(its.nr_retired) as usize;
        if count > 0 {
            its.nr_retired = nr_done;
            let color = its.color;
            let of = if twin::armed("take: counts go to the first leg") { 0 } else { leg };
            let slot = legs[of].slot.expect("the pwq of items in flight");
            self.retire_from(slot, color, count);
        }
    }

    /// Releases the in-flight counts of all items that `worker` has run, and puts the others of its
    /// local batch back into the lists. The worker keeps only the seats for the item that it runs.
    pub(crate) fn reclaim(&mut self, worker: &Worker) {
        (0..self.enlisted(worker).nr_legs).for_each(|leg| self.retire(worker, leg));
        for (place, item) in worker.disown().into_iter().rev() {
            // Its wait is recorded when it is taken again.
            let leg = self.enlisted(worker).leg_at(place);
            self.unrecord(worker, leg, 1);
            self.pwq_mut(home_slot(item)).counts.nr_started -= 1;
            self.put_back(item);
        }
        let enlisted = self.enlisted(worker);
        let present = enlisted.leg_at(worker.position());
        for leg in (0..enlisted.nr_legs).filter(|leg| *leg != present) {
            if !twin::armed("take: a leg without items keeps its seat") {
                self.leave_leg(worker, leg);
            }
        }
    }

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

    fn may_add_legs(&self, slot: usize) -> bool {
        let pwq = self.pwq(slot);
        !self.adopts_early() && Self::is_plain(pwq) && pwq.gate.has_free(1)
    }

    /// Acquires a seat for a further leg, if that leaves another one.
    fn enter_further(&self, slot: usize) -> bool {
        let pwq = self.pwq(slot);
        let has_free = pwq.waits.is_none() && pwq.gate.has_free(2);
        Self::is_plain(pwq) && has_free && pwq.gate.try_enter(pwq.node as usize)
    }

    fn is_plain(pwq: &PwqState) -> bool {
        pwq.group.is_none() && !pwq.core.cpu_intensive
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

    #[inline]
    fn record(&mut self, worker: &Worker, leg: usize) {
        let thread = ThreadId(worker.thread.load(Ordering::Relaxed));
        let counts = worker.legs[leg].tally.take(&worker.cpu_clock, thread);
        if counts.nr_not_run > 0 {
            self.unrecord(worker, leg, counts.nr_not_run.into());
        }
        let its = &mut self.enlisted_mut(worker).legs[leg];
        let nr_items = u64::from(counts.nr_run + counts.nr_not_run);
        if nr_items > 0
            && let Some(slot) = its.slot
        {
            let ran = its.sampling.ran(slot, &counts);
            let pwq = self.pwq_mut(slot);
            if let (Some(ran), Some(times)) = (ran, &mut pwq.observed) {
                times.run.add_measured(counts.first_cycles, ran.count, ran.cycles);
            }
            pwq.counts.nr_started -= u64::from(counts.nr_not_run);
            pwq.counts.nr_completed += u64::from(counts.nr_run);
            pwq.counts.cpu_ns += counts.cpu_ns;
        }
        if self.is_shared() {
            self.charge(worker, leg, nr_items, counts.used_ns());
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
