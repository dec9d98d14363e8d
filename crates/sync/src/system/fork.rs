//! Handlers for `fork`, which repair the library's state in the child.
//!
//! A child has its parent's memory and one thread. Operations of other threads never complete
//! there: a lock stays held, and a pending wake-up does not arrive. A module with state for the
//! whole process therefore registers a [`Handler`]:
//!
//! ```text
//! thread that forks: settle (initializes values);  before (takes leaf locks);  fork
//! parent:            the locks are unlocked
//! child:             [`Process`] changes;  the locks are unlocked;  child
//! ```
//!
//! If foreign code forks on one of the library's threads and returns in the child, that thread
//! would continue to serve queues, pages and domains of the parent. The child therefore exits with
//! a line on stderr and the status [`CAME_BACK`] ([`end_child`]).
//!
//! Handlers run in the C library's `fork`, but not for the bare system call or `posix_spawn`.

// These are not the model's atomics, because no model forks.
use std::any::Any;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::copies;
use crate::{Mutex, asym, identity, thread};

/// A value of `WATCHED`: the handlers are registered. No process has this number.
const WATCHED_NOW: u32 = u32::MAX;

/// The number of forks from the first process to this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// `WATCHED_NOW`, or the number of the process whose thread is registering the handlers.
static WATCHED: AtomicU32 = AtomicU32::new(0);
/// The handlers, filled from the front. There are more slots than modules with a handler.
static HANDLERS: [AtomicPtr<Handler>; 16] = [const { AtomicPtr::new(ptr::null_mut()) }; 16];

/// The locks that the forking thread holds. Only one thread forks at a time, because `before`
/// acquires the same lock first. It is not a thread-local, because a thread may fork after its
/// thread-locals are destroyed.
static HELD: AtomicPtr<Held> = AtomicPtr::new(ptr::null_mut());

/// The functions that a module runs around a fork. None of them may panic.
#[derive(Debug)]
pub struct Handler {
    /// Called by the thread that is about to fork, while other threads run and no lock is held.
    /// Initializes the module's once-initialized values, or waits for a thread that is doing so.
    pub settle: fn(),
    /// Called by the same thread after every handler has settled. Acquires the locks that the child
    /// needs.
    pub before: fn(&mut Held),
    /// Called in the child, after the locks were unlocked.
    pub child: fn(),
}

impl Handler {
    /// A handler that does nothing.
    pub const IDLE: Self = Self { settle: || (), before: |_| (), child: || () };
}

/// The locks that are held across a fork.
#[derive(Debug, Default)]
pub struct Held(Vec<Box<dyn Any>>);

impl Held {
    /// Acquires `lock`, which must be a leaf: its holder neither waits nor forks.
    pub fn lock<T: 'static>(&mut self, lock: &'static Mutex<T>) {
        self.0.push(Box::new(lock.lock()));
    }
}

/// Identifies a process. A child of `fork` has a different value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(u32);

impl Process {
    /// A value that differs from that of every process.
    pub const NONE: Self = Self(u32::MAX);

    /// Returns the current process, and enables the detection of forks.
    pub fn this() -> Self {
        watch();
        Self(generation())
    }

    /// Returns the current process, if the detection of forks is already enabled. Costs one load.
    #[inline(always)]
    pub fn now() -> Self {
        Self(generation())
    }

    /// Returns `true` if this is the current process. Costs one load.
    #[inline(always)]
    pub fn is_this(self) -> bool {
        self == Self::now()
    }
}

/// Returns `true` if a detected `fork` created this process. Costs one load.
#[inline(always)]
pub fn is_child() -> bool {
    generation() != 0
}

/// The exit status of a child that returned from foreign code to a thread of the library.
pub const CAME_BACK: i32 = 1;

/// Ends a child that returned from foreign code to a thread of its parent. Runs no exit handlers.
#[cold]
pub fn end_child() -> ! {
    crate::process::write_line(
        "a child of fork returned from the work item, callback or handler that forked, to a thread that serves its parent; it \
        ends now: call _exit in the child where it was forked",
    );
    // SAFETY: the call ends the process at once.
    unsafe { libc::_exit(CAME_BACK) }
}

/// Ends the child like [`end_child`] on threads of the library. Does nothing on other threads.
#[cold]
pub fn end_child_of_ours() {
    if thread::is_ours() {
        end_child();
    }
}

/// A value that is created once in each process. A child of `fork` creates its own.
///
/// Use it in a `static`. The values are never freed.
#[derive(Debug)]
pub struct PerProcess<T>(AtomicPtr<(Process, T)>);

