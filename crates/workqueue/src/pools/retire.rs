//! Releases in-flight counts and notifies the threads that wait for that.

use sync::{atomic::Ordering, thread::ThreadId, twin};

use super::{dispatch::Dispatch, pool::PoolGuard, worker::Worker};
use crate::item::colour::Colour;

impl PoolGuard<'_> {
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
}

impl Dispatch {
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
