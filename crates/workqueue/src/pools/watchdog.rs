//! Reports work that makes no progress (`stall.rs`), and items that hog a CPU.

use std::ptr::{self, NonNull};
use std::time::Duration;

use base::internal::page::{Kind, NAME_BYTES, Record};
use item::internal::head::{Head, VTable};
use sync::atomic::Ordering;
use topology::CpuSet;

use super::dispatch::{Dispatch, Enlisted, home_slot};
use super::pwq::WaitsFor;
use super::worker::Worker;
use crate::observe::left::{Doing, LeftItems};
use crate::observe::report::{BusyWorker, ItemName, Report, Stall};
use crate::observe::stall::worth_reporting;

/// The number of waiting items of a pool that are counted by function, as `Kind::Function`
/// documents. The value is a guess: each item may cost a cache miss under the pool lock, so 128
/// cost about ten microseconds.
const LISTED: usize = 128;

impl Dispatch {
    pub(crate) fn stalled_ns(&self) -> u64 {
        self.stall_detector.age_ns(self.nr_taken)
    }

    /// Updates the stall detector. Returns a report if the first waiting item has waited too long.
    /// `cpus` are the CPUs of the pool.
    pub(crate) fn check_for_stall(
        &mut self,
        now_ns: u64,
        thresh_ns: u64,
        cpus: &CpuSet,
    ) -> Option<Report> {
        let first = self.first_waiting();
        let waits = first.is_some();
        let age_ns = self.stall_detector.sample(waits, self.nr_taken, now_ns, thresh_ns)?;
        let first = first?;
        let ready = self.pwqs().filter(|pwq| pwq.waits == Some(WaitsFor::Turn));
        let nr_ready: usize = ready.map(|pwq| pwq.nr_waiting()).sum();
        let busy = self.workers().filter(|it| it.worker.is_inside());
        let workers = busy.filter_map(|it| {
            Some(BusyWorker {
                thread: it.worker.thread.load(Ordering::Relaxed),
                item: self.name_of(it)?,
                sleeps: it.away.declared || it.away.asleep,
                #[cfg(feature = "stacks")]
                stack: None,
            })
        });
        Some(Report::Stall(Stall {
            cpus: cpus.clone(),
            item: ItemName {
                queue: self.pwq(home_slot(first)).core.name.to_string(),
                // SAFETY: the item is linked, so it is alive.
                func: (unsafe { first.as_ref() }.vtable().name)(),
            },
            age: Duration::from_nanos(age_ns),
            nr_waiting: self.pending.len() + nr_ready,
            workers: workers.collect(),
        }))
    }

    /// Returns the first item that waits only for a worker.
    fn first_waiting(&self) -> Option<NonNull<Head>> {
        let ready = || self.pwq(self.first_ready()?).waiting().next();
        self.pending.first().or_else(ready)
    }

    /// Records that the worker's item hogs a CPU. Returns a report if one is due.
    pub(crate) fn note_hog(&mut self, worker: &Worker) -> Option<Report> {
        let item = self.name_of(self.enlisted(worker))?;
        let kind = ptr::from_ref(worker.running()?).addr();
        let count = self.hogs.entry(kind).or_default();
        *count += 1;
        let count = *count;
        worth_reporting(count).then_some(Report::CpuIntensive { item, count })
    }