impl<T: Send + Sync> PerProcess<T> {
    /// Creates a cell without a value.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns this process's value, if it has one.
    pub fn get(&'static self) -> Option<&'static T> {
        // Acquire pairs with the exchange in `get_or_set`.
        // SAFETY: the pointer is null or was leaked by `get_or_set`, whose exchange released it.
        let (process, value) = unsafe { self.0.load(Ordering::Acquire).as_ref() }?;
        process.is_this().then_some(value)
    }

    /// Returns this process's value. Sets it to `value` if it has none.
    pub fn get_or_set(&'static self, value: T) -> &'static T {
        // The pointer is only compared; `get` below loads it again.
        let mut before = self.0.load(Ordering::Acquire);
        let ours = Box::into_raw(Box::new((Process::this(), value)));
        loop {
            if let Some(theirs) = self.get() {
                // SAFETY: the box was created above and not published.
                drop(unsafe { Box::from_raw(ours) });
                return theirs;
            }
            // If our exchange comes first, Release publishes our value to every `get`. If another
            // thread's comes first, ours fails, and the next `get` returns its value.
            let placed = self.0.compare_exchange(before, ours, Ordering::AcqRel, Ordering::Acquire);
            match placed {
                // SAFETY: the box was leaked above and is never freed.
                Ok(_) => return unsafe { &(*ours).1 },
                Err(now) => before = now,
            }
        }
    }
}

impl<T: Send + Sync> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The process that owns a value that its children inherit.
///
/// A child takes over each value that no thread was changing at the fork. A value that another
/// thread of the parent was changing stays in that state, and is *lost* to the child. The first
/// check in the child decides that under a lock. The value does not change before this check.
#[derive(Debug)]
pub struct Inherited(AtomicU32);

/// A bit of [`Inherited`]: the value is lost to the process.
const LOST: u32 = 1 << 31;

static GATE: PerProcess<Mutex<()>> = PerProcess::new();

impl Inherited {
    /// Records the current process as the owner.
    #[inline(always)]
    pub fn by_children() -> Self {
        Self(AtomicU32::new(generation()))
    }

    /// Returns `true` if the value is lost to this process. The first call in a child calls
    /// `is_at_rest`. Costs one load in a process that was not forked.
    #[inline(always)]
    pub fn is_lost(&self, is_at_rest: impl FnOnce() -> bool) -> bool {
        is_child() && self.is_lost_to_child(is_at_rest)
    }

    #[cold]
    fn is_lost_to_child(&self, is_at_rest: impl FnOnce() -> bool) -> bool {
        let here = generation();
        let known = || {
            let owner = self.0.load(Ordering::Acquire);
            (owner & !LOST == here).then_some(owner & LOST != 0)
        };
        known().unwrap_or_else(|| {
            let _one = GATE.get_or_set(Mutex::new(())).lock();
            known().unwrap_or_else(|| {
                let is_lost = !is_at_rest();
                self.0.store(here | if is_lost { LOST } else { 0 }, Ordering::Release);
                is_lost
            })
        })
    }
}

/// Registers `handler` to be called around each fork. A repeated call costs a few loads.
///
/// # Panics
///
/// Panics if there are more than 16 handlers.
pub fn register(handler: &'static Handler) {
    watch();
    let ours = ptr::from_ref(handler).cast_mut();
    // If our exchange comes first, the slot is ours, and `handlers` finds it. If another thread's
    // comes first, the slot has the same handler, or we try the next one. The handlers are statics,
    // so any ordering is correct.
    let is_in = |place: &AtomicPtr<Handler>| {
        if place.load(Ordering::Acquire) == ours {
            return true;
        }
        let (order, failed) = (Ordering::AcqRel, Ordering::Acquire);
        let taken = place.compare_exchange(ptr::null_mut(), ours, order, failed);
        taken.is_ok() || taken == Err(ours)
    };
    assert!(HANDLERS.iter().any(is_in), "too many handlers of forks");
}

/// Calls `body` in a child of `fork`, for tests. Returns the child's exit status, or 101 after a
/// panic. Returns `None` if a signal ended the child, for example after five minutes.
///
/// # Safety
///
/// 1. `body` does not wait for another thread of this process.
#[doc(hidden)]
pub unsafe fn in_child(body: impl FnOnce() -> i32) -> Option<i32> {
    /// The exit status of a child that panicked.
    const PANICKED: i32 = 101;
    /// The time limit in seconds, far longer than any child needs.
    const LIMIT_S: u32 = 300;
    // SAFETY: (1), and the child ends below.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: the call takes a number. The signal kills this process.
        unsafe { libc::alarm(LIMIT_S) };
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: the call ends the process at once.
        unsafe { libc::_exit(ended.unwrap_or(PANICKED)) };
    }
    let mut status = 0;
    // SAFETY: the call writes the status, which outlives it.
    let ended = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    (pid > 0 && ended == pid && libc::WIFEXITED(status)).then(|| libc::WEXITSTATUS(status))
}

#[inline(always)]
fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

fn watch() {
    let is_model = cfg!(any(loom, shuttle));
    // Acquire pairs with the Release in `watch_now`, so that the handlers are registered.
    if !is_model && WATCHED.load(Ordering::Acquire) != WATCHED_NOW {
        watch_now();
    }
}

#[cold]
fn watch_now() {
    let me = std::process::id();
    loop {
        // Acquire: as in `watch`.
        let seen = WATCHED.load(Ordering::Acquire);
        if seen == WATCHED_NOW {
            return;
        }
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        if seen == me || WATCHED.compare_exchange(seen, me, order, failed).is_err() {
            // Another thread is registering, which takes a few instructions.
            std::thread::sleep(std::time::Duration::from_micros(50));
            continue;
        }
        // SAFETY: the functions live as long as the process, and do not unwind.
        let refused = unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
        // This fails only if memory is exhausted. Forks are then not detected.
        debug_assert_eq!(refused, 0);
        // Release pairs with the load above, and with the load in `watch`.
        WATCHED.store(WATCHED_NOW, Ordering::Release);
        // Every part of the library reaches this point on its first use.
        if !cfg!(miri) {
            copies::note_use();
        }
        return;
    }
}

fn handlers() -> impl Iterator<Item = &'static Handler> {
    HANDLERS.iter().filter_map(|place| {
        // SAFETY: the pointer is null or is the argument of `register`, a static.
        unsafe { place.load(Ordering::Acquire).as_ref() }
    })
}

