//! Names work that does not move, and items that take the CPU for long.
//!
//! A pool is *stalled* when items wait for a worker and none has been taken for `watchdog_thresh_ms`: the same first
//! item waits all that time. Items that wait for a seat of their queue do not count, they wait by design. The manager
//! looks, with its looks at pools in which work waits; so an idle program has no watchdog that runs.
//!
//! A machine that was paused (a suspended laptop, a stopped process, a virtual machine that was moved) is no stall: of
//! the time between two looks at most a second counts, however late the second one comes.

use std::{fmt, ptr, time::Duration};

use sync::atomic::Ordering;
use topology::CpuSet;

use super::{
    dispatch::{Dispatch, Enlisted, home_slot},
    worker::Worker,
};

/// What a registry tells the handler given to [`Registry::on_report`](super::Registry::on_report).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Report {
    /// Work of a pool does not move.
    Stall(Stall),
    /// An item has had the CPU for [`cpu_intensive_thresh_us`](crate::params::Params) while others waited.
    CpuIntensive {
        /// What it is and whose.
        item: ItemName,
        /// How often that kind of item has been seen so; told the 1st, 2nd, 4th, 8th, … time.
        count: u64,
    },
    /// A drain, or the end of a queue, does not get through, for items queue others or themselves all the time.
    LongDrain {
        /// The queue.
        queue: String,
        /// How often all has ended that there was, and something else had come; told the 10th time and every 100th up
        /// to the 1000th, as by the kernel.
        rounds: u64,
        /// One that is there now, unless it has just ended.
        item: Option<ItemName>,
    },
    /// An item of a queue with a rescuer waits for one of a queue that has none, or flushes such a queue: when no thread
    /// can be had, it waits for ever. Told once for each pair.
    FlushDependency {
        /// The queue with a rescuer ([`mem_reclaim`](super::Builder::mem_reclaim)).
        waiter: String,
        /// The queue that is waited for; nothing when the item is not found, because it has just ended, is run by whoever
        /// joined it, or belongs to another registry.
        queue: Option<String>,
        /// The type of the item's function, if it waits for an item.
        func: Option<&'static str>,
    },
}

impl Report {
    /// Returns what events call such a report.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Stall(_) => "stall",
            Self::CpuIntensive { .. } => "cpu_intensive",
            Self::LongDrain { .. } => "long_drain",
            Self::FlushDependency { .. } => "flush_dependency",
        }
    }

    /// Returns the queue that it is about.
    pub(crate) fn queue(&self) -> &str {
        match self {
            Self::Stall(stall) => &stall.item.queue,
            Self::CpuIntensive { item, .. } => &item.queue,
            Self::LongDrain { queue, .. } => queue,
            Self::FlushDependency { waiter, .. } => waiter,
        }
    }
}

/// A pool whose work does not move.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// The CPUs of the pool.
    pub cpus: CpuSet,
    /// The item that waits first.
    pub item: ItemName,
    /// For how long at least no item has been taken.
    pub age: Duration,
    /// How many items wait.
    pub nr_waiting: usize,
    /// Every worker that is in an item.
    pub workers: Vec<BusyWorker>,
}

/// A worker that is in an item.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BusyWorker {
    /// The kernel's number of its thread.
    pub thread: u32,
    /// What it is in.
    pub item: ItemName,
    /// Whether it has said that it may sleep, or was seen asleep.
    pub sleeps: bool,
}

/// What an item is called: its queue, and the type of its function.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ItemName {
    /// The queue.
    pub queue: String,
    /// The type of the function or future, as the compiler names it.
    pub func: &'static str,
}

impl fmt::Display for ItemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.func, self.queue)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stall(stall) => stall.fmt(f),
            Self::CpuIntensive { item, count } => {
                write!(f, "{item} takes the CPU for long, {count} times now")
            }
            Self::LongDrain {
                queue,
                rounds,
                item,
            } => {
                write!(f, "{queue} is not drained after {rounds} rounds")?;
                match item {
                    Some(item) => write!(f, ": {} keeps coming", item.func),
                    None => Ok(()),
                }
            }
            Self::FlushDependency {
                waiter,
                queue,
                func,
            } => {
                write!(f, "an item of {waiter}, which has a rescuer, waits for ")?;
                match (func, queue) {
                    (Some(func), Some(queue)) => write!(f, "{func} of {queue}")?,
                    (Some(name), None) => f.write_str(name)?,
                    (None, queue) => f.write_str(queue.as_deref().unwrap_or("a queue"))?,
                }
                f.write_str(", which has none")
            }
        }
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "pool of CPUs {} has taken no work for {:.1?}: {} waits, with {} in all",
            self.cpus, self.age, self.item, self.nr_waiting
        )?;
        for worker in &self.workers {
            let sleeps = if worker.sleeps { "sleeps" } else { "runs" };
            write!(f, "; thread {} {sleeps} in {}", worker.thread, worker.item)?;
        }
        Ok(())
    }
}

