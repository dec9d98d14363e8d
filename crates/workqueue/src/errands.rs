//! What only a thread that may wait for anything does: it ends queues, and drops what is users'.
//!
//! Whoever must not wait leaves such an *errand* here: the manager, a rescuer, an item of the very queue that ends, one
//! who cancels and finds what others have cancelled. *Reapers*, threads of a few moments, take errands one at a time and
//! leave when there is none. The manager starts them:
//!
//! ```text
//! add:      push;  wake the manager, if it is the first
//! reaper:   pop, or leave (one step);  run what was popped
//! manager:  errands wait, and no reaper is there, or none has popped for 10 ms?  start one
//!           none to be had?  end what queues need not wait for;  call the reserve for the rest that waits for no item
//! ```
//!
//! Twin `errands: the first tells nobody`.
//!
//! What must never happen is that an errand waits for another one: the destructor that stands still may wait for the
//! very thing that the next one does. So a reaper that does not come back is given up for lost, and another started.
//!
//! Where no thread can be had the manager asks again with growing pauses. Meanwhile it does what neither waits nor runs users' code,
//! and a thread that is set aside for it, the *reserve*, the rest, but for the ends of queues that wait for items: behind these the
//! others would wait as well. It is not the rescuer, to which a destructor that waits would be the end of all rescues.
//!
//! When the manager's registry has ended, the manager continues until no errand waits, and then
//! exits. The registry has no pools any more, so while thread creation keeps failing, the rescuer
//! runs errands too, and the manager runs the last one. A chain of three errands, each of which
//! waits for the next one, therefore ends without another thread. A longer chain ends once a thread
//! can be started. A thread that adds an errand after that (an RCU callback that reaches a queue
//! which ended long ago) runs the errand itself.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt, mem,
    task::Waker,
};

use base::internal::{
    panics::{Foreign, contain},
    wake::is_known,
};
use sync::{Mutex, fork::Process, time};

/// How long no errand is taken before one more reaper is started. A guess: what takes longer waits for something.
const STUCK_NS: u64 = 10_000_000;
/// The first and the longest pause before a thread is asked for again. Those of the manager for its workers.
const RETRY_NS: u64 = 10_000_000;
const RETRY_MAX_NS: u64 = 1_000_000_000;
/// How many reapers there are at once: as many as a pool has workers, who may be stuck as well.
const MAX_REAPERS: usize = 512;

sync::thread_local! {
    /// Whether others depend on this thread.
    static WAITS_FOR_NOBODY: Cell<bool> = Cell::new(false)
}

sync::thread_local! {
    /// Whether others depend on this thread while it is in no item: it may have items in hand.
    static SERVES: Cell<bool> = Cell::new(false)
}

sync::thread_local! {
    /// Wakers that this thread does not fire, if it is one that runs no code of users'.
    static PUT_ASIDE: RefCell<Option<Vec<Foreign<Waker>>>> = RefCell::new(None)
}

/// Notes whether this thread runs no code of users', so that [`fire`] puts wakers aside; returns those that it had.
pub(crate) fn put_wakers_aside(puts: bool) -> Vec<Foreign<Waker>> {
    let aside = PUT_ASIDE.with(|place| place.replace(puts.then(Vec::new)));
    aside.unwrap_or_default()
}

/// Takes the wakers that this thread has put aside.
pub(crate) fn wakers_put_aside() -> Vec<Foreign<Waker>> {
    PUT_ASIDE.with(|place| {
        place
            .borrow_mut()
            .as_mut()
            .map(mem::take)
            .unwrap_or_default()
    })
}

/// Calls `body`, which runs no user code itself. Returns the wakers that it would have fired, so
/// that the caller can [`fire`] them afterwards.
pub(crate) fn with_wakers_aside<R>(body: impl FnOnce() -> R) -> (R, Vec<Foreign<Waker>>) {
    // If the thread's locals are already destroyed, the wakers fire at once.
    let outer = PUT_ASIDE.try_with(|place| place.replace(Some(Vec::new())));
    let result = body();
    let aside = outer.map(|outer| PUT_ASIDE.with(|place| place.replace(outer)));
    (result, aside.ok().flatten().unwrap_or_default())
}

