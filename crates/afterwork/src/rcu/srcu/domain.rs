//! A domain: what readers enter and grace periods are about.

use crossbeam_utils::CachePadded;
use sync::{
    asym,
    atomic::{AtomicU32, Ordering},
    fork::Process,
    futex::Futex,
    twin,
    unmodelled::Arc,
};

use super::{
    callback::{Callback, Callbacks},
    gp::{GracePeriods, Patience},
    guard::{Guard, OwnedGuard},
    slots::{Parity, Slots},
};

pub use super::gp::Cookie;
use crate::rcu::future::Synchronize;

/// Readers that may sleep, and the grace periods that wait for them and for nobody else.
///
/// Clones are handles to the same domain. Domains are made and dropped at any time and know nothing of each other.
///
/// # Guarantees
///
/// A grace period that begins after a value was unlinked ends after every section that could have reached the value.
/// One grace period serves all who asked before it began.
///
/// # Panics
///
/// In a child of `fork` sections of a domain that the parent made may begin and end, but whatever waits for a grace period
/// or hands a callback over panics: guards move between threads, so nobody can tell which sections are of threads that the
/// child does not have. Make domains there.
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
#[derive(Clone, Debug)]
pub struct Domain {
    shared: Arc<Shared>,
}

/// What the handles of a domain share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Read by every section.
    front: CachePadded<Front>,
    /// I: where it was made.
    process: Process,
    pub(super) slots: Slots,
    pub(super) gp: GracePeriods,
    pub(super) callbacks: Callbacks,
}

#[derive(Debug)]
struct Front {
    /// A: under which parity sections begin; written by whoever drives a grace period.
    parity: AtomicU32,
    /// A: 0, or one more than the parity that a sleeping grace period waits for.
    asked: Futex,
}

impl Domain {
    /// Makes a domain without readers.
    ///
    /// # Blocking
    ///
    /// The first one of a process registers for membarrier: some microseconds.
    pub fn new() -> Self {
        asym::init();
        let front = Front {
            parity: AtomicU32::new(0),
            asked: Futex::new(0),
        };
        Self {
            shared: Arc::new(Shared {
                front: CachePadded::new(front),
                process: Process::this(),
                slots: Slots::new(),
                gp: GracePeriods::new(),
                callbacks: Callbacks::new(),
            }),
        }
    }

    /// Begins a section; it nests.
    ///
    /// # Blocking
    ///
    /// Never: a plain increment, and another one when the guard is dropped. A thread's first section in a domain may
    /// allocate. Not from a signal handler, which could interrupt an increment.
    #[inline(always)]
    pub fn read(&self) -> Guard<'_> {
        Guard::new(self)
    }

    /// Begins a section whose guard keeps the domain alive.
    ///
    /// # Blocking
    ///
    /// Never, as [`read`](Self::read).
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::rcu::srcu::Domain;
    ///
    /// let guard = Domain::new().read_owned();
    /// std::thread::spawn(move || drop(guard)).join().unwrap();
    /// ```
    pub fn read_owned(&self) -> OwnedGuard {
        OwnedGuard::new(self.clone())
    }

    /// See [`Flavor`](crate::rcu::Flavor).
    pub(in crate::rcu) fn is_served(&self) -> bool {
        Shared::is_served(&self.shared)
    }

    /// Panics in a child of `fork`: see the panics of [`Domain`].
    pub(in crate::rcu) fn assert_at_home(&self) {
        self.shared.must_be_at_home();
    }

    /// Waits until every section that has begun is over.
    ///
    /// # Blocking
    ///
    /// As long as the slowest of them. A membarrier, some ten microseconds, when there is none. Never call it while
    /// holding a guard of this domain, on this thread or in this task: it would wait for itself.
    pub fn synchronize(&self) {
        self.shared.wait_for(self.get_state(), Patience::Normal);
    }

    /// Waits as [`synchronize`](Self::synchronize) does, and looks for the end longer before it sleeps.
    ///
    /// # Blocking
    ///
    /// As [`synchronize`](Self::synchronize); it burns CPU for up to some tens of microseconds.
    ///
    /// Differs from Linux: the plain one does not wait for company either, so little is left to expedite.
    pub fn synchronize_expedited(&self) {
        self.shared.wait_for(self.get_state(), Patience::Expedited);
    }

    /// Waits as [`synchronize`](Self::synchronize) does, as a future; from when it is first polled.
    ///
    /// # Blocking
    ///
    /// Never; polling it first is a [`call`](Self::call). A task that holds a guard of this domain waits for itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::{rcu::srcu::Domain, workqueue};
    ///
    /// let domain = Domain::new();
    /// let waiting = domain.clone();
    /// let task = workqueue::system()?.spawn_async(async move { waiting.synchronize_async().await });
    /// task.join()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn synchronize_async(&self) -> Synchronize<Self> {
        Synchronize::of(self.clone())
    }

    /// Returns a cookie for the first grace period that begins from now on; starts none.
    ///
    /// # Blocking
    ///
    /// Never. A full fence and a load.
    pub fn get_state(&self) -> Cookie {
        self.shared.gp.snap()
    }

    /// Returns a cookie as [`get_state`](Self::get_state) does, and sees to it that its grace period comes.
    ///
    /// # Blocking
    ///
    /// As [`call`](Self::call).
    pub fn start_poll(&self) -> Cookie {
        let cookie = self.get_state();
        self.call(|| ());
        cookie
    }

    /// Returns `true` if the grace period of `cookie` is over; what its sections did is visible then.
    ///
    /// # Blocking
    ///
    /// Never.
    pub fn poll_state(&self, cookie: Cookie) -> bool {
        self.shared.gp.is_over(cookie)
    }

    /// Waits for the grace period of `cookie`, if it is not over yet.
    ///
    /// # Blocking
    ///
    /// As [`synchronize`](Self::synchronize).
    pub fn cond_synchronize(&self, cookie: Cookie) {
        self.shared.wait_for(cookie, Patience::Normal);
    }

    /// Runs `callback` on a thread of the domain after a grace period; in the order of the calls.
    ///
    /// The thread starts with the first callback and ends when it had none for a second. A callback that panics is
    /// counted ([`nr_panicked`](Self::nr_panicked)) and the others run. Dropping the last handle does not wait for
    /// callbacks: they run all the same. One that leaves a section of the domain open keeps all later ones from running.
    ///
    /// # Blocking
    ///
    /// A short lock; may be called in a section. When the system refuses the thread, the callback waits for the next
    /// `call`, for [`barrier`](Self::barrier), or for the last handle's drop, of which the latter two run it themselves.
    ///
    /// # Panics
    ///
    /// In a child of `fork`, of a domain that the parent made; `callback` is leaked then, for a reader may still see what
    /// it is to free.
    pub fn call(&self, callback: impl FnOnce() + Send + 'static) {
        Shared::call(&self.shared, Callback::new(callback));
    }

    /// Waits until every callback that was handed over before has run.
    ///
    /// # Blocking
    ///
    /// As [`synchronize`](Self::synchronize), and as long as they run; nothing when there are none. Never in a section of
    /// this domain.
    ///
    /// # Panics
    ///
    /// In a callback of this domain, which would wait for itself.
    pub fn barrier(&self) {
        self.shared.barrier();
    }

    /// Returns how many callbacks have panicked.
    pub fn nr_panicked(&self) -> u64 {
        self.shared.callbacks.nr_panicked()
    }

    /// Returns `true` if both are handles of the same domain.
    pub fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    #[inline(always)]
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }
}

