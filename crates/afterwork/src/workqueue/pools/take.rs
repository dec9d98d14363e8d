//! Taking batches: items come with a seat of their queue's gate.
//!
//! The seats themselves are counted in `active.rs`.

use sync::{twin, unmodelled::Arc};

use super::{
    dispatch::{Dispatch, home_slot},
    policy,
    pool::PoolGuard,
    pwq::Seeker,
    worker::{MAX_HAND, Taken, Worker},
};
use crate::{
    trace,
    workqueue::{
        item::list,
        limit::active::{Gate, Holds},
    },
};

impl PoolGuard<'_> {
    /// Takes the next batch for `worker` into its hand; false when there is nothing to do.
    pub(crate) fn take(&mut self, worker: &Worker) -> Taken {
        let pool = self.pool();
        let max = pool.params.max_batch.min(MAX_HAND);
        self.retire(worker);
        self.tell(worker);
        loop {
            if self.pending.is_empty() {
                self.adopt(&pool.injector);
            }
            let limit =
                policy::batch_size(worker.item_ns(), self.pending.len(), pool.target(), max);
            self.ready_first = !self.ready_first;
            if (self.ready_first || self.pending.is_empty())
                && let Some(slot) = self.ready.pop_front()
            {
                self.give_up_seat(worker);
                let nr_taken = self.take_inactive(worker, slot, limit);
                self.hold_active_slot(worker, slot);
                if nr_taken > 0 {
                    return self.taken(worker, slot, nr_taken);
                }
                continue;
            }
            let Some(item) = self.pending.pop_front() else {
                self.give_up_seat(worker);
                // Giving a seat up may have made a link of this very pool ready.
                if self.ready.is_empty() {
                    return Taken::Nothing;
                }
                continue;
            };
            let slot = home_slot(item);
            if !self.find_seat(worker, slot) {
                self.link_mut(slot).inactive.push_back(item);
                continue;
            }
            let limit = self.limit(slot, limit);
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
            return self.taken(worker, slot, nr_taken);
        }
    }

    pub(crate) fn taken(&mut self, worker: &Worker, slot: usize, nr_taken: usize) -> Taken {
        let pool = self.pool();
        self.nr_batches += 1;
        let link = self.dispatch.link_mut(slot);
        self.effects.traced.activate(|| {
            let items = worker.held(nr_taken).filter_map(|item| {
                // SAFETY: the item is linked, so it is alive.
                let head = unsafe { &*item };
                let state = head.load();
                // Where it was cancelled, or its joiner has it, this is its place and no more. A closure has no state.
                let is_there = state.is_pending() || !state.has_link();
                is_there.then(|| trace::Item {
                    address: item.addr(),
                    func: head.vtable().name,
                    queue: &link.core.name,
                    pool: pool.number,
                })
            });
            items.collect()
        });
        link.counts.nr_started += nr_taken as u64;
        link.nr_listed -= nr_taken;
        link.counts.nr_repatriated += u64::from(worker.takes_after_return());
        if worker.holds(nr_taken, link.probe.sought())
            && let Some(cycles) = link.probe.read()
        {
            link.core.wait.record(cycles);
        }
        let every = pool.params.wait_sample;
        if every > 0 && link.counts.nr_started >= link.next_sample && link.probe.want() {
            link.next_sample = link.counts.nr_started + every;
        }
        Taken::Items(nr_taken)
    }

    /// Gets `worker` a seat for the items of `slot`; otherwise the link stands in line.
    pub(crate) fn find_seat(&mut self, worker: &Worker, slot: usize) -> bool {
        let pool = self.pool();
        let link = self.link(slot);
        if !link.inactive.is_empty() || link.plugged {
            // Older items wait already, of this link or its predecessor.
            return false;
        }
        let seat = self.enlisted(worker).seat;
        if seat == Some(slot) && link.gate.may_stay() {
            return true;
        }
        self.give_up_seat(worker);
        let link = self.link(slot);
        // Seated: the batch is ours. Else the link stands in line, and what it has waits as inactive until a seat is handed
        // to it, with this pool locked: we still have the lock, so the items are set aside before that.
        let seated = link.gate.enter_or_queue(link.node, || Seeker {
            pool: pool.clone(),
            slot,
        });
        if seated {
            self.hold_active_slot(worker, slot);
        }
        seated
    }

    /// Takes inactive items of a link that has just got a seat; what is left stands in line again.
    pub(crate) fn take_inactive(&mut self, worker: &Worker, slot: usize, limit: usize) -> usize {
        let limit = self.limit(slot, limit);
        let link = self.link_mut(slot);
        if link.plugged && !twin::armed("take: overlooks the plug") {
            // The seat is of a place in line from before the link was left and taken up again, whose items were
            // cancelled; it goes on, and unplugging gets the link another one.
            return 0;
        }
        let colour = link.inactive.first().map(list::colour).unwrap_or_default();
        let mut nr_taken = 0;
        // A batch is of one colour, so that its counts can be given back by their number.
        while nr_taken < limit
            && let Some(item) = link.inactive.first()
            && list::colour(item) == colour
        {
            link.inactive.pop_front();
            worker.hold(nr_taken, item);
            nr_taken += 1;
        }
        self.enlisted_mut(worker).colour = colour;
        self.line_up(slot);
        nr_taken
    }

    /// Gets a link with inactive items a seat, or puts it in line for one.
    fn line_up(&mut self, slot: usize) {
        let pool = self.pool();
        let link = self.link(slot);
        if !link.inactive.is_empty()
            && !twin::armed("take: forgets the inactive")
            && link.gate.enter_or_queue(link.node, || Seeker {
                pool: pool.clone(),
                slot,
            })
        {
            self.ready.push_back(slot);
        }
    }

    /// Lets the items of a link run for which its predecessor's had to end first.
    pub(crate) fn unplug(&mut self, slot: usize) {
        self.link_mut(slot).plugged = false;
        self.line_up(slot);
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
    /// An ordered queue's items are taken one by one, so that a cancelled one can be cut out of its list; long ones so
    /// that others may start meanwhile.
    pub(crate) fn limit(&self, slot: usize, limit: usize) -> usize {
        let link = self.link(slot);
        if link.gate.max() == 1 || link.core.cpu_intensive {
            1
        } else {
            limit
        }
    }

    pub(crate) fn hold_active_slot(&mut self, worker: &Worker, slot: usize) {
        self.enlisted_mut(worker).seat = Some(slot);
    }

    /// Notes that a link of this pool has been handed a seat.
    pub(crate) fn seat(&mut self, slot: usize) {
        self.ready.push_back(slot);
    }
}