/// Fires the waker of a task that waits for what this thread has ended, or puts it aside.
pub(crate) fn fire(waker: Foreign<Waker>) {
    let mut waker = Some(waker);
    // A thread whose locals have gone is none of those that put aside.
    let _ = PUT_ASIDE.try_with(|place| {
        if let Some(aside) = &mut *place.borrow_mut() {
            aside.extend(waker.take());
        }
    });
    if let Some(waker) = waker {
        // FOREIGN(drain-wake): the waker of a task that awaits a drain, on the thread that ended what it waits for; contained.
        // FOREIGN(room-wake): the waker of a task that waits for capacity, on the thread that
        // releases it, or waits; contained.
        // FOREIGN(task-wake): the waker of a task that awaits an item, on the thread that cancels it; contained.
        // FOREIGN(task-set-wake): the waker of a task that awaits a set, on the thread that ended an item; contained.
        contain(|| waker.into_inner().wake());
    }
}

/// Fires wakers. If a waker forks and returns in the child, the remaining wakers are the parent's, and
/// the child gets `false`.
///
/// Wakers that never block are fired first: those of threads in `block_on`, of futures and of task
/// sets. A waker that blocks may therefore wait for one of these. They are dropped last, because a
/// drop may run a destructor.
pub(crate) fn fire_all(wakers: Vec<Foreign<Waker>>) -> bool {
    let here = Process::now();
    let (known, mut wakers): (Vec<_>, Vec<_>) =
        wakers.into_iter().partition(|waker| is_known(waker));
    // The waker of the task that awaits a task set may block.
    let ((), woken) = with_wakers_aside(|| known.iter().for_each(|waker| waker.wake_by_ref()));
    wakers.extend(woken);
    let mut wakers = wakers.into_iter();
    while let Some(waker) = wakers.next() {
        fire(waker);
        if !here.is_this() {
            mem::forget((wakers, known));
            return false;
        }
    }
    true
}

/// Notes whether others depend on this thread while it is in no item, as on a worker.
pub(crate) fn note_serving(serves: bool) {
    SERVES.with(|place| place.set(serves));
}

/// Notes that others depend on this thread, so that it must wait for no queue's end.
pub(crate) fn waits_for_nobody() {
    WAITS_FOR_NOBODY.with(|place| place.set(true));
}

/// Returns `true` if others depend on this thread, which is in an item or not.
pub(crate) fn others_depend(in_item: bool) -> bool {
    let serves = || !in_item && SERVES.try_with(Cell::get).unwrap_or(false);
    WAITS_FOR_NOBODY.try_with(Cell::get).unwrap_or(false) || serves()
}

/// What is to be done by a thread that may wait. To some, being dropped is all.
pub(crate) trait Errand: Send {
    /// Does it, which may wait and run users' code.
    fn run(self: Box<Self>) {}

    /// Does it, one that waits for items, if by now that neither waits nor runs users' code; returns `true` if it did.
    fn try_run(&mut self) -> bool {
        false
    }

    /// Whether it may wait for items.
    fn waits(&self) -> bool {
        false
    }
}

/// The errands of one registry.
#[derive(Default)]
pub(crate) struct Errands(Mutex<List>);

#[derive(Default)]
struct List {
    waiting: VecDeque<Box<dyn Errand>>,
    nr_reapers: usize,
    /// When to start one more reaper, should none pop before.
    next_ns: u64,
    /// How long not to ask for a thread after a refusal; 0: none was refused.
    pause_ns: u64,
    /// Whether the manager has ended.
    closed: bool,
}

