//! Closures of one thread that are queued together, without a box for each one.
//!
//! A thread has at most one *open* bag. Its first closure opens a bag and pushes it onto a list of
//! `callback.rs`. Later closures join the bag, until a sweep pops and *closes* it before its grace
//! period begins.
//!
//! ```text
//! bits 0..8 words in use | bit 8 CLOSED | bit 9 DONE | bit 10 LEFT | bit 11 UNSWEPT
//! ```
//!
//! | bit | set by | means |
//! |---|---|---|
//! | `CLOSED` | sweeper | the bag accepts no more closures |
//! | `DONE` | the thread that ran them | all have run; if not `LEFT`, the bag may be used again |
//! | `LEFT` | thread | abandoned: it was full, or closed and not done, or the thread has exited |
//! | `UNSWEPT` | thread | no sweeper could start: a closure joins by the slow path, which retries |
//!
//! A closure occupies one word for its kind and one for each captured word, because most of the
//! cost is moving cache lines from CPU to CPU.
//!
//! All changes are read-modify-writes on one word, so a closure is either counted before `CLOSED`
//! or rejected. The thread that sets the second of `DONE` and `LEFT` owns the bag.
//!
//! # Spare bags
//!
//! A bag whose closures have run is kept for the next thread that needs one. Otherwise the threads
//! that add closures and the thread that runs them would wait for each other in the allocator.
//!
//! Each access to a place is one exchange, so a bag is taken by only one thread, and a `fork` never
//! leaves an access half done.

use std::cell::{self, Cell};
use std::mem::{MaybeUninit, align_of, size_of};
use std::ptr::{self, NonNull};

use crossbeam_utils::CachePadded;
use sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use sync::cell::UnsafeCell;
use sync::{hint, twin};

use super::head::Head;

/// The number of words in a bag of two kilobytes: 63 to 252 closures, or two in a model. A thread
/// that queues closures keeps one bag until it exits.
const CAPACITY: usize = if cfg!(any(loom, shuttle)) { 2 * MOST_WORDS } else { 252 };
/// The number of words that the largest closure and its kind occupy.
const MOST_WORDS: usize = 1 + NR_HELD;
/// The number of words that a closure may capture without a box: a pointer, a length and one more.
const NR_HELD: usize = 3;

/// The distance of the prefetch in bytes. The next lines are in the cache of another CPU.
const AHEAD: usize = 512;

/// How long a sweeper that ran many closures waits before the next sweep: a few microseconds.
/// Without it, a stream of calls is served in batches of two or three.
const GATHER_SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 256 };
/// The minimum number of closures in one sweep that counts as a stream.
const STREAM: u64 = 32;

/// The number of spare bags, 128 kilobytes. A flood fills about this number before a sweep.
const MOST_SPARES: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

const NR: u32 = 0xff;
const CLOSED: u32 = 1 << 8;
const DONE: u32 = 1 << 9;
const LEFT: u32 = 1 << 10;
const UNSWEPT: u32 = 1 << 11;

/// A word of a closure, which may be uninitialized, or a pointer.
type Word = MaybeUninit<*const ()>;
type Payload = [Word; NR_HELD];

/// A type-erased closure. Dropping it leaks.
#[derive(Clone, Copy)]
pub(super) struct Deferred {
    kind: &'static Kind,
    payload: Payload,
}

// SAFETY: `new` creates it from a closure that is `Send`.
unsafe impl Send for Deferred {}

/// The data shared by all closures of a type.
struct Kind {
    /// Moves the closure out of the payload and runs it.
    run: unsafe fn(*mut Payload),
    /// The number of words of the payload that the closure occupies.
    nr_held: usize,
}

/// A block of closures that were queued together.
#[repr(C)]
pub(super) struct Bag {
    /// The bag's entry in a list. It is the first field, so that lists of heads can hold bags. A
    /// sweeper links it while the bag's thread adds to the bag.
    head: cell::UnsafeCell<Head>,
    /// A: see the top of the file.
    state: AtomicU32,
    /// Written by the bag's thread before `state` counts them.
    words: [UnsafeCell<Word>; CAPACITY],
}

sync::thread_local! {
    /// This thread's bag, open or not, or null. It has no destructor, so it is always accessible.
    static OPEN: Cell<*mut Bag> = Cell::new(ptr::null_mut());
    /// Initialized by a thread that keeps a bag, so that its destructor runs.
    static AT_EXIT: AtExit = AtExit
}

struct AtExit;

sync::on_drop!(AtExit, _this => leave());

