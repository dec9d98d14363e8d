//! `afterwork/task_work.h`.
//!
//! A thread that asks for its own `task_struct` has a list of callbacks, which lie in their users' memory. A lock guards the list,
//! for a callback may be taken out of its middle; it is held for some instructions, and nothing is called under it.
//!
//! ```text
//! add:     lock: has the thread ended? -ESRCH;  append          then, if it is to be told: notify
//! run:     lock: take all;  call each, the lock dropped;  again until there is none
//! cancel:  lock: unlink it, unless it has been taken to be run
//! end:     run;  lock: empty? ended: nothing is added any more
//! ```
//!
//! The owner waits on an event count. A lazy add notifies nobody: it is found by the next wait.

use std::{
    cell::Cell,
    ffi::{c_int, c_long},
    ptr,
    time::Duration,
};

use afterwork::{rcu::raw, wake::EventCount};
use sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
    fork::Process,
};

use crate::boundary::{EINVAL, ESRCH, misuse, within};

/// What C gives for a callback: `struct callback_head`.
#[repr(C)]
#[derive(Debug)]
pub struct CallbackHead {
    /// Task's lock.
    next: *mut CallbackHead,
    /// Task's lock: in whose list it is; null for none.
    task: *const Task,
    func: Option<TaskWorkFn>,
}

type TaskWorkFn = unsafe extern "C-unwind" fn(*mut CallbackHead);

// As the header promises; it asserts the same.
const _: () = assert!(size_of::<CallbackHead>() == 24 && align_of::<CallbackHead>() == 8);

/// A thread as C has it: `struct task_struct`.
#[derive(Debug)]
pub struct Task {
    list: Mutex<List>,
    /// A: how many are in the list.
    nr_inside: AtomicUsize,
    changed: EventCount,
    /// I: whose thread it is.
    process: Process,
}

#[derive(Debug)]
struct List {
    first: *mut CallbackHead,
    last: *mut CallbackHead,
    has_ended: bool,
}

// SAFETY: what is in the list was handed over to be looked at by any thread under the lock.
unsafe impl Send for List {}

sync::thread_local! {
    /// This thread's, of which it has a count; null before it was asked for, and when the thread ends.
    static MINE: Cell<*const Task> = Cell::new(ptr::null())
}

sync::thread_local! {
    /// Touched by a thread that has a task.
    static AT_EXIT: AtExit = AtExit
}

struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        let Some(task) = mine() else { return };
        // What comes meanwhile is run, too: in the end there is none, and nothing comes any more.
        while !task.end() {
            task.run();
        }
        MINE.with(|mine| mine.set(ptr::null()));
        // SAFETY: the thread's own count, which `make` leaked.
        unsafe { Arc::decrement_strong_count(ptr::from_ref(task)) };
    }
}

/// Returns this thread's task, if it has one in this process.
fn mine() -> Option<&'static Task> {
    // SAFETY: null, or this thread's, which keeps it until it ends.
    let task = unsafe { MINE.with(Cell::get).as_ref() };
    task.filter(|task| task.process.is_this())
}

