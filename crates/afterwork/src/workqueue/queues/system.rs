//! Queues that are there for all, by the kernel's names.

use sync::fork::PerProcess;

use super::queue::Workqueue;
use crate::workqueue::route::attrs::{BuildError, MAX_ACTIVE};

/// Returns the queue for short items of anybody's; the kernel's `system_wq`.
///
/// Per-CPU: an item runs on the CPU that queued it, and one worker a CPU runs at once. An item that takes long belongs
/// to [`system_long`], or [`system_unbound`].
///
/// The four system queues are built at the first call and stay until the process ends; a child of `fork` builds its own. Whoever waits for his items
/// flushes or joins those, never the queue: others' items may take any time.
///
/// # Errors
///
/// Those of [`Builder::build`](crate::workqueue::Builder::build) on the process-wide registry. The next call tries again.
///
/// # Examples
///
/// ```
/// use afterwork::workqueue;
///
/// assert_eq!(workqueue::system()?.spawn(|| 6 * 7).join()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("system_wq", "system_percpu_wq", "schedule_work"))]
pub fn system() -> Result<&'static Workqueue, BuildError> {
    static QUEUE: PerProcess<Workqueue> = PerProcess::new();
    once(&QUEUE, || Workqueue::builder("events").per_cpu().build())
}

/// Returns the queue for items that cannot wait; the kernel's `system_highpri_wq`.
///
/// Per-CPU like [`system`], with workers of nice value -20. Where this process may not set that, it is a queue with
/// ordinary workers and says so: its [`attrs`](Workqueue::attrs) have the nice value 0, as has its row in
/// [`observe::snapshot`](crate::observe::snapshot).
///
/// # Errors
///
/// As of [`system`].
#[doc(alias = "system_highpri_wq")]
pub fn system_highpri() -> Result<&'static Workqueue, BuildError> {
    static QUEUE: PerProcess<Workqueue> = PerProcess::new();
    once(&QUEUE, || {
        let queue = Workqueue::builder("events_highpri").per_cpu();
        queue.highpri_if_permitted().build()
    })
}

/// Returns the queue for items that may take long; the kernel's `system_long_wq`.
///
/// Like [`system`]; apart from it, so that nobody who waits for a short item waits for a long one.
///
/// # Errors
///
/// As of [`system`].
#[doc(alias = "system_long_wq")]
pub fn system_long() -> Result<&'static Workqueue, BuildError> {
    static QUEUE: PerProcess<Workqueue> = PerProcess::new();
    once(&QUEUE, || {
        Workqueue::builder("events_long").per_cpu().build()
    })
}

/// Returns the queue for items that need no CPU in particular; the kernel's `system_unbound_wq`.
///
/// As many of them run at once as a queue may have, so that one that waits keeps no other from running.
///
/// # Errors
///
/// As of [`system`].
#[doc(alias("system_unbound_wq", "system_dfl_wq"))]
pub fn system_unbound() -> Result<&'static Workqueue, BuildError> {
    static QUEUE: PerProcess<Workqueue> = PerProcess::new();
    once(&QUEUE, || {
        let queue = Workqueue::builder("events_unbound").max_active(MAX_ACTIVE);
        queue.build()
    })
}

fn once(
    place: &'static PerProcess<Workqueue>,
    build: impl FnOnce() -> Result<Workqueue, BuildError>,
) -> Result<&'static Workqueue, BuildError> {
    if let Some(queue) = place.get() {
        return Ok(queue);
    }
    let queue = build()?;
    Ok(place.get_or_set(queue))
}
