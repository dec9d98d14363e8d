//! Where the workers of a queue run, and why a queue may not be built.

use std::{fmt, io};

use topology::{AffinityScope, CpuSet};

use super::registry_error::RegistryError;
/// The largest `max_active`: how many items of a queue may run at once.
///
/// Differs from Linux: its `WQ_MAX_ACTIVE` was 512 up to 6.12 and is 2048 since 6.13.
pub const MAX_ACTIVE: u32 = 512;

/// The largest `capacity`: how many items may be told to wait in a queue. More would not fit into any memory.
pub const MAX_CAPACITY: usize = u32::MAX as usize;

/// The most shares that a queue may have of its pools' CPU time. The kernel's `CGROUP_WEIGHT_MAX`.
pub const MAX_SHARES: u32 = 10_000;

/// Checks the shares of a queue.
pub(crate) fn check_shares(shares: u32) -> Result<(), BuildError> {
    let is_valid = (1..=MAX_SHARES).contains(&shares);
    is_valid.then_some(()).ok_or(BuildError::Shares(shares))
}

/// Where the workers of a queue run, and their priority. May be changed while the queue is used.
///
/// See [`Workqueue::set_attrs`](crate::Workqueue::set_attrs).
#[derive(Clone, PartialEq, Eq, Debug)]
#[doc(alias("WQ_SYSFS", "alloc_workqueue_attrs"))]
pub struct Attrs {
    /// Which CPUs share a worker pool.
    pub scope: AffinityScope,
    /// Whether workers never leave their pods.
    pub strict: bool,
    /// The CPUs to which workers keep; all without. One that the process may not use, or the
    /// [registry's bound](crate::Registry::set_unbound_cpus) excludes, is passed over, and where none is left the set counts
    /// for nothing.
    pub cpus: Option<CpuSet>,
    /// The nice value of the workers, -20 (first) to 19 (last).
    pub nice: i8,
}

impl Attrs {
    /// Checks the attributes, for an ordered queue or another one.
    pub(crate) fn check(&self, ordered: bool) -> Result<(), BuildError> {
        if ordered && self.scope != AffinityScope::System {
            return Err(BuildError::OrderedScope(self.scope));
        }
        if self.cpus.as_ref().is_some_and(CpuSet::is_empty) {
            return Err(BuildError::NoCpus);
        }
        if !(-20..=19).contains(&self.nice) {
            return Err(BuildError::Nice(self.nice));
        }
        if self.nice < 0 {
            sync::thread::may_set_nice(self.nice)
                .map_err(|error| BuildError::NicePermission(self.nice, error))?;
        }
        Ok(())
    }
}

/// The error of building a queue, and of changing its attributes.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The name contains a NUL, which a thread name cannot contain.
    Name,
    /// `max_active` is 0 or above [`MAX_ACTIVE`].
    MaxActive(u32),
    /// `capacity` is 0 or above [`MAX_CAPACITY`].
    Capacity(usize),
    /// The shares are 0 or above [`MAX_SHARES`].
    Shares(u32),
    /// The nice value is not between -20 and 19.
    Nice(i8),
    /// An ordered queue runs one item at a time; this `max_active` was asked for.
    OrderedMaxActive(u32),
    /// An ordered queue has one line for the whole machine; this scope was asked for.
    OrderedScope(AffinityScope),
    /// An ordered queue cannot let joiners help: they would jump the line.
    OrderedHelp,
    /// An ordered queue has no urgent lane: its items start in the order in which they were queued.
    OrderedUrgent,
    /// The set of CPUs is empty.
    NoCpus,
    /// A change of an ordered queue's attributes drains the queue first, and the caller is inside one of its items or in
    /// a `tracing` subscriber.
    OwnQueue,
    /// A bottom-half queue was also to be ordered, `cpu_intensive` or `mem_reclaim`, or to change its attributes.
    Bh,
    /// The queue is process-wide (see [`system`](crate::system)), so none of its users
    /// may change it.
    System(Box<str>),
    /// The system refused the thread of a `mem_reclaim` queue's rescuer.
    Rescuer(io::Error),
    /// A negative nice value that this process may not set.
    NicePermission(i8, io::Error),
    /// The process-wide registry could not be made, or the registry is of the process that this one was forked from.
    Registry(RegistryError),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("the name of a workqueue must not contain a NUL"),
            Self::MaxActive(max) => write!(f, "max_active {max} is not between 1 and {MAX_ACTIVE}"),
            Self::Capacity(capacity) => {
                write!(f, "capacity {capacity} is not between 1 and {MAX_CAPACITY}")
            }
            Self::Shares(shares) => {
                write!(f, "shares {shares} are not between 1 and {MAX_SHARES}")
            }
            Self::Nice(nice) => write!(f, "nice value {nice} is not between -20 and 19"),
            Self::OrderedMaxActive(max) => {
                write!(f, "an ordered queue runs one item at a time, not {max}")
            }
            Self::OrderedScope(scope) => {
                write!(
                    f,
                    "an ordered queue has one line for the whole machine, not one per {scope}"
                )
            }
            Self::OrderedHelp => f.write_str("an ordered queue cannot let joiners jump the line"),
            Self::OrderedUrgent => f.write_str("an ordered queue has no urgent lane"),
            Self::NoCpus => f.write_str("a queue without any CPU"),
            Self::OwnQueue => f.write_str(
                "an item of an ordered queue cannot change the attributes of its own queue, which drains it first",
            ),
            Self::Bh => f.write_str(
                "a bottom-half queue cannot be ordered, CPU-intensive, have a rescuer or change its attributes",
            ),
            Self::System(queue) => write!(
                f,
                "workqueue {queue:?} is for the whole process, so one of its users cannot change it"
            ),
            Self::Rescuer(error) => write!(f, "the rescuer's thread was refused: {error}"),
            Self::NicePermission(nice, error) => {
                write!(f, "nice value {nice} is refused to this process: {error}")
            }
            Self::Registry(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NicePermission(_, error) | Self::Rescuer(error) => Some(error),
            Self::Registry(error) => Some(error),
            _ => None,
        }
    }
}

impl From<BuildError> for io::Error {
    fn from(error: BuildError) -> Self {
        let kind = match &error {
            BuildError::NicePermission(_, error) | BuildError::Rescuer(error) => error.kind(),
            BuildError::Registry(_) | BuildError::OwnQueue => io::ErrorKind::Other,
            _ => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, error)
    }
}
