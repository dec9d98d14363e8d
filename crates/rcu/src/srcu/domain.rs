//! A domain: its handles, and the two ends of a section.

use base::internal::wake::report;
use crossbeam_utils::CachePadded;
use sync::atomic::{AtomicU32, Ordering};
use sync::fork::Process;
use sync::futex::Futex;
use sync::unmodelled::Arc;
use sync::{asym, twin};

use super::callback::Callbacks;
pub use super::gp::Cookie;
use super::guard::{Guard, OwnedGuard};
use super::runners::{Handle, runners};
use super::slots::{Parity, Slots};
use crate::callback::{Backlog, Full};
use crate::flavor::Flavor;
use crate::future::Synchronize;
use crate::periods::Periods;

/// A set of readers that may sleep, and grace periods that wait only for these readers.
///
/// Clones are handles to the same domain. Domains are independent of each other.
///
/// # Guarantees
///
/// A grace period that begins after a value was unlinked ends after every section that could have
/// reached the value. One grace period serves all callers that arrived before it began.
///
/// # Panics
///
/// In a child of `fork`, functions that wait for a grace period or queue a callback panic for a
/// domain of the parent, because its sections may belong to threads that do not exist. Sections may
/// still begin and end there. To wait or to queue callbacks in the child, create new domains. In an
/// item of a bottom-half queue, functions that wait for a grace period panic before they change
/// anything.
///
/// # Examples
///
/// ```
/// use afterwork::rcu::srcu::Domain;
///
/// let domain = Domain::new();
/// let guard = domain.read();
/// let unlinked = domain.get_state();
/// assert!(!domain.poll_state(unlinked));
///
/// // A guard may end on another thread.
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(guard));
/// });
/// domain.synchronize();
/// assert!(domain.poll_state(unlinked));
/// ```
#[doc(alias("srcu_struct", "DEFINE_SRCU", "cleanup_srcu_struct"))]
#[derive(Clone)]
pub struct Domain {
    pub(crate) shared: Arc<Shared>,
}

/// The state that the handles to a domain share.
pub(crate) struct Shared {
    pub(super) front: CachePadded<Front>,
    /// I: the process that created the domain.
    process: Process,
    pub(super) slots: Slots,
    pub(super) periods: Periods,
    pub(super) callbacks: Callbacks,
    /// I: the threads that run callbacks.
    pub(super) runners: Handle,
}

pub(super) struct Front {
    /// A: the parity under which sections begin. Written by the driver.
    pub(super) parity: AtomicU32,
    /// A: 0, or one more than the parity for which a driver sleeps or a grace period was put aside.
    pub(super) asked: Futex,
    /// The phase of the current grace period; see `gp.rs`. It is guarded by the right to drive.
    pub(super) phase: AtomicU32,
}

impl Domain {
    /// Creates a domain without readers.
    ///
    /// # Blocking
    ///
    /// Never blocks. The first domain of a process registers for membarrier, which takes a few
    /// microseconds.
    #[doc(alias = "init_srcu_struct")]
    pub fn new() -> Self {
        asym::init();
        let front =
            Front { parity: AtomicU32::new(0), asked: Futex::new(0), phase: AtomicU32::new(0) };
        Self {
            shared: Arc::new(Shared {
                front: CachePadded::new(front),
                process: Process::this(),
                slots: Slots::new(),
                periods: Periods::new(),
                callbacks: Callbacks::default(),
                runners: runners(),
            }),
        }
    }

