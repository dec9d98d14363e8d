//! The table of kinds of records and their figures, which writers, readers and printers use.

/// The meaning of a figure's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// The current value, which may fall.
    Gauge,
    /// A count, which only rises. Its difference over an interval is a rate.
    Counter,
    /// A count of errors.
    Fault,
}

/// One figure of a kind.
#[derive(Debug)]
pub struct Field {
    /// Its name. The name of a count starts with `nr_`, and the name of a time ends in its unit.
    pub name: &'static str,
    /// The meaning of its value.
    pub measure: Measure,
    /// Its meaning, in one line.
    pub about: &'static str,
}

/// The subject of a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A workqueue. Its detail is the affinity scope, and the name of its group if it is in one.
    Queue = 1,
    /// A worker pool, named by its CPUs. Its detail lists unusual properties.
    Pool = 2,
    /// RCU. There is only one such record.
    Rcu = 3,
    /// A mailbox that has a name.
    Mailbox = 4,
    /// Per-CPU data. Its detail is the way in which remote callers access it.
    PerCpu = 5,
    /// A histogram of the wait times of a queue's items. Its name and detail are the queue's.
    QueueWait = 6,
    /// A histogram of the run times of a queue's items. Its name and detail are the queue's.
    QueueRun = 7,
    /// A group of workqueues.
    Group = 8,
    /// A worker that runs an item. Its name is the item's function, and its detail is the queue.
    Worker = 9,
    /// The items of one function. The detail is their queue.
    Function = 10,
}

/// The figures of one subject.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Record {
    /// The kind of its subject.
    pub kind: Kind,
    /// The name of its subject. Names need not be unique.
    pub name: String,
    /// A detail of its subject, which is empty for most records.
    pub detail: String,
    /// The figures of the kind, in the order of its table. A record that was read from a page
    /// contains only the figures that its writer knew.
    pub(crate) figures: Vec<u64>,
}

impl Record {
    /// Creates a record of all figures of `kind`.
    #[doc(hidden)]
    pub fn new(kind: Kind, name: String, detail: String, figures: Vec<u64>) -> Self {
        Self { kind, name, detail, figures }
    }

    /// Returns the record's figures.
    pub fn figures(&self) -> impl Iterator<Item = (&'static Field, u64)> {
        self.kind.fields().iter().zip(self.figures.iter().copied())
    }

    /// Returns the figure called `name`, if the writer knew it.
    pub fn figure(&self, name: &str) -> Option<u64> {
        self.figures().find_map(|(field, figure)| (field.name == name).then_some(figure))
    }
}

const fn gauge(name: &'static str, about: &'static str) -> Field {
    let measure = Measure::Gauge;
    Field { name, measure, about }
}

const fn counter(name: &'static str, about: &'static str) -> Field {
    let measure = Measure::Counter;
    Field { name, measure, about }
}

const fn fault(name: &'static str, about: &'static str) -> Field {
    let measure = Measure::Fault;
    Field { name, measure, about }
}

/// Passes the figures of a queue to `$then!`, with the given tokens before and after them.
///
/// This is the only list: it defines both the fields of `QueueStats`, with their descriptions, and
/// the figures of a record. It is in this crate because a reader of a page does not depend on
/// workqueues.
#[doc(hidden)]
#[macro_export]
macro_rules! queue_figures {
    ($then:ident! { $($before:tt)* } { $($after:tt)* }) => { $then! { $($before)*
        gauge nr_active: u32, "Threads that run its items now";
        gauge nr_inactive: usize, "Items that wait, for a worker or for a seat of the queue";
        gauge max_active: u32, "Threads that may run its items";
        counter started: u64, "Items that workers started; a future counts with each poll";
        counter completed: u64, "Items that workers completed, counted when their worker next has the pool lock";
        counter helped: u64, "Items that their joiner ran";
        counter rescued: u64, "Items that its rescuer took";
        counter refused: u64, "Attempts to queue that were rejected: queue full, draining or destroyed";
        fault panicked: u64, "Items that panicked";
        counter cpu_time_us: u64, "CPU time of its items, microseconds, sampled: up to a millisecond of a worker is not counted yet";
        counter cpu_intensive: u64, "Items that used the CPU for `cpu_intensive_thresh_us` while work waited";
        counter cm_wakeups: u64, "Workers woken, or requested, because one of its items slept while work waited";
        counter repatriated: u64, "Items whose worker had just been moved back to its pod";
        counter maydays: u64, "Calls of its rescuer";
        counter expired: u64, "Items that had not started by their deadline";
        $($after)*
    } };
}

