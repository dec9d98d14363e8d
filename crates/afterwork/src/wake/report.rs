//! Who is told that a thread is about to sleep.
//!
//! A pool of worker threads counts those that run. When one is about to sleep inside an item, another must take its
//! place; so every wait of ours that may sleep goes through [`while_asleep`], which tells whoever the thread has
//! named by [`report_to`]. Threads that have named nobody, most, pay a look at a thread-local.
//!
//! Only the outermost of nested waits is told: the thread has one place to give away.
//!
//! And whoever asked for it by [`before_sleep`] is called before each wait, nested or not, of workers without an item too:
//! a reader of RCU that sleeps is not to be waited for, nor looked at.
//!
//! Who must ask before a first change whether it may wait looks at one word of the thread, [`doubts`]. Whoever could make
//! a wait wrong leaves a bit there, and only then is it asked.

use std::cell::{Cell, RefCell};

use sync::{
    fork::{self, Handler},
    unmodelled::Arc,
};

/// Is told when a thread is about to sleep, and when it is back.
pub(crate) trait BlockingObserver: Send + Sync {
    /// # Panics
    ///
    /// When the thread may not sleep.
    fn falls_asleep(&self);
    fn is_back(&self);
    /// Returns `true` if the thread may sleep where it is.
    fn may_sleep(&self) -> bool {
        true
    }
}

sync::thread_local! {
    static OBSERVER: RefCell<Option<Arc<dyn BlockingObserver>>> = RefCell::new(None)
}
sync::thread_local! {
    /// What to call before this thread may sleep. Without a destructor, so that it can be reached at any moment.
    static BEFORE_SLEEP: Cell<Option<fn()>> = Cell::new(None)
}
sync::thread_local! {
    /// See [`doubts`]. Without a destructor, so that it can be reached at any moment.
    static DOUBTS: Cell<u32> = Cell::new(0)
}
sync::thread_local! {
    /// How many waits this thread is in.
    static NR_WAITS: Cell<u32> = Cell::new(0)
}

/// In [`doubts`]: it has an observer, which may say that it may not sleep.
const OBSERVED: u32 = 1;
/// In [`doubts`]: it drives a grace period, or has the right to.
pub(crate) const DRIVES: u32 = 1 << 1;
/// In [`doubts`]: it is ending, and is no reader any more.
pub(crate) const ENDS: u32 = 1 << 2;

/// In a child of `fork` the observer is one of other threads, which are not there: nobody is told any more.
static HANDLER: Handler = Handler {
    child: || {
        doubt(OBSERVED, false);
        let theirs = OBSERVER.try_with(|place| place.borrow_mut().take());
        // Not dropped: it may be the last of what it holds.
        std::mem::forget(theirs);
    },
    ..Handler::IDLE
};

/// Names who is told of this thread's waits from now on.
pub(crate) fn report_to(observer: Option<Arc<dyn BlockingObserver>>) {
    fork::register(&HANDLER);
    doubt(OBSERVED, observer.is_some());
    OBSERVER.with(|place| *place.borrow_mut() = observer);
}

/// Has `call` called from now on before this thread may sleep. It must not wait itself.
pub(crate) fn before_sleep(call: fn()) {
    BEFORE_SLEEP.with(|place| place.set(Some(call)));
}

/// Returns for what reasons this thread might have to refuse to wait: none, most have. One look, for who waits often
/// and must ask before the first change.
#[inline(always)]
pub(crate) fn doubts() -> u32 {
    DOUBTS.try_with(Cell::get).unwrap_or(ENDS)
}

/// Adds a reason to [`doubts`], or takes it away.
pub(crate) fn doubt(reason: u32, stands: bool) {
    let change = |doubts: &Cell<u32>| {
        let others = doubts.get() & !reason;
        doubts.set(if stands { others | reason } else { others });
    };
    DOUBTS.try_with(change).ok();
}

/// Returns `true` if this thread may sleep where it is: whether [`while_asleep`] would not panic.
pub(crate) fn may_sleep() -> bool {
    let may_sleep = |observer: &Arc<dyn BlockingObserver>| observer.may_sleep();
    OBSERVER
        .try_with(|place| place.borrow().as_ref().is_none_or(may_sleep))
        .unwrap_or(true)
}