/// Adds `closure` to this thread's open bag, or to another bag, which `publish` then pushes onto a
/// list. `publish` receives that bag and the number of callbacks to add to the count of its list,
/// or `None` if the closure joined a bag that has no sweeper yet.
#[inline]
pub(super) fn add(
    closure: impl FnOnce() + Send + 'static,
    publish: impl FnOnce(Option<(*mut Head, usize)>),
) {
    let deferred = Deferred::new(closure);
    let bag = open();
    // SAFETY: this thread has not left the bag, so no thread frees it.
    if !unsafe { bag.as_ref() }.is_some_and(|bag| bag.append(deferred, 0)) {
        publish(slowly(deferred));
    }
}

/// Adds `deferred` to this thread's bag if the bag is open and `UNSWEPT`, otherwise to another bag,
/// which it returns. Creating the other bag may allow a sweeper to free this one, so no argument is
/// a `&Bag`, which would have to stay valid until the function returns.
#[cold]
fn slowly(deferred: Deferred) -> Option<(*mut Head, usize)> {
    // SAFETY: the pointer is null, or this thread has not left the bag, so no thread frees it.
    let bag = unsafe { open().as_ref() };
    if bag.is_some_and(|bag| bag.append(deferred, UNSWEPT)) {
        return None;
    }
    let (bag, nr_behind) = anew(deferred);
    Some((bag.cast(), 1 + nr_behind))
}

/// Returns the approximate number of callbacks, without the first one, in a bag that its thread
/// leaves in state `before`. A list counts the first closure when the bag is pushed, and the others
/// when the thread leaves the bag. Every closure counts as one of the largest kind.
fn nr_behind(before: u32) -> usize {
    let nr_words = (before & NR) as usize;
    match before & CLOSED {
        0 => (nr_words / MOST_WORDS).saturating_sub(1),
        _ => 0,
    }
}

/// Marks this thread's bag as one that no sweeper will pop yet.
#[cold]
pub(super) fn leave_unswept() {
    // SAFETY: the pointer is null, or this thread has not left the bag, so no thread frees it.
    if let Some(bag) = unsafe { open().as_ref() } {
        bag.state.fetch_or(UNSWEPT, Ordering::Relaxed);
    }
}

/// Leaves this thread's bag, so that the next closure is added to another bag. Returns the number
/// of callbacks in the bag that have not been counted.
pub(super) fn leave() -> usize {
    let bag = open();
    if bag.is_null() {
        return 0;
    }
    set_open(ptr::null_mut());
    // ORDER(bag): as in `anew`.
    //
    // SAFETY: this thread had not left the bag, so no thread has freed it.
    let before = unsafe { (*bag).state.fetch_or(LEFT, Ordering::AcqRel) };
    if before & DONE != 0 {
        // SAFETY: all closures have run and this thread has left the bag, so we own it.
        unsafe { Bag::give_away(bag) };
    }
    nr_behind(before)
}

/// Adds `deferred` to the thread's old bag if all of its closures have run, otherwise to an unused
/// one. Returns the bag, and the number of callbacks in the old bag that have not been counted. A
/// thread whose thread-locals are gone leaves the bag at once.
fn anew(deferred: Deferred) -> (*mut Bag, usize) {
    let old = open();
    // SAFETY: the pointer is null, or this thread has not left the bag, so no thread frees it.
    let state = unsafe { old.as_ref() }.map(|bag| &bag.state);
    // ORDER(bag): publish and consume both ways, other end in `Bag::run`.
    //   here: closures;  state counts them, or is LEFT  AcqRel
    //   run:  run them;  state |= DONE  AcqRel
    // If DONE comes first, all closures have been read out, and we use the bag again. If our LEFT
    // comes first, the runner finds it and makes the bag a spare.
    // Test: a_bag_is_used_again
    let before = state.map(|state| state.fetch_or(LEFT, Ordering::AcqRel));
    let bag = if before.is_some_and(|before| before & DONE != 0) { old } else { Bag::unused() };
    let keeps = AT_EXIT.try_with(|_| ()).is_ok();
    set_open(if keeps { bag } else { ptr::null_mut() });
    // SAFETY: the bag is unused, or is done and was left by its thread, so only we can reach it.
    let fresh = unsafe { &*bag };
    fresh.put(0, deferred);
    let left = if keeps { 0 } else { LEFT };
    fresh.state.store(deferred.nr_words() as u32 | left, Ordering::Relaxed);
    (bag, before.map_or(0, nr_behind))
}

#[inline]
pub(super) fn fetch_ahead<T>(next: *const T) {
    hint::prefetch_write(next.cast::<u8>().wrapping_add(AHEAD));
}

