//! Closures that one thread hands over together, without a box for each.
//!
//! A thread has at most one bag *open*. The first closure opens it and puts it on a list of `callback.rs`; those that
//! follow go into it while it lies there. A sweep *closes* what it takes, before its grace period begins: a closure is in
//! before that, and this grace period is for it, or it opens another bag.
//!
//! ```text
//! bits 0..8 how many | bit 8 CLOSED | bit 9 DONE | bit 10 LEFT | bit 11 UNSWEPT
//! ```
//!
//! | bit | set by | means |
//! |---|---|---|
//! | `CLOSED` | sweeper | takes no more |
//! | `DONE` | whoever ran them | all have run; the bag is its thread's, if that has not left it |
//! | `LEFT` | thread | its thread has forgotten it: full, closed before it was done, or the thread has ended |
//! | `UNSWEPT` | thread | there was no thread to sweep it: a closure joins it by the slow path, which tries for one |
//!
//! All changes are read-modify-writes of one word. So a closure is counted before `CLOSED` or refused, and of `DONE` and
//! `LEFT` one finds the other: whoever sets the second has the bag to itself, and frees it or uses it anew.

use std::{
    cell::{self, Cell},
    mem::{MaybeUninit, align_of, size_of},
    ptr,
};

use sync::{
    atomic::{AtomicU32, Ordering},
    cell::UnsafeCell,
    twin,
};

use super::head::Head;

/// Closures in a bag. With 63 it has two kilobytes; one is in it for as long as its thread lives.
const CAPACITY: usize = if cfg!(any(loom, shuttle)) { 2 } else { 63 };

const NR: u32 = 0xff;
const CLOSED: u32 = 1 << 8;
const DONE: u32 = 1 << 9;
const LEFT: u32 = 1 << 10;
const UNSWEPT: u32 = 1 << 11;

/// What fits into a bag without a box of its own: a pointer, a length and one more word.
type Payload = MaybeUninit<[usize; 3]>;

/// A closure whose type is forgotten. Dropping it leaks.
#[derive(Clone, Copy)]
pub(super) struct Deferred {
    /// Takes the closure out of the payload and runs it.
    run: unsafe fn(*mut Payload),
    payload: Payload,
}

/// Closures that were handed over and have not run.
#[repr(C)]
pub(super) struct Bag {
    /// First, so that lists of heads can hold bags. A cell, for a sweeper links it while the bag's thread adds to the bag.
    head: cell::UnsafeCell<Head>,
    /// A: see the top of the file.
    state: AtomicU32,
    /// Written by the bag's thread before it is counted, read by whoever runs them.
    closures: [UnsafeCell<MaybeUninit<Deferred>>; CAPACITY],
}

sync::thread_local! {
    /// This thread's bag, open or not, or null. Without a destructor, so that it can be reached at any moment.
    static OPEN: Cell<*mut Bag> = Cell::new(ptr::null_mut())
}

sync::thread_local! {
    /// Touched by a thread that keeps a bag.
    static AT_EXIT: AtExit = AtExit
}

struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        if !twin::torn_down() {
            leave();
        }
    }
}

/// Hands `closure` over, in this thread's open bag or in one that `publish` is to put on a list.
///
/// `publish` is called without a bag when the closure is in one that nobody sweeps yet.
#[inline]
pub(super) fn add(
    closure: impl FnOnce() + Send + 'static,
    publish: impl FnOnce(Option<*mut Head>),
) {
    let deferred = Deferred::new(closure);
    let bag = open();
    // SAFETY: this thread has not left the bag, so nobody frees it.
    if !unsafe { bag.as_ref() }.is_some_and(|bag| bag.append(deferred, 0)) {
        publish(slowly(deferred));
    }
}

/// Puts `deferred` into this thread's bag if that is open and marked, else into another one, which it returns.
///
/// Not given the bag, which a sweeper may free when the other one is made: an argument claims that it stays.
#[cold]
fn slowly(deferred: Deferred) -> Option<*mut Head> {
    // SAFETY: null, or not left by this thread.
    let bag = unsafe { open().as_ref() };
    let joined = bag.is_some_and(|bag| bag.append(deferred, UNSWEPT));
    (!joined).then(|| anew(deferred).cast())
}

