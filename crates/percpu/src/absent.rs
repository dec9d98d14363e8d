//! Drains the slots of CPUs that go offline.

use base::internal::panics;
use base::internal::wake::hotplug;
use sync::unmodelled::Arc;
use topology::{CpuId, CpuSet};

use super::remote::PerCpu;
use super::slot::Slot;

/// Keeps the slots of CPUs that go offline drained until it is dropped; created by
/// [`PerCpu::drain_when_absent`].
#[must_use = "slots are drained until this is dropped"]
pub struct DrainedWhenAbsent {
    _watch: hotplug::Watch,
}

/// Runs the drains registered by [`PerCpu::drain_when_absent`] on the CPUs that are not in
/// `online`. Registries of workqueues call it automatically. Call it in a program that detects
/// changes to the online CPUs itself.
///
/// A slot is not drained if the calling thread is inside it, or is its owner and is not parked. An
/// owner therefore calls this in [`Owner::while_parked`](super::Owner::while_parked). If two
/// owners call this without parking, they may deadlock. In a child of `fork`, a slot that another
/// thread was inside is not drained.
///
/// # Blocking
///
/// The same as [`PerCpu::drain_cpus`], for all of these drains.
pub fn set_online_cpus(online: &CpuSet) {
    hotplug::notify(online);
}

impl<T: Send, const C: bool> PerCpu<T, C> {
    /// Calls `f` on the data of each CPU that is not in `online`. If the owner of such a slot still
    /// runs, on another CPU, the call is an ordinary remote call.
    ///
    /// # Blocking
    ///
    /// The same as [`drain_cpus`](Self::drain_cpus).
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`drain_cpus`](Self::drain_cpus).
    pub fn drain_absent(&self, online: &CpuSet, f: impl Fn(CpuId, &mut T) + Sync) {
        self.drain_cpus(&self.cpus().difference(online), f);
    }
}

impl<T: Send + 'static, const C: bool> PerCpu<T, C> {
    /// Calls `drain` on the data of each CPU that is not online, whenever a change to the online
    /// CPUs is detected.
    ///
    /// A registry of workqueues detects a change when it reads the topology again
    /// (`Registry::global` does so while work waits), or receives another one from
    /// `Registry::set_topology`. It runs the drain on a separate thread, once for all changes that
    /// arrive during a drain. A program can also report a change with [`set_online_cpus`]. A CPU
    /// may be drained more than once while it is offline, or when it is online again. A CPU that
    /// was never online is also drained.
    ///
    /// A panic in `drain` is caught, counted, and reported to
    /// [`Builder::on_panic`](super::Builder::on_panic).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use afterwork::{percpu::{self, PerCpu}, workqueue::{CpuSet, Topology}};
    ///
    /// let machine = Topology::synthetic("2 core")?;
    /// let caches = PerCpu::builder().topology(machine).build(|cpu| vec![cpu])?;
    /// let caches = Arc::new(caches);
    /// let shared = Arc::new(Mutex::new(Vec::new()));
    /// let saved = shared.clone();
    /// let watch = caches.drain_when_absent(move |_cpu, cache| {
    ///     saved.lock().unwrap().append(cache);
    /// });
    ///
    /// // CPU 1 leaves.
    /// percpu::set_online_cpus(&"0".parse::<CpuSet>()?);
    /// assert_eq!(shared.lock().unwrap().len(), 1);
    /// # drop(watch);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "cpuhp_setup_state")]
    pub fn drain_when_absent(
        self: &Arc<Self>,
        drain: impl Fn(CpuId, &mut T) + Send + Sync + 'static,
    ) -> DrainedWhenAbsent {
        let slots = Arc::downgrade(self);
        let watcher = move |online: &CpuSet| {
            let Some(slots) = slots.upgrade() else { return };
            // In a slot that it owns or is inside, this thread would wait for itself. A lost slot
            // never becomes free.
            let would_wait =
                |slot: &Slot<T>| slot.is_mine() || slot.is_called_here() || slot.is_lost();
            let absent = slots.cpus().difference(online);
            let absent = absent.iter().filter_map(|cpu| slots.table.slot(cpu));
            slots.drain_slots(absent.filter(|slot| !would_wait(slot)), |cpu, data| {
                // FOREIGN(percpu-absent): the drain, inside the slot. A panic is counted.
                if panics::contain(|| drain(cpu, data)) {
                    slots.panics.count(cpu);
                }
            });
        };
        DrainedWhenAbsent { _watch: hotplug::watch(Arc::new(watcher)) }
    }
}