/// Does the same as [`queue_figures`] for a pool, whose figures are the fields of `PoolStats`.
#[doc(hidden)]
#[macro_export]
macro_rules! pool_figures {
    ($then:ident! { $($before:tt)* } { $($after:tt)* }) => { $then! { $($before)*
        gauge nr_workers: usize, "Workers of the pool";
        gauge nr_idle: usize, "Workers that are parked";
        gauge nr_blocked: usize, "Workers that sleep inside an item, by their report or by a sample";
        gauge nr_pending: usize, "Items that no worker has taken, without those that producers have just pushed";
        counter kicks: u64, "Workers woken, or requested, because work waited";
        counter created: u64, "Workers created";
        counter culled: u64, "Workers ended after idling for too long";
        counter started: u64, "Items that workers started, of all queues that use or used the pool";
        counter completed: u64, "Items that workers completed";
        counter cpu_time_us: u64, "CPU time of these items, microseconds, sampled";
        counter cm_wakeups: u64, "Workers woken, or requested, because another slept inside an item while work waited";
        counter repatriated: u64, "Workers that had run outside their pod, and were moved back when they next took an item";
        counter seen_asleep: u64, "Workers that a sample found asleep inside an item while work waited, without a report to the pool";
        counter cpu_intensive: u64, "Items that a sample found to have used the CPU for `cpu_intensive_thresh_us` while work waited";
        counter maydays: u64, "Calls of rescuers, because work had waited for a worker for too long";
        counter rescued: u64, "Items that rescuers took";
        fault spawn_failed: u64, "Workers whose thread could not be created";
        fault stalls: u64, "Times that a stall of its work was reported";
        gauge stalled_ms: u64, "Time without progress of its work at the last sample, milliseconds; 0 after progress";
        $($after)*
    } };
}

macro_rules! fields {
    ($($measure:ident $name:ident: $type:ty, $about:literal;)*) => {
        &[$($measure(stringify!($name), $about)),*]
    };
}

const QUEUE: &[Field] = queue_figures!(fields! {} {
    counter waits: u64, "Items whose wait was measured";
    gauge wait_p50_ns: u64, "Median wait since the start, nanoseconds; within its power of two";
    gauge wait_p99_ns: u64, "99th percentile of the waits since the start, nanoseconds; within its power of two";
    gauge oldest_ns: u64, "Time that the oldest item not yet taken by a worker has waited, nanoseconds; 0 if none waits";
    gauge run_p50_ns: u64, "Median time for which workers ran an item since the start, nanoseconds; within its power of two";
    gauge run_p99_ns: u64, "99th percentile of the times for which workers ran an item since the start, nanoseconds; within its power of two";
});

const POOL: &[Field] = pool_figures!(fields! {} {
    gauge nr_running: usize, "Workers that run, or search for work";
});

#[rustfmt::skip]
const GROUP: &[Field] = &[
    gauge("nr_active", "Threads that run items of its queues now, except those that wait inside an item"),
    gauge("nr_over", "Those above the limit, which have returned from a wait"),
    gauge("nr_waiting", "Waits of its queues for a seat of the group, one for each pool"),
    gauge("max_active", "Threads that may run items of its queues; 0 if there is no limit"),
    gauge("shares", "Shares of CPU time; 0 if none were set"),
    gauge("nr_queues", "Its queues"),
    gauge("nr_inactive", "Items of its queues that wait, for a worker or for a seat"),
    counter("started", "Items that workers started"),
    counter("completed", "Items that workers completed"),
    counter("helped", "Items that their joiner ran"),
    counter("cpu_time_us", "CPU time of its items, microseconds"),
];

#[rustfmt::skip]
const RCU: &[Field] = &[
    counter("grace_periods", "Grace periods that ended"),
    gauge("gp_running", "1 while a grace period runs"),
    gauge("nr_readers", "Threads that may be in a section"),
    counter("sweeps", "Times that callbacks were gathered"),
    counter("callbacks", "Callbacks that ran"),
    gauge("callbacks_wait", "1 while callbacks wait or run"),
    fault("panicked", "Callbacks that panicked"),
    fault("stalls", "Times that a reader was reported to delay a grace period"),
];