impl Errands {
    /// Adds what is to be done; returns `true` if the manager is to look.
    #[must_use]
    pub(crate) fn add(&self, errands: impl IntoIterator<Item = Box<dyn Errand>>) -> bool {
        self.add_all(&mut errands.into_iter())
    }

    fn add_all(&self, errands: &mut dyn Iterator<Item = Box<dyn Errand>>) -> bool {
        let errands: Vec<_> = errands.collect();
        let mut list = self.0.lock();
        if list.closed {
            drop(list);
            errands.into_iter().for_each(Errand::run);
            return false;
        }
        let is_first = list.waiting.is_empty() && !errands.is_empty();
        list.waiting.extend(errands);
        is_first
    }

    /// Returns `true` if a reaper is to be started now, and counts it: it [`serve`](Self::serve)s, or was
    /// [`refused`](Self::refused).
    pub(crate) fn wants_reaper(&self, now_ns: u64) -> bool {
        let mut list = self.0.lock();
        let wants = list.due_ns().is_some_and(|due_ns| now_ns >= due_ns);
        if wants {
            list.nr_reapers += 1;
            list.next_ns = now_ns.saturating_add(STUCK_NS);
        }
        wants
    }

    /// Returns when to start a reaper, as things are.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.0.lock().due_ns()
    }

    /// Does errands, as a reaper that was counted, until there is none.
    pub(crate) fn serve(&self) {
        while let Some(errand) = self.take() {
            errand.run();
        }
    }

    fn take(&self) -> Option<Box<dyn Errand>> {
        let mut list = self.0.lock();
        let errand = list.waiting.pop_front();
        list.pause_ns = 0;
        match errand {
            Some(_) => list.next_ns = time::now_ns().saturating_add(STUCK_NS),
            None => list.nr_reapers -= 1,
        }
        errand
    }

    /// Takes note that a reaper could not be had, and does what the manager may.
    pub(crate) fn refused(&self, now_ns: u64) {
        let mut list = self.0.lock();
        list.nr_reapers -= 1;
        list.pause_ns = (list.pause_ns * 2).clamp(RETRY_NS, RETRY_MAX_NS);
        list.next_ns = now_ns.saturating_add(list.pause_ns);
        let mut waiting = mem::take(&mut list.waiting);
        drop(list);
        // With no lock held: one that is done may add another.
        waiting.retain_mut(|errand| !errand.try_run());
        self.0.lock().waiting.append(&mut waiting);
    }

    /// Returns `true` if no reaper is to be had for what [`stand_in`](Self::stand_in) would do.
    pub(crate) fn wants_stand_in(&self) -> bool {
        let list = self.0.lock();
        list.pause_ns > 0 && list.stand_in_errand().is_some()
    }

    /// Does the first errand that waits for no item, on a thread that is no reaper; returns `true` if there was one.
    pub(crate) fn stand_in(&self) -> bool {
        let mut list = self.0.lock();
        let at = list.stand_in_errand();
        let errand = at.and_then(|at| list.waiting.remove(at));
        drop(list);
        errand.map(Errand::run).is_some()
    }

    /// Runs the only waiting errand, if that errand waits for no item. The calling thread is not a
    /// reaper. Returns `true` if there was such an errand.
    pub(crate) fn stand_in_for_last(&self) -> bool {
        let mut list = self.0.lock();
        let is_last = list.waiting.len() == 1 && list.stand_in_errand().is_some();
        let errand = is_last.then(|| list.waiting.pop_front()).flatten();
        drop(list);
        errand.map(Errand::run).is_some()
    }

    /// Returns `true` if reapers have been refused for so long that the pauses have stopped to grow.
    pub(crate) fn are_refused(&self) -> bool {
        self.0.lock().pause_ns == RETRY_MAX_NS
    }

    /// Ends it if nothing waits, and returns `true` if it did. Errands that come later are done by whoever adds them.
    #[must_use]
    pub(crate) fn close(&self) -> bool {
        let mut list = self.0.lock();
        list.closed = list.waiting.is_empty();
        list.closed
    }
}