    /// Begins a section. Sections nest.
    ///
    /// # Blocking
    ///
    /// Never blocks. Costs a plain increment, and another one when the guard is dropped. A thread's
    /// first section in a domain may allocate. Do not call it in a signal handler, which could have
    /// interrupted an increment.
    #[doc(alias = "srcu_read_lock")]
    #[inline(always)]
    pub fn read(&self) -> Guard<'_> {
        Guard::new(self)
    }

    /// Begins a section whose guard keeps the domain alive.
    ///
    /// # Blocking
    ///
    /// The same as [`read`](Self::read).
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::rcu::srcu::Domain;
    ///
    /// let guard = Domain::new().read_owned();
    /// std::thread::spawn(move || drop(guard)).join().unwrap();
    /// ```
    #[doc(alias("srcu_down_read", "srcu_up_read"))]
    pub fn read_owned(&self) -> OwnedGuard {
        OwnedGuard::new(self.clone())
    }

    /// Waits until every section that has already begun has ended.
    ///
    /// # Blocking
    ///
    /// Blocks until the slowest section has ended. If a thread has just stopped reading, a
    /// membarrier adds about ten microseconds. It must not be called while this thread or task
    /// holds a guard of the domain, because it would wait for itself.
    #[doc(alias = "synchronize_srcu")]
    pub fn synchronize(&self) {
        self.shared.synchronize(false);
    }

    /// Waits as [`synchronize`](Self::synchronize) does, and spins longer before it sleeps.
    ///
    /// # Blocking
    ///
    /// The same as [`synchronize`](Self::synchronize). It spins for tens of microseconds at most.
    ///
    /// Differs from Linux: the plain form does not delay grace periods either, so this form gains
    /// little.
    #[doc(alias = "synchronize_srcu_expedited")]
    pub fn synchronize_expedited(&self) {
        self.shared.synchronize(true);
    }

    /// Returns a future that is ready when every section that began before its first poll has
    /// ended.
    ///
    /// # Blocking
    ///
    /// Never blocks. The first poll costs a [`call`](Self::call). A task that holds a guard of this
    /// domain would wait for itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::{rcu::srcu::Domain, workqueue};
    ///
    /// let domain = Domain::new();
    /// let waiting = domain.clone();
    /// let task = workqueue::system()?
    ///     .spawn_async(async move { waiting.synchronize_async().await });
    /// task.join()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn synchronize_async(&self) -> Synchronize<Self> {
        Synchronize { flavor: self.clone(), passed: None }
    }

    /// Returns a cookie for the first grace period that begins after this call. Starts no grace
    /// period.
    ///
    /// # Blocking
    ///
    /// Never blocks. Costs a full fence and a load.
    #[doc(alias = "get_state_synchronize_srcu")]
    pub fn get_state(&self) -> Cookie {
        self.shared.state()
    }

    /// Returns a cookie as [`get_state`](Self::get_state) does, and starts the grace period that it
    /// needs.
    ///
    /// # Blocking
    ///
    /// Blocks at most briefly, on a lock.
    #[doc(alias = "start_poll_synchronize_srcu")]
    pub fn start_poll(&self) -> Cookie {
        let cookie = self.get_state();
        self.call_at_once(|| ());
        cookie
    }

    /// Returns `true` if the grace period of `cookie` is over. If so, the effects of the sections
    /// that it waited for are visible.
    ///
    /// # Blocking
    ///
    /// Never blocks.
    #[doc(alias = "poll_state_synchronize_srcu")]
    pub fn poll_state(&self, cookie: Cookie) -> bool {
        self.shared.is_over(cookie)
    }

    /// Waits for the grace period of `cookie` if it is not over.
    ///
    /// # Blocking
    ///
    /// The same as [`synchronize`](Self::synchronize).
    pub fn cond_synchronize(&self, cookie: Cookie) {
        self.shared.wait_for(cookie, false);
    }

    /// Runs `callback` after a grace period, on a library thread. Callbacks run in the order of the
    /// calls.
    ///
    /// A few threads run the callbacks of all domains. The first call starts a thread, which exits
    /// after a second without callbacks. A callback may block, even to wait for callbacks of other
    /// domains: another thread then takes over the other domains within about ten milliseconds. A
    /// panic in a callback is caught and counted ([`nr_panicked`](Self::nr_panicked)), and the
    /// other callbacks run. Dropping the last handle does not wait for callbacks, but they still
    /// run. If a callback leaves a section of the domain open, later callbacks never run.
    ///
    /// # Blocking
    ///
    /// Blocks briefly, on a lock. If more than `rcu.qhimark` callbacks of this domain are waiting,
    /// it blocks as [`rcu::call`](crate::call) does. Allocates if the closure captures more than
    /// three words. It may be called in a section. If thread creation fails, later calls try again,
    /// and [`barrier`](Self::barrier) and the drop of the last handle run the callback.
    ///
    /// # Panics
    ///
    /// Panics if called in a child of `fork` on a domain of the parent. In that case `callback` is
    /// leaked, because a reader may still see the memory that it would free.
    #[doc(alias = "call_srcu")]
    pub fn call(&self, callback: impl FnOnce() + Send + 'static) {
        let nr = Shared::call(&self.shared, callback);
        Shared::slow_down(&self.shared, nr);
    }

    /// Runs `callback` as [`call`](Self::call) does, unless at least `rcu.qhimark` callbacks of
    /// this domain are waiting. Blocks at most briefly, on a lock.
    ///
    /// # Errors
    ///
    /// Returns [`Full`] with `callback`, which has not been queued.
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`call`](Self::call).
    ///
    /// # Examples
    ///
    /// ```
    /// let domain = afterwork::rcu::srcu::Domain::new();
    /// assert!(domain.try_call(|| ()).is_ok());
    /// ```
    pub fn try_call<F: FnOnce() + Send + 'static>(&self, callback: F) -> Result<(), Full<F>> {
        if self.is_full() {
            return Err(Full(callback));
        }
        self.call_at_once(callback);
        Ok(())
    }

    /// Waits until every callback that was queued before this call has run.
    ///
    /// # Blocking
    ///
    /// Blocks as [`synchronize`](Self::synchronize) does, and until the callbacks have run. Returns
    /// at once if there are none. It must not be called in a section of this domain.
    ///
    /// # Panics
    ///
    /// Panics if called in a callback of this domain, where it would wait for itself, or in a child
    /// of `fork` on a domain of the parent.
    #[doc(alias = "srcu_barrier")]
    pub fn barrier(&self) {
        Shared::barrier(&self.shared);
    }

    /// Returns the number of panics in callbacks that have been caught.
    pub fn nr_panicked(&self) -> u64 {
        self.shared.callbacks.nr_panicked.load(Ordering::Relaxed)
    }

    /// Returns `true` if both are handles to the same domain.
    pub fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Flavor for Domain {
    type Guard<'a> = Guard<'a>;

    #[inline(always)]
    fn read(&self) -> Guard<'_> {
        Guard::new(self)
    }

    fn synchronize(&self) {
        Self::synchronize(self);
    }

    fn call(&self, callback: impl FnOnce() + Send + 'static) {
        Self::call(self, callback);
    }

    fn call_at_once(&self, callback: impl FnOnce() + Send + 'static) {
        Shared::call(&self.shared, callback);
    }

    fn is_full(&self) -> bool {
        // In a child of `fork` the lock may be held forever, and `call_at_once` panics.
        let shared = &self.shared;
        shared.is_own_process() && Backlog::is_full(shared.callbacks.list.lock().waiting.len())
    }

    fn assert_may_wait(&self, _what: &str) {
        self.shared.must_be_free_to_wait();
    }

    fn assert_may_call(&self) {
        // With this twin, `call` panics too late, after the old version has been removed from its
        // cell.
        if !twin::armed("srcu: a refused callback is dropped") {
            self.shared.assert_own_process();
        }
    }

    fn is_served(&self) -> bool {
        Shared::is_served(&self.shared)
    }
}

