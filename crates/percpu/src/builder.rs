//! The builder of per-CPU data.

use std::fmt;
use std::time::Duration;

use base::internal::page;
use base::internal::panics::Foreign;
use base::internal::params::{ParamError, Params, Qpw};
use sync::atomic::{AtomicU64, Ordering};
use sync::unmodelled::Arc;
use topology::{CpuId, CpuSet, Topology};

use super::choice::{COMPILED_OUT, Escalate, Escalation, kind_of};
use super::fork::Listed;
use super::remote::{PanicHandler, Panics, PerCpu, Tally};
use super::slot::Slot;
use super::table::Table;

/// Builds a [`PerCpu`]; created by [`PerCpu::builder`].
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
    qpw: Option<Qpw>,
    topology: Option<Topology>,
    isolated: CpuSet,
    escalation: Escalation,
    on_panic: Option<PanicHandler>,
    name: String,
}

/// The error of [`Builder::build`].
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The machine's topology could not be read.
    Topology(topology::Error),
    /// A tunable has an invalid value in the environment.
    Params(ParamError),
    /// [`Escalate::Interrupt`] was requested, and the kernel has no expedited `membarrier`.
    NoMembarrier,
    /// The name contains a NUL.
    Name,
}

// `builder` is a function of `PerCpu<()>`, so that callers need not name a type: `Builder::build`
// determines the type of the slots.
impl PerCpu<()> {
    /// Returns a builder.
    pub fn builder() -> Builder {
        Builder {
            qpw: None,
            topology: None,
            isolated: CpuSet::new(),
            escalation: Escalation { how: Escalate::Never, after: Duration::ZERO },
            on_panic: None,
            name: String::new(),
        }
    }
}

impl Builder {
    /// Sets the name under which `afterwork top` shows the drains and remote calls of this data.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how remote callers access an owned slot. The default is the tunable `qpw`, which is
    /// `queue` unless the environment sets it (`AFTERWORK=qpw=every_op`).
    pub fn qpw(mut self, qpw: Qpw) -> Self {
        self.qpw = Some(qpw);
        self
    }

    /// Sets the machine. The data has a slot for each of its possible CPUs. The default is the
    /// machine of this process.
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = Some(topology);
        self
    }

    /// Keeps queued work off `cpus`, in addition to the CPUs that are isolated in the topology
    /// (`isolcpus=`, `nohz_full=`). In [`Qpw::Queue`] their slots work as in [`Qpw::EveryOp`]:
    /// remote work runs on the caller.
    pub fn isolated(mut self, cpus: &CpuSet) -> Self {
        self.isolated = self.isolated.union(cpus);
        self
    }

    /// Sets the action that a remote caller takes in [`Qpw::OnDemand`] if the owner has not handed
    /// over the slot within `after`.
    ///
    /// Any value but `Never` adds two plain stores to each operation of an owner.
    pub fn escalate(mut self, how: Escalate, after: Duration) -> Self {
        self.escalation = Escalation { how, after };
        self
    }

    /// Sets a handler, which is called after [queued work](PerCpu::queue_percpu_work) has panicked
    /// on the slot of a CPU, on the same thread, inside the slot. The panic is caught and counted
    /// with or without a handler. A panic in the handler is caught.
    pub fn on_panic(mut self, handler: impl Fn(CpuId) + Send + Sync + 'static) -> Self {
        self.on_panic = Some(Box::new(handler));
        self
    }

    /// Creates the data. `init` returns the data of each CPU's slot.
    ///
    /// # Blocking
    ///
    /// Reads the machine's topology, unless [`topology`](Self::topology) was called.
    ///
    /// # Errors
    ///
    /// See [`BuildError`].
    pub fn build<T>(self, init: impl FnMut(CpuId) -> T) -> Result<PerCpu<T>, BuildError> {
        self.build_as::<T, false>(init)
    }

    /// Creates the data with the mode fixed to [`Qpw::Queue`] at compile time, so that operations
    /// need not test the mode. The slot of an isolated CPU then cannot have an owner.
    ///
    /// # Blocking
    ///
    /// The same as [`build`](Self::build).
    ///
    /// # Errors
    ///
    /// See [`BuildError`].
    pub fn build_compiled_out<T>(
        self,
        init: impl FnMut(CpuId) -> T,
    ) -> Result<PerCpu<T, COMPILED_OUT>, BuildError> {
        self.qpw(Qpw::Queue).build_as::<T, COMPILED_OUT>(init)
    }

    fn build_as<T, const C: bool>(
        self,
        mut init: impl FnMut(CpuId) -> T,
    ) -> Result<PerCpu<T, C>, BuildError> {
        if self.name.contains('\0') {
            return Err(BuildError::Name);
        }
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
            None => sync::cpu::topology().map_err(BuildError::Topology)?,
        };
        let isolated = self.isolated.union(topology.isolated()).union(topology.nohz_full());
        let slots = topology.possible().iter().map(|cpu| {
            let kind = kind_of(qpw, self.escalation.how, isolated.contains(cpu));
            Slot::new(cpu, kind, init(cpu))
        });
        let table = Table::new(topology.possible().clone(), slots.collect());
        let handler = self.on_panic.map(Foreign::new);
        let panics = Arc::new(Panics { nr: AtomicU64::new(0), handler });
        let (seen, nr_slots) = (panics.clone(), table.slots.len() as u64);
        let tally = Tally::new(move |[drains, drained, waited, queued], image| {
            let nr_panicked = seen.nr.load(Ordering::Relaxed);
            let figures = [nr_slots, drains, drained, waited, queued, nr_panicked];
            image.add(page::Kind::PerCpu, &self.name, qpw.as_str(), &figures);
        });
        let (listed, escalation) = (Listed::new(&table), self.escalation);
        Ok(PerCpu { listed, table, escalation, panics, tally })
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topology(error) => error.fmt(f),
            Self::Params(error) => write!(f, "{}: {error}", base::internal::params::VARIABLE),
            Self::NoMembarrier => f.write_str("the kernel has no expedited membarrier"),
            Self::Name => f.write_str("the name of per-CPU data must not contain a NUL"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Topology(error) => Some(error),
            Self::Params(error) => Some(error),
            Self::NoMembarrier | Self::Name => None,
        }
    }
}

base::internal::into_io_error!(BuildError, |error| match error {
    BuildError::NoMembarrier => ErrorKind::Unsupported,
    _ => ErrorKind::InvalidInput,
});
