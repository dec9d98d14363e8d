//! `afterwork/task_work.h`.
//!
//! A thread that requests its own `task_struct` gets a list of callbacks, in memory that the
//! callers provide. A lock guards the list, because a callback can be removed from its middle. The
//! lock is held for a few instructions, and never while a callback is called.
//!
//! ```text
//! add:     lock: has the thread ended? -ESRCH;  append;  then, if requested, notify the owner
//! run:     lock: take the first;  unlock, call it;  repeat until the list is empty
//! cancel:  lock: unlink it, unless it was taken to be run
//! end:     run;  lock: if the list is empty, set the end flag, which rejects later adds
//! ```
//!
//! An add without a notification does not end the owner's wait, but the next wait finds the
//! callback.

use std::cell::Cell;
use std::ffi::{c_int, c_long};
use std::ptr;
use std::time::Duration;

use afterwork::rcu::raw;
use afterwork::wake::EventCount;
use sync::atomic::{AtomicUsize, Ordering};
use sync::fork::Process;
use sync::{Arc, Mutex};

use crate::boundary::{EINVAL, ESRCH, misuse, within};

/// The head of a callback: `struct callback_head`. The lock of the task guards the links.
#[repr(C)]
#[derive(Debug)]
pub struct CallbackHead {
    next: *mut CallbackHead,
    /// The task whose list contains this callback, or null.
    task: *const Task,
    func: Option<TaskWorkFn>,
}

type TaskWorkFn = unsafe extern "C-unwind" fn(*mut CallbackHead);

const _: () = assert!(size_of::<CallbackHead>() == 24 && align_of::<CallbackHead>() == 8);

/// A thread: `struct task_struct`.
#[derive(Debug)]
pub struct Task {
    list: Mutex<List>,
    /// A: the length of the list.
    nr_inside: AtomicUsize,
    changed: EventCount,
    /// I: the process of the thread.
    process: Process,
}

#[derive(Debug)]
struct List {
    first: *mut CallbackHead,
    last: *mut CallbackHead,
    has_ended: bool,
}

// SAFETY: callers passed the callbacks so that any thread may access them under the lock.
unsafe impl Send for List {}

sync::thread_local! {
    /// This thread's reference to its task; null before the first request and after the destructor.
    static MINE: Cell<*const Task> = Cell::new(ptr::null());
    /// A value whose destructor runs on each thread that has a task.
    static AT_EXIT: AtExit = AtExit
}

struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        let Some(task) = mine() else { return };
        // Run callbacks until the list is empty. `end` then rejects later ones.
        while !task.end() {
            task.run();
        }
        MINE.with(|mine| mine.set(ptr::null()));
        // SAFETY: this is the thread's own reference, which `make` leaked.
        unsafe { Arc::decrement_strong_count(ptr::from_ref(task)) };
    }
}

/// Returns this thread's task, if it has one in this process.
fn mine() -> Option<&'static Task> {
    // SAFETY: the pointer is null or points to this thread's task, which is valid until it ends.
    let task = unsafe { MINE.with(Cell::get).as_ref() };
    task.filter(|task| task.process.is_this())
}

/// Creates this thread's task, unless it is ending. A child of `fork` leaks its parent's task.
#[cold]
fn make() -> Option<&'static Task> {
    AT_EXIT.try_with(|_| ()).ok()?;
    let empty = List { first: ptr::null_mut(), last: ptr::null_mut(), has_ended: false };
    let task = Arc::into_raw(Arc::new(Task {
        list: Mutex::new(empty),
        nr_inside: AtomicUsize::new(0),
        changed: EventCount::new(),
        process: Process::this(),
    }));
    MINE.with(|mine| mine.set(task));
    mine()
}

