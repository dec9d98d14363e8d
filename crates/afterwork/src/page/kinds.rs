//! Which figures a record of each kind has. Writers, readers and everything that is printed go by this table.

/// What a figure measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// How it is now; it may fall.
    Gauge,
    /// How often so far; it only rises, and its difference over a time is a rate.
    Counter,
    /// How often so far something went wrong.
    Fault,
}

/// One figure of a kind.
#[derive(Debug)]
pub struct Field {
    /// Its name; a count is `nr_…`, a time ends in its unit.
    pub name: &'static str,
    /// What it measures.
    pub measure: Measure,
    /// What it says, in a line.
    pub about: &'static str,
}

/// What a record is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A workqueue. Its detail is the affinity scope.
    Queue = 1,
    /// A worker pool, named by its CPUs. Its detail has what is not as usual.
    Pool = 2,
    /// RCU, of which there is one.
    Rcu = 3,
    /// A mailbox that was given a name.
    Mailbox = 4,
    /// Per-CPU data. Its detail is how remote callers reach it.
    PerCpu = 5,
}

const fn gauge(name: &'static str, about: &'static str) -> Field {
    let measure = Measure::Gauge;
    Field {
        name,
        measure,
        about,
    }
}

const fn counter(name: &'static str, about: &'static str) -> Field {
    let measure = Measure::Counter;
    Field {
        name,
        measure,
        about,
    }
}

const fn fault(name: &'static str, about: &'static str) -> Field {
    let measure = Measure::Fault;
    Field {
        name,
        measure,
        about,
    }
}

#[rustfmt::skip]
const QUEUE: &[Field] = &[
    gauge("nr_active", "threads that run its items"),
    gauge("nr_inactive", "items that wait for a seat of the queue"),
    gauge("max_active", "threads that may run its items"),
    counter("started", "items that workers started"),
    counter("completed", "items that workers ran to their end"),
    counter("helped", "items that their joiner ran"),
    counter("rescued", "items that its rescuer took"),
    counter("refused", "attempts to queue that were refused"),
    fault("panicked", "items that panicked"),
    counter("cpu_time_us", "CPU time of its items, microseconds"),
    counter("waits", "items whose wait was measured"),
    gauge("wait_p50_ns", "median wait since the start, nanoseconds"),
    gauge("wait_p99_ns", "99th percentile of the waits since the start, nanoseconds"),
];

#[rustfmt::skip]
const POOL: &[Field] = &[
    gauge("nr_workers", "workers there are"),
    gauge("nr_idle", "workers that lie down"),
    gauge("nr_running", "workers that run, or look for work"),
    gauge("nr_blocked", "workers that sleep in an item"),
    gauge("nr_pending", "items that no worker has taken"),
    counter("kicks", "workers got up, or asked for, because work waited"),
    counter("created", "workers made"),
    counter("culled", "workers sent away"),
    counter("repatriated", "workers brought home to their pod"),
    counter("seen_asleep", "workers found asleep in an item"),
    counter("cpu_intensive", "items found to take the CPU for long"),
    counter("maydays", "calls of rescuers"),
    fault("spawn_failed", "workers that the system refused"),
    fault("stalls", "times that its work was told not to move"),
    gauge("stalled_ms", "for how long its work has not moved, milliseconds"),
];

#[rustfmt::skip]
const RCU: &[Field] = &[
    counter("grace_periods", "grace periods that ended"),
    gauge("gp_running", "1 while a grace period runs"),
    gauge("nr_readers", "threads that may be in a section"),
    counter("sweeps", "times that callbacks were gathered"),
    counter("callbacks", "callbacks that ran"),
    gauge("callbacks_wait", "1 while callbacks wait or run"),
    fault("panicked", "callbacks that panicked"),
    fault("stalls", "times that a reader was told to hold up a grace period"),
];

#[rustfmt::skip]
const MAILBOX: &[Field] = &[
    counter("received", "items received"),
    counter("sleeps", "times that the owner got ready to sleep"),
    counter("wake_ups", "times that a poster woke the owner"),
];

#[rustfmt::skip]
const PER_CPU: &[Field] = &[
    gauge("nr_slots", "CPUs that have a slot"),
    counter("drains", "drains of several slots"),
    counter("drained", "slots that drains went through"),
    counter("waited", "remote calls that did not get their slot at once"),
    counter("mailed", "pieces of work mailed to an owner"),
    fault("panicked", "pieces of queued work that panicked"),
];

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Queue,
        Self::Pool,
        Self::Rcu,
        Self::Mailbox,
        Self::PerCpu,
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Pool => "pool",
            Self::Rcu => "rcu",
            Self::Mailbox => "mailbox",
            Self::PerCpu => "percpu",
        }
    }

    /// Returns its figures, in the order of the file.
    pub fn fields(self) -> &'static [Field] {
        match self {
            Self::Queue => QUEUE,
            Self::Pool => POOL,
            Self::Rcu => RCU,
            Self::Mailbox => MAILBOX,
            Self::PerCpu => PER_CPU,
        }
    }

    /// Returns the kind with this number, if it is known.
    pub(super) fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u16 == number)
    }
}
