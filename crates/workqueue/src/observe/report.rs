//! What is told to whoever wants to know how the queues and pools of a registry fare.

use std::{fmt, time::Duration};

use topology::CpuSet;

/// What a registry tells the handler given to [`Registry::on_report`](crate::Registry::on_report).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Report {
    /// Work of a pool does not move.
    Stall(Stall),
    /// An item has had the CPU for [`cpu_intensive_thresh_us`](base::params::Params) while others waited.
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
        /// The queue with a rescuer ([`mem_reclaim`](crate::Builder::mem_reclaim)).
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
///
/// Displayed, it is one line, and the stacks of its workers below where those are taken. Where they are not, it ends with
/// the command that shows them, for this process: a debugger beside it, which stops it for a moment. docs/troubleshooting.md
/// says how to read them.
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
    /// The functions that the thread is in, if the build has the feature `stacks` and the signal is set: [`Params::stall_signal`](base::params::Params::stall_signal).
    #[cfg(feature = "stacks")]
    pub stack: Option<stacks::Stack>,
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
