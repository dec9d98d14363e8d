//! The attributes of a queue's workers, and the errors of building a queue or a registry.

use std::io;

use base::internal::params::{ParamError, VARIABLE};
use topology::{AffinityScope, CpuSet};

/// The maximum value of `max_active`, the number of items of a queue that run at once.
///
/// Differs from Linux, whose `WQ_MAX_ACTIVE` was 512 up to 6.12 and has been 2048 since 6.13.
pub const MAX_ACTIVE: u32 = 512;

/// The largest `max_active` of a group.
pub const MAX_GROUP_ACTIVE: u32 = 4096;

/// The largest `max_active_per_cpu` of a group. The value is a guess: with more threads for each
/// CPU, a group might as well have no ceiling.
pub(crate) const MAX_GROUP_PER_CPU: f64 = 64.0;

/// The largest `capacity`, the number of waiting items. More items would not fit into memory.
pub const MAX_CAPACITY: usize = base::internal::admission::MAX_CAPACITY;

/// The maximum number of shares of a queue. Corresponds to the kernel's `CGROUP_WEIGHT_MAX`.
pub const MAX_SHARES: u32 = 10_000;

pub(crate) fn check_shares(shares: u32) -> Result<(), BuildError> {
    let is_valid = (1..=MAX_SHARES).contains(&shares);
    is_valid.then_some(()).ok_or(BuildError::Shares(shares))
}

/// The CPUs and the priority of a queue's workers. They may be changed while the queue is in use.
///
/// See [`Workqueue::set_attrs`](crate::Workqueue::set_attrs).
#[derive(Clone, PartialEq, Eq, Debug)]
#[doc(alias("WQ_SYSFS", "alloc_workqueue_attrs"))]
pub struct Attrs {
    /// The scope that determines which CPUs share a worker pool.
    pub affinity: AffinityScope,
    /// Set if workers never leave their pods.
    pub strict: bool,
    /// The CPUs on which workers run; `None` for all CPUs. CPUs that the process may not use, or
    /// that the [registry's restriction](crate::Registry::set_unbound_cpus) excludes,
    /// are ignored. If no CPU is left, the whole set is ignored.
    pub cpus: Option<CpuSet>,
    /// The nice value of the workers, from -20 (highest priority) to 19 (lowest).
    pub nice: i8,
}

impl Attrs {
    pub(crate) fn change(&mut self, before: &Self, after: &Self) {
        fn set<T: PartialEq + Clone>(value: &mut T, before: &T, after: &T) {
            if before != after {
                value.clone_from(after);
            }
        }
        set(&mut self.affinity, &before.affinity, &after.affinity);
        set(&mut self.strict, &before.strict, &after.strict);
        set(&mut self.cpus, &before.cpus, &after.cpus);
        set(&mut self.nice, &before.nice, &after.nice);
    }