/// Waits a few microseconds for callers to queue closures, if the last sweep ran a stream of them.
/// Ends early if `waits` returns `true`.
pub(super) fn gather(nr_run: u64, waits: impl Fn() -> bool) {
    if nr_run >= STREAM {
        hint::spin_until(GATHER_SPINS, waits);
    }
}

fn open() -> *mut Bag {
    OPEN.try_with(Cell::get).unwrap_or(ptr::null_mut())
}

fn set_open(bag: *mut Bag) {
    OPEN.try_with(|open| open.set(bag)).ok();
}

impl Bag {
    pub(super) fn new() -> Self {
        Self {
            head: cell::UnsafeCell::new(Head::new()),
            state: AtomicU32::new(0),
            words: std::array::from_fn(|_| UnsafeCell::new(Word::uninit())),
        }
    }

    /// Returns a spare bag or a new one, which the caller owns.
    fn unused() -> *mut Self {
        spares().take().map_or_else(|| Box::into_raw(Box::new(Self::new())), NonNull::as_ptr)
    }

    #[inline]
    fn put(&self, at: usize, deferred: Deferred) {
        let words = &self.words[at..at + deferred.nr_words()];
        let kind = Word::new(ptr::from_ref(deferred.kind).cast());
        for (place, word) in words.iter().zip([kind].into_iter().chain(deferred.payload)) {
            // SAFETY: the word is not counted yet, so only the bag's thread accesses it.
            place.with_mut(|place| unsafe { *place = word });
        }
    }

    /// Moves out the closure whose words begin at `at`.
    ///
    /// # Safety
    ///
    /// 1. A closure was put at `at`, and is taken only once.
    unsafe fn take(&self, at: usize) -> Deferred {
        // SAFETY: (1): the word was written before it was counted (ORDER(bag)), and no thread
        // writes it before the bag is done.
        let word = |at: usize| self.words[at].with(|place| unsafe { *place });
        // SAFETY: (1): the first of the closure's words is its kind.
        let kind = unsafe { &*word(at).assume_init().cast::<Kind>() };
        let mut payload = [Word::uninit(); NR_HELD];
        for (behind, held) in payload[..kind.nr_held].iter_mut().enumerate() {
            *held = word(at + 1 + behind);
        }
        Deferred { kind, payload }
    }

    /// Adds `deferred` if the flags are exactly `mark`. Only the bag's thread calls this.
    #[inline]
    fn append(&self, deferred: Deferred, mark: u32) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        let (at, nr_words) = ((state ^ mark) as usize, deferred.nr_words());
        // The bag is full, or another flag is set: each flag is greater than the capacity.
        if at + nr_words > CAPACITY {
            return false;
        }
        fetch_ahead(self.words.as_ptr().wrapping_add(at));
        self.put(at, deferred);
        // ORDER(bag): the other end; see `anew` and `close`. If CLOSED comes first, our exchange
        // fails, and the closure is added to another bag.
        self.state
            .compare_exchange(state, state + nr_words as u32, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// Closes the bag: no closure is added after this.
    pub(super) fn close(&self) {
        // Acquire pairs with the exchange in `append`. A closure that was counted before this is
        // read after it, and a later one is rejected.
        self.state.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Passes each closure to `run`. Then frees the bag, or lets its thread reuse it.
    ///
    /// # Safety
    ///
    /// 1. `bag` was published by [`add`], popped from its list, closed, and is run only once.
    pub(super) unsafe fn run(bag: *mut Bag, mut run: impl FnMut(&mut Deferred)) {
        // SAFETY: (1): the bag's thread frees the bag only when it is done.
        let state = unsafe { &(*bag).state };
        let nr_words = (state.load(Ordering::Acquire) & NR) as usize;
        let mut at = 0;
        while at < nr_words {
            // SAFETY: as above. The word is counted, and each closure is taken once.
            let mut closure = unsafe { (*bag).take(at) };
            at += closure.nr_words();
            // The closure runs by reference. A copy would load two words at once that were stored
            // one by one, which stalls the CPU.
            run(&mut closure);
        }
        // ORDER(bag): the other end; see `anew`.
        let order = twin::order("rcu: relaxed end of a bag", Ordering::AcqRel);
        if state.fetch_or(DONE, order) & LEFT != 0 {
            // SAFETY: the bag's thread has left it and all closures have run, so we own it.
            unsafe { Self::give_away(bag) };
        }
    }

    /// Makes the bag a spare for the next thread that needs one, or frees it.
    ///
    /// # Safety
    ///
    /// 1. It came from [`unused`](Self::unused), the caller owns it, and it holds no closure.
    unsafe fn give_away(bag: *mut Bag) {
        // SAFETY: (1): the pointer came from `into_raw`.
        let ours = unsafe { NonNull::new_unchecked(bag) };
        // SAFETY: (1).
        if !unsafe { spares().give(ours) } {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(bag) });
        }
    }
}

