//! The timers of one registry, and how they queue items.
//!
//! # The protocol
//!
//! A delayed item has its own lock, which guards whether the item is *armed*, and which all
//! operations on its timer hold: arming, changing, cancelling and firing. A cancel that finds the
//! item armed has won. A thread that later removes the timer from the wheel finds it disarmed, or
//! armed again with another *generation*.
//!
//! ```text
//! arm, mod:  item's lock:  generation += 1;  wheel's lock: insert the timer
//!            if it is the first in the wheel, wake the manager
//! cancel:    item's lock:  generation += 1;  wheel's lock: remove the timer
//! manager:   wheel's lock: remove the expired timers
//!            item's lock:  same generation? disarm;  claim the item  then push it
//! ```
//!
//! Claiming the item makes it pending before its lock is released. The item is therefore armed or
//! pending at every moment, so that no thread can arm it twice or miss it.
//!
//! The manager never waits for an item's lock, because the holder may wait for a worker. It also
//! never cuts a list link out of another queue, which may be paused. Instead, it hands the item,
//! which stays armed and is in no wheel, over to a reaper, which waits for the item's lock and
//! otherwise acts as the manager does.
//!
//! Destroying the queue removes its timers from the wheel, and drops the items that they would have
//! queued. If an item has other handles, their next operation finds it disarmed.
//!
//! Cancelling everything that is armed for a queue acquires no item's lock. The queue counts such
//! cancels, and each timer records the count at which it was armed. A timer with an older count is
//! treated as disarmed. The count is read and changed under the wheel's lock, so a cancel removes
//! exactly the older timers from the wheel. A timer that was removed earlier to be fired counts as
//! a visit, for which the canceller waits (`end.rs`). On a destroyed queue every timer is treated
//! as disarmed, because a thread that saw the queue open may arm a timer late.
//!
//! A timer is linked into the wheel, and into the ring of its queue, through the memory of its
//! item, under the lock of the wheel. Only a thread that holds the item's lock inserts the timer,
//! after it has removed the timer from any other wheel.
//!
//! The wheel also contains the items of the C API (`crates/raw`), with a [`Kind`] of their own.
//! Sleeping tasks have other wheels (`sleeps.rs`). An item that waits for an RCU grace period
//! (`rcu_work.rs`) is in no wheel, and a callback fires it; the manager does the work that the
//! callback cannot do at once.

use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::time::Duration;

use base::internal::trace;
use item::internal::cleanups::Cleanup;
use item::internal::head::Dead;
use sync::atomic::{AtomicU64, Ordering};
use sync::fork::{Inherited, Process};
use sync::time::nanos;
use sync::unmodelled::Arc;
use sync::{Mutex, MutexGuard, cpu, twin};
use topology::CpuId;

use super::admission::TrySpawnError;
use super::clock::Clock;
use super::end::WeakQueue;
use super::enqueue::Claimed;
use super::queue::Inner;
use super::sleeps::Sleeps;
use super::task::TaskOptions;
use super::wheel::{self, Link, rounded_ns};
use crate::execute::run::CountToRelease;
use crate::execute::wait::must_not_be_lost;
use crate::execute::work::Work;
use crate::pools::manager::Manager;

/// The function that expires a timer of this kind. The manager calls it with the lock of the wheel,
/// from which it has just removed the timer. The function either adds the item of the timer to the
/// vector and returns the lock, or completes the expiry itself and has unlocked the wheel.
#[derive(Debug)]
pub struct Kind(pub Expire);

/// The function of a [`Kind`].
pub type Expire = for<'a> unsafe fn(NonNull<Node>, Guard<'a>, &mut Vec<Due>) -> Option<Guard<'a>>;

/// The lock of a wheel.
pub type Guard<'a> = MutexGuard<'a, Wheel>;

/// The links of a timer in the wheel.
pub type Node = wheel::Node<&'static Kind>;

/// The timers, ordered by expiry time.
pub type Wheel = wheel::Wheel<&'static Kind>;

static ITEM: Kind = Kind(expire_item);

/// The item that a timer queues when it expires.
pub struct Due {
    timer: Arc<Timer>,
    work: Work,
    generation: u64,
}

