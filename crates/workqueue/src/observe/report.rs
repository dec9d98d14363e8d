//! Reports on the state of the queues and pools of a registry.

use std::fmt;
use std::time::Duration;

use topology::CpuSet;

/// A report to the handler given to [`Registry::on_report`](crate::Registry::on_report).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Report {
    /// A pool takes no items even though some are waiting.
    Stall(Stall),
    /// An item used a CPU for [`cpu_intensive_thresh_us`](base::params::Params) while work waited.
    CpuIntensive {
        /// The name of the item and its queue.
        item: ItemName,
        /// The number of detections of this kind of item. The 1st, 2nd, 4th, 8th, … are reported.
        count: u64,
    },
    /// A drain or the destruction of a queue does not complete, because items keep queueing items.
    LongDrain {
        /// The queue.
        queue: String,
        /// The number of times that all items had ended but new ones had been queued. A drain is
        /// reported the 10th time and every 100th time up to the 1000th, as in the kernel.
        rounds: u64,
        /// A remaining item; `None` if it has just ended.
        item: Option<ItemName>,
    },
    /// An item of a queue with a rescuer waits for an item of a queue without one, or flushes such
    /// a queue. If no thread can be created, the waiter waits forever. Each pair is reported once.
    FlushDependency {
        /// The queue with a rescuer ([`with_rescuer`](crate::Builder::with_rescuer)).
        waiter: String,
        /// The queue of the awaited item. `None` if the item is not found: it has just ended, its
        /// joiner runs it, or it belongs to another registry.
        queue: Option<String>,
        /// The type of the item's function, if the waiter waits for an item.
        func: Option<&'static str>,
    },
}

impl Report {
    /// Returns the name that events use for this kind of report.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Stall(_) => "stall",
            Self::CpuIntensive { .. } => "cpu_intensive",
            Self::LongDrain { .. } => "long_drain",
            Self::FlushDependency { .. } => "flush_dependency",
        }
    }

    pub(crate) fn queue(&self) -> &str {
        match self {
            Self::Stall(stall) => &stall.item.queue,
            Self::CpuIntensive { item, .. } => &item.queue,
            Self::LongDrain { queue, .. } => queue,
            Self::FlushDependency { waiter, .. } => waiter,
        }
    }
}

/// A pool that takes no items even though some are waiting.
///
/// `Display` writes it on one line, followed by the stacks of its workers if they were captured.
/// Otherwise the line ends with a command that shows the stacks of this process. The command runs a
/// debugger, which stops the process for a moment.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// The CPUs of the pool.
    pub cpus: CpuSet,
    /// The item that is first in the pending list.
    pub item: ItemName,
    /// The minimum time for which no item has been taken.
    pub age: Duration,
    /// The number of items that wait.
    pub nr_waiting: usize,
    /// Every worker that is executing an item.
    pub workers: Vec<BusyWorker>,
}

/// A worker that is executing an item.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BusyWorker {
    /// The kernel's ID of its thread.
    pub thread: u32,
    /// The item that it executes.
    pub item: ItemName,
    /// `true` if it has reported that it may block, or was found asleep.
    pub sleeps: bool,
    /// The functions on the thread's stack, if the build has the feature `stacks` and the signal is
    /// set: [`Params::stall_signal`](base::params::Params::stall_signal).
    #[cfg(feature = "stacks")]
    pub stack: Option<stacks::Stack>,
}

/// The name of an item: its queue, and the type of its function.
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
                write!(f, "{item} used a CPU for too long (count: {count})")
            }
            Self::LongDrain { queue, rounds, item } => {
                write!(f, "{queue} is not drained after {rounds} rounds")?;
                match item {
                    Some(item) => write!(f, ": {} is queued again and again", item.func),
                    None => Ok(()),
                }
            }
            Self::FlushDependency { waiter, queue, func } => {
                write!(f, "an item of {waiter}, which has a rescuer, waits for ")?;
                match (func, queue) {
                    (Some(func), Some(queue)) => write!(f, "{func} of {queue}")?,
                    (Some(name), None) => f.write_str(name)?,
                    (None, queue) => f.write_str(queue.as_deref().unwrap_or("a queue"))?,
                }
                f.write_str(", which has no rescuer")
            }
        }
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "pool of CPUs {} has taken no work for {:.1?}: {} waits, {} in total",
            self.cpus, self.age, self.item, self.nr_waiting
        )?;
        for worker in &self.workers {
            let sleeps = if worker.sleeps { "sleeps" } else { "runs" };
            write!(f, "; thread {} {sleeps} in {}", worker.thread, worker.item)?;
        }
        #[cfg(feature = "stacks")]
        {
            let mut is_bare = false;
            for worker in &self.workers {
                match &worker.stack {
                    Some(stack) => {
                        write!(f, "\nthread {}, in {}:{stack}", worker.thread, worker.item)?;
                    }
                    None => is_bare = true,
                }
            }
            if !is_bare {
                return Ok(());
            }
        }
        let process = std::process::id();
        write!(
            f,
            "; their stacks: gdb --batch --pid={process} --eval-command='thread apply all backtrace'"
        )
    }
}
