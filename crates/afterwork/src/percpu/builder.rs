//! Making per-CPU data.

use std::fmt;
use std::time::Duration;

use topology::{CpuId, CpuSet, Topology};

use super::choice::{AtStart, Choice, CompiledOut, Escalate, Escalation, kind_of};
use super::remote::{PanicHandler, PerCpu};
use super::slot::Slot;
use super::table::Table;
use crate::params::{ParamError, Params, Qpw};

/// Describes per-CPU data, and makes it.
///
/// # Examples
///
/// ```
/// use afterwork::percpu::{PerCpu, Qpw};
///
/// let counts = PerCpu::builder().qpw(Qpw::EveryOp).build(|_cpu| 0u64)?;
/// counts.with_current(|count| *count += 1);
/// assert_eq!(counts.sum_over(|count| *count), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    /// From the environment, if `None`.
    qpw: Option<Qpw>,
    topology: Option<Topology>,
    isolated: CpuSet,
    escalation: Escalation,
    on_panic: Option<PanicHandler>,
    name: String,
}

/// Says why per-CPU data could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The machine could not be looked at.
    Topology(topology::Error),
    /// The environment sets a tunable wrongly.
    Params(ParamError),
    /// [`Escalate::Interrupt`] was asked for, and the kernel has no expedited `membarrier`.
    NoMembarrier,
}

// Of `()`, so that the call names no type: what the slots hold is said by `Builder::build`.
impl PerCpu<()> {
    /// Starts to make per-CPU data.
    pub fn builder() -> Builder {
        Builder {
            qpw: None,
            topology: None,
            isolated: CpuSet::new(),
            escalation: Escalation {
                how: Escalate::Never,
                after: Duration::ZERO,
            },
            on_panic: None,
            name: String::new(),
        }
    }
}

impl Builder {
    /// Gives it a name, by which `afterwork top` shows its drains and remote calls.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how remote callers reach an owned slot; the tunable `qpw` by default, which is `queue` unless the
    /// environment says otherwise (`AFTERWORK=qpw=every_op`).
    pub fn qpw(mut self, qpw: Qpw) -> Self {
        self.qpw = Some(qpw);
        self
    }

    /// Makes a slot for each possible CPU of `topology`; of this machine by default.
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = Some(topology);
        self
    }

    /// Keeps queued work off `cpus`, besides those that the topology says are isolated (`isolcpus=`, `nohz_full=`).
    ///
    /// In [`Qpw::Queue`] their slots are as in [`Qpw::EveryOp`]: whoever wants something of them does it himself, and
    /// does not wait for what runs there.
    pub fn isolated(mut self, cpus: &CpuSet) -> Self {
        self.isolated = self.isolated.union(cpus);
        self
    }

    /// Says what a remote caller does in [`Qpw::OnDemand`] when the owner has not come by for `after`.
    ///
    /// Anything but `Never` adds two plain stores to each operation of an owner's.
    pub fn escalate(mut self, how: Escalate, after: Duration) -> Self {
        self.escalation = Escalation { how, after };
        self
    }

    /// Calls `handler` after [queued work](PerCpu::queue_percpu_work) panicked on the slot of a CPU.
    ///
    /// The panic has then been caught and counted. Without a handler that is all. The handler runs where the work did,
    /// inside the slot; a panic of it ends there.
    pub fn on_panic(mut self, handler: impl Fn(CpuId) + Send + Sync + 'static) -> Self {
        self.on_panic = Some(Box::new(handler));
        self
    }

    /// Makes the data, each slot's by `init`.
    ///
    /// # Blocking
    ///
    /// Reads the machine's topology, unless one was given.
    ///
    /// # Errors
    ///
    /// See [`BuildError`].
    pub fn build<T>(self, init: impl FnMut(CpuId) -> T) -> Result<PerCpu<T>, BuildError> {
        self.build_as::<T, AtStart>(init)
    }

    /// Makes the data with the mode fixed to [`Qpw::Queue`] for good: its operations test no mode.
    ///
    /// An isolated CPU's slot takes no owner then, and so is free to take always.
    ///
    /// # Blocking
    ///
    /// As [`build`](Self::build).
    ///
    /// # Errors
    ///
    /// See [`BuildError`].
    pub fn build_compiled_out<T>(
        self,
        init: impl FnMut(CpuId) -> T,
    ) -> Result<PerCpu<T, CompiledOut>, BuildError> {
        self.qpw(Qpw::Queue).build_as::<T, CompiledOut>(init)
    }

    fn build_as<T, C: Choice>(
        self,
        mut init: impl FnMut(CpuId) -> T,
    ) -> Result<PerCpu<T, C>, BuildError> {
        let qpw = match self.qpw {
            Some(qpw) => qpw,
            None => Params::from_env().map_err(BuildError::Params)?.qpw,
        };
        if qpw == Qpw::OnDemand && self.escalation.how != Escalate::Never {
            let expedited = sync::asym::init();
            let needed = self.escalation.how == Escalate::Interrupt;
            if needed && !expedited && !cfg!(any(loom, shuttle)) {
                return Err(BuildError::NoMembarrier);
            }
        }
        let topology = match self.topology {
            Some(topology) => topology,
            None => Topology::detect().map_err(BuildError::Topology)?,
        };
        let isolated = self
            .isolated
            .union(topology.isolated())
            .union(topology.nohz_full());
        let slots = topology.possible().iter().map(|cpu| {
            let kind = kind_of(qpw, self.escalation.how, isolated.contains(cpu));
            Slot::new(cpu, kind, init(cpu))
        });
        let table = Table::new(topology.possible().clone(), slots.collect());
        Ok(PerCpu::from_parts(
            table,
            self.escalation,
            self.on_panic,
            &self.name,
            qpw,
        ))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("qpw", &self.qpw)
            .field("isolated", &self.isolated)
            .field("escalation", &self.escalation)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topology(error) => error.fmt(f),
            Self::Params(error) => error.fmt(f),
            Self::NoMembarrier => f.write_str("the kernel has no expedited membarrier"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Topology(error) => Some(error),
            Self::Params(error) => Some(error),
            Self::NoMembarrier => None,
        }
    }
}