/// The timers of one registry.
pub struct Timers {
    /// I
    pub(crate) clock: Clock,
    pub(crate) wheel: Mutex<Wheel>,
    pub(super) sleeps: Sleeps,
    /// I: the manager, whose thread fires the timers.
    pub(crate) manager: Arc<Manager>,
    /// I: the process that created the registry.
    pub(super) process: Process,
}

pub(crate) struct OwnTimers {
    /// I: the registry's timers, to which these belong.
    pub(crate) all: Arc<Timers>,
    /// The ring of the queue's timers that are in the wheel; guarded by the wheel's lock.
    ring: UnsafeCell<Link>,
    /// A, changed under the wheel's lock: the number of times that all timers were cancelled.
    nr_cancels: AtomicU64,
}

pub(crate) struct Timer {
    pub(crate) state: Mutex<State>,
    owner: Inherited,
    /// The timer's place, guarded by the lock of the wheel that the item is or was last armed in.
    place: UnsafeCell<Place>,
}

// SAFETY: the place is accessed under the lock of one wheel at a time, and all its parts are
// `Send`.
unsafe impl Send for Timer {}
// SAFETY: as above.
unsafe impl Sync for Timer {}

#[repr(C)]
struct Place {
    node: Node,
    /// The link in the ring of the queue for which it is armed.
    own: Link,
    /// The item, while it is in the wheel. It keeps alive the timer that contains this field.
    due: Option<Due>,
}

#[derive(Default)]
pub(crate) struct State {
    /// A number that changes when the timer is armed or disarmed.
    pub(crate) generation: u64,
    pub(crate) armed: Option<Armed>,
    slack_ns: u64,
}

pub(crate) struct Armed {
    pub(crate) until: Until,
    queue: WeakQueue,
    /// The CPU on which it was armed, and on which it is queued.
    cpu: CpuId,
    nr_cancels: u64,
}

pub(crate) enum Until {
    Time(Arc<Timers>),
    #[cfg_attr(not(feature = "rcu"), expect(dead_code, reason = "created only for `RcuWork`"))]
    GracePeriod,
}

#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Arming {
    /// The timer is armed, or the item was queued because the delay is zero.
    Done,
    Pending,
    /// The item is disabled, or the queue rejects it.
    Refused(TrySpawnError),
}

/// An expired item that a reaper queues, because its lock is held, or because its list link must be
/// cut out of another list first.
struct Late(Due);

/// Values that are removed under an item's lock and may be last handles to user data. They are
/// dropped after the lock is released.
#[derive(Default)]
pub(crate) struct Dust {
    due: Option<Due>,
    queue: Option<Arc<Inner>>,
}

impl Default for Timer {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            owner: Inherited::by_children(),
            place: UnsafeCell::new(Place { node: Node::new(&ITEM), own: Link::NONE, due: None }),
        }
    }
}

impl Timer {
    pub(crate) fn set_slack(&self, slack: Duration) {
        if !self.is_lost() {
            self.state.lock().slack_ns = nanos(slack);
        }
    }

    /// Returns `true` in a child of `fork` if the parent had armed or locked the item at the fork.
    /// Its lock may then be held forever.
    pub(crate) fn is_lost(&self) -> bool {
        let is_free = |state: MutexGuard<'_, State>| state.armed.is_none();
        self.owner.is_lost(|| self.state.try_lock().is_some_and(is_free))
    }

    /// Locks the item. Disarms it if its queue was destroyed, or has cancelled all timers.
    pub(crate) fn lock<'a>(&'a self, dust: &'a mut Dust) -> MutexGuard<'a, State> {
        let mut state = self.state.lock();
        if let Some(armed) = &state.armed {
            dust.queue = armed.queue.upgrade();
            let is_off = |queue: &Arc<Inner>| queue.has_ended() || armed.is_cancelled(queue);
            if dust.queue.as_ref().is_none_or(is_off) {
                dust.due = state.disarm(self).flatten();
            }
        }
        state
    }

    pub(crate) fn is_armed(&self) -> bool {
        if self.is_lost() {
            return true;
        }
        let mut dust = Dust::default();
        self.lock(&mut dust).armed.is_some()
    }