impl Task {
    /// Appends a callback. Returns `false` if the thread has ended.
    ///
    /// # Safety
    ///
    /// 1. `work` is not on a list, and belongs to the library until it is called or cancelled.
    unsafe fn add(&self, work: *mut CallbackHead) -> bool {
        let mut list = self.list.lock();
        if list.has_ended {
            return false;
        }
        // SAFETY: (1), and the lock guards the list's links.
        unsafe {
            (*work).next = ptr::null_mut();
            (*work).task = self;
            match list.last.is_null() {
                true => list.first = work,
                false => (*list.last).next = work,
            }
        }
        list.last = work;
        self.nr_inside.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Removes and returns the first callback for which `chosen` returns `true`, or null.
    fn take_out(&self, chosen: impl Fn(*mut CallbackHead) -> bool) -> *mut CallbackHead {
        let mut list = self.list.lock();
        let (mut before, mut at) = (ptr::null_mut::<CallbackHead>(), list.first);
        while !at.is_null() && !chosen(at) {
            before = at;
            // SAFETY: callbacks on the list are valid, by (1) of `add`, and guarded by the lock.
            at = unsafe { (*at).next };
        }
        if !at.is_null() {
            // SAFETY: as above.
            unsafe {
                match before.is_null() {
                    true => list.first = (*at).next,
                    false => (*before).next = (*at).next,
                }
                (*at).task = ptr::null();
            }
            if list.last == at {
                list.last = before;
            }
            self.nr_inside.fetch_sub(1, Ordering::Relaxed);
        }
        at
    }

    /// Calls all callbacks, oldest first, including those that are added during the calls.
    fn run(&self) {
        loop {
            let work = self.take_out(|_| true);
            // SAFETY: valid by (1) of `add`, and off the list, so only this thread accesses it.
            let Some(func) = unsafe { work.as_ref() }.and_then(|work| work.func) else {
                return;
            };
            sync::lock::assert_none_held();
            // A panic or an exception that leaves the callback ends the process.
            // SAFETY: C passed the callback so that it is called once. The call may free `work`.
            raw::of_c("callback of task_work_add", func as usize, || unsafe { func(work) });
        }
    }

    /// If the list is empty, rejects later callbacks and returns `true`.
    fn end(&self) -> bool {
        let mut list = self.list.lock();
        list.has_ended = list.first.is_null();
        list.has_ended
    }

    fn is_empty(&self) -> bool {
        self.nr_inside.load(Ordering::Relaxed) == 0
    }
}

/// Checks that C passed a task.
///
/// # Safety
///
/// 1. `task` is null, or the caller holds a reference to it, or its thread has not ended.
unsafe fn known<'a>(name: &str, task: *const Task) -> Option<&'a Task> {
    // SAFETY: (1).
    let task = unsafe { task.as_ref() };
    task.or_else(|| misuse(name, &"the task is NULL", None))
}

/// Returns this thread's task, or null if the thread is ending.
#[unsafe(no_mangle)]
extern "C" fn aw_get_current() -> *const Task {
    within("get_current", || mine().or_else(make).map_or(ptr::null(), ptr::from_ref))
}

/// # Safety
///
/// 1. `task` is null or points to a task.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_get_task_struct(task: *const Task) -> *const Task {
    // SAFETY: (1).
    if unsafe { known("get_task_struct", task) }.is_some() {
        // SAFETY: (1): the pointer came from an `Arc`.
        unsafe { Arc::increment_strong_count(task) };
    }
    task
}

/// # Safety
///
/// 1. `task` is null, or points to a task to which the caller holds a reference. The call releases
///    that reference.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_put_task_struct(task: *const Task) {
    // SAFETY: (1).
    if unsafe { known("put_task_struct", task) }.is_some() {
        // SAFETY: (1): the pointer came from an `Arc`.
        unsafe { Arc::decrement_strong_count(task) };
    }
}