/// Makes this thread's task; none when the thread ends. That of a thread that forked is its parent's, and leaks in the child.
#[cold]
fn make() -> Option<&'static Task> {
    AT_EXIT.try_with(|_| ()).ok()?;
    let empty = List {
        first: ptr::null_mut(),
        last: ptr::null_mut(),
        has_ended: false,
    };
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
    /// Appends a callback; `false` when the thread has ended.
    ///
    /// # Safety
    ///
    /// 1. `work` is in no list, and the library's until it is called or taken out.
    unsafe fn add(&self, work: *mut CallbackHead) -> bool {
        let mut list = self.list.lock();
        if list.has_ended {
            return false;
        }
        // SAFETY: (1), and the list's links are guarded by the lock.
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

    /// Takes the first callback out that is `chosen`; null for none.
    fn take_out(&self, chosen: impl Fn(*mut CallbackHead) -> bool) -> *mut CallbackHead {
        let mut list = self.list.lock();
        let (mut before, mut at) = (ptr::null_mut::<CallbackHead>(), list.first);
        while !at.is_null() && !chosen(at) {
            before = at;
            // SAFETY: what is in the list is there, by (1) of `add`; guarded by the lock.
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

    /// Calls all callbacks, oldest first, with those that come meanwhile.
    fn run(&self) {
        loop {
            let work = self.take_out(|_| true);
            // SAFETY: taken out, so it is ours; by (1) of `add` it is there.
            let Some(func) = unsafe { work.as_ref() }.and_then(|work| work.func) else {
                return;
            };
            sync::lock::assert_none_held();
            // A callback of C's, on the thread that owns the list; what unwinds ends the process.
            // SAFETY: handed over to be called once. It may be freed by that.
            raw::of_c("callback of task_work_add", func as usize, || unsafe {
                func(work)
            });
        }
    }

    /// Refuses callbacks from here on, if there is none.
    fn end(&self) -> bool {
        let mut list = self.list.lock();
        list.has_ended = list.first.is_null();
        list.has_ended
    }

    fn is_empty(&self) -> bool {
        self.nr_inside.load(Ordering::Relaxed) == 0
    }
}

/// Finds the task that C means.
///
/// # Safety
///
/// 1. `task` is null, or a task of which the caller has a count, or whose thread has not ended.
unsafe fn known<'a>(name: &str, task: *const Task) -> Option<&'a Task> {
    // SAFETY: (1).
    let task = unsafe { task.as_ref() };
    if task.is_none() {
        misuse(name, &"the task is NULL", ());
    }
    task
}

/// Returns this thread's task; null when the thread ends.
#[unsafe(no_mangle)]
extern "C" fn aw_get_current() -> *const Task {
    within("get_current", || {
        mine().or_else(make).map_or(ptr::null(), ptr::from_ref)
    })
}

/// # Safety
///
/// 1. `task` is null, or a task.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_get_task_struct(task: *const Task) -> *const Task {
    // SAFETY: (1).
    if unsafe { known("get_task_struct", task) }.is_some() {
        // SAFETY: (1): made by an `Arc`.
        unsafe { Arc::increment_strong_count(task) };
    }
    task
}

/// # Safety
///
/// 1. `task` is null, or a task of which the caller has a count, which ends.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_put_task_struct(task: *const Task) {
    // SAFETY: (1).
    if unsafe { known("put_task_struct", task) }.is_some() {
        // SAFETY: (1): made by an `Arc`.
        unsafe { Arc::decrement_strong_count(task) };
    }
}

/// Has `work` called by the thread of `task`; `notify` other than 0 ends its wait.
///
/// # Safety
///
/// 1. `task` is null, or a task.
/// 2. `work` was laid out, and stays until it is called or cancelled.
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
        // SAFETY: (2).
        if unsafe { work.as_ref() }.is_none_or(|work| work.func.is_none()) {
            return misuse(NAME, &"the callback is not initialised", -EINVAL);
        }
        // SAFETY: (2); whoever adds it, or cancels it, has it alone.
        if !unsafe { (*work).task }.is_null() {
            return misuse(NAME, &"the callback was added already", -EINVAL);
        }
        if !task.process.is_this() {
            return -ESRCH;
        }
        // The owner may end as soon as it has it.
        let keeps = ptr::from_ref(task);
        // SAFETY: (1).
        unsafe { Arc::increment_strong_count(keeps) };
        // SAFETY: (2), and it is in no list.
        let is_added = unsafe { task.add(work) };
        if is_added && notify != 0 {
            task.changed.notify_all();
        }
        // SAFETY: counted above.
        unsafe { Arc::decrement_strong_count(keeps) };
        if is_added { 0 } else { -ESRCH }
    })
}

/// Takes `work` back; returns whether it will not be called.
///
/// # Safety
///
/// 1. `task` is null, or a task.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_task_work_cancel(task: *const Task, work: *mut CallbackHead) -> bool {
    within("task_work_cancel", || {
        // SAFETY: (1).
        let task = unsafe { known("task_work_cancel", task) };
        task.is_some_and(|task| !task.take_out(|at| at == work).is_null())
    })
}

/// Takes the first callback back that is to call `func`; null for none.
///
/// # Safety
///
/// 1. `task` is null, or a task.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_task_work_cancel_func(
    task: *const Task,
    func: Option<TaskWorkFn>,
) -> *mut CallbackHead {
    within("task_work_cancel_func", || {
        let wanted = func.map_or(0, |func| func as usize);
        // SAFETY: what is in a list is there, and looked at under its lock.
        let calls = |at: *mut CallbackHead| unsafe { (*at).func }.map_or(0, |func| func as usize);
        // SAFETY: (1).
        let task = unsafe { known("task_work_cancel_func", task) };
        task.map_or(ptr::null_mut(), |task| {
            task.take_out(|at| calls(at) == wanted)
        })
    })
}

/// Calls all callbacks of this thread.
#[unsafe(no_mangle)]
extern "C" fn aw_task_work_run() {
    within("task_work_run", || {
        if let Some(task) = mine() {
            task.run();
        }
    });
}

/// Returns whether this thread has callbacks.
#[unsafe(no_mangle)]
extern "C" fn aw_task_work_pending() -> bool {
    mine().is_some_and(|task| !task.is_empty())
}

/// Waits until this thread has callbacks, for at most so many milliseconds, for ever where that is negative.
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