    /// Arms the timer so that it queues the item with `options`. If `was_armed` is given, an item
    /// that is armed is moved, and `was_armed` is set.
    pub(crate) fn arm(
        self: &Arc<Self>,
        work: &Work,
        options: &TaskOptions<'_>,
        delay: Duration,
        was_armed: Option<&mut bool>,
    ) -> Arming {
        let (queue, weak, cpu) = options.later();
        queue.inner.must_be_at_home();
        must_not_be_lost(self.is_lost() || work.is_lost());
        // Without a delay the item is claimed under the lock, so its span is captured before that.
        let _held = trace::hold();
        // This is dropped after the lock is released.
        let disarmed;
        let mut dust = Dust::default();
        let mut state = self.lock(&mut dust);
        if work.is_disabled() && !twin::armed("delayed: arming overlooks disable") {
            return Arming::Refused(TrySpawnError::DISABLED);
        }
        if was_armed.is_none() && (state.armed.is_some() || work.is_pending()) {
            return Arming::Pending;
        }
        let is_now = delay.is_zero();
        // A queue that rejects the item does not disarm it. No timer outlives the end of a queue,
        // so its own items may only queue items without a delay then.
        let is_too_late = !is_now && queue.inner.closed.is_destroyed();
        if is_too_late || !queue.admits() {
            return Arming::Refused(TrySpawnError::CLOSED);
        }
        let claimed = is_now.then(|| queue.inner.claim(cpu, work, weak.lane)).flatten();
        // An armed item that cannot be claimed now stays armed.
        if claimed.is_none() && (is_now || work.is_pending()) {
            return Arming::Pending;
        }
        disarmed = state.disarm(self);
        if let Some(was_armed) = was_armed {
            *was_armed |= disarmed.is_some();
        }
        let mut wakes = None;
        if !is_now {
            let now_ns = queue.inner.timers.all.clock.now_ns();
            let at_ns = now_ns.saturating_add(nanos(delay));
            let at_ns = rounded_ns(at_ns, state.slack_ns);
            let place = (weak, cpu.unwrap_or_else(cpu::current));
            let is_first = state.put(self, work, &queue.inner, place, at_ns);
            wakes = is_first.then(|| queue.inner.manager.clone());
        }
        drop(state);
        let _left = claimed.and_then(Claimed::push);
        drop(disarmed);
        if let Some(manager) = wakes {
            manager.wake();
        }
        Arming::Done
    }

    /// Arms the timer to queue the item on `inner` at `at_ns`. Does nothing if the item is pending
    /// or disabled, if the queue was destroyed or has lost its last handle, or if its number of
    /// bulk cancels differs from `nr_cancels`.
    pub(crate) fn arm_at(
        self: &Arc<Self>,
        work: &Work,
        inner: &Inner,
        weak: WeakQueue,
        at_ns: u64,
        nr_cancels: u64,
    ) {
        // These are dropped after the lock is released and the visit has ended.
        let _disarmed;
        let mut dust = Dust::default();
        let Some(queue) = inner.visit().filter(|_| !inner.closed.is_destroyed()) else {
            return;
        };
        let mut state = self.lock(&mut dust);
        let is_disabled = work.is_disabled() && !twin::armed("every: arms a disabled item");
        if state.armed.is_some() || is_disabled || work.is_pending() {
            return;
        }
        let is_first = state.put(self, work, &queue, (weak, cpu::current()), at_ns);
        // If the queue cancels everything after this check, it finds the timer in the wheel.
        let is_old = |armed: &Armed| armed.nr_cancels != nr_cancels;
        if state.armed.as_ref().is_some_and(is_old) && !twin::armed("every: arms a cancelled item")
        {
            _disarmed = state.disarm(self);
        }
        drop(state);
        // Wake the manager even if the timer was removed, because a later timer may rely on it.
        if is_first {
            queue.manager.wake();
        }
    }

    pub(crate) fn disarm(&self) -> bool {
        if self.is_lost() {
            return false;
        }
        // This is dropped after the lock is released.
        let mut dust = Dust::default();
        let disarmed = self.lock(&mut dust).disarm(self);
        disarmed.is_some()
    }

