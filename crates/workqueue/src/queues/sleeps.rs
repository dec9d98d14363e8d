//! Tasks that sleep until a deadline, each with a waker in a wheel.
//!
//! # The protocol
//!
//! There are several wheels, the *shards*, so that threads of different CPUs arm and cancel at the
//! same time. A sleep owns its timer, which holds the waker and is in the shard of the CPU that
//! armed it. The shard's lock guards all decisions:
//!
//! ```text
//! poll:     no timer yet?  lock: insert one with the waker;  if it is the shard's first, wake the
//!           manager
//!           expired?       ready
//!           a timer?       lock: replace the waker; without a waker the timer has expired
//! drop:     expired?       free the timer
//!           otherwise      lock: remove the timer
//! manager:  each shard:    lock: remove the expired timers, take their wakers, mark them as
//!           expired;  then fire the wakers
//! ```
//!
//! A poll either replaces the waker, so that the manager fires the new one, or finds that the timer
//! has expired. No wake-up is lost. Wakers are cloned before the lock and dropped after it. The
//! manager does not access a timer after it has marked it as expired, so its owner frees it without
//! the lock. The twins are `sleep: a poll keeps the first waker`, `sleep: a drop leaves the timer`,
//! `sleep: the first wakes no thread` and `sleep: an expiry publishes nothing`.
//!
//! # Slack
//!
//! If many sleeps end one after another, the manager and the workers fall asleep and wake each
//! time. After the manager has fired at least [`MANY`] wakers, it therefore fires none for the time
//! given by the tunable `sleep_slack_us`. A sleep is late by at most this time, because its
//! deadline is not before that firing. A paused clock has no slack.
//!
//! A waker is user code, which the manager does not run: see [`cleanups::fire_known`].

use std::mem;
use std::ptr::NonNull;
use std::task::Waker;

use base::internal::panics::Foreign;
use crossbeam_utils::CachePadded;
use item::internal::cleanups;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::cell::UnsafeCell;
use sync::{Mutex, cpu, twin};

use super::timers::Timers;
use super::wheel::{Node, Wheel};

/// The maximum number of shards. The value is a guess: the manager locks each shard whenever it
/// wakes (15 ns), and a shard in use takes 8 KiB.
const MAX_SHARDS: usize = 16;

/// The number of wakers fired at once from which slack applies. The value is a guess: with fewer,
/// the wake-ups of the manager cost less than a hundredth of a CPU.
const MANY: usize = 8;

/// The maximum number of timers that expire while a shard's lock is held once: 64 times 50 ns.
const MAX_AT_ONCE: usize = 64;

pub(crate) struct Sleeps {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    /// I: the slack in nanoseconds.
    slack_ns: u64,
    /// A: a time before which no waker is fired, written by the thread that fires them.
    rests_until_ns: AtomicU64,
}

type Shard = Wheel<()>;

/// The timer of a sleep, owned until [`end_sleep`](Timers::end_sleep).
pub(crate) struct SleepTimer(NonNull<Sleeper>);

// SAFETY: the timer is accessed only as the protocol allows, and its waker is `Send`.
unsafe impl Send for SleepTimer {}
// SAFETY: as above.
unsafe impl Sync for SleepTimer {}

/// A timer in a shard, guarded by the shard's lock except for the flag.
#[repr(C)]
struct Sleeper {
    node: std::cell::UnsafeCell<Node<()>>,
    /// `None` once the timer has expired.
    waker: UnsafeCell<Option<Foreign<Waker>>>,
    /// I: the index of its shard.
    shard: u32,
    /// A: set when the timer has expired.
    has_expired: AtomicBool,
}

// `Sleep` documents this size.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Sleeper>() <= 48);

impl SleepTimer {
    fn sleeper(&self) -> &Sleeper {
        // SAFETY: the timer is allocated as long as this exists. Its node, which the holder of the
        // shard's lock changes, is in a cell.
        unsafe { self.0.as_ref() }
    }

    fn shard<'a>(&self, sleeps: &'a Sleeps) -> &'a Mutex<Shard> {
        &sleeps.shards[self.sleeper().shard as usize]
    }

    fn has_expired(&self) -> bool {
        // ORDER(expired): other end in `expire`.
        // If the manager's store comes first, the waker is taken and the timer is ours alone. If
        // our load comes first, we take the lock, after the manager or before it.
        // Test: sleep_dropped_early_wakes_no_task
        self.sleeper().has_expired.load(Ordering::Acquire)
    }

    /// Takes the waker.
    ///
    /// # Safety
    ///
    /// 1. The caller has locked the shard, or owns a timer that has expired.
    unsafe fn take(&self) -> Option<Foreign<Waker>> {
        // SAFETY: (1).
        self.sleeper().waker.with_mut(|waker| unsafe { (*waker).take() })
    }
}

impl Sleeps {
    /// Creates the wheels for a machine of `nr_cpus` CPUs, with ticks of 2^`shift` ns.
    pub(crate) fn new(nr_cpus: usize, shift: u32, slack_ns: u64) -> Self {
        let nr_shards = nr_cpus.next_power_of_two().min(MAX_SHARDS);
        let shard = |_| CachePadded::new(Mutex::new(Shard::new(shift)));
        Self {
            shards: (0..nr_shards).map(shard).collect(),
            slack_ns,
            rests_until_ns: AtomicU64::new(0),
        }
    }

    fn here(&self) -> usize {
        cpu::current().index() % self.shards.len()
    }

