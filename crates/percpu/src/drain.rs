//! Calls on the slots of many CPUs at once.

use sync::atomic::{AtomicU64, Ordering};
use sync::twin;
use topology::{CpuId, CpuSet};

use super::attempt::Attempt;
use super::backoff::{self, Step};
use super::leaked::Due;
use super::remote::{DRAINED, DRAINS, PerCpu};
use super::slot::Slot;

impl<T: Send, const C: bool> PerCpu<T, C> {
    /// Calls `f` on the data of every CPU, online or not. To move the data out of the slots, call
    /// [`run_on`](Self::run_on) with [`take`](std::mem::take) for each of [`cpus`](Self::cpus).
    ///
    /// # Blocking
    ///
    /// The same as [`drain_cpus`](Self::drain_cpus).
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`drain_cpus`](Self::drain_cpus).
    #[doc(alias("on_each_cpu", "for_each_possible_cpu"))]
    pub fn drain_all(&self, f: impl Fn(CpuId, &mut T) + Sync) {
        self.drain_slots(self.table.slots.iter(), f);
    }

    /// Calls `f` on the data of each of `cpus`. CPUs without a slot are skipped.
    ///
    /// Calls on free slots run first. The function then waits for all others together. Calls on
    /// different slots may overlap in time.
    ///
    /// # Blocking
    ///
    /// Blocks until all calls have run, as [`run_on`](Self::run_on) does.
    ///
    /// # Panics
    ///
    /// Panics if the calling thread owns one of the slots and has not parked, or is inside one. In
    /// that case no call has run. If a call panics, its panic is resumed, and the other calls may
    /// or may not have run.
    #[doc(alias = "per_cpu_ptr")]
    pub fn drain_cpus(&self, cpus: &CpuSet, f: impl Fn(CpuId, &mut T) + Sync) {
        self.drain_slots(cpus.iter().filter_map(|cpu| self.table.slot(cpu)), f);
    }

    /// Returns the sum of the results of `f` for all slots. Calls `f` for one slot after another.
    ///
    /// # Blocking
    ///
    /// The same as [`drain_all`](Self::drain_all).
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`drain_all`](Self::drain_all).
    pub fn sum_over(&self, f: impl Fn(&T) -> u64 + Sync) -> u64 {
        let sum = AtomicU64::new(0);
        self.drain_all(|_, data| _ = sum.fetch_add(f(data), Ordering::Relaxed));
        sum.load(Ordering::Relaxed)
    }

    pub(super) fn drain_slots<'p>(
        &'p self,
        slots: impl Iterator<Item = &'p Slot<T>>,
        f: impl Fn(CpuId, &mut T) + Sync,
    ) {
        let f = &f;
        let attempts = slots.map(|slot| {
            let cpu = slot.cpu();
            let drain = move |data: &mut T| f(cpu, data);
            Attempt::new(self.not_mine(slot), self.escalation, drain)
        });
        // All attempts are created first, so that an attempt on a slot of our own panics before any
        // call has run.
        let mut attempts: Vec<_> = attempts.collect();
        self.tally[DRAINS].add(1);
        self.tally[DRAINED].add(attempts.len() as u64);
        attempts.retain_mut(|attempt| attempt.try_now().is_none());
        backoff::wait_for(|step| {
            let Step::Look(due) = step else {
                attempts.last_mut().into_iter().for_each(Attempt::nap);
                return None;
            };
            // Only the last attempt announces itself, and not while `f` runs on another slot,
            // because `f` may wait for the owner.
            if let Some(last) = attempts.last_mut()
                && !twin::armed("percpu: a drain stays announced inside a call")
            {
                last.withdraw();
            }
            attempts.retain_mut(|attempt| attempt.check(due).is_none());
            attempts.pop_if(|last| last.check_as_next(Due::Nothing).is_some());
            attempts.is_empty().then_some(())
        });
    }
}