    /// Queues the item now if its timer is armed, even during a drain, as firing the timer would.
    /// An item that waits for a grace period keeps waiting. Returns `true` if it was armed, queued
    /// or running, or `None` if another thread is disabling the item or destroying the queue.
    pub(crate) fn expedite(&self, work: &Work) -> Option<bool> {
        must_not_be_lost(self.is_lost());
        // These may be last handles. They are dropped after the unlock and the visit.
        let (queue, disarmed);
        let mut dust = Dust::default();
        let mut state = self.lock(&mut dust);
        if state.awaits_grace_period().is_some() {
            return Some(false);
        }
        let Some(armed) = &state.armed else {
            return Some(work.is_busy());
        };
        queue = armed.queue.upgrade()?;
        queue.must_be_at_home();
        // If the queue is being destroyed, the next attempt finds the timer disarmed.
        let queue = queue.visit()?;
        let claimed = queue.claim_at(armed.cpu, work, armed.queue.lane)?;
        disarmed = state.disarm(self);
        drop(state);
        let _left = claimed.push();
        drop((queue, disarmed));
        Some(true)
    }
}

impl State {
    /// Arms the timer for `inner`. The caller keeps `inner` from being destroyed.
    fn put(
        &mut self,
        timer: &Arc<Timer>,
        work: &Work,
        inner: &Inner,
        (queue, cpu): (WeakQueue, CpuId),
        at_ns: u64,
    ) -> bool {
        let due = self.next_due(timer, work);
        let (is_first, nr_cancels) = inner.timers.insert(at_ns, due);
        let until = Until::Time(inner.timers.all.clone());
        self.armed = Some(Armed { until, queue, cpu, nr_cancels });
        is_first
    }

    /// Arms the item for `inner`. The caller fires the result after a grace period.
    #[cfg(feature = "rcu")]
    pub(crate) fn put_aside(
        &mut self,
        timer: &Arc<Timer>,
        work: &Work,
        inner: &Inner,
        (queue, cpu): (WeakQueue, CpuId),
    ) -> Due {
        self.armed = Some(Armed {
            until: Until::GracePeriod,
            queue,
            cpu,
            nr_cancels: inner.timers.nr_cancels(),
        });
        self.next_due(timer, work)
    }

    fn next_due(&mut self, timer: &Arc<Timer>, work: &Work) -> Due {
        self.generation += 1;
        Due { timer: timer.clone(), work: work.clone(), generation: self.generation }
    }

    /// Returns the generation of an item that waits for a grace period.
    pub(crate) fn awaits_grace_period(&self) -> Option<u64> {
        let armed = self.armed.as_ref()?;
        matches!(armed.until, Until::GracePeriod).then_some(self.generation)
    }

    /// Disarms the item of `timer`. Returns the content of the timer, which may hold the last
    /// handle to the item; `None` if the item was not armed.
    fn disarm(&mut self, timer: &Timer) -> Option<Option<Due>> {
        let armed = self.armed.take()?;
        self.generation += 1;
        // A manager or callback that holds the item finds that its generation is outdated.
        let Until::Time(timers) = armed.until else {
            return Some(None);
        };
        let mut wheel = timers.wheel.lock();
        let place = timer.place.get();
        // SAFETY: the caller holds the item's lock, so this is the wheel in which the timer is, or
        // was last; we hold its lock.
        Some(unsafe {
            if (*place).node.is_linked() {
                wheel.remove(Place::node(place));
            }
            Place::take(place)
        })
    }
}

impl Timers {
    pub(crate) fn new(manager: &Arc<Manager>, clock: Clock, sleeps: Sleeps) -> Self {
        Self {
            wheel: Mutex::new(Wheel::new(clock.tick_shift())),
            clock,
            sleeps,
            manager: manager.clone(),
            process: Process::this(),
        }
    }

    /// Returns the time at which [`fire`](Self::fire) must be called next.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let next_ns = self.wheel.lock().next_ns();
        let sleep_ns = self.sleeps.next_ns();
        next_ns.into_iter().chain(sleep_ns).min()
    }

    /// Queues the items and wakes the tasks whose time has come. Reapers run user code.
    pub(crate) fn fire(&self, now_ns: u64) {
        let mut expired = Vec::new();
        let mut wheel = self.wheel.lock();
        while let Some(node) = wheel.pop(now_ns) {
            // SAFETY: the node was in the wheel, and stays valid while we hold the lock.
            let Kind(expire) = unsafe { node.as_ref() }.kind;
            // SAFETY: the node has this kind, and was just removed.
            let rest = unsafe { expire(node, wheel, &mut expired) };
            wheel = rest.unwrap_or_else(|| self.wheel.lock());
        }
        drop(wheel);
        let fired = expired.into_iter().filter_map(|due| due.fire(self));
        self.manager.leave_to_reapers(fired);
        self.fire_sleeps(now_ns);
    }
}