    pub(crate) fn check(&self, ordered: bool) -> Result<(), BuildError> {
        if ordered && self.affinity != AffinityScope::System {
            return Err(BuildError::OrderedScope(self.affinity));
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

/// The error of building a queue or of changing its attributes.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The name contains a NUL, which a thread name cannot contain.
    Name,
    /// `max_active` is 0 or above [`MAX_ACTIVE`].
    MaxActive(u32),
    /// The `max_active` of a group is 0 or above [`MAX_GROUP_ACTIVE`].
    GroupMaxActive(u32),
    /// The `max_active_per_cpu` of a group is not above 0 or is above 64.
    GroupPerCpu(f64),
    /// The group, whose name this contains, belongs to another registry.
    GroupRegistry(Box<str>),
    /// `capacity` is 0 or above [`MAX_CAPACITY`].
    Capacity(usize),
    /// The shares are 0 or above [`MAX_SHARES`].
    Shares(u32),
    /// The nice value is not between -20 and 19.
    Nice(i8),
    /// An ordered queue runs one item at a time. Contains the requested `max_active`.
    OrderedMaxActive(u32),
    /// An ordered queue uses one pool for the whole machine. Contains the requested scope.
    OrderedScope(AffinityScope),
    /// An ordered queue cannot let joiners help, because that would break the order.
    OrderedHelp,
    /// An ordered queue has no urgent lane: its items start in the order in which they were queued.
    OrderedUrgent,
    /// The set of CPUs is empty.
    NoCpus,
    /// Changing the attributes of an ordered queue first drains the queue, and the caller is inside
    /// one of its items or in a `tracing` subscriber.
    OwnQueue,
    /// A bottom-half queue cannot be ordered, `cpu_intensive`, `with_rescuer` or in a group, and
    /// cannot change its attributes.
    Bh,
    /// The queue is process-wide (see [`system`](crate::system)) and cannot be changed.
    System(Box<str>),
    /// The queue has been destroyed.
    Destroyed,
    /// The rescuer thread of a `with_rescuer` queue could not be created.
    Rescuer(io::Error),
    /// The process is not permitted to set this negative nice value.
    NicePermission(i8, io::Error),
    /// The process-wide registry could not be created, or belongs to the parent of this process.
    Registry(RegistryError),
}

base::internal::impl_error!(without io BuildError {
    Name, "the name of a workqueue must not contain a NUL";
    MaxActive(max), "max_active {max} is not between 1 and {MAX_ACTIVE}";
    GroupMaxActive(max), "max_active {max} of a group is not between 1 and {MAX_GROUP_ACTIVE}";
    GroupPerCpu(factor), "max_active_per_cpu {factor} is not above 0 and at most {MAX_GROUP_PER_CPU}";
    GroupRegistry(group), "group {group:?} belongs to another registry";
    Capacity(capacity), "capacity {capacity} is not between 1 and {MAX_CAPACITY}";
    Shares(shares), "shares {shares} are not between 1 and {MAX_SHARES}";
    Nice(nice), "nice value {nice} is not between -20 and 19";
    OrderedMaxActive(max), "an ordered queue runs one item at a time, not {max}";
    OrderedScope(scope), "an ordered queue has one order for the whole machine, not one per {scope}";
    OrderedHelp, "an ordered queue cannot have help(true): joiners would run items out of order";
    OrderedUrgent, "an ordered queue has no urgent lane";
    NoCpus, "the queue has no CPU: its set of CPUs is empty";
    OwnQueue, "an item of an ordered queue cannot change the attributes of its own queue, because the change first drains the queue";
    Bh, "a bottom-half queue cannot be ordered, be CPU-intensive, be in a group, have a rescuer or change its attributes";
    System(queue), "workqueue {queue:?} is for the whole process, so one of its users cannot change it";
    Destroyed, "the workqueue was destroyed";
    Rescuer(error), "cannot create the rescuer's thread: {error}";
    NicePermission(nice, error), "this process may not set the nice value {nice}: {error}";
    Registry(error), "{error}";
} source {
    Self::NicePermission(_, error) | Self::Rescuer(error) => error,
    Self::Registry(error) => error,
});

base::internal::into_io_error!(BuildError, |error| match error {
    BuildError::NicePermission(_, error) | BuildError::Rescuer(error) => error.kind(),
    BuildError::Registry(_) | BuildError::OwnQueue => ErrorKind::Other,
    BuildError::Destroyed => ErrorKind::BrokenPipe,
    _ => ErrorKind::InvalidInput,
});

/// The error returned if a registry cannot be created.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegistryError {
    /// The machine has no CPU that the process is allowed to use.
    Topology(topology::Error),
    /// The manager thread could not be created.
    Thread(io::Error),
    /// A tunable is out of range, or the variable `AFTERWORK` is invalid and contains `strict`.
    Params(ParamError),
    /// The registry belongs to the parent of this forked process. Its threads do not exist here.
    Forked,
}

base::internal::impl_error!(RegistryError {
    Topology(error) => Other, "the machine's topology cannot be read: {error}";
    Thread(error) => Other, "cannot create the manager's thread: {error}";
    Params(error) => Other, "{VARIABLE}: {error}";
    Forked => Other, "the registry's threads are in the process that this one was forked from";
} source {
    Self::Topology(error) => error,
    Self::Thread(error) => error,
    Self::Params(error) => error,
});

/// The error of setting the topology of a process that already has one. Contains the rejected one.
#[derive(Debug)]
pub struct TopologyInUse(pub Box<topology::Topology>);

base::internal::into_io_error!(
    TopologyInUse,
    |_| ErrorKind::AlreadyExists,
    "the process has a topology already: set one before the first use"
);
