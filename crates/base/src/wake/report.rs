//! Reports that a thread is about to sleep.
//!
//! When a worker is about to sleep inside an item, another one must replace it. Every wait in the
//! library that may sleep therefore calls [`while_asleep`]. If waits are nested, the outermost one
//! calls the observer that the thread has set with [`report_to`].
//!
//! Workqueues register a function with [`lend_by`]: a thread that sleeps in a wait of the library
//! lends the seats that it holds in groups of queues. In [`while_blocked`], it keeps them.
//!
//! RCU registers a function with [`before_sleep`]. Each wait calls it, nested or not, even on a
//! worker without an item, because a grace period must not wait for a thread that sleeps.
//!
//! A function that may have to reject a wait does so before its first change. It reads one word of
//! the thread, [`doubts`], whose bits are reasons why a wait might be wrong. Only a set bit
//! requires further checks.

use std::cell::{Cell, RefCell};

use sync::OnceLock;
use sync::fork::{self, Handler};
use sync::unmodelled::Arc;

/// An observer that is called when a thread is about to sleep, and when it runs again.
pub trait BlockingObserver: Send + Sync {
    /// # Panics
    ///
    /// Panics if the thread must not sleep.
    fn falls_asleep(&self);
    fn is_back(&self);
    /// Returns `true` if the thread may sleep in the code that it runs.
    fn may_sleep(&self) -> bool {
        true
    }
}

sync::thread_local! {
    static OBSERVER: RefCell<Option<Arc<dyn BlockingObserver>>> = RefCell::new(None);
    /// The function to call before this thread may sleep. It has no destructor, so it is always
    /// accessible.
    static BEFORE_SLEEP: Cell<Option<fn()>> = Cell::new(None);
    /// See [`doubts`].
    static DOUBTS: Cell<u32> = Cell::new(0);
    /// The depth of nested waits of this thread.
    static NR_WAITS: Cell<u32> = Cell::new(0);
    /// `true` while this thread lends its seats.
    static LENDS: Cell<bool> = Cell::new(false)
}

static LEND: OnceLock<fn(bool)> = OnceLock::new();

// The bits of [`doubts`].
/// The thread has an observer, which may not allow it to sleep.
const OBSERVED: u32 = 1;
/// The thread drives a grace period, or has the right to drive one.
pub const DRIVES: u32 = 1 << 1;
/// The thread is exiting, and can no longer be a reader.
pub const ENDS: u32 = 1 << 2;
/// The thread runs a callback of RCU or of a sleepable domain.
const CALLBACK: u32 = 1 << 3;

// Removes the observer in a child of `fork`, because it refers to threads that do not exist there.
static HANDLER: Handler = Handler {
    child: || {
        doubt(OBSERVED, false);
        let theirs = OBSERVER.try_with(|place| place.borrow_mut().take());
        // The pointer is leaked, because the drop of the last one would destroy data of the parent.
        std::mem::forget(theirs);
    },
    ..Handler::IDLE
};

/// Sets the observer of this thread's waits, or removes it.
pub fn report_to(observer: Option<Arc<dyn BlockingObserver>>) {
    fork::register(&HANDLER);
    doubt(OBSERVED, observer.is_some());
    OBSERVER.with(|place| *place.borrow_mut() = observer);
}

/// Makes each later wait of this thread call `call`, which must not wait, first.
pub fn before_sleep(call: fn()) {
    BEFORE_SLEEP.with(|place| place.set(Some(call)));
}

/// Makes each outermost wait of each thread call `lend(true)` before it sleeps and `lend(false)`
/// afterwards. Only the first call of this function has an effect.
pub fn lend_by(lend: fn(bool)) {
    LEND.get_or_init(|| lend);
}

/// Returns the reasons for which this thread might have to reject a wait. Costs one load.
#[inline(always)]
pub fn doubts() -> u32 {
    DOUBTS.try_with(Cell::get).unwrap_or(ENDS)
}

/// Adds a reason to [`doubts`], or removes it if `stands` is `false`.
#[inline]
pub fn doubt(reason: u32, stands: bool) {
    let change = |doubts: &Cell<u32>| {
        let others = doubts.get() & !reason;
        doubts.set(if stands { others | reason } else { others });
    };
    DOUBTS.try_with(change).ok();
}

/// Returns `true` if [`while_asleep`] would not panic on this thread.
#[inline]
pub fn may_sleep() -> bool {
    let may_sleep = |observer: &Arc<dyn BlockingObserver>| observer.may_sleep();
    OBSERVER.try_with(|place| place.borrow().as_ref().is_none_or(may_sleep)).unwrap_or(true)
}

/// Calls `body`, which must not unwind, as a callback of RCU or of a sleepable domain.
pub fn as_callback<R>(body: impl FnOnce() -> R) -> R {
    let is_outermost = doubts() & CALLBACK == 0;
    doubt(CALLBACK, true);
    let result = body();
    if is_outermost {
        doubt(CALLBACK, false);
    }
    result
}

/// Returns `true` if a destructor on this thread may wait until user closures end. In a callback it
/// must not: the closures may themselves wait for callbacks, and no callback runs until this one
/// has returned.
#[inline]
pub fn may_wait_for_users() -> bool {
    doubts() & CALLBACK == 0 && may_sleep()
}

/// Panics if this thread must not sleep in the code that it runs. A function that may wait must
/// call this before its first change.
#[inline]
pub fn must_be_free_to_sleep() {
    assert!(may_sleep(), "{ABOUT_TO_SLEEP}");
}