#[rustfmt::skip]
const MAILBOX: &[Field] = &[
    counter("received", "Items received"),
    counter("sleeps", "Times that the owner prepared to sleep"),
    counter("wake_ups", "Times that a poster woke the owner"),
];

#[rustfmt::skip]
const PER_CPU: &[Field] = &[
    gauge("nr_slots", "CPUs that have a slot"),
    counter("drains", "Drains of several slots"),
    counter("drained", "Slots that were drained"),
    counter("waited", "Remote calls that did not get their slot at once"),
    counter("mailed", "Calls queued to an owner"),
    fault("panicked", "Queued calls that panicked"),
];

#[rustfmt::skip]
const WORKER: &[Field] = &[
    gauge("thread", "The kernel's ID of its thread"),
    gauge("sleeps", "1 if it sleeps inside the item, by its report or by a sample"),
];

#[rustfmt::skip]
const FUNCTION: &[Field] = &[
    gauge("nr_running", "Workers that run an item of it now"),
    gauge("nr_pending", "Items of it among the first 128 that wait in each pool"),
];

/// The upper bounds of a histogram's buckets, as base-2 logarithms of nanoseconds, from 1 µs to 4.6
/// minutes. They are constant, because monitoring systems require that.
pub const TIMES_LOG2: [u32; 15] = [10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38];

#[rustfmt::skip]
const TIMES: &[Field] = &[
    counter("count", "Items that were measured"),
    counter("total_ns", "All their times together, nanoseconds"),
    counter("nr_below_2p10", "Items below 2^10 ns, 1 µs"),
    counter("nr_below_2p12", "Items below 2^12 ns, 4 µs"),
    counter("nr_below_2p14", "Items below 2^14 ns, 16 µs"),
    counter("nr_below_2p16", "Items below 2^16 ns, 66 µs"),
    counter("nr_below_2p18", "Items below 2^18 ns, 262 µs"),
    counter("nr_below_2p20", "Items below 2^20 ns, 1 ms"),
    counter("nr_below_2p22", "Items below 2^22 ns, 4 ms"),
    counter("nr_below_2p24", "Items below 2^24 ns, 17 ms"),
    counter("nr_below_2p26", "Items below 2^26 ns, 67 ms"),
    counter("nr_below_2p28", "Items below 2^28 ns, 268 ms"),
    counter("nr_below_2p30", "Items below 2^30 ns, 1 s"),
    counter("nr_below_2p32", "Items below 2^32 ns, 4 s"),
    counter("nr_below_2p34", "Items below 2^34 ns, 17 s"),
    counter("nr_below_2p36", "Items below 2^36 ns, 69 s"),
    counter("nr_below_2p38", "Items below 2^38 ns, 275 s"),
];

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Queue,
        Self::Group,
        Self::Pool,
        Self::Rcu,
        Self::Mailbox,
        Self::PerCpu,
        Self::QueueWait,
        Self::QueueRun,
        Self::Worker,
        Self::Function,
    ];

    /// Returns the kind's name.
    pub fn name(self) -> &'static str {
        self.description().0
    }

    /// Returns the kind's figures, in the order in which the file stores them.
    pub fn fields(self) -> &'static [Field] {
        self.description().1
    }

    fn description(self) -> (&'static str, &'static [Field]) {
        match self {
            Self::Queue => ("queue", QUEUE),
            Self::Pool => ("pool", POOL),
            Self::Rcu => ("rcu", RCU),
            Self::Mailbox => ("mailbox", MAILBOX),
            Self::PerCpu => ("percpu", PER_CPU),
            Self::QueueWait => ("queue_wait", TIMES),
            Self::QueueRun => ("queue_run", TIMES),
            Self::Group => ("group", GROUP),
            Self::Worker => ("worker", WORKER),
            Self::Function => ("function", FUNCTION),
        }
    }

    /// Returns `true` if its records are histograms of times that belong to the subject of another
    /// record.
    pub fn is_histogram(self) -> bool {
        matches!(self, Self::QueueWait | Self::QueueRun)
    }

    /// Returns `true` if the records of this kind exist only while items run or wait. Such records
    /// have no metrics.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Worker | Self::Function)
    }

    /// Returns the kind with this number, if it is known.
    pub(super) fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u16 == number)
    }
}