    /// Returns the time at which [`Timers::fire`] must be called next for a sleep.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let next_ns = |shard: &CachePadded<Mutex<Shard>>| shard.lock().next_ns();
        let next_ns = self.shards.iter().filter_map(next_ns).min()?;
        Some(next_ns.max(self.rests_until_ns.load(Ordering::Relaxed)))
    }
}

/// Removes timers that have expired by `now_ns` from a locked shard. Returns their wakers.
fn expire(shard: &mut Shard, now_ns: u64) -> Vec<Foreign<Waker>> {
    let mut wakers = Vec::new();
    while wakers.len() < MAX_AT_ONCE
        && let Some(node) = shard.pop(now_ns)
    {
        // The node is the first field of a timer, which is freed only after the flag is set.
        let timer = SleepTimer(node.cast());
        // SAFETY: (1): the caller has locked the shard.
        wakers.extend(unsafe { timer.take() });
        // ORDER(expired): publish and consume, other end in `Sleeper::has_expired`.
        //   here: take the waker;  has_expired = true, Release
        //   there: has_expired, Acquire;  free the timer
        // If our store comes first, the owner frees the timer after our last access. If the owner's
        // load comes first, the owner waits for the lock that we hold.
        // Test: sleep_dropped_early_wakes_no_task
        let order = twin::order("sleep: an expiry publishes nothing", Ordering::Release);
        timer.sleeper().has_expired.store(true, order);
    }
    wakers
}

impl Timers {
    pub(super) fn fire_sleeps(&self, now_ns: u64) {
        let sleeps = &self.sleeps;
        if now_ns < sleeps.rests_until_ns.load(Ordering::Relaxed) {
            return;
        }
        let mut nr_fired = 0;
        for shard in &sleeps.shards {
            loop {
                let wakers = expire(&mut shard.lock(), now_ns);
                if wakers.is_empty() {
                    break;
                }
                nr_fired += wakers.len();
                self.leave_wakers(wakers);
            }
        }
        let until_ns = match nr_fired {
            MANY.. => now_ns.saturating_add(sleeps.slack_ns),
            _ => 0,
        };
        sleeps.rests_until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// Wakes the tasks whose wakers the manager has set aside since the last call.
    pub(crate) fn fire_put_aside(&self) {
        self.leave_wakers(cleanups::wakers_put_aside());
    }

    /// Wakes tasks. Reapers fire the wakers that are user code.
    pub(crate) fn leave_wakers(&self, wakers: Vec<Foreign<Waker>>) {
        self.manager.leave_to_reapers(cleanups::fire_known(wakers));
    }

    /// Arranges for `waker` to be fired at `at_ns`, by `timer`, which is created if it is `None`.
    /// Returns `false` if the timer has expired.
    pub(crate) fn sleep(&self, timer: &mut Option<SleepTimer>, at_ns: u64, waker: &Waker) -> bool {
        if timer.as_ref().is_some_and(SleepTimer::has_expired) {
            return false;
        }
        // FOREIGN(waker-clone): the clone of a user's waker, on the polling thread, with no lock
        // held; a panic unwinds to the caller.
        let mut ours = Foreign::new(waker.clone());
        let Some(there) = timer else {
            let shard = self.sleeps.here();
            let sleeper = Box::new(Sleeper {
                node: Node::new(()).into(),
                waker: UnsafeCell::new(Some(ours)),
                shard: shard as u32,
                has_expired: AtomicBool::new(false),
            });
            let sleeper = NonNull::from(Box::leak(sleeper));
            let mut shard = self.sleeps.shards[shard].lock();
            // SAFETY: the timer is new, and stays allocated until `end_sleep` has removed it.
            let is_first = unsafe { shard.insert(sleeper.cast(), at_ns) };
            drop(shard);
            *timer = Some(SleepTimer(sleeper));
            if is_first && !twin::armed("sleep: the first wakes no thread") {
                self.manager.wake();
            }
            return true;
        };
        let keeps = twin::armed("sleep: a poll keeps the first waker");
        let lock = there.shard(&self.sleeps).lock();
        // The time may have come while the waker was cloned.
        // SAFETY: the lock of the shard is held.
        let waits = there.sleeper().waker.with_mut(|place| unsafe {
            (*place).as_mut().map(|waker| (!keeps).then(|| mem::swap(waker, &mut ours))).is_some()
        });
        drop(lock);
        // Drop the waker with no lock held, because the drop may drop a user's future.
        // FOREIGN(sleep-drop): as in `end_sleep`, on the polling thread.
        drop(ours);
        waits
    }

    /// Ends a sleep, and removes its timer if it has not expired. In a child of `fork` the lock may
    /// be held forever, so the timer is leaked.
    pub(crate) fn end_sleep(&self, timer: SleepTimer) {
        if twin::armed("sleep: a drop leaves the timer") || !self.process.is_this() {
            return;
        }
        let lock = (!timer.has_expired()).then(|| timer.shard(&self.sleeps).lock());
        // SAFETY: we have locked the shard, or the timer has expired.
        let waker = unsafe { timer.take() };
        if let Some(mut shard) = lock
            && waker.is_some()
        {
            // SAFETY: the timer has not expired, so it is in the shard.
            unsafe { shard.remove(timer.0.cast()) };
        }
        // SAFETY: the timer was created from a box, and is in no wheel.
        drop(unsafe { Box::from_raw(timer.0.as_ptr()) });
        // FOREIGN(sleep-drop): the drop of a waker, on the thread that ends the sleep, with no lock
        // held; a panic is contained by `Foreign`.
        drop(waker);
    }
}