/// The most that counts of the time between two looks.
const MOST_NS: u64 = 1_000_000_000;

/// How long a pool has taken no work although some waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct StallDetector {
    /// How many batches had been taken at the last look.
    nr_batches: u64,
    looked_ns: u64,
    /// Whether work waited at the last look. What came later has not waited since then.
    waited: bool,
    age_ns: u64,
    /// The age at which to tell next.
    tell_ns: u64,
}

impl StallDetector {
    /// Looks at a pool in which work waits, or not; returns for how long it has not moved, when that is to be told: after
    /// `thresh_ns`, twice that, four times that, … A threshold of 0 is never reached.
    pub(crate) fn look(
        &mut self,
        waits: bool,
        nr_batches: u64,
        now_ns: u64,
        thresh_ns: u64,
    ) -> Option<u64> {
        let passed_ns = now_ns.saturating_sub(self.looked_ns).min(MOST_NS);
        self.looked_ns = now_ns;
        let waited = std::mem::replace(&mut self.waited, waits);
        if !waits || !waited || self.nr_batches != nr_batches || thresh_ns == 0 {
            self.nr_batches = nr_batches;
            self.age_ns = 0;
            self.tell_ns = thresh_ns;
            return None;
        }
        self.age_ns += passed_ns;
        (self.age_ns >= self.tell_ns).then(|| {
            self.tell_ns = self.age_ns.saturating_mul(2);
            self.age_ns
        })
    }
}

impl StallDetector {
    /// Returns the age at the last look, if no batch was taken since.
    fn age_ns(&self, nr_batches: u64) -> u64 {
        if self.nr_batches == nr_batches {
            self.age_ns
        } else {
            0
        }
    }
}

/// Returns `true` if the `count`th time that something happens is to be told: the 1st, 2nd, 4th, 8th, …
pub(crate) fn worth_telling(count: u64) -> bool {
    count.is_power_of_two()
}

impl Dispatch {
    /// Returns for how long its work has not moved, in nanoseconds; 0 if some was taken since the last look.
    pub(crate) fn stalled_ns(&self) -> u64 {
        self.stall_detector.age_ns(self.nr_batches)
    }

    /// Keeps the stall detector over the first item that waits; `cpus` are the pool's.
    pub(crate) fn keep_vigil(
        &mut self,
        now_ns: u64,
        thresh_ns: u64,
        cpus: &CpuSet,
    ) -> Option<Report> {
        let waits = !self.pending.is_empty();
        let age_ns = self
            .stall_detector
            .look(waits, self.nr_batches, now_ns, thresh_ns)?;
        let first = self.pending.first()?;
        let busy = self.workers().filter(|it| it.worker.is_inside());
        let workers = busy.filter_map(|it| {
            Some(BusyWorker {
                thread: it.worker.thread.load(Ordering::Relaxed),
                item: self.name_of(it)?,
                sleeps: it.away.declared || it.away.asleep,
            })
        });
        Some(Report::Stall(Stall {
            cpus: cpus.clone(),
            item: ItemName {
                queue: self.link(home_slot(first)).core.name.to_string(),
                // SAFETY: the item is linked, so it is alive.
                func: (unsafe { first.as_ref() }.vtable().name)(),
            },
            age: Duration::from_nanos(age_ns),
            nr_waiting: self.pending.len(),
            workers: workers.collect(),
        }))
    }

    /// Notes that a worker's item hogs the CPU; returns what is to be told of that.
    pub(crate) fn note_hog(&mut self, worker: &Worker) -> Option<Report> {
        let item = self.name_of(self.enlisted(worker))?;
        let kind = ptr::from_ref(worker.running()?).addr();
        let count = self.hogs.entry(kind).or_default();
        *count += 1;
        let count = *count;
        worth_telling(count).then_some(Report::CpuIntensive { item, count })
    }