/// Adds `work` to the callbacks of the thread of `task`, and ends its wait unless `notify` is 0.
///
/// # Safety
///
/// 1. `task` is null or points to a task.
/// 2. `work` was initialized, and stays valid until it is called or cancelled.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_task_work_add(
    task: *const Task,
    work: *mut CallbackHead,
    notify: c_int,
) -> c_int {
    const NAME: &str = "task_work_add";
    within(NAME, || {
        // SAFETY: (1).
        let Some(task) = (unsafe { known(NAME, task) }) else {
            return -EINVAL;
        };
        // SAFETY: (2). Only one thread at a time may add or cancel a callback.
        match unsafe { work.as_ref() } {
            Some(CallbackHead { func: Some(_), task, .. }) if task.is_null() => {}
            Some(CallbackHead { func: Some(_), .. }) => {
                return misuse(NAME, &"the callback was added already", -EINVAL);
            }
            _ => return misuse(NAME, &"the callback is not initialized", -EINVAL),
        }
        if !task.process.is_this() {
            return -ESRCH;
        }
        // The owner may end as soon as the callback is on its list.
        let keeps = ptr::from_ref(task);
        // SAFETY: (1).
        unsafe { Arc::increment_strong_count(keeps) };
        // SAFETY: (2), and the callback is not on a list.
        let is_added = unsafe { task.add(work) };
        if is_added && notify != 0 {
            task.changed.notify_all();
        }
        // SAFETY: the reference was acquired above.
        unsafe { Arc::decrement_strong_count(keeps) };
        if is_added { 0 } else { -ESRCH }
    })
}

/// Cancels `work`. Returns `true` if it will not be called.
///
/// # Safety
///
/// 1. `task` is null or points to a task.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_task_work_cancel(task: *const Task, work: *mut CallbackHead) -> bool {
    within("task_work_cancel", || {
        // SAFETY: (1).
        let task = unsafe { known("task_work_cancel", task) };
        task.is_some_and(|task| !task.take_out(|at| at == work).is_null())
    })
}

/// Cancels and returns the first callback with the function `func`, or null.
///
/// # Safety
///
/// 1. `task` is null or points to a task.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_task_work_cancel_func(
    task: *const Task,
    func: Option<TaskWorkFn>,
) -> *mut CallbackHead {
    within("task_work_cancel_func", || {
        let address = |func: Option<TaskWorkFn>| func.map_or(0, |func| func as usize);
        // SAFETY: callbacks on a list are valid, and `take_out` holds the lock.
        let is_wanted = |at: *mut CallbackHead| address(unsafe { (*at).func }) == address(func);
        // SAFETY: (1).
        let task = unsafe { known("task_work_cancel_func", task) };
        task.map_or(ptr::null_mut(), |task| task.take_out(is_wanted))
    })
}

#[unsafe(no_mangle)]
extern "C" fn aw_task_work_run() {
    within("task_work_run", || mine().map_or((), Task::run));
}

/// Returns `true` if this thread has callbacks.
#[unsafe(no_mangle)]
extern "C" fn aw_task_work_pending() -> bool {
    mine().is_some_and(|task| !task.is_empty())
}

/// Waits until this thread has callbacks, or for `timeout_ms` unless it is negative. Returns `true`
/// if the thread has callbacks.
#[unsafe(no_mangle)]
extern "C" fn aw_task_work_wait(timeout_ms: c_long) -> bool {
    within("afterwork_task_work_wait", || {
        let Some(task) = mine().or_else(make) else {
            return false;
        };
        let Ok(timeout_ms) = u64::try_from(timeout_ms) else {
            task.changed.wait_until(|| !task.is_empty());
            return true;
        };
        let end_ns = sync::time::now_ns().saturating_add(timeout_ms.saturating_mul(1_000_000));
        loop {
            let prepared = task.changed.prepare();
            let now_ns = sync::time::now_ns();
            if !task.is_empty() || now_ns >= end_ns {
                return !task.is_empty();
            }
            prepared.wait_timeout(Duration::from_nanos(end_ns - now_ns));
        }
    })
}