    /// Returns the name of an item of the pwq `slot`, of a running one if there is one.
    pub(crate) fn name_one(&self, slot: usize) -> Option<&'static str> {
        let mut inside = self.workers().filter(|it| it.worker.is_inside());
        let running = inside.find(|it| it.slot() == Some(slot));
        let name = running.and_then(|it| Some(it.worker.running()?.name));
        let waiting = || {
            let first = self.pending.first().filter(|it| home_slot(*it) == slot);
            let item = first.or_else(|| self.pwq(slot).waiting().next())?;
            // SAFETY: the item is linked, so it is alive.
            Some(unsafe { item.as_ref() }.vtable().name)
        };
        Some(name.or_else(waiting)?())
    }

    /// Adds the remaining items of the pwq `slot` to `left`: running, waiting to be woken, and
    /// queued. Local batches contain no other items of this pwq.
    pub(crate) fn left(&self, slot: usize, left: &mut Vec<LeftItems>) {
        let pwq = self.pwq(slot);
        let mut add = |doing, table: Option<&VTable>, count| {
            left.push(LeftItems::new(doing, table.map(|it| (it.name)()), count));
        };
        let anchors = pwq.lanes().filter_map(|it| it.anchors.get());
        let mut waiting: Vec<_> = anchors.flat_map(|it| it.kinds()).collect();
        let inside = |it: &&Enlisted| it.slot() == Some(slot) && it.worker.is_inside();
        let running = self.workers().filter(inside);
        for table in running.filter_map(|it| it.worker.running()) {
            add(Doing::Runs, Some(table), 1);
            // A future that is being polled also keeps its count.
            let same = waiting.iter_mut().find(|it| it.0.is_some_and(|it| ptr::eq(it, table)));
            if let Some((_, count)) = same {
                *count = count.saturating_sub(1);
            }
        }
        for (table, count) in waiting.into_iter().filter(|(_, count)| *count > 0) {
            add(Doing::Waits, table, count as usize);
        }
        for item in pwq.waiting().chain(self.pending.iter()) {
            // SAFETY: the item is linked, so it is alive.
            let head = unsafe { item.as_ref() };
            let (state, table) = (head.load(), head.vtable());
            // If the item was cancelled, only its tombstone is left. A detached closure has no link
            // flag, and is never cancelled in place.
            let is_queued = state.is_pending() || !state.has_link();
            // SAFETY: as above, and the vtable was created for the item.
            if home_slot(item) == slot && is_queued && !unsafe { (table.has_begun)(item) } {
                add(Doing::IsQueued, Some(table), 1);
            }
        }
        if pwq.deferred.is_some() {
            add(Doing::IsQueued, None, 1);
        }
    }

    /// Returns a record for each worker that runs an item, and one for each function of an item
    /// that runs or is among the first that wait.
    pub(crate) fn records_of_items(&self) -> Vec<Record> {
        let mut records = Vec::new();
        let mut functions: Vec<(usize, &'static str, [u64; 2])> = Vec::new();
        let mut count = |slot, func, state: usize| {
            let known = functions.iter().position(|it| (it.0, it.1) == (slot, func));
            let at = known.unwrap_or_else(|| {
                functions.push((slot, func, [0; 2]));
                functions.len() - 1
            });
            functions[at].2[state] += 1;
        };
        let record = |kind, slot, func, figures: &[u64]| {
            let queue = self.pwq(slot).core.name.to_string();
            Record::new(kind, short(func).to_owned(), queue, figures.to_vec())
        };
        for it in self.workers().filter(|it| it.worker.is_inside()) {
            if let (Some(slot), Some(table)) = (it.slot(), it.worker.running()) {
                let func = (table.name)();
                let thread = it.worker.thread.load(Ordering::Relaxed);
                let figures = [thread.into(), it.away.sleeps().into()];
                records.push(record(Kind::Worker, slot, func, &figures));
                count(slot, func, 0);
            }
        }
        let inactive = self.pwqs().flat_map(|pwq| pwq.waiting());
        for item in self.pending.iter().chain(inactive).take(LISTED) {
            // SAFETY: the item is linked, so it is alive.
            let head = unsafe { item.as_ref() };
            let state = head.load();
            // See `left`.
            if state.is_pending() || !state.has_link() {
                count(home_slot(item), (head.vtable().name)(), 1);
            }
        }
        let functions = functions.iter();
        records.extend(functions.map(|it| record(Kind::Function, it.0, it.1, &it.2)));
        records
    }

    fn name_of(&self, enlisted: &Enlisted) -> Option<ItemName> {
        Some(ItemName {
            queue: self.pwq(enlisted.slot()?).core.name.to_string(),
            func: (enlisted.worker.running()?.name)(),
        })
    }
}

/// Returns the end of a function's name, without its first modules, so that it fits into a record.
fn short(func: &str) -> &str {
    let modules = func.match_indices("::").map(|(at, sep)| &func[at + sep.len()..]);
    let mut ends = std::iter::once(func).chain(modules);
    ends.find(|it| it.len() <= NAME_BYTES).unwrap_or(func)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_loses_its_first_modules() {
        let closure = "run::{{closure}}";
        assert_eq!(short(closure), closure);
        let long = format!("{}::{closure}", "module".repeat(10));
        assert_eq!(short(&long), closure);
        let word = "w".repeat(100);
        assert_eq!(short(&word), word);
    }
}