/// Notes that the bag of this thread lies on a list that nobody sweeps.
#[cold]
pub(super) fn leave_unswept() {
    // SAFETY: null, or not left by this thread.
    if let Some(bag) = unsafe { open().as_ref() } {
        bag.state.fetch_or(UNSWEPT, Ordering::Relaxed);
    }
}

/// Leaves the bag of this thread: what it hands over next is in another, further back.
pub(super) fn leave() {
    let bag = open();
    if !bag.is_null() {
        set_open(ptr::null_mut());
        // SAFETY: this thread had not left it.
        let before = unsafe { (*bag).state.fetch_or(LEFT, Ordering::AcqRel) };
        if before & DONE != 0 {
            // SAFETY: made by `into_raw` in `anew`; all have run and its thread has left it, so it is ours.
            drop(unsafe { Box::from_raw(bag) });
        }
    }
}

/// Puts `deferred` into a bag that is in no list: this thread's old one if that is done, or a new one.
fn anew(deferred: Deferred) -> *mut Bag {
    let old = open();
    // SAFETY: null, or not left by this thread.
    let state = unsafe { old.as_ref() }.map(|bag| &bag.state);
    // ORDER(bag): publish and consume both ways, other end in `Bag::run`.
    //   here: closures;  state counts them, or is LEFT  AcqRel
    //   run:  run them;  state |= DONE  AcqRel
    // Whoever is second has the other's accesses before its own.
    // Test: a_bag_is_used_again
    let before = state.map(|state| state.fetch_or(LEFT, Ordering::AcqRel));
    let bag = if before.is_some_and(|before| before & DONE != 0) {
        old
    } else {
        Box::into_raw(Box::new(Bag::new()))
    };
    let keeps = AT_EXIT.try_with(|_| ()).is_ok();
    set_open(if keeps { bag } else { ptr::null_mut() });
    // SAFETY: new, or done and left: ours alone.
    let fresh = unsafe { &*bag };
    fresh.put(0, deferred);
    let state = if keeps { 1 } else { 1 | LEFT };
    // The push onto a list publishes it.
    fresh.state.store(state, Ordering::Relaxed);
    bag
}

fn open() -> *mut Bag {
    OPEN.try_with(Cell::get).unwrap_or(ptr::null_mut())
}

fn set_open(bag: *mut Bag) {
    OPEN.try_with(|open| open.set(bag)).ok();
}

impl Bag {
    fn new() -> Self {
        Self {
            head: cell::UnsafeCell::new(Head::of_bag()),
            state: AtomicU32::new(0),
            closures: std::array::from_fn(|_| UnsafeCell::new(MaybeUninit::uninit())),
        }
    }

    fn put(&self, at: usize, deferred: Deferred) {
        self.closures[at].with_mut(|place| {
            // SAFETY: not counted yet, so its thread alone, which is the caller, reaches it.
            unsafe { (*place).write(deferred) };
        });
    }