extern "C" fn before() {
    asym::init();
    handlers().for_each(|handler| (handler.settle)());
    let mut held = Held(vec![Box::new(identity::hold()), Box::new(thread::hold_names())]);
    handlers().for_each(|handler| (handler.before)(&mut held));
    HELD.store(Box::into_raw(Box::new(held)), Ordering::Relaxed);
}

extern "C" fn parent() {
    let held = HELD.swap(ptr::null_mut(), Ordering::Relaxed);
    if !held.is_null() {
        // SAFETY: `before` leaked the box, on this thread.
        drop(unsafe { Box::from_raw(held) });
    }
}

extern "C" fn child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    parent();
    asym::after_fork();
    handlers().for_each(|handler| (handler.child)());
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_child_is_another_process_and_finds_locks_free() {
        static LOCK: Mutex<u32> = Mutex::new(7);
        static NR_BEFORE: AtomicU32 = AtomicU32::new(0);
        static NR_CHILD: AtomicU32 = AtomicU32::new(0);
        static HANDLER: Handler = Handler {
            before: |held| {
                held.lock(&LOCK);
                NR_BEFORE.fetch_add(1, Ordering::Relaxed);
            },
            child: || {
                NR_CHILD.fetch_add(1, Ordering::Relaxed);
            },
            ..Handler::IDLE
        };
        register(&HANDLER);
        register(&HANDLER);
        let here = Process::this();
        static NAME: PerProcess<&str> = PerProcess::new();
        assert_eq!(NAME.get(), None);
        assert_eq!([*NAME.get_or_set("parent"), *NAME.get_or_set("late")], ["parent"; 2]);
        let in_child = || {
            assert!(NAME.get().is_none() && *NAME.get_or_set("child") == "child" && is_child());
            let nr = [&NR_BEFORE, &NR_CHILD].map(|nr| nr.load(Ordering::Relaxed));
            // Another test may fork at the same time, so the count of `before` calls may be higher.
            assert!(!here.is_this() && *LOCK.lock() == 7 && nr[0] >= 1 && nr[1] == 1);
            5
        };
        // SAFETY: the child accesses only atomics, and a lock that is held across the fork.
        assert_eq!(unsafe { super::in_child(in_child) }, Some(5));
        let (at_rest, busy) = (Inherited::by_children(), Inherited::by_children());
        let is_taken_over = || {
            let found = [at_rest.is_lost(|| true), busy.is_lost(|| false)];
            // The closure is called only once.
            found == [false, true] && !at_rest.is_lost(|| false) && busy.is_lost(|| true)
        };
        // SAFETY: as above.
        let in_child = unsafe { super::in_child(|| is_taken_over().into()) };
        assert!(in_child == Some(1) && !busy.is_lost(|| false));
        assert!(here.is_this() && *LOCK.lock() == 7);
        assert_eq!((NR_CHILD.load(Ordering::Relaxed), NAME.get()), (0, Some(&"parent")));
    }
}