const fn fits<F>() -> bool {
    size_of::<F>() <= size_of::<Payload>() && align_of::<F>() <= align_of::<Payload>()
}

/// # Safety
///
/// 1. `payload` was written by [`Deferred::held`] with this type, and this is called once.
unsafe fn run_held<F: FnOnce()>(payload: *mut Payload) {
    // SAFETY: (1).
    let closure = unsafe { payload.cast::<F>().read() };
    closure();
}

impl Deferred {
    #[inline]
    pub(super) fn new<F: FnOnce() + Send + 'static>(closure: F) -> Self {
        if fits::<F>() {
            Self::held(closure)
        } else {
            let boxed = Box::new(closure);
            Self::held(move || (*boxed)())
        }
    }

    #[inline(always)]
    fn held<F: FnOnce() + Send + 'static>(closure: F) -> Self {
        let mut payload = [Word::uninit(); NR_HELD];
        assert!(fits::<F>(), "`new` boxes what does not fit");
        // SAFETY: the payload is large enough and aligned, as was just asserted.
        unsafe { payload.as_mut_ptr().cast::<F>().write(closure) };
        let kind = const {
            // In a model, all closures have the same size.
            let size = if cfg!(any(loom, shuttle)) { size_of::<Payload>() } else { size_of::<F>() };
            &Kind { run: run_held::<F>, nr_held: size.div_ceil(size_of::<Word>()) }
        };
        Self { kind, payload }
    }

    #[inline]
    fn nr_words(&self) -> usize {
        1 + self.kind.nr_held
    }

    /// Runs the closure.
    ///
    /// # Safety
    ///
    /// 1. The caller calls this once, and runs no other copy of the closure.
    pub(super) unsafe fn run(&mut self) {
        // SAFETY: (1).
        unsafe { (self.kind.run)(&raw mut self.payload) }
    }
}

/// The bags that belong to no thread.
pub(super) struct Spares(CachePadded<[AtomicPtr<Bag>; MOST_SPARES]>);

sync::process_wide! {
    pub(super) fn spares() -> Spares = Spares::new()
}

impl Spares {
    sync::const_unless_model! {
        pub(super) fn new() -> Self {
            Self(CachePadded::new(sync::array_of![AtomicPtr::new(ptr::null_mut()); MOST_SPARES]))
        }
    }

    /// Stores a spare bag. If there are enough, returns `false`, and the caller keeps the bag.
    ///
    /// # Safety
    ///
    /// 1. Only the caller uses the bag, and it holds no closure.
    pub(super) unsafe fn give(&self, bag: NonNull<Bag>) -> bool {
        let nothing = ptr::null_mut();
        // ORDER(spare): publish and consume, other end in `take`.
        //   here: reads of the closures;  place = bag Release
        //   take: place = null Acquire;   write closures
        // If our exchange comes first, our earlier accesses happen before those of the thread that
        // takes the bag. If that thread's exchange comes first, it does not find our bag.
        // Test: a_bag_is_used_again
        let order = twin::order("rcu: relaxed gift of a bag", Ordering::Release);
        self.0.iter().any(|place| {
            place.load(Ordering::Relaxed).is_null()
                && place.compare_exchange(nothing, bag.as_ptr(), order, Ordering::Relaxed).is_ok()
        })
    }