    /// Adds `deferred` if the bag is open and has just the flag `mark`, or 0 for none; only by its thread.
    #[inline]
    fn append(&self, deferred: Deferred, mark: u32) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        let nr = (state ^ mark) as usize;
        // Full, or with another flag, which is more than it holds.
        if nr >= CAPACITY {
            return false;
        }
        self.put(nr, deferred);
        // ORDER(bag): the other end; see `anew`. Refused when the sweeper has closed it meanwhile.
        // Test: a_bag_is_used_again
        self.state
            .compare_exchange(state, state + 1, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// Refuses what comes from here on.
    pub(super) fn close(&self) {
        // Acquire: the closures that it holds.
        self.state.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Hands each closure to `run`, and frees the bag or leaves it to its thread.
    ///
    /// # Safety
    ///
    /// 1. `bag` was published by [`add`], taken from its list, closed, and is run this once.
    pub(super) unsafe fn run(bag: *mut Bag, mut run: impl FnMut(Deferred)) {
        // SAFETY: (1): its thread frees it only when it is done.
        let state = unsafe { &(*bag).state };
        let nr = state.load(Ordering::Acquire) & NR;
        for at in 0..nr as usize {
            // SAFETY: as above.
            let closure = unsafe { &(*bag).closures[at] };
            run(closure.with(|place| {
                // SAFETY: counted, so written (ORDER(bag)), and nobody writes it before the bag is done.
                unsafe { (*place).assume_init_read() }
            }));
        }
        // ORDER(bag): the other end; see `anew`.
        // Test: a_bag_is_used_again
        let order = twin::order("rcu: relaxed end of a bag", Ordering::AcqRel);
        if state.fetch_or(DONE, order) & LEFT != 0 {
            // SAFETY: made by `into_raw` in `anew`; its thread has left it and all have run, so it is ours.
            drop(unsafe { Box::from_raw(bag) });
        }
    }
}

const fn fits<F>() -> bool {
    size_of::<F>() <= size_of::<Payload>() && align_of::<F>() <= align_of::<Payload>()
}

impl Deferred {
    #[inline]
    fn new<F: FnOnce() + Send + 'static>(closure: F) -> Self {
        if fits::<F>() {
            Self::held(closure)
        } else {
            let boxed = Box::new(closure);
            Self::held(move || (*boxed)())
        }
    }

    #[inline(always)]
    fn held<F: FnOnce() + Send + 'static>(closure: F) -> Self {
        let mut payload = Payload::uninit();
        assert!(fits::<F>(), "`new` boxes what does not fit");
        // SAFETY: large enough and aligned, as was just asserted.
        unsafe { payload.as_mut_ptr().cast::<F>().write(closure) };
        Self {
            run: |payload| {
                // SAFETY: `Deferred::run` is called once (its 1), with the payload that was written above.
                let closure = unsafe { payload.cast::<F>().read() };
                closure();
            },
            payload,
        }
    }

    /// Runs the closure.
    ///
    /// # Safety
    ///
    /// 1. No copy of it is run, before or after.
    pub(super) unsafe fn run(mut self) {
        // SAFETY: (1).
        unsafe { (self.run)(&raw mut self.payload) }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    #[test]
    fn closures_of_every_size_run_with_what_they_hold() {
        #[repr(align(64))]
        struct Aligned(usize);
        let sum = Arc::new(AtomicUsize::new(0));
        let small = sum.clone();
        let large = ([3_usize; 40], sum.clone());
        let aligned = (Aligned(5), sum.clone());
        let all = [
            Deferred::new(|| ()),
            Deferred::new(move || {
                small.fetch_add(1, Ordering::Relaxed);
            }),
            Deferred::new(move || {
                large.1.fetch_add(large.0[39], Ordering::Relaxed);
            }),
            Deferred::new(move || {
                let (number, sum) = &aligned;
                assert_eq!(ptr::from_ref(number).addr() % 64, 0);
                sum.fetch_add(number.0, Ordering::Relaxed);
            }),
        ];
        for deferred in all {
            // SAFETY: each once.
            unsafe { deferred.run() };
        }
        assert_eq!(sum.load(Ordering::Relaxed), 9);
        assert_eq!(Arc::strong_count(&sum), 1, "a closure was leaked");
    }

    #[test]
    fn a_bag_that_is_open_takes_more_and_one_that_is_closed_does_not() {
        let mut published = Vec::new();
        let mut add_one = || {
            add(
                || (),
                |head| published.extend(head.map(|head| head.cast::<Bag>())),
            );
        };
        (0..=CAPACITY).for_each(|_| add_one());
        // SAFETY: not run yet, here and below.
        unsafe { &*published[1] }.close();
        let nr = |bag: *mut Bag| {
            let mut nr = 0;
            // SAFETY: published, in no list, closed by now, and run once.
            unsafe { Bag::run(bag, |_| nr += 1) };
            nr
        };
        let mut add_one = || {
            add(
                || (),
                |head| published.extend(head.map(|head| head.cast::<Bag>())),
            );
        };
        add_one();
        leave();
        add_one();
        leave();
        let held: Vec<usize> = published.iter().map(|&bag| nr(bag)).collect();
        assert_eq!(held, [CAPACITY, 1, 1, 1]);
    }
}
