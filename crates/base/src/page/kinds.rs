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

/// Declares the kinds, in the order of `ALL`.
macro_rules! kinds {
    ($($(#[$about:meta])* $kind:ident = $number:literal, $name:literal, $fields:ident;)*) => {
        /// The subject of a record.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$about])* $kind = $number,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: [Self; 10] = [$(Self::$kind),*];

            fn description(self) -> (&'static str, &'static [Field]) {
                match self {
                    $(Self::$kind => ($name, $fields),)*
                }
            }
        }
    };
}

kinds! {
    /// A workqueue. Its detail is the affinity scope, and the name of its group if it is in one.
    Queue = 1, "queue", QUEUE;
    /// A group of workqueues.
    Group = 8, "group", GROUP;
    /// A worker pool, named by its CPUs. Its detail lists unusual properties.
    Pool = 2, "pool", POOL;
    /// RCU. There is only one such record.
    Rcu = 3, "rcu", RCU;
    /// A mailbox that has a name.
    Mailbox = 4, "mailbox", MAILBOX;
    /// Per-CPU data. Its detail is the way in which remote callers access it.
    PerCpu = 5, "percpu", PER_CPU;
    /// A histogram of the wait times of a queue's items. Its name and detail are the queue's.
    QueueWait = 6, "queue_wait", TIMES;
    /// A histogram of the run times of a queue's items. Its name and detail are the queue's.
    QueueRun = 7, "queue_run", TIMES;
    /// A worker that runs an item. Its name is the item's function, and its detail is the queue.
    Worker = 9, "worker", WORKER;
    /// The items of one function. The detail is their queue.
    Function = 10, "function", FUNCTION;
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
    /// The figures of the kind, in the order of its table, that the writer knew.
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

/// Passes the figures of a queue to `$then!`, with the given tokens before and after them: the
/// fields of `QueueStats` and the figures of a record.
#[doc(hidden)]
#[macro_export]
macro_rules! queue_figures {
    ($then:ident! { $($before:tt)* } { $($after:tt)* }) => { $then! { $($before)*
        Gauge nr_active: u32, "Threads that run its items now";
        Gauge nr_inactive: usize, "Items that wait, for a worker or for a seat of the queue";
        Gauge max_active: u32, "Threads that may run its items";
        Counter started: u64, "Items that workers started; a future counts with each poll";
        Counter completed: u64, "Items that workers completed, counted when their worker next has the pool lock";
        Counter helped: u64, "Items that their joiner ran";
        Counter rescued: u64, "Items that its rescuer took";
        Counter refused: u64, "Attempts to queue that were rejected: queue full, draining or destroyed";
        Fault panicked: u64, "Items that panicked";
        Counter cpu_time_us: u64, "CPU time of its items, microseconds, sampled: up to a millisecond of a worker is not counted yet";
        Counter cpu_intensive: u64, "Items that used the CPU for `cpu_intensive_thresh_us` while work waited";
        Counter cm_wakeups: u64, "Workers woken, or requested, because one of its items slept while work waited";
        Counter repatriated: u64, "Items whose worker had just been moved back to its pod";
        Counter maydays: u64, "Calls of its rescuer";
        Counter expired: u64, "Items that had not started by their deadline";
        $($after)*
    } };
}

/// Does the same as [`queue_figures`] for a pool, whose figures are the fields of `PoolStats`.
#[doc(hidden)]
#[macro_export]
macro_rules! pool_figures {
    ($then:ident! { $($before:tt)* } { $($after:tt)* }) => { $then! { $($before)*
        Gauge nr_workers: usize, "Workers of the pool";
        Gauge nr_idle: usize, "Workers that are parked";
        Gauge nr_blocked: usize, "Workers that sleep inside an item, by their report or by a sample";
        Gauge nr_pending: usize, "Items that no worker has taken, without those that producers have just pushed";
        Counter kicks: u64, "Workers woken, or requested, because work waited";
        Counter created: u64, "Workers created";
        Counter culled: u64, "Workers ended after idling for too long";
        Counter started: u64, "Items that workers started, of all queues that use or used the pool";
        Counter completed: u64, "Items that workers completed";
        Counter cpu_time_us: u64, "CPU time of these items, microseconds, sampled";
        Counter cm_wakeups: u64, "Workers woken, or requested, because another slept inside an item while work waited";
        Counter repatriated: u64, "Workers that had run outside their pod, and were moved back when they next took an item";
        Counter seen_asleep: u64, "Workers that a sample found asleep inside an item while work waited, without a report to the pool";
        Counter cpu_intensive: u64, "Items that a sample found to have used the CPU for `cpu_intensive_thresh_us` while work waited";
        Counter maydays: u64, "Calls of rescuers, because work had waited for a worker for too long";
        Counter rescued: u64, "Items that rescuers took";
        Fault spawn_failed: u64, "Workers whose thread could not be created";
        Fault stalls: u64, "Times that a stall of its work was reported";
        Gauge stalled_ms: u64, "Time without progress of its work at the last sample, milliseconds; 0 after progress";
        $($after)*
    } };
}

macro_rules! fields {
    ($($measure:ident $name:ident $(: $type:ty)?, $about:expr;)*) => {
        &[$(Field { name: stringify!($name), measure: Measure::$measure, about: $about }),*]
    };
}

const QUEUE: &[Field] = queue_figures!(fields! {} {
    Counter waits: u64, "Items whose wait was measured";
    Gauge wait_p50_ns: u64, "Median wait since the start, nanoseconds; within its power of two";
    Gauge wait_p99_ns: u64, "99th percentile of the waits since the start, nanoseconds; within its power of two";
    Gauge oldest_ns: u64, "Time that the oldest item not yet taken by a worker has waited, nanoseconds; 0 if none waits";
    Gauge run_p50_ns: u64, "Median time for which workers ran an item since the start, nanoseconds; within its power of two";
    Gauge run_p99_ns: u64, "99th percentile of the times for which workers ran an item since the start, nanoseconds; within its power of two";
});

const POOL: &[Field] = pool_figures!(fields! {} {
    Gauge nr_running: usize, "Workers that run, or search for work";
});

const GROUP: &[Field] = fields! {
    Gauge nr_active, "Threads that run items of its queues now, except those that wait inside an item";
    Gauge nr_over, "Threads above the limit, which have returned from a wait";
    Gauge nr_waiting, "Waits of its queues for a seat of the group, one for each pool";
    Gauge max_active, "Threads that may run items of its queues; 0 if there is no limit";
    Gauge shares, "Shares of CPU time; 0 if none were set";
    Gauge nr_queues, "Its queues";
    Gauge nr_inactive, "Items of its queues that wait, for a worker or for a seat";
    Counter started, "Items that workers started";
    Counter completed, "Items that workers completed";
    Counter helped, "Items that their joiner ran";
    Counter cpu_time_us, "CPU time of its items, microseconds";
};

const RCU: &[Field] = fields! {
    Counter grace_periods, "Grace periods that ended";
    Gauge gp_running, "1 while a grace period runs";
    Gauge nr_readers, "Threads that may be in a section";
    Counter sweeps, "Times that callbacks were gathered";
    Counter callbacks, "Callbacks that ran";
    Gauge callbacks_wait, "1 while callbacks wait or run";
    Fault panicked, "Callbacks that panicked";
    Fault stalls, "Times that a reader was reported to delay a grace period";
};

const MAILBOX: &[Field] = fields! {
    Counter received, "Items received";
    Counter sleeps, "Times that the owner prepared to sleep";
    Counter wake_ups, "Times that a poster woke the owner";
};

const PER_CPU: &[Field] = fields! {
    Gauge nr_slots, "CPUs that have a slot";
    Counter drains, "Drains of several slots";
    Counter drained, "Slots that were drained";
    Counter waited, "Remote calls that did not get their slot at once";
    Counter mailed, "Calls queued to an owner";
    Fault panicked, "Queued calls that panicked";
};

const WORKER: &[Field] = fields! {
    Gauge thread, "The kernel's ID of its thread";
    Gauge sleeps, "1 if it sleeps inside the item, by its report or by a sample";
};

const FUNCTION: &[Field] = fields! {
    Gauge nr_running, "Workers that run an item of the function now";
    Gauge nr_pending, "Items of the function among the first 128 that wait in each pool";
};

macro_rules! times {
    ($($log2:literal $figure:ident $time:literal,)*) => {
        /// The upper bounds of a histogram's buckets, as base-2 logarithms of nanoseconds, from 1
        /// µs to 4.6 minutes.
        pub const TIMES_LOG2: [u32; 15] = [$($log2),*];

        const TIMES: &[Field] = fields! {
            Counter count, "Items that were measured";
            Counter total_ns, "Sum of their times, nanoseconds";
            $(Counter $figure, concat!("Items below 2^", $log2, " ns, ", $time);)*
        };
    };
}

times! {
    10 nr_below_2p10 "1 µs", 12 nr_below_2p12 "4 µs", 14 nr_below_2p14 "16 µs",
    16 nr_below_2p16 "66 µs", 18 nr_below_2p18 "262 µs", 20 nr_below_2p20 "1 ms",
    22 nr_below_2p22 "4 ms", 24 nr_below_2p24 "17 ms", 26 nr_below_2p26 "67 ms",
    28 nr_below_2p28 "268 ms", 30 nr_below_2p30 "1 s", 32 nr_below_2p32 "4 s",
    34 nr_below_2p34 "17 s", 36 nr_below_2p36 "69 s", 38 nr_below_2p38 "275 s",
}

impl Kind {
    /// Returns the kind's name.
    pub fn name(self) -> &'static str {
        self.description().0
    }

    /// Returns the kind's figures, in the order in which the file stores them.
    pub fn fields(self) -> &'static [Field] {
        self.description().1
    }

    /// Returns `true` if its records are histograms of times that belong to the subject of another
    /// record.
    pub fn is_histogram(self) -> bool {
        matches!(self, Self::QueueWait | Self::QueueRun)
    }

    /// Returns `true` if the records of this kind exist only while items run or wait.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Worker | Self::Function)
    }

    pub(super) fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u16 == number)
    }
}
