//! Process-wide queues under the kernel's names.

use std::io;

use base::internal::panics::contain;
#[cfg(doc)]
use base::internal::panics::join_error::JoinError;
use item::internal::head::Name;
use sync::fork::PerProcess;
use sync::unmodelled::Arc;
use topology::CpuId;

use super::builder::Builder;
use super::queue::Workqueue;
use super::task::rejected;
use crate::execute::join::JoinHandle;
use crate::route::attrs::{BuildError, MAX_ACTIVE};

/// Returns the queue for short items of any user; the kernel's `system_wq`.
///
/// The queue is per-CPU: an item runs on the CPU that queued it, and each CPU runs one worker at a
/// time. Use [`system_long`] or [`system_unbound`] for a long item.
///
/// The four system queues are built on the first call and exist until the process ends; a child of
/// `fork` builds its own. To wait for your items, flush or join the items and never the queue,
/// because the items of other users may take any amount of time.
///
/// No user can stop or change a system queue for the others:
///
/// - [`drain`](Workqueue::drain), [`drain_timeout`](Workqueue::drain_timeout),
///   [`drain_async`](Workqueue::drain_async) and [`shutdown`](Workqueue::shutdown) return an error.
/// - [`set_max_active`](Workqueue::set_max_active), [`set_attrs`](Workqueue::set_attrs) and its
///   variants, and [`set_shares`](Workqueue::set_shares) return [`BuildError::System`].
/// - [`pause`](Workqueue::pause) and [`cancel_all`](Workqueue::cancel_all) do nothing, and return
///   `false` and 0, respectively.
/// - [`shutdown_background`](Workqueue::shutdown_background),
///   [`close_in_background`](Workqueue::close_in_background) and a drop only drop that handle.
///
/// # Errors
///
/// Returns the same errors as [`Builder::build`](crate::Builder::build) on the process-wide
/// registry. After an error, the next call tries again.
///
/// # Examples
///
/// ```
/// use afterwork::workqueue;
///
/// assert_eq!(workqueue::system()?.spawn(|| 6 * 7).join()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("system_wq", "system_percpu_wq", "schedule_work", "flush_scheduled_work"))]
pub fn system() -> Result<&'static Workqueue, BuildError> {
    static QUEUE: PerProcess<Workqueue> = PerProcess::new();
    once(&QUEUE, "events", true, Builder::per_cpu)
}

/// Returns the queue for urgent items; the kernel's `system_highpri_wq`.
///
/// It is per-CPU like [`system`], with the same errors. Its workers have the nice value -20, or 0
/// if this process may not set -20. The queue's [`report`](Workqueue::report) and its row in
/// `observe::snapshot` contain the value in use.
#[doc(alias = "system_highpri_wq")]
pub fn system_highpri() -> Result<&'static Workqueue, BuildError> {
    static QUEUE: PerProcess<Workqueue> = PerProcess::new();
    once(&QUEUE, "events_highpri", true, |queue| queue.per_cpu().highpri_if_permitted())
}

/// Returns the queue for items that may take a long time; the kernel's `system_long_wq`. It is like
/// [`system`], with the same errors, but separate, so that short items do not wait for long ones.
#[doc(alias = "system_long_wq")]
pub fn system_long() -> Result<&'static Workqueue, BuildError> {
    static QUEUE: PerProcess<Workqueue> = PerProcess::new();
    once(&QUEUE, "events_long", true, Builder::per_cpu)
}

/// Returns the queue for items that may run on any CPU; the kernel's `system_unbound_wq`. Its
/// `max_active` has the maximum value, so that blocked items do not keep others from running. The
/// errors are those of [`system`].
#[doc(alias("system_unbound_wq", "system_dfl_wq"))]
pub fn system_unbound() -> Result<&'static Workqueue, BuildError> {
    static QUEUE: PerProcess<Workqueue> = PerProcess::new();
    once(&QUEUE, "events_unbound", true, |queue| queue.max_active(MAX_ACTIVE))
}