/// Before the first change of what may have to wait, so that nothing is left half-way.
///
/// # Panics
///
/// When this thread may not sleep where it is.
pub(crate) fn must_be_free_to_sleep() {
    assert!(may_sleep(), "{ABOUT_TO_SLEEP}");
}

/// Those who must not sleep.
pub(crate) const ABOUT_TO_SLEEP: &str = "an item of a bottom-half queue is about to sleep";

fn about_to_sleep() {
    if let Ok(Some(call)) = BEFORE_SLEEP.try_with(Cell::get) {
        call();
    }
}

/// Calls `wait`, which may sleep, having told this thread's observer so.
pub(crate) fn while_asleep<R>(wait: impl FnOnce() -> R) -> R {
    about_to_sleep();
    // A thread that is ending, and waits in the drop of one of its locals, has no observer any more.
    let observer = OBSERVER.try_with(|place| place.borrow().clone());
    let Ok(Some(observer)) = observer else {
        return wait();
    };
    let _inner = Inner::enter();
    let _asleep = Inner::is_outermost().then(|| Asleep::fall(observer));
    wait()
}

/// Calls `wait` without telling anybody: for the sleep of a worker that has no item.
pub(crate) fn untold<R>(wait: impl FnOnce() -> R) -> R {
    about_to_sleep();
    let _inner = Inner::enter();
    wait()
}

/// One wait deep, until dropped.
struct Inner;

impl Inner {
    fn enter() -> Self {
        NR_WAITS.with(|nr_waits| nr_waits.set(nr_waits.get() + 1));
        Self
    }

    fn is_outermost() -> bool {
        NR_WAITS.with(Cell::get) == 1
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !sync::twin::torn_down() {
            NR_WAITS.with(|nr_waits| nr_waits.set(nr_waits.get() - 1));
        }
    }
}

/// Told asleep, until dropped: also by a panic that leaves the wait.
struct Asleep(Arc<dyn BlockingObserver>);

impl Asleep {
    fn fall(observer: Arc<dyn BlockingObserver>) -> Self {
        observer.falls_asleep();
        Self(observer)
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        if !sync::twin::torn_down() {
            self.0.is_back();
        }
    }
}

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

    /// Calls `body` on a thread that reports, and returns what was told.
    fn told_by(body: impl FnOnce() + Send + 'static) -> Vec<&'static str> {
        let diary = Arc::new(Diary::default());
        let observer = diary.clone();
        let thread = std::thread::spawn(move || {
            report_to(Some(observer));
            body();
            report_to(None);
        });
        let _ = thread.join();
        let told = diary.0.lock().unwrap();
        told.clone()
    }

    #[test]
    fn a_wait_is_told_and_its_end_too() {
        assert_eq!(told_by(|| while_asleep(|| ())), ["asleep", "back"]);
    }

    #[test]
    fn of_nested_waits_the_outermost_alone_is_told() {
        let told = told_by(|| while_asleep(|| while_asleep(|| while_asleep(|| ()))));
        assert_eq!(told, ["asleep", "back"]);
    }

    #[test]
    fn waits_that_follow_one_another_are_told_each() {
        let told = told_by(|| {
            while_asleep(|| ());
            while_asleep(|| ());
        });
        assert_eq!(told, ["asleep", "back", "asleep", "back"]);
    }

    #[test]
    fn a_panic_inside_ends_the_wait() {
        let told = told_by(|| {
            let caught = std::panic::catch_unwind(|| while_asleep(|| panic!("inside")));
            assert!(caught.is_err());
            while_asleep(|| ());
        });
        assert_eq!(told, ["asleep", "back", "asleep", "back"]);
    }

    #[test]
    fn an_untold_wait_is_not_told() {
        assert!(told_by(|| untold(|| while_asleep(|| ()))).is_empty());
    }

    #[test]
    fn whoever_asked_is_called_before_each_wait() {
        thread_local!(static NR_CALLS: Cell<u32> = const { Cell::new(0) });
        let nr_calls = std::thread::spawn(|| {
            while_asleep(|| ());
            before_sleep(|| NR_CALLS.set(NR_CALLS.get() + 1));
            while_asleep(|| while_asleep(|| ()));
            untold(|| ());
            NR_CALLS.get()
        });
        assert_eq!(nr_calls.join().unwrap(), 3);
    }

    #[test]
    fn a_thread_without_a_superior_waits_untold() {
        assert_eq!(while_asleep(|| 42), 42);
    }
}