impl OwnTimers {
    pub(crate) fn new(all: &Arc<Timers>) -> Self {
        Self { all: all.clone(), ring: UnsafeCell::new(Link::NONE), nr_cancels: AtomicU64::new(0) }
    }

    /// Inserts the timer of `due` into the wheel. Returns `true` if it is the first to expire, and
    /// the current cancel count.
    fn insert(&self, at_ns: u64, due: Due) -> (bool, u64) {
        let mut wheel = self.all.wheel.lock();
        let place = due.timer.place.get();
        // SAFETY: the caller holds the lock of the item, which is not armed, so its timer is in no
        // wheel. `due` keeps the timer allocated, and the queue does not move until `sweep`. The
        // wheel's lock is held here, and wherever these are used.
        let is_first = unsafe {
            (*place).due = Some(due);
            Link::push(self.ring.get(), &raw mut (*place).own);
            wheel.insert(Place::node(place), at_ns)
        };
        (is_first, self.nr_cancels())
    }

    pub(crate) fn nr_cancels(&self) -> u64 {
        // Relaxed suffices: the wheel's lock or a visit orders readers that must see a cancel after
        // it.
        self.nr_cancels.load(Ordering::Relaxed)
    }

    /// Cancels all armed timers. Returns the items from the wheel, to be dropped with no lock held.
    pub(crate) fn cancel(&self) -> Vec<Due> {
        let mut wheel = self.all.wheel.lock();
        self.nr_cancels.fetch_add(1, Ordering::Relaxed);
        self.take_out(&mut wheel)
    }

    /// Removes all armed timers, once no thread can arm a timer for the queue. Returns the items
    /// whose last handle was dropped.
    pub(crate) fn sweep(&self) -> Vec<Dead> {
        if twin::armed("end: leaves its timers") {
            return Vec::new();
        }
        let due = self.take_out(&mut self.all.wheel.lock());
        due.into_iter().filter_map(Due::leave).collect()
    }

    fn take_out(&self, wheel: &mut Wheel) -> Vec<Due> {
        let take_out = |own: NonNull<Link>| {
            // SAFETY: the caller holds the lock of `wheel`, which contains all timers of the ring.
            unsafe {
                let place = own.byte_sub(offset_of!(Place, own)).cast::<Place>().as_ptr();
                wheel.remove(Place::node(place));
                Place::take(place)
            }
        };
        // SAFETY: as above.
        unsafe { Link::members(self.ring.get()) }.filter_map(take_out).collect()
    }
}

// SAFETY: the ring is accessed only under the lock of the wheel, and its members are `Send`.
unsafe impl Send for OwnTimers {}
// SAFETY: as above.
unsafe impl Sync for OwnTimers {}

impl Place {
    fn node(this: *mut Self) -> NonNull<Node> {
        NonNull::new(this.cast()).expect("the address of a timer")
    }

    /// Removes the item, if there is one, and unlinks the timer from the ring of its queue.
    ///
    /// # Safety
    ///
    /// 1. `this` is in no wheel, and the caller holds the lock of the wheel that it was in last.
    unsafe fn take(this: *mut Self) -> Option<Due> {
        // SAFETY: (1); the timer is in the ring as long as it has the item.
        unsafe {
            let due = (*this).due.take();
            if due.is_some() {
                Link::unlink(&raw mut (*this).own);
            }
            due
        }
    }
}

/// Expires the timer of an item.
///
/// # Safety
///
/// 1. `node` is the first field of a [`Place`], and was just removed from `wheel`.
unsafe fn expire_item<'a>(
    node: NonNull<Node>,
    wheel: Guard<'a>,
    expired: &mut Vec<Due>,
) -> Option<Guard<'a>> {
    // SAFETY: (1), and the lock of the wheel is held.
    let due = unsafe { Place::take(node.as_ptr().cast()) };
    expired.extend(due);
    Some(wheel)
}