    /// Names an item of the link `slot`: one that runs, else one that waits.
    pub(crate) fn name_one(&self, slot: usize) -> Option<&'static str> {
        let mut inside = self.workers().filter(|it| it.worker.is_inside());
        let running = inside.find(|it| it.seat == Some(slot));
        let name = running.and_then(|it| Some(it.worker.running()?.name));
        let waiting = || {
            let first = self.pending.first().filter(|it| home_slot(*it) == slot);
            let item = first.or_else(|| self.link(slot).inactive.first())?;
            // SAFETY: the item is linked, so it is alive.
            Some(unsafe { item.as_ref() }.vtable().name)
        };
        Some(name.or_else(waiting)?())
    }

    /// Names the item that a worker is in.
    fn name_of(&self, enlisted: &Enlisted) -> Option<ItemName> {
        Some(ItemName {
            queue: self.link(enlisted.seat?).core.name.to_string(),
            func: (enlisted.worker.running()?.name)(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const THRESH_NS: u64 = 30_000 * MS;

    /// Looks once a second from `from_s` on, at a pool in which work waits; returns the seconds at which that is told.
    fn told(
        stall_detector: &mut StallDetector,
        nr_batches: u64,
        seconds: std::ops::Range<u64>,
    ) -> Vec<u64> {
        let mut look = |s: &u64| stall_detector.look(true, nr_batches, s * 1000 * MS, THRESH_NS);
        seconds.filter(|s| look(s).is_some()).collect()
    }

    #[test]
    fn a_stall_is_told_at_the_threshold_and_then_at_twice_the_age() {
        let mut stall_detector = StallDetector::default();
        stall_detector.look(true, 7, 0, THRESH_NS);
        assert_eq!(told(&mut stall_detector, 7, 1..130), [30, 60, 120]);
    }

    #[test]
    fn work_that_moves_is_no_stall() {
        let mut stall_detector = StallDetector::default();
        stall_detector.look(false, 0, 0, THRESH_NS);
        for nr_batches in 0..10 {
            let from = nr_batches * 29;
            assert!(told(&mut stall_detector, nr_batches, from + 1..from + 29).is_empty());
        }
    }

    #[test]
    fn what_has_just_come_to_an_empty_pool_is_no_stall() {
        let mut stall_detector = StallDetector::default();
        assert_eq!(
            stall_detector.look(true, 0, 90_000 * MS, THRESH_NS),
            None,
            "the first look"
        );
        // As the manager does where nothing waits.
        stall_detector.look(false, 0, 91_000 * MS, 0);
        assert_eq!(stall_detector.look(true, 0, 91_001 * MS, THRESH_NS), None);
        assert_eq!(told(&mut stall_detector, 0, 92..130), [122]);
    }

    #[test]
    fn an_empty_pool_is_no_stall() {
        let mut stall_detector = StallDetector::default();
        for s in 0..100 {
            assert_eq!(
                stall_detector.look(false, 0, s * 1000 * MS, THRESH_NS),
                None
            );
        }
    }

    #[test]
    fn a_paused_machine_is_no_stall() {
        let mut stall_detector = StallDetector::default();
        stall_detector.look(true, 1, 0, THRESH_NS);
        let hour_ns = 3_600_000 * MS;
        for pauses in 1..29 {
            assert_eq!(
                stall_detector.look(true, 1, pauses * hour_ns, THRESH_NS),
                None
            );
        }
        // Looks at their usual pace make it one after all.
        let last_ns = 28 * hour_ns;
        let looks = (1..).find(|ms| {
            let now_ns = last_ns + ms * MS;
            stall_detector.look(true, 1, now_ns, THRESH_NS).is_some()
        });
        assert_eq!(looks, Some(2000));
    }

    #[test]
    fn a_threshold_of_zero_turns_the_watchdog_off() {
        let mut stall_detector = StallDetector::default();
        for s in 0..100 {
            assert_eq!(stall_detector.look(true, 0, s * 1000 * MS, 0), None);
        }
    }

    #[test]
    fn what_repeats_is_told_less_and_less_often() {
        let told: Vec<_> = (0..20).filter(|&count| worth_telling(count)).collect();
        assert_eq!(told, [1, 2, 4, 8, 16]);
    }
}
