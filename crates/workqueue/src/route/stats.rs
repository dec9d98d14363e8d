//! The counters of pools and queues.

use std::time::Duration;

use base::internal::page::{Kind, Record, TIMES_LOG2, pool_figures, queue_figures};
use topology::CpuSet;

use super::attrs::Attrs;
use crate::observe::tally::Histogram;

/// Defines a struct that has a list of figures after its other fields.
macro_rules! counted {
    (
        $(#[$about:meta])* $name:ident { $($other:tt)* }
        $($measure:ident $figure:ident: $type:ty, $says:literal;)*
    ) => {
        $(#[$about])*
        #[non_exhaustive]
        pub struct $name {
            $($other)*
            $(#[doc = concat!($says, ".")] pub $figure: $type,)*
        }

        impl $name {
            fn counts(&self) -> Vec<u64> {
                vec![$(self.$figure as u64),*]
            }
        }
    };
}

pool_figures!(counted! {
    /// The counters of a worker pool since its creation. They are not all read at the same moment.
    #[derive(Clone, PartialEq, Eq, Debug)]
    PoolStats {
        /// The CPUs on which its workers run.
        pub cpus: CpuSet,
        /// Set if workers never run on other CPUs.
        pub strict: bool,
        /// The nice value of its workers.
        pub nice: i8,
    }
} {});

queue_figures!(counted! {
    /// The counters of a queue since its creation. A worker adds completed items at the end of its
    /// batch, which may be after they have been joined or drained.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    QueueStats {}
} {});

impl PoolStats {
    /// Returns the pool's record. Its name lists the CPUs, and its detail lists the attributes that
    /// differ from the default.
    #[doc(hidden)]
    pub fn record(&self) -> Record {
        let strict = self.strict.then(|| "strict".to_owned());
        let nice = (self.nice != 0).then(|| format!("nice {}", self.nice));
        let detail: Vec<_> = strict.into_iter().chain(nice).collect();
        let mut figures = self.counts();
        let nr_awake = self.nr_workers.saturating_sub(self.nr_idle);
        figures.push(nr_awake.saturating_sub(self.nr_blocked) as u64);
        Record::new(Kind::Pool, self.cpus.to_string(), detail.join(", "), figures)
    }
}

impl QueueReport {
    /// Returns the queue's record. Its detail is the affinity scope and the group.
    #[doc(hidden)]
    pub fn record(&self) -> Record {
        let (wait, run) = (&self.wait, &self.run);
        let mut figures = self.stats.counts();
        figures.extend([wait.count, wait.about_ns(0.5), wait.about_ns(0.99)]);
        let oldest_ns = self.oldest.map_or(0, |age| age.as_nanos() as u64);
        figures.extend([oldest_ns, run.about_ns(0.5), run.about_ns(0.99)]);
        self.record_of(Kind::Queue, figures)
    }

    fn record_of(&self, kind: Kind, figures: Vec<u64>) -> Record {
        let scope = self.attrs.affinity.as_str();
        let detail = match &self.group {
            Some(group) => format!("{scope}, {group}"),
            None => scope.to_owned(),
        };
        Record::new(kind, self.name.clone(), detail, figures)
    }

    /// Returns the records of the wait times and run times of its items.
    #[doc(hidden)]
    pub fn times(&self) -> [Record; 2] {
        let of = |kind, times: &Histogram| {
            let below = |log2: u32| times.buckets.iter().take(log2 as usize).sum::<u64>();
            let mut figures = vec![times.count, times.total_ns];
            figures.extend(TIMES_LOG2.map(below));
            self.record_of(kind, figures)
        };
        [of(Kind::QueueWait, &self.wait), of(Kind::QueueRun, &self.run)]
    }
}

/// The counters of a group, and the sums over its current queues. They are read one after another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct GroupStats {
    /// The ceiling, if there is one.
    pub max_active: Option<u32>,
    /// The [shares](crate::GroupBuilder::shares), if any were set.
    pub shares: Option<u32>,
    /// The number of threads that are running items of the group. It excludes threads that wait
    /// inside an item, and includes threads that are about to run items.
    pub nr_active: u32,
    /// The part of `nr_active` above `max_active`, which exists because threads have returned from
    /// a wait or the ceiling was lowered.
    pub nr_over: u32,
    /// The number of waits for a seat in the group: one for each queue and pool in which it waits.
    pub nr_waiting: usize,
    /// The number of queues in the group.
    pub nr_queues: usize,
    /// The number of items of the group's queues that wait for a seat.
    pub nr_inactive: usize,
    /// The number of items that workers have started.
    pub started: u64,
    /// The number of items that workers have completed.
    pub completed: u64,
    /// The number of items that their joiners ran.
    pub helped: u64,
    /// The CPU time of the items, in microseconds.
    pub cpu_time_us: u64,
}

impl GroupStats {
    pub(crate) fn add(&mut self, queue: &QueueStats) {
        self.nr_inactive += queue.nr_inactive;
        self.started += queue.started;
        self.completed += queue.completed;
        self.helped += queue.helped;
        self.cpu_time_us += queue.cpu_time_us;
    }

    pub(crate) fn record(&self, name: &str) -> Record {
        let figures = vec![
            self.nr_active.into(),
            self.nr_over.into(),
            self.nr_waiting as u64,
            self.max_active.unwrap_or(0).into(),
            self.shares.unwrap_or(0).into(),
            self.nr_queues as u64,
            self.nr_inactive as u64,
            self.started,
            self.completed,
            self.helped,
            self.cpu_time_us,
        ];
        Record::new(Kind::Group, name.to_owned(), String::new(), figures)
    }
}

/// A report on one queue.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueueReport {
    /// The name.
    pub name: String,
    /// The attributes.
    pub attrs: Attrs,
    /// The name of the [group](crate::Group), if the queue is in one.
    pub group: Option<String>,
    /// The counters.
    pub stats: QueueStats,
    /// The wait times of items, from their enqueue until a worker took them.
    ///
    /// Counts each item that a worker started, except the last few, which the worker has not
    /// recorded yet (see [`Params::wait_sample`](base::params::Params::wait_sample)). Items that a
    /// joiner ran are not counted. A wait is accurate to within a factor of two, or better if the
    /// queue is short.
    pub wait: Histogram,
    /// The run times of the same items. Each poll of a future counts as one run.
    ///
    /// For items that a worker took in one batch, the time of the first is recorded for all, and
    /// the total is correct. A run is recorded when its worker next acquires the pool lock.
    pub run: Histogram,
    /// The age of the oldest item that waits for a worker; `None` if no item waits.
    ///
    /// The age is exact for an item that was queued on an empty pool; otherwise its error is at
    /// most the time that the item spent in the injector. After items in the middle of the pending
    /// list have been cancelled, it is an estimate. No times are recorded if
    /// [`Params::wait_sample`](base::params::Params::wait_sample) is 0.
    pub oldest: Option<Duration>,
    /// The [shares](crate::Builder::shares), if any were set.
    pub shares: Option<u32>,
    /// The maximum number of waiting items, if the queue has a
    /// [capacity](crate::Builder::capacity).
    pub capacity: Option<usize>,
    /// The free part of the capacity.
    pub free_capacity: Option<usize>,
}