/// The message of the panic in [`must_be_free_to_sleep`].
pub const ABOUT_TO_SLEEP: &str = "an item of a bottom-half queue is about to sleep";

fn about_to_sleep() {
    if let Ok(Some(call)) = BEFORE_SLEEP.try_with(Cell::get) {
        call();
    }
}

/// Calls `wait`, which may sleep, and reports this to the observer. The thread lends its seats.
pub fn while_asleep<R>(wait: impl FnOnce() -> R) -> R {
    let _reported = reported();
    let _lent = LEND.get().and_then(|&lend| Lent::begin(lend));
    wait()
}

/// Calls `wait`, which may sleep, and reports this to the observer. The thread keeps its seats.
pub fn while_blocked<R>(wait: impl FnOnce() -> R) -> R {
    let _reported = reported();
    wait()
}

/// The seats that this thread lends until this value is dropped, also if the wait panics.
struct Lent(fn(bool));

impl Lent {
    fn begin(lend: fn(bool)) -> Option<Self> {
        // A thread whose thread-locals have been destroyed runs no item.
        let is_outermost = LENDS.try_with(|lends| !lends.replace(true));
        is_outermost.unwrap_or(false).then(|| {
            lend(true);
            Self(lend)
        })
    }
}

sync::on_drop!(Lent, it => {
    (it.0)(false);
    LENDS.with(|lends| lends.set(false));
});

/// Reports a wait to the thread's observer. Not inlined, so that it is compiled only once.
#[inline(never)]
fn reported() -> Option<Nested> {
    about_to_sleep();
    // A thread that waits in the destructor of a thread-local no longer has an observer.
    let observer = OBSERVER.try_with(|place| place.borrow().clone());
    observer.ok().flatten().map(|observer| Nested::begin(Some(observer)))
}

/// Calls `wait` without a report. A worker that has no item uses it to sleep.
pub fn unreported<R>(wait: impl FnOnce() -> R) -> R {
    about_to_sleep();
    let _nested = Nested::begin(None);
    wait()
}

/// A level of nested waits, with the observer to which the outermost one was reported.
struct Nested(Option<Arc<dyn BlockingObserver>>);

impl Nested {
    fn begin(observer: Option<Arc<dyn BlockingObserver>>) -> Self {
        let nr_outer = NR_WAITS.with(|nr_waits| nr_waits.replace(nr_waits.get() + 1));
        let mut nested = Self(None);
        if let Some(observer) = observer.filter(|_| nr_outer == 0) {
            observer.falls_asleep();
            nested.0 = Some(observer);
        }
        nested
    }
}

sync::on_drop!(Nested, it => {
    if let Some(observer) = &it.0 {
        observer.is_back();
    }
    NR_WAITS.with(|nr_waits| nr_waits.set(nr_waits.get() - 1));
});

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Diary(Mutex<Vec<&'static str>>);

    impl BlockingObserver for Diary {
        fn falls_asleep(&self) {
            self.0.lock().unwrap().push("asleep");
        }
        fn is_back(&self) {
            self.0.lock().unwrap().push("back");
        }
    }

    fn reported_by(body: impl FnOnce() + Send + 'static) -> Vec<&'static str> {
        let diary = Arc::new(Diary::default());
        let observer = diary.clone();
        let thread = std::thread::spawn(move || {
            report_to(Some(observer));
            body();
            report_to(None);
        });
        let _ = thread.join();
        let reported = diary.0.lock().unwrap();
        reported.clone()
    }

    #[test]
    fn outermost_waits_are_reported_with_their_ends() {
        let rows: [(&str, fn(), usize); 5] = [
            ("a wait", || while_asleep(|| ()), 1),
            ("nested waits", || while_asleep(|| while_asleep(|| while_asleep(|| ()))), 1),
            ("consecutive waits", || [(), ()].iter().for_each(|_| while_asleep(|| ())), 2),
            (
                "a wait after one that panicked",
                || {
                    let caught = std::panic::catch_unwind(|| while_asleep(|| panic!("inside")));
                    assert!(caught.is_err());
                    while_asleep(|| ());
                },
                2,
            ),
            ("an unreported wait", || unreported(|| while_asleep(|| ())), 0),
        ];
        for (row, body, nr_waits) in rows {
            assert_eq!(reported_by(body), ["asleep", "back"].repeat(nr_waits), "{row}");
        }
    }

    #[test]
    fn registered_hook_is_called_before_each_wait() {
        thread_local!(static NR_CALLS: Cell<u32> = const { Cell::new(0) });
        let nr_calls = std::thread::spawn(|| {
            while_asleep(|| ());
            before_sleep(|| NR_CALLS.set(NR_CALLS.get() + 1));
            while_asleep(|| while_asleep(|| ()));
            unreported(|| ());
            NR_CALLS.get()
        });
        assert_eq!(nr_calls.join().unwrap(), 3);
    }

    #[test]
    fn the_outermost_wait_lends_and_a_blocked_thread_does_not() {
        thread_local!(static LENT: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) });
        lend_by(|lends| LENT.with(|lent| lent.borrow_mut().push(lends)));
        while_blocked(|| ());
        assert!(LENT.take().is_empty());
        while_blocked(|| while_asleep(|| while_asleep(|| ())));
        assert_eq!(LENT.take(), [true, false]);
    }
}
