//! Leaving something to be done after a grace period.

use super::{
    batch::{Batch, in_callback, place},
    callback::callbacks,
    fork,
    head::Head,
    local::{global, outside_of_sections},
    seq::GpCookie,
};

/// Runs `callback` after a grace period, on a thread of the library's or where [`run_callbacks_on`] says.
///
/// # Guarantees
///
/// Every section that is open now has ended when the callback runs, also one that an earlier callback left open: that keeps
/// all later ones from running. Callbacks of one thread that stays on its CPU run in
/// order. A panic in one is caught, counted ([`nr_panicked`]), and loses no other. Nothing waits for a timer: with nobody
/// in a section a callback runs as soon as its thread is awake. Costs a locked instruction, and an allocation where the
/// closure holds more than three words; the first of some sixty in a row may cost an allocation and a system call.
///
/// # Blocking
///
/// Never. May be called in a section, in a work item, in a callback. The first call starts the thread; where the system
/// refuses it, later calls try again, and [`barrier`] runs callbacks itself.
///
/// # Examples
///
/// ```
/// use afterwork::rcu;
/// use std::sync::mpsc;
///
/// let (sender, receiver) = mpsc::channel();
/// rcu::call(move || sender.send("no reader is left").unwrap());
/// assert_eq!(receiver.recv().unwrap(), "no reader is left");
/// ```
pub fn call(callback: impl FnOnce() + Send + 'static) {
    callbacks().add(callback);
}

/// Drops `value` after a grace period: for what was just taken out of sight.
///
/// # Blocking
///
/// As [`call`].
///
/// # Examples
///
/// ```
/// afterwork::rcu::call_drop(Box::new([0_u8; 1000]));
/// afterwork::rcu::barrier();
/// ```
pub fn call_drop<T: Send + 'static>(value: T) {
    call(move || drop(value));
}

/// Runs `run` on `head` after a grace period, without allocating; the kernel's `call_rcu`.
///
/// # Safety
///
/// 1. `head` is valid until `run` is called, and nobody else uses it until then.
/// 2. `run` may be called with `head`, once, on any thread.
///
/// # Blocking
///
/// As [`call`].
pub unsafe fn call_head(head: *mut Head, run: unsafe fn(*mut Head)) {
    // SAFETY: (1).
    unsafe { (*head).set_run(run) };
    callbacks().add_head(head);
}

/// Waits until every callback has run that was handed over before.
///
/// Returns at once when there is none. Differs from Linux: needs no list to have been used on this CPU.
///
/// # Blocking
///
/// For a grace period or two and the callbacks.
///
/// # Panics
///
/// When this thread is in a section, in a callback, in the executor of [`run_callbacks_on`], or in a stall handler: each would
/// wait for itself. Or in an item of a bottom-half queue.
pub fn barrier() {
    assert!(!in_callback(), "barrier inside a callback waits for itself");
    outside_of_sections("barrier");
    callbacks().barrier();
}

/// Remembers this moment as [`get_state`](super::get_state) does, and sees to it that a grace period follows.
///
/// # Blocking
///
/// Never. May be called in a section.
pub fn start_poll() -> GpCookie {
    let cookie = global().state();
    callbacks().want();
    cookie
}

/// Runs callbacks where `executor` takes them; `None` is the library's own thread.
///
/// `executor` gets one batch at a time and hands it to, say, a workqueue, whose item calls [`Batch::run`]. The next
/// batch comes when that has run. From the next grace period on, for the whole process. What it panics with is dropped, and
/// counted as a callback's ([`nr_panicked`]). A batch that has not begun is taken back and runs on the library's own thread
/// when it has lain for as long as a reader may stall (`rcu.stall_timeout`), which is told on stderr, or when `executor` is
/// replaced.
///
/// # Blocking
///
/// Never.
///
/// # Examples
///
/// ```
/// use afterwork::{rcu, workqueue::Workqueue};
///
/// let queue = Workqueue::builder("rcu callbacks").build().unwrap();
/// rcu::run_callbacks_on(Some(Box::new(move |batch: rcu::Batch| {
///     drop(queue.spawn(move || batch.run()));
/// })));
/// rcu::call(|| ());
/// rcu::barrier();
/// rcu::run_callbacks_on(None);
/// ```
pub fn run_callbacks_on(executor: Option<Box<dyn Fn(Batch) + Send + Sync>>) {
    fork::register();
    place().set(executor);
}

/// Returns how often a callback, or what runs batches, has panicked so far.
pub fn nr_panicked() -> u64 {
    place().nr_panicked()
}