impl Armed {
    fn is_cancelled(&self, queue: &Inner) -> bool {
        let is_closed =
            queue.closed.is_destroyed() && !twin::armed("destroy: forgets arming timers");
        self.nr_cancels != queue.timers.nr_cancels() || is_closed
    }
}

impl Due {
    pub(crate) fn func(&self) -> &'static str {
        (self.work.head().vtable().name)()
    }

    /// Drops this handle. Returns the item if it must be freed; freeing it runs user code.
    pub(crate) fn leave(self) -> Option<Dead> {
        self.work.leave()
    }

    /// Queues the item if its generation is current. Returns the item if it must be freed; freeing
    /// it runs user code.
    pub(crate) fn fire(self, timers: &Timers) -> Option<Dead> {
        let state = self.timer.state.try_lock();
        let Some(left) = state.and_then(|state| self.fire_locked(state, false)) else {
            timers.manager.leave_to_reapers([Late(self)]);
            return None;
        };
        timers.manager.leave_to_reapers(left);
        self.work.leave()
    }

    /// Queues the item if its generation is current. Returns its in-flight count on another pwq, if
    /// it has one. Returns `None` if the item's list link must be cut out first, unless `may_cut`.
    fn fire_locked(
        &self,
        state: MutexGuard<'_, State>,
        may_cut: bool,
    ) -> Option<Option<CountToRelease>> {
        // These are dropped after the lock is released and the visit has ended.
        let queue;
        let mut state = state;
        let is_ours = state.generation == self.generation;
        if !is_ours && !twin::armed("delayed: fires a changed timer") {
            return Some(None);
        }
        let Some(armed) = state.armed.take() else {
            return Some(None);
        };
        queue = armed.queue.upgrade();
        let Some(queue) = queue.as_deref().and_then(Inner::visit) else {
            // The queue was destroyed together with its timers.
            return Some(None);
        };
        if armed.is_cancelled(&queue) && !twin::armed("cancel all: forgets firing timers") {
            return Some(None);
        }
        let lane = armed.queue.lane;
        if !may_cut && queue.must_cut_out(&self.work, lane) {
            state.armed = Some(armed);
            return None;
        }
        let early = twin::armed("delayed: unlocks before it claims");
        let mut held = (!early).then_some(state);
        let claimed = queue.claim_at(armed.cpu, &self.work, lane);
        if let (None, Some(state)) = (&claimed, &mut held)
            && !twin::armed("delayed: firing overlooks disable")
        {
            // The thread that disables the item is about to disarm it, and to return `true`.
            state.armed = Some(armed);
        }
        drop(held);
        Some(claimed.and_then(Claimed::push))
    }
}

impl Cleanup for Late {
    fn run(self: Box<Self>) {
        let Self(due) = *self;
        drop(due.fire_locked(due.timer.state.lock(), true));
        // FOREIGN(item-free): an item without handles, on a reaper; a panic is contained by `Dead`.
        drop(due.leave());
    }
}

// The count of an item that was fired by a thread that must not run user code.
impl Cleanup for CountToRelease {}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use base::internal::params::Params;
    use topology::Topology;

    use super::*;
    use crate::queues::queue::Workqueue;
    use crate::queues::registry::Registry;

    #[test]
    fn count_on_another_pwq_is_released_without_new_threads() {
        let machine = Topology::synthetic("1 core").unwrap();
        let registry = Registry::new(machine, Params::default()).unwrap();
        let build = |name| Workqueue::builder(name).build_in(&registry).unwrap();
        let (former, next) = (build("former"), build("next"));
        let work = Work::new(|| ());
        former.pause();
        assert!(former.enqueue(&work) && work.cancel());
        // Claims like a timer whose item has been queued on another queue since it was armed.
        let claimed = next.inner.claim(None, &work, next.lane).unwrap();
        let left = claimed.push().expect("its cancelled list entry is elsewhere");
        registry.refuse_threads(true);
        let manager = &next.inner.manager;
        manager.leave_to_reapers([left]);
        let ended = former.drain_timeout(Duration::from_secs(20));
        registry.refuse_threads(false);
        ended.unwrap();
    }
}