impl List {
    fn stand_in_errand(&self) -> Option<usize> {
        self.waiting.iter().position(|errand| !errand.waits())
    }

    fn due_ns(&self) -> Option<u64> {
        let none_is_there = self.nr_reapers == 0 && self.pause_ns == 0;
        let wants = !self.waiting.is_empty() && self.nr_reapers < MAX_REAPERS;
        wants.then_some(if none_is_there { 0 } else { self.next_ns })
    }
}

impl fmt::Debug for Errands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = self.0.lock();
        f.debug_struct("Errands")
            .field("nr_waiting", &list.waiting.len())
            .field("nr_reapers", &list.nr_reapers)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Nothing;

    impl Errand for Nothing {}

    /// Done at the second try.
    struct Second(bool);

    impl Errand for Second {
        fn try_run(&mut self) -> bool {
            std::mem::replace(&mut self.0, true)
        }

        fn waits(&self) -> bool {
            true
        }
    }

    fn add(errands: &Errands, errand: impl Errand + 'static) -> bool {
        errands.add([Box::new(errand) as Box<dyn Errand>])
    }

    #[test]
    fn a_reaper_comes_at_once_and_another_when_none_takes_an_errand_for_long() {
        let errands = Errands::default();
        assert_eq!(errands.next_ns(), None);
        assert!(add(&errands, Nothing) && !add(&errands, Nothing));
        assert!(errands.wants_reaper(5) && !errands.wants_reaper(5));
        assert_eq!(errands.next_ns(), Some(5 + STUCK_NS));
        assert!(errands.wants_reaper(5 + STUCK_NS));
        errands.serve();
        assert_eq!((errands.next_ns(), errands.0.lock().nr_reapers), (None, 1));
    }

    #[test]
    fn what_is_refused_is_asked_for_again_and_what_needs_no_thread_is_done() {
        let errands = Errands::default();
        assert!(add(&errands, Second(false)));
        for pause_ms in [10, 20] {
            assert!(errands.wants_reaper(u64::MAX / 2));
            errands.refused(0);
            let nr_waiting = errands.0.lock().waiting.len();
            assert_eq!(nr_waiting, usize::from(pause_ms == 10));
            assert_eq!(errands.0.lock().pause_ns, pause_ms * 1_000_000);
        }
    }

    #[test]
    fn others_do_what_waits_for_no_item_where_no_thread_is_to_be_had() {
        let errands = Errands::default();
        assert!(add(&errands, Second(false)) && !add(&errands, Nothing));
        assert!(errands.wants_reaper(0) && !errands.wants_stand_in());
        errands.refused(0);
        assert!(errands.wants_stand_in() && errands.stand_in());
        assert!(!errands.wants_stand_in() && !errands.stand_in());
        assert_eq!(errands.0.lock().waiting.len(), 1);
    }

    #[test]
    fn there_are_not_more_reapers_than_a_pool_has_workers() {
        let errands = Errands::default();
        assert!(add(&errands, Nothing));
        let nr_reapers = (1..1000u64).filter(|i| errands.wants_reaper(i * STUCK_NS));
        assert_eq!(nr_reapers.count(), MAX_REAPERS);
        assert_eq!(errands.next_ns(), None);
    }

    #[test]
    fn who_comes_when_the_manager_has_ended_does_it_himself() {
        struct Counted(Arc<()>);
        impl Errand for Counted {}
        let (errands, lives) = (Errands::default(), Arc::new(()));
        assert!(add(&errands, Counted(lives.clone())) && !errands.close());
        assert!(errands.stand_in() && errands.close());
        let late = Counted(lives);
        let lives = Arc::downgrade(&late.0);
        assert_eq!(lives.strong_count(), 1);
        assert!(!add(&errands, late));
        assert_eq!(lives.strong_count(), 0);
    }
}
