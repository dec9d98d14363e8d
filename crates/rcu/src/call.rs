//! Functions that defer work until a grace period has passed.

use super::{
    batch::{Batch, in_callback, place},
    callback::callbacks,
    fork,
    head::{Function, Head},
    local::{global, outside_of_sections},
    seq::GpCookie,
};

/// Runs `callback` after a grace period, on a library thread or on the executor of
/// [`run_callbacks_on`].
///
/// # Guarantees
///
/// - Every section that is open now has ended when the callback runs.
/// - Callbacks of a thread run in order while the thread stays on one CPU.
/// - A panic in a callback is caught and counted ([`nr_panicked`]); the other callbacks run.
/// - No timer is involved. If no thread is in a section, the callback runs as soon as the library's
///   thread is awake.
///
/// If a callback leaves a section open on the library's thread, no later callback runs.
///
/// A call costs one locked instruction, and an allocation if the closure captures more than three
/// words. About one call in sixty may also cost an allocation and a system call. So does each call
/// from the last destructors of a thread's locals.
///
/// # Blocking
///
/// Does not block while fewer than `rcu.qhimark` ([`Tunables`](super::Tunables)) callbacks wait on
/// this CPU. A thread that adds to a longer list waits until a sweep takes the list, for at most 10
/// ms. If memory keeps growing because a reader or a callback delays callbacks, it waits for up to
/// a second; this is reported on stderr, once per stall timeout. It never waits in an RCU section,
/// in a callback, in an item of a bottom-half queue, or while the thread is exiting.
///
/// May be called in a section, in a work item, in a callback, and under a lock that a callback
/// takes. The first call starts the thread. If thread creation fails, later calls try again, and
/// [`barrier`] runs the callbacks itself.
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
#[doc(alias = "call_rcu")]
pub fn call(callback: impl FnOnce() + Send + 'static) {
    callbacks().add(callback);
}

/// Runs `callback` as [`call`] does, and never blocks. For callbacks whose number is bounded by
/// other means.
pub fn call_at_once(callback: impl FnOnce() + Send + 'static) {
    callbacks().add_at_once(callback);
}

/// Drops `value` after a grace period. For a value that was just unlinked.
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
#[doc(alias = "kfree_rcu")]
#[doc(alias = "kfree_rcu_mightsleep")]
pub fn call_drop<T: Send + 'static>(value: T) {
    call(move || drop(value));
}

/// Calls `run` with `head` after a grace period, without an allocation, like the kernel's
/// `call_rcu`.
///
/// # Safety
///
/// 1. `head` is valid until `run` is called, and nothing else uses it until then.
/// 2. `run` may be called with `head`, once, on any thread.
///
/// # Blocking
///
/// As [`call`].
pub unsafe fn call_head(head: *mut Head, run: unsafe fn(*mut Head)) {
    // SAFETY: (1), (2).
    unsafe { call_function(head, Function::Rust(run)) };
}

/// Calls `function` with `head` after a grace period.
///
/// # Safety
///
/// 1. As [`call_head`].
pub(super) unsafe fn call_function(head: *mut Head, function: Function) {
    // SAFETY: (1).
    unsafe { head.write(Head::with_function(function)) };
    callbacks().add_head(head);
}

/// Waits until every callback that was queued before has run.
///
/// Returns at once if there is none.
///
/// Differs from Linux: a CPU's list is waited for even if that CPU has never queued callbacks.
///
/// # Blocking
///
/// For up to two grace periods and for the callbacks.
///
/// # Panics
///
/// If this thread is in a section, in a callback, in the executor of [`run_callbacks_on`], or in a
/// stall handler, where it would wait for itself, or in an item of a bottom-half queue.
#[doc(alias = "rcu_barrier")]
pub fn barrier() {
    assert!(!in_callback(), "barrier inside a callback waits for itself");
    outside_of_sections("barrier");
    callbacks().barrier();
}

/// Returns a cookie as [`get_state`](super::get_state) does, and starts the grace period that it
/// needs.
///
/// # Blocking
///
/// Never blocks. May be called in a section.
#[doc(alias = "start_poll_synchronize_rcu")]
pub fn start_poll() -> GpCookie {
    let cookie = global().state_to_poll();
    callbacks().want();
    cookie
}

/// Sets the executor of callbacks; `None` restores the library's own thread.
///
/// `executor` receives one batch at a time and passes it on, for example to a workqueue whose item
/// calls [`Batch::run`]. It receives the next batch when that one has run. The change applies to
/// the whole process, from the next grace period on.
///
/// A panic of `executor` is caught, and counted as one of a callback ([`nr_panicked`]).
///
/// The library reclaims a batch that has not begun and runs it on its own thread in two cases:
/// `executor` has been replaced, or the batch has waited for as long as a reader may stall
/// (`rcu.stall_timeout`). The second case is reported on stderr.
///
/// # Blocking
///
/// Never blocks.
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
#[doc(alias("create_call_rcu_data", "set_cpu_call_rcu_data"))]
pub fn run_callbacks_on(executor: Option<Box<dyn Fn(Batch) + Send + Sync>>) {
    fork::register();
    place().set(executor);
}

/// Returns the number of panics of callbacks and executors that have been caught.
pub fn nr_panicked() -> u64 {
    place().nr_panicked()
}
