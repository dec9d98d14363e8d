//! Kinds of queues under the kernel's names.

use base::internal::params::MaxActiveScope;
use topology::AffinityScope;

use super::builder::Builder;
use crate::route::attrs::BuildError;

/// The nice value of `highpri` queues. Corresponds to the kernel's `HIGHPRI_NICE_LEVEL`.
const HIGHPRI_NICE: i8 = -20;

impl Builder {
    /// Runs items one at a time on the CPU that queued them. Corresponds to the kernel's
    /// `WQ_PERCPU`.
    ///
    /// Equivalent to the affinity `Cpu`, `strict(true)` and a `max_active` for each CPU. The pool
    /// of each CPU runs one worker at a time. If that worker blocks (see
    /// [`blocking`](crate::blocking)) or hogs the CPU, another one runs.
    #[doc(alias = "WQ_PERCPU")]
    pub fn per_cpu(self) -> Self {
        self.affinity(AffinityScope::Cpu).strict(true).max_active_scope(MaxActiveScope::Cpu)
    }

    /// Runs workers at the nice value -20, ahead of all other threads. Corresponds to the kernel's
    /// `WQ_HIGHPRI`.
    ///
    /// This needs a permission that most processes do not have. Without it, [`build`](Self::build)
    /// returns [`BuildError::NicePermission`].
    #[doc(alias = "WQ_HIGHPRI")]
    pub fn highpri(self) -> Self {
        self.nice(HIGHPRI_NICE)
    }

    /// Runs workers at the nice value -20, as [`highpri`](Self::highpri) does, if this process may
    /// set it, and otherwise at 0. See [`report`](crate::Workqueue::report).
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::Workqueue;
    ///
    /// let queue = Workqueue::builder("example").highpri_if_permitted().build()?;
    /// assert!([-20, 0].contains(&queue.report().attrs.nice));
    /// # Ok::<(), afterwork::workqueue::BuildError>(())
    /// ```
    pub fn highpri_if_permitted(self) -> Self {
        if sync::thread::may_set_nice(HIGHPRI_NICE).is_ok() { self.highpri() } else { self.nice(0) }
    }

    /// Marks the queue's items as CPU-intensive: they do not count toward the workers that a pool
    /// runs at once. Corresponds to the kernel's `WQ_CPU_INTENSIVE`.
    ///
    /// Other items of the pool run at the same time, and the scheduler divides the CPU among them.
    /// `max_active` bounds the number of CPU-intensive items that run. An item of any queue that
    /// has used the CPU for 10 ms while others wait is treated the same way from then on (see
    /// [`Params::cpu_intensive_thresh_us`](base::params::Params)).
    ///
    /// Differs from Linux: there the flag has no effect on unbound queues, whose items never count.
    #[doc(alias = "WQ_CPU_INTENSIVE")]
    pub fn cpu_intensive(self) -> Self {
        Self { cpu_intensive: true, ..self }
    }

    /// Lets all items of the queue block: they do not count toward the workers that a pool runs at
    /// once. By default, at most [`MAX_ACTIVE`](crate::MAX_ACTIVE) of them run at once.
    ///
    /// Use it as a pool for blocking calls, so that no item needs [`blocking`](crate::blocking).
    /// Set [`max_active`](Self::max_active) to bound its threads.
    ///
    /// # Cost
    ///
    /// Workers take one item at a time, and start another worker while items wait.
    ///
    /// # Errors
    ///
    /// The same as for [`cpu_intensive`](Self::cpu_intensive), which this includes.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::Workqueue;
    ///
    /// let files = Workqueue::builder("files").blocking().build()?;
    /// let name = files.spawn(|| std::fs::read_to_string("/proc/self/comm"));
    /// assert!(name.join()?.is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("spawn_blocking", "max_blocking_threads"))]
    pub fn blocking(self) -> Self {
        Self { blocking: true, cpu_intensive: true, ..self }
    }

    /// Reserves a thread for times when no worker can be created. Corresponds to the kernel's
    /// `WQ_MEM_RECLAIM`.
    ///
    /// # Guarantees
    ///
    /// While thread creation fails, an item of this queue starts within about 10 ms after the
    /// rescuer has completed the items before it. One rescuer serves all pods, one item at a time.
    /// An item that waits for another item of its own queue then waits forever, as in the kernel.
    ///
    /// # Cost
    ///
    /// The queue has a sleeping thread. The address space of its stack is reserved at once, and the
    /// pages are allocated at first use.
    #[doc(alias("WQ_MEM_RECLAIM", "mem_reclaim"))]
    pub fn with_rescuer(self) -> Self {
        Self { with_rescuer: true, ..self }
    }

    /// Runs items to completion on one high-priority thread for each CPU. Corresponds to the
    /// kernel's `WQ_BH`.
    ///
    /// Use it for short items that never sleep. An item runs on the CPU on which it was queued,
    /// after the items queued there earlier. The thread yields its CPU after ten batches or two
    /// milliseconds, as the kernel does.
    ///
    /// Differs from Linux: there items run in the interrupted context, at the end of the interrupt.
    /// Here they run on a thread of their own that must be woken, at nice -20 if the process may
    /// set it and otherwise at 0. Joiners never help.
    ///
    /// # Panics
    ///
    /// A wait in this library inside such an item panics instead of sleeping, as does
    /// [`blocking`](crate::blocking). An item that blocks in another way delays the other
    /// bottom-half items of its CPU, because no other worker replaces it. Dropping the last handle
    /// to a queue does not wait in such an item.
    ///
    /// The parts of a [`scope`](crate::Workqueue::scope), a join or a range on this
    /// queue may block if their owner may, because the owner runs all of them itself, in turn.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) returns [`BuildError::Bh`] if the queue is also `ordered`,
    /// `cpu_intensive` or `with_rescuer`.
    #[doc(alias("WQ_BH", "tasklet_struct"))]
    #[doc(alias("tasklet_schedule", "system_bh_wq"))]
    pub fn bh(self) -> Self {
        Self { bh: true, ..self }
    }

    /// Checks the settings of a bottom-half queue, and makes it per CPU.
    pub(crate) fn checked_bh(self) -> Result<Self, BuildError> {
        if self.ordered || self.cpu_intensive || self.with_rescuer || self.group.is_some() {
            return Err(BuildError::Bh);
        }
        Ok(self.per_cpu().help(false).highpri_if_permitted())
    }
}