    pub(super) fn take(&self) -> Option<NonNull<Bag>> {
        // ORDER(spare): the other end; see `give`.
        // Test: a_bag_is_used_again
        let order = twin::order("rcu: relaxed take of a bag", Ordering::Acquire);
        let take = |place: &AtomicPtr<Bag>| {
            let bag = place.load(Ordering::Relaxed);
            if bag.is_null() {
                return None;
            }
            if twin::armed("rcu: two take a bag") {
                place.store(ptr::null_mut(), Ordering::Relaxed);
                return NonNull::new(bag);
            }
            NonNull::new(place.swap(ptr::null_mut(), order))
        };
        self.0.iter().find_map(take)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// The bags that `add` has published. They are in no list.
    #[derive(Default)]
    struct Published {
        bags: Vec<*mut Bag>,
        nr_counted: usize,
    }

    impl Published {
        fn add(&mut self, closure: impl FnOnce() + Send + 'static) {
            add(closure, |bag| {
                let (head, nr) = bag.expect("no bag is unswept");
                self.bags.push(head.cast());
                self.nr_counted += nr;
            });
        }

        fn run(&mut self) -> Vec<usize> {
            let run = |bag| {
                let mut nr_run = 0;
                let run_one = |closure: &mut Deferred| {
                    nr_run += 1;
                    // SAFETY: each closure is passed to this once.
                    unsafe { closure.run() }
                };
                // SAFETY: the bag was published and left, is in no list, and is run once.
                unsafe { Bag::run(bag, run_one) };
                nr_run
            };
            self.bags.drain(..).map(run).collect()
        }
    }

    #[test]
    fn closures_of_every_size_run_with_their_captures() {
        #[repr(align(64))]
        struct Aligned(usize);
        let sum = Arc::new(AtomicUsize::new(0));
        let small = sum.clone();
        let large = ([3_usize; 40], sum.clone());
        let aligned = (Aligned(5), sum.clone());
        let all = [
            Deferred::new(|| ()),
            Deferred::new(move || _ = small.fetch_add(1, Ordering::Relaxed)),
            Deferred::new(move || _ = large.1.fetch_add(large.0[39], Ordering::Relaxed)),
            Deferred::new(move || {
                let (number, sum) = &aligned;
                assert_eq!(ptr::from_ref(number).addr() % 64, 0);
                sum.fetch_add(number.0, Ordering::Relaxed);
            }),
        ];
        for mut deferred in all {
            // SAFETY: each closure runs once.
            unsafe { deferred.run() };
        }
        assert_eq!(sum.load(Ordering::Relaxed), 9);
        assert_eq!(Arc::strong_count(&sum), 1, "a closure was leaked");
    }

    #[test]
    fn a_bag_keeps_closures_of_every_length_in_their_order() {
        static NR_RUN: AtomicUsize = AtomicUsize::new(0);
        fn note<const N: usize>(words: [usize; N]) -> impl FnOnce() + Send {
            move || {
                let turn = NR_RUN.fetch_add(1, Ordering::Relaxed);
                assert!(words.iter().all(|word| *word == turn), "{words:?} at {turn}");
            }
        }
        let mut published = Published::default();
        for turn in (0..200).step_by(5) {
            published.add(note([]));
            published.add(note([turn + 1]));
            published.add(note([turn + 2; 2]));
            published.add(note([turn + 3; 3]));
            // This closure captures more than a bag stores inline.
            published.add(note([turn + 4; 4]));
        }
        leave();
        assert!(published.run().len() > 1, "more than a bag holds");
        assert_eq!(NR_RUN.load(Ordering::Relaxed), 200);
    }

    #[test]
    fn callbacks_from_late_destructors_have_a_bag_each() {
        struct Last(Arc<AtomicUsize>);
        impl Drop for Last {
            fn drop(&mut self) {
                for _ in 0..3 {
                    let nr_run = self.0.clone();
                    let mut published = Published::default();
                    published.add(move || _ = nr_run.fetch_add(1, Ordering::Relaxed));
                    assert_eq!(published.run(), [1]);
                    assert!(open().is_null());
                }
            }
        }
        std::thread_local! {
            static LAST: Cell<Option<Last>> = const { Cell::new(None) };
        }
        let nr_run = Arc::new(AtomicUsize::new(0));
        let its = nr_run.clone();
        let thread = std::thread::spawn(move || {
            // This is initialized first, so it is destroyed last.
            LAST.set(Some(Last(its)));
            let mut published = Published::default();
            published.add(|| ());
            leave();
            published.run();
        });
        thread.join().unwrap();
        assert_eq!(nr_run.load(Ordering::Relaxed), 3);
        assert_eq!(Arc::strong_count(&nr_run), 1, "a closure was leaked");
    }

    #[test]
    fn open_bag_accepts_closures_and_a_closed_one_does_not() {
        let mut published = Published::default();
        (0..=CAPACITY).for_each(|_| published.add(|| ()));
        // SAFETY: the bag has not been run.
        unsafe { &*published.bags[1] }.close();
        for _ in 0..2 {
            published.add(|| ());
            leave();
        }
        assert_eq!(published.run(), [CAPACITY, 1, 1, 1]);
    }

    #[test]
    fn abandoned_bag_was_counted_for_its_closures() {
        let mut published = Published::default();
        (0..3 * MOST_WORDS).for_each(|_| published.add(|| ()));
        assert_eq!(published.nr_counted + leave(), 3, "like the largest kind");
        published.run();
        assert_eq!(leave(), 0, "no bag is open");
    }
}