#[cold]
pub(super) fn refuse() -> ! {
    panic!(
        "this srcu::Domain was made before the process was forked: its sections and callbacks may be of threads that are \
         not in the child; make a domain there"
    )
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !twin::torn_down() && self.is_at_home() {
            self.run_the_rest();
        }
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl Shared {
    /// Counts a section that begins, and returns what it was counted under.
    #[inline(always)]
    pub(super) fn enter(&self) -> Parity {
        let parity = self.parity();
        twin::linger("srcu: single flip", 64, 50);
        self.slots.lock(parity);
        // ORDER(srcu-enter): store buffering, other end in `run_grace_period`.
        //   reader:       locks += 1;       light;  the section's reads
        //   grace period: the unlinked value, seq;  heavy;  sum of locks
        // Either the sums see the section, or the section sees what was unlinked.
        // Test: srcu_section_needs_its_fence
        if !twin::armed("srcu: no fence in enter") {
            asym::light();
        }
        parity
    }

    /// Counts the end of a section, and wakes the grace period that sleeps for it.
    #[inline(always)]
    pub(super) fn leave(&self, parity: Parity) {
        if twin::torn_down() {
            return;
        }
        let parity = if twin::armed("srcu: parity read again at the end") {
            self.parity()
        } else {
            parity
        };
        self.slots.unlock(parity);
        // ORDER(srcu-leave): store buffering, other end in `drain`.
        //   reader:       unlocks += 1;  light;  read asked
        //   grace period: asked = 1 + p; heavy;  sum of unlocks
        // Either the grace period sees the end, or the reader sees that it is asked.
        // Test: srcu_leaving_needs_its_fence
        if !twin::armed("srcu: no fence in leave") {
            asym::light();
        }
        if self.asked().word().load(Ordering::Relaxed) == parity.word() + 1 {
            self.answer(parity);
        }
    }

    #[cold]
    fn answer(&self, parity: Parity) {
        let taken = self.asked().word().compare_exchange(
            parity.word() + 1,
            0,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if taken.is_ok() {
            self.asked().wake(1);
        }
    }

    /// Returns the parity under which sections begin now.
    #[inline(always)]
    pub(super) fn parity(&self) -> Parity {
        Parity::of(self.front.parity.load(Ordering::Relaxed))
    }

    pub(super) fn set_parity(&self, parity: Parity) {
        self.front.parity.store(parity.word(), Ordering::Relaxed);
    }

    /// Before anything that waits for sections or callbacks.
    ///
    /// # Panics
    ///
    /// In a child of `fork`: some may be of threads that are not there, and nobody can tell which.
    pub(super) fn must_be_at_home(&self) {
        if !self.is_at_home() {
            refuse();
        }
    }

    /// Returns `true` if this is the process in which the domain was made.
    pub(super) fn is_at_home(&self) -> bool {
        self.process.is_this()
    }

    #[inline(always)]
    pub(super) fn asked(&self) -> &Futex {
        &self.front.asked
    }
}