/// Runs `func` on `cpu`, and returns its result; the kernel's `work_on_cpu`.
///
/// `func` runs on a worker of that CPU, never on this thread, and waits for no [`system`] item.
///
/// # Blocking
///
/// Blocks until `func` has run, and panics as [`JoinHandle::join`](crate::JoinHandle::join) does.
/// Must not be called inside an item of a bottom-half queue, nor in an RCU read-side critical
/// section.
///
/// # Errors
///
/// The error contains [`BuildError::NoCpus`] if the CPU does not exist or this process may not use
/// it, or an error of [`system`]; nothing has run in these cases. Otherwise it contains
/// [`JoinError::Panicked`](crate::JoinError::Panicked).
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::{self, Topology};
///
/// let last = Topology::detect()?.allowed().last().expect("this one at least");
/// let sum = workqueue::work_on_cpu(last, || 1 + 1)?;
/// assert_eq!(sum, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("work_on_cpu_safe", "smp_call_on_cpu"))]
pub fn work_on_cpu<T: Send + 'static>(
    cpu: CpuId,
    func: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let queue = on_cpus()?;
    if !queue.inner.route_table.routes().cpus().any(|it| it == cpu) {
        return Err(BuildError::NoCpus.into());
    }
    Ok(queue.task().on_cpu(cpu).spawn(func).join()?)
}

/// Runs `func` once on each CPU that this process may use, and waits for all runs.
///
/// If runs panic, returns the error of the first one, but only after all runs have ended. Blocks,
/// panics, and returns other errors, as [`work_on_cpu`] does.
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
/// use afterwork::workqueue;
///
/// let nr_runs = Arc::new(AtomicU32::new(0));
/// let counts = nr_runs.clone();
/// workqueue::schedule_on_each_cpu(move |_cpu| drop(counts.fetch_add(1, Ordering::Relaxed)))?;
/// assert!(nr_runs.load(Ordering::Relaxed) > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "on_each_cpu")]
pub fn schedule_on_each_cpu(func: impl Fn(CpuId) + Send + Sync + 'static) -> io::Result<()> {
    let queue = on_cpus()?;
    let func = Arc::new(func);
    let spawn = |cpu| {
        let func = func.clone();
        let (name, task) = (Name::of(&*func), queue.task().on_cpu(cpu));
        task.try_push(name, move || func(cpu), |handle| handle).unwrap_or_else(rejected)
    };
    let cpus: Vec<_> = queue.inner.route_table.routes().cpus().collect();
    let handles: Vec<_> = cpus.into_iter().map(spawn).collect();
    let mut all = Ok(());
    for end in handles.into_iter().map(JoinHandle::join) {
        if all.is_ok() {
            all = end;
        } else {
            // FOREIGN(future-outcome): another panic's payload, on the calling thread; a panic is
            // contained.
            contain(|| drop(end));
        }
    }
    Ok(all?)
}

/// Returns the queue for items that run on a given CPU and that a caller waits for.
fn on_cpus() -> Result<&'static Workqueue, BuildError> {
    static QUEUE: PerProcess<Workqueue> = PerProcess::new();
    once(&QUEUE, "events_on_cpu", false, Builder::per_cpu)
}

fn once(
    place: &'static PerProcess<Workqueue>,
    name: &str,
    for_all: bool,
    options: impl FnOnce(Builder) -> Builder,
) -> Result<&'static Workqueue, BuildError> {
    if let Some(queue) = place.get() {
        return Ok(queue);
    }
    let builder = Builder { for_all, ..options(Workqueue::builder(name)) };
    Ok(place.get_or_set(builder.build()?))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::execute::run::current_item;

    #[test]
    #[cfg_attr(miri, ignore = "reads sysfs")]
    fn items_of_all_cpus_have_the_name_of_the_function() {
        let func = |_| {
            let item = current_item().unwrap();
            // SAFETY: the item of a run is alive until the run ends.
            (unsafe { item.as_ref() }.vtable().name)()
        };
        let name = std::any::type_name_of_val(&func);
        schedule_on_each_cpu(move |cpu| assert_eq!(func(cpu), name)).unwrap();
    }
}
