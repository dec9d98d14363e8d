//! Kinds of queues, by the kernel's names: what a [`Builder`] may be told beside numbers.

use base::internal::params::MaxActiveScope;
use topology::AffinityScope;

use super::builder::Builder;
use crate::route::attrs::BuildError;

/// What `highpri` queues run at. The kernel's `HIGHPRI_NICE_LEVEL`.
const HIGHPRI_NICE: i8 = -20;

impl Builder {
    /// Makes items run on the CPU on which they were queued, one at a time unless they block. The kernel's
    /// `WQ_PERCPU`.
    ///
    /// The same as the scope `Cpu`, `strict(true)` and a `max_active` that is meant for each CPU: each CPU's pool runs one worker at a time; when that blocks (see
    /// [`blocking`](crate::blocking)) or hogs the CPU, another runs.
    #[doc(alias = "WQ_PERCPU")]
    pub fn per_cpu(self) -> Self {
        self.scope(AffinityScope::Cpu)
            .strict(true)
            .max_active_scope(MaxActiveScope::Cpu)
    }

    /// Makes workers go before all others, at the nice value -20. The kernel's `WQ_HIGHPRI`.
    ///
    /// Needs a right that most processes do not have: without it [`build`](Self::build) says
    /// [`BuildError::NicePermission`].
    #[doc(alias = "WQ_HIGHPRI")]
    pub fn highpri(self) -> Self {
        self.nice(HIGHPRI_NICE)
    }

    /// Makes workers go before all others where this process may have that, as [`highpri`](Self::highpri) does; else they are
    /// ordinary ones. The queue's [`attrs`](crate::Workqueue::attrs) tell: their nice value is -20, or 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::Workqueue;
    ///
    /// let queue = Workqueue::builder("example").highpri_if_permitted().build()?;
    /// assert!([-20, 0].contains(&queue.attrs().nice));
    /// # Ok::<(), afterwork::workqueue::BuildError>(())
    /// ```
    pub fn highpri_if_permitted(self) -> Self {
        if sync::thread::may_set_nice(HIGHPRI_NICE).is_ok() {
            self.highpri()
        } else {
            self.nice(0)
        }
    }

    /// Marks the queue's items as CPU-intensive: they do not count against the workers that a pool runs at once.
    /// The kernel's `WQ_CPU_INTENSIVE`.
    ///
    /// Other items of the pool run beside them, and the scheduler shares the CPU out; `max_active` bounds how many do.
    /// An item of any queue that has had the CPU for 10 ms while others wait is treated so from then on (see
    /// [`Params::cpu_intensive_thresh_us`](base::params::Params)).
    ///
    /// Differs from Linux: there it says nothing to unbound queues, whose items never count.
    #[doc(alias = "WQ_CPU_INTENSIVE")]
    pub fn cpu_intensive(mut self) -> Self {
        self.cpu_intensive = true;
        self
    }

    /// Sets a thread aside that runs the queue's items when no worker can be had. The kernel's `WQ_MEM_RECLAIM`.
    ///
    /// # Guarantees
    ///
    /// While threads are refused an item of this queue starts within about 10 ms after the rescuer has ended those
    /// before it. One rescuer serves all pods, an item at a time: an item that waits for another of its own queue then
    /// waits for ever, as in the kernel.
    ///
    /// # Cost
    ///
    /// A sleeping thread. Its stack is reserved at once and its pages are touched when first used.
    #[doc(alias = "WQ_MEM_RECLAIM")]
    pub fn mem_reclaim(mut self) -> Self {
        self.mem_reclaim = true;
        self
    }

    /// Makes items run to completion on one thread a CPU, which goes before all others. The kernel's `WQ_BH`.
    ///
    /// For short items that never sleep. An item runs on the CPU on which it was queued, after those queued there
    /// before; the thread gives its CPU away once after ten batches or two milliseconds, as the kernel does.
    ///
    /// Differs from Linux: there items run in the interrupted context, at the end of the interrupt; here on a thread of
    /// their own that must be woken, at nice -20 where the process may set that and at 0 where not. Joiners never help.
    ///
    /// # Panics
    ///
    /// A wait of this library inside such an item panics instead of sleeping, as does [`blocking`](crate::blocking).
    /// What blocks otherwise holds up the other such items of its CPU: nobody takes its place. Dropping the last handle of
    /// a queue does not wait in such an item.
    ///
    /// The parts of a [`scope`](crate::Workqueue::scope), a join or a range on this
    /// queue may block if their owner may, because the owner runs all of them itself, one after
    /// another.
    ///
    /// # Errors
    ///
    /// `build` says [`BuildError::Bh`] when the queue is also to be ordered, `cpu_intensive` or `mem_reclaim`.
    #[doc(alias("WQ_BH", "tasklet_struct"))]
    #[doc(alias("tasklet_schedule", "system_bh_wq"))]
    pub fn bh(mut self) -> Self {
        self.bh = true;
        self
    }

    /// Checks what a bottom-half queue may be, and makes it per CPU.
    pub(crate) fn checked_bh(self) -> Result<Self, BuildError> {
        if self.ordered || self.cpu_intensive || self.mem_reclaim {
            return Err(BuildError::Bh);
        }
        let nice = match sync::thread::may_set_nice(HIGHPRI_NICE) {
            Ok(()) => HIGHPRI_NICE,
            Err(_) => 0,
        };
        Ok(self.per_cpu().help(false).nice(nice))
    }
}