#[cold]
pub(super) fn refuse() -> ! {
    panic!(
        "this srcu::Domain was created before the process was forked: its sections and callbacks may be of threads that are \
         not in the child; make a domain there"
    )
}

sync::on_drop!(Shared, it => if it.is_own_process() {
    it.run_the_rest();
});

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl Shared {
    #[inline(always)]
    pub(crate) fn enter(&self) -> Parity {
        let parity = self.parity();
        twin::linger("srcu: single flip", 64, 50);
        let Some(line) = self.slots.mine() else {
            self.slots.lock_shared(parity);
            return parity;
        };
        line.lock(parity);
        // ORDER(srcu-enter): store buffering, other end in `Shared::drive`.
        //   reader:       locks += 1;       light;  load PARK, then the section's reads
        //   grace period: the unlinked value, PARK;  heavy;  sum of locks
        // If our barrier comes first, the sums include our section. If the heavy barrier comes
        // first, our section sees PARK and that the value was unlinked.
        // Test: unparked_srcu_reader_protects_its_data
        if !twin::armed("srcu: no fence in enter") {
            asym::light();
        }
        self.slots.leave_parking(line);
        parity
    }

    /// Counts the end of a section, answers a driver, and wakes one that sleeps for the parity.
    #[inline(always)]
    pub(crate) fn leave(&self, parity: Parity) {
        if twin::torn_down() {
            return;
        }
        let parity =
            if twin::armed("srcu: parity read again at the end") { self.parity() } else { parity };
        match self.slots.mine() {
            Some(line) => {
                line.unlock(parity);
                // ORDER(srcu-leave): store buffering, other end in `drain`.
                //   reader:       unlocks += 1;  light;  read asked
                //   grace period: asked = 1 + p; heavy;  sum of unlocks
                // If our barrier comes first, the driver's sums include our unlock, and it does not
                // sleep. If the heavy barrier comes first, we see `asked` below, and wake the
                // driver.
                // Test: srcu_reader_protects_its_data
                if !twin::armed("srcu: no fence in leave") {
                    asym::light();
                }
                line.answer();
            }
            None => self.slots.unlock_shared(parity),
        }
        if self.front.asked.word().load(Ordering::Relaxed) == parity.word() + 1 {
            self.answer(parity);
        }
    }

    #[cold]
    fn answer(&self, parity: Parity) {
        // Acquire pairs with the Release in `ask`. If that store comes first, we see `is_aside`,
        // which was set before it. If our exchange comes first, it fails, or answers an earlier
        // driver on the futex.
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        let Front { asked, .. } = &*self.front;
        if asked.word().compare_exchange(parity.word() + 1, 0, acquire, relaxed).is_ok() {
            asked.wake(1);
            self.notify_if_aside();
        }
    }

    #[inline(always)]
    pub(super) fn parity(&self) -> Parity {
        Parity::of(self.front.parity.load(Ordering::Relaxed))
    }

    /// Panics as [`assert_own_process`](Self::assert_own_process) does, or in an item of a
    /// bottom-half queue. A function that waits must call this before its first change.
    pub(super) fn must_be_free_to_wait(&self) {
        self.assert_own_process();
        report::must_be_free_to_sleep();
    }

    pub(super) fn assert_own_process(&self) {
        if !self.is_own_process() {
            refuse();
        }
    }

    pub(super) fn is_own_process(&self) -> bool {
        self.process.is_this()
    }
}
