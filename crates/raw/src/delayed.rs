//! A raw item with a timer.
//!
//! # The protocol
//!
//! The wheel of the process-wide registry holds all these timers, so one lock guards them. While a
//! timer is armed, it holds the claim on its item: a producer finds the item pending, and no
//! canceller can claim it. Only the thread that removes the timer from the wheel may change an
//! armed item, under that lock:
//!
//! ```text
//! arm:     lock:  transition from idle to armed;  insert the timer;  unlock;  wake the manager if
//!          the timer is the first
//! disarm:  lock:  armed?  remove the timer;  transition to not armed
//! move:    armed, or claimed and removed from its list;
//!          lock:  remove the timer;  transition to armed or pending;  insert the timer, or push
//! manager: lock:  remove an expired timer;  enter the queue;  write the home pwq;
//!          transition to pending;  unlock;  push the item
//! ```
//!
//! An item outside the wheel is therefore always claimed, pending or idle. A thread that moves an
//! item never makes it idle. The owner of a queue disarms its timers before it destroys the queue,
//! and a queue is not destroyed while a thread is inside it (`queues/end.rs` of
//! `crates/workqueue`).
//!
//! A child of `fork` has its own registry, whose wheel does not contain the items that the parent
//! armed. Such an item becomes idle as soon as a thread of the child accesses it.

use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;
use std::time::Duration;
use std::{fmt, mem, ptr};

use sync::fork::Process;
use sync::{Backoff, cpu, process, time};
use topology::CpuId;
use workqueue::Workqueue;
use workqueue::internal::{self, Due, Guard, Held, Kind, Node, Place, State, Timers, Wheel};

use crate::work::{Claim, Misuse, RawWork};

/// A work item with a timer, in the caller's memory, like the kernel's `struct delayed_work`. While
/// the timer is not armed, [`work`](Self::work) can be used like any other item.
///
/// As for [`RawWork`], a function returns [`Misuse::Uninitialized`], [`Misuse::Misaligned`] or
/// [`Misuse::NoFunction`] if the address is not that of a valid item.
#[repr(C)]
pub struct RawDelayed {
    work: RawWork,
    /// Guarded by the lock of the wheel.
    timer: UnsafeCell<Timer>,
}

// SAFETY: the timer is guarded by a lock, and a `RawWork` is `Send`.
unsafe impl Send for RawDelayed {}
// SAFETY: as above.
unsafe impl Sync for RawDelayed {}

#[derive(Debug)]
#[repr(C)]
struct Timer {
    node: Node,
    /// The queue that receives the item when the timer expires.
    queue: *const Workqueue,
    cpu: u32,
    /// The process that last armed the timer.
    process: Process,
}

static RAW: Kind = Kind(expire_node);

/// The result of [`RawDelayed::modify`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Modified {
    /// The item was pending, and still is.
    WasPending,
    /// The item was not pending, and now is pending.
    WasIdle,
    /// The item was pending, and was cancelled, because it is disabled or the queue rejects it.
    Cancelled,
    /// The item was not pending, and still is not, because it is disabled or the queue rejects it.
    Refused,
}

impl RawDelayed {
    /// Creates an item that calls `func`. Move it to its final place before the first use.
    ///
    /// # Safety
    ///
    /// 1. `func` may be called with the item's address, on any thread, once for each time the item
    ///    is queued.
    pub const unsafe fn new(func: crate::WorkFn) -> Self {
        Self {
            // SAFETY: (1).
            work: unsafe { RawWork::new(func) },
            timer: UnsafeCell::new(Timer {
                node: Node::new(&RAW),
                queue: ptr::null(),
                cpu: 0,
                process: Process::NONE,
            }),
        }
    }

    /// Returns the item without its timer.
    pub fn work(this: NonNull<Self>) -> NonNull<RawWork> {
        this.cast()
    }

    /// Queues the item after `delay`, or at once if `delay` is zero. Returns `false` if the item is
    /// disabled or already pending; an item with an armed timer is pending. Also returns `false` if
    /// the queue is being drained or was destroyed, unless the caller is one of its own items.
    ///
    /// # Blocking
    ///
    /// Acquires a lock for a short time, and may wake a thread.
    ///
    /// # Safety
    ///
    /// 1. `this` points to readable and writable memory that is large enough for an item.
    /// 2. The item stays in place until its function is called, or it is cancelled or flushed.
    /// 3. `queue` stays in place until the timer has expired or was disarmed, for example by
    ///    [`take_back_timers`].
    pub unsafe fn queue(
        this: NonNull<Self>,
        queue: &Workqueue,
        cpu: Option<CpuId>,
        delay: Duration,
    ) -> Result<bool, Misuse> {
        if delay.is_zero() {
            // SAFETY: (1), (2).
            return unsafe { RawWork::queue(Self::work(this), queue, cpu) };
        }
        // SAFETY: (1).
        let work = unsafe { RawWork::known(Self::work(this)) }?;
        if !internal::admits(queue) {
            return Ok(false);
        }
        let timers = timers();
        let mut wheel = timers.lock();
        let is_armed = work.head().update(State::arm).is_some();
        // SAFETY: our transition armed the item, so its timer is ours; we hold the lock; (2), (3).
        let is_first = is_armed && unsafe { put_in(&mut wheel, this, queue, cpu, delay) };
        drop(wheel);
        if is_first {
            timers.wake_manager();
        }
        Ok(is_armed)
    }

    /// Schedules the item to be queued `delay` from now, whether or not it is already pending. A
    /// pending item stays pending throughout, so a thread that tries to queue it at the same time
    /// receives `false`.
    ///
    /// # Blocking
    ///
    /// The same as [`queue`](Self::queue) and [`RawWork::cancel`].
    ///
    /// # Safety
    ///
    /// 1. The same as (1) of [`queue`](Self::queue).
    /// 2. The same as (2) of [`queue`](Self::queue).
    /// 3. The same as (3) of [`queue`](Self::queue).
    pub unsafe fn modify(
        this: NonNull<Self>,
        queue: &Workqueue,
        cpu: Option<CpuId>,
        delay: Duration,
    ) -> Result<Modified, Misuse> {
        // SAFETY: (1).
        let work = unsafe { RawWork::known(Self::work(this)) }?;
        if !internal::admits(queue) {
            // SAFETY: (1), and `known` has checked that it is an item.
            let was_pending = unsafe { Self::take_back(this) };
            return Ok(if was_pending { Modified::Cancelled } else { Modified::Refused });
        }
        let mut backoff = Backoff::new();
        loop {
            match work.claim() {
                Claim::Ours => {
                    let wheel = (!delay.is_zero()).then(|| timers().lock());
                    // SAFETY: (1), (2), (3), and we claimed the item above.
                    return Ok(unsafe { Self::place_anew(wheel, this, queue, cpu, delay) });
                }
                Claim::Timers => {
                    let mut wheel = timers().lock();
                    // SAFETY: (1), and we hold the lock.
                    if unsafe { take_out(&mut wheel, this) } {
                        // SAFETY: (1), (2), (3), and we removed the timer above.
                        return Ok(unsafe {
                            Self::place_anew(Some(wheel), this, queue, cpu, delay)
                        });
                    }
                }
                Claim::Idle => {
                    // SAFETY: (1), (2), (3).
                    if unsafe { Self::queue(this, queue, cpu, delay) }? {
                        return Ok(Modified::WasIdle);
                    }
                    if work.head().load().disable_depth() > 0 {
                        return Ok(Modified::Refused);
                    }
                    // Another thread queued the item first.
                    backoff.pause();
                }
            }
        }
    }

    /// Ends the caller's claim on an item that is in no list and in no wheel. One transition makes
    /// the item armed, pending or idle.
    ///
    /// # Safety
    ///
    /// 1. The same as (1) of [`queue`](Self::queue).
    /// 2. The same as (2) of [`queue`](Self::queue).
    /// 3. The same as (3) of [`queue`](Self::queue).
    /// 4. The caller has claimed the item, or has removed the armed item from `wheel`. `wheel` is
    ///    the wheel of the process-wide registry, and is `None` only if `delay` is zero.
    unsafe fn place_anew(
        mut wheel: Option<Guard<'_>>,
        this: NonNull<Self>,
        queue: &Workqueue,
        cpu: Option<CpuId>,
        delay: Duration,
    ) -> Modified {
        // SAFETY: (1).
        let work = unsafe { &(*this.as_ptr()).work };
        let is_placed = Cell::new(false);
        let place = |state: State, to: &dyn Fn(State) -> State| {
            // This is checked in the same transition, so a later disable finds the new place.
            let is_enabled = state.disable_depth() == 0;
            is_placed.set(is_enabled);
            if is_enabled { to(state) } else { state.disarm() }
        };
        if delay.is_zero() {
            let home = match cpu {
                None => Place::here(queue),
                Some(cpu) => Place::at_cpu(queue, cpu),
            };
            home.set_home(work.head());
            work.end_claim(|state| place(state, &|state| home.fire(state)));
            drop(wheel);
            if is_placed.get() {
                // SAFETY: (1).
                home.push(unsafe { RawWork::head_of(Self::work(this)) });
            }
        } else {
            work.end_claim(|state| place(state, &|state| state.rearm().unwrap_or(state)));
            let is_first = match &mut wheel {
                // SAFETY: our transition armed the item, so its timer is ours; we hold the lock;
                // (2), (3).
                Some(wheel) if is_placed.get() => unsafe { put_in(wheel, this, queue, cpu, delay) },
                _ => false,
            };
            drop(wheel);
            if is_first {
                timers().wake_manager();
            }
        }
        if is_placed.get() { Modified::WasPending } else { Modified::Cancelled }
    }

    /// Removes the item from its timer or queue if it has not started. Returns `true` if it was
    /// removed.
    ///
    /// # Blocking
    ///
    /// The same as [`RawWork::cancel`].
    ///
    /// # Safety
    ///
    /// 1. `this` points to readable and writable memory that is large enough for an item.
    pub unsafe fn cancel(this: NonNull<Self>) -> Result<bool, Misuse> {
        // SAFETY: (1).
        unsafe { RawWork::known(Self::work(this)) }?;
        // SAFETY: (1), and `known` has checked that it is an item.
        Ok(unsafe { Self::take_back(this) })
    }

    /// # Safety
    ///
    /// 1. `this` points to an initialized item.
    unsafe fn take_back(this: NonNull<Self>) -> bool {
        // SAFETY: (1).
        let work = unsafe { &(*this.as_ptr()).work };
        loop {
            match work.claim() {
                Claim::Idle => return false,
                Claim::Ours => {
                    work.end_claim(State::disarm);
                    return true;
                }
                // SAFETY: (1).
                Claim::Timers if unsafe { disarm(this) } => return true,
                // The timer has just expired, or another thread moves the item.
                Claim::Timers => {}
            }
        }
    }

    /// Cancels the item and waits until it is not running. Returns `true` if it was pending. The
    /// item is disabled until this returns.
    ///
    /// Blocks, fails and panics as [`RawWork::cancel_sync`] does.
    ///
    /// # Safety
    ///
    /// 1. The same as [`cancel`](Self::cancel).
    pub unsafe fn cancel_sync(this: NonNull<Self>) -> Result<bool, Misuse> {
        // SAFETY: (1).
        let was_pending = unsafe { Self::disable(this, true) }?;
        // SAFETY: (1).
        unsafe { RawWork::enable(Self::work(this)) }?;
        Ok(was_pending)
    }

    /// Cancels the item and disables it until a matching call of [`RawWork::enable`]. Returns
    /// `true` if the item was pending. If `waits` is set, also waits until the item is not running.
    ///
    /// Blocks, fails and panics as [`RawWork::disable`] or, if `waits` is set,
    /// [`RawWork::disable_sync`] does.
    ///
    /// # Safety
    ///
    /// 1. The same as [`cancel`](Self::cancel).
    pub unsafe fn disable(this: NonNull<Self>, waits: bool) -> Result<bool, Misuse> {
        // SAFETY: (1).
        let work = unsafe { RawWork::known(Self::work(this)) }?;
        if waits {
            work.must_be_free_to_wait();
        }
        work.refuse()?;
        // A thread that arms the item from now on finds it disabled.
        // SAFETY: (1), and `known` has checked that it is an item.
        let was_pending = unsafe { Self::take_back(this) };
        if waits {
            work.wait_for_run();
        }
        Ok(was_pending)
    }

    /// If the timer is armed, queues the item at once. Then waits as [`RawWork::flush`] does.
    ///
    /// Blocks, fails and panics as [`RawWork::flush`] does.
    ///
    /// # Safety
    ///
    /// 1. The same as [`cancel`](Self::cancel).
    pub unsafe fn flush(this: NonNull<Self>) -> Result<bool, Misuse> {
        // SAFETY: (1).
        let work = unsafe { RawWork::known(Self::work(this)) }?;
        let mut was_armed = work.head().load().is_armed() && !work.name().is_current();
        if was_armed {
            let mut wheel = timers().lock();
            // SAFETY: (1), and we hold the lock; the item was armed when it was removed.
            was_armed = unsafe { take_out(&mut wheel, this) && expire(wheel, this) };
        }
        // SAFETY: (1).
        Ok(unsafe { RawWork::flush(Self::work(this)) }? || was_armed)
    }
}

/// Disarms all timers that are armed for `queue`, which makes their items idle. Returns the number
/// of these timers. Call it after the queue's last item that can arm a timer has ended, and before
/// the queue is destroyed.
///
/// # Blocking
///
/// Holds the lock of all timers while it checks each of them, and waits until items whose timers
/// have just expired are in the queue.
pub fn take_back_timers(queue: &Workqueue) -> usize {
    // A child of `fork` cannot have armed a timer for a queue of its parent.
    if !internal::is_at_home(queue) {
        return 0;
    }
    let mut nr_gone = 0;
    timers().lock().for_each(|wheel, node| {
        // SAFETY: a node in the wheel is alive, and the lock that guards it is held.
        if !ptr::eq(unsafe { node.as_ref() }.kind, &RAW) {
            return;
        }
        let timer = node.as_ptr().cast::<Timer>();
        // SAFETY: as above, and a node of this kind is the first field of a timer.
        if ptr::eq(unsafe { (*timer).queue }, queue) {
            nr_gone += 1;
            // SAFETY: as above.
            unsafe { wheel.remove(node) };
            let work = item_of(timer).cast::<RawWork>();
            // SAFETY: the item is armed until our transition, so it is alive. The transition is
            // made under the lock, because the item may be freed after it.
            unsafe { work.as_ref() }.end_claim(State::disarm);
        }
    });
    // Wait for items whose timers have just expired and that are not in the queue yet.
    internal::outlast_visitors(queue);
    nr_gone
}

/// Returns the timers of the process-wide registry, which contain all timers of raw items.
fn timers() -> &'static Timers {
    match internal::timers() {
        Ok(timers) => timers,
        Err(error) => process::die(&format!("queue_delayed_work: no registry for timers: {error}")),
    }
}

/// Inserts a timer; returns `true` if it is the first to expire.
///
/// # Safety
///
/// 1. `item` is alive, the caller's transition armed it, and `wheel` is the wheel of the
///    process-wide registry.
/// 2. `item` and `queue` stay in place as [`RawDelayed::queue`] requires.
unsafe fn put_in(
    wheel: &mut Wheel,
    item: NonNull<RawDelayed>,
    queue: &Workqueue,
    cpu: Option<CpuId>,
    delay: Duration,
) -> bool {
    let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
    let at_ns = time::now_ns().saturating_add(nanos);
    let timer = timer_of(item);
    // SAFETY: (1): no other thread accesses the timer. It is written without being read, because it
    // may be uninitialized.
    unsafe {
        timer.write(Timer {
            node: Node::new(&RAW),
            queue,
            cpu: cpu.unwrap_or_else(cpu::current).as_u32(),
            process: Process::now(),
        });
        wheel.insert(node_of(timer), at_ns)
    }
}

/// Disarms the timer; returns `true` if it was armed.
///
/// # Safety
///
/// 1. `item` points to an initialized item.
unsafe fn disarm(item: NonNull<RawDelayed>) -> bool {
    // SAFETY: (1).
    let work = unsafe { &(*item.as_ptr()).work };
    // If another thread arms the item after this read, its call is ordered after ours.
    if !work.head().load().is_armed() {
        return false;
    }
    let mut wheel = timers().lock();
    // SAFETY: (1), and we hold the lock.
    let was_armed = unsafe { take_out(&mut wheel, item) };
    if was_armed {
        work.end_claim(State::disarm);
    }
    was_armed
}

/// Queues the item of an expired timer.
///
/// # Safety
///
/// 1. `node` is the node of a [`Timer`], and was just removed from `wheel`, the wheel of the
///    process-wide registry.
unsafe fn expire_node<'a>(
    node: NonNull<Node>,
    wheel: Guard<'a>,
    _: &mut Vec<Due>,
) -> Option<Guard<'a>> {
    // SAFETY: (1); it was in the wheel, so its item is alive and armed.
    unsafe { expire(wheel, item_of(node.as_ptr().cast())) };
    None
}

/// Queues an item whose timer was armed. Returns `false` if its queue was destroyed.
///
/// # Safety
///
/// 1. `item` is armed, and was just removed from `wheel`, the wheel of the process-wide registry.
unsafe fn expire(wheel: Guard<'_>, item: NonNull<RawDelayed>) -> bool {
    // SAFETY: (1).
    let work = unsafe { &(*item.as_ptr()).work };
    // SAFETY: the item was armed, so its queue is alive: its owner disarms its timers under our
    // lock before it destroys the queue.
    let (queue, cpu) = unsafe {
        let timer = timer_of(item);
        (Held::of(&*(*timer).queue), CpuId::new((*timer).cpu))
    };
    // From here on, the destruction of the queue waits for us.
    queue.visit(cpu, |home| {
        let Some(home) = home else {
            work.end_claim(State::disarm);
            return false;
        };
        home.set_home(work.head());
        work.head().update(|state| Some(home.fire(state)));
        // From here on, a canceller waits until the item is pushed.
        drop(wheel);
        // SAFETY: (1).
        home.push(unsafe { RawWork::head_of(RawDelayed::work(item)) });
        true
    })
}

/// Removes the item's timer from the wheel. Returns `true` if the wheel contained the timer. If the
/// parent process armed the item, the wheel does not contain the timer, and the item becomes idle.
///
/// # Safety
///
/// 1. `item` points to an initialized item, and `wheel` is the wheel of the process-wide registry.
unsafe fn take_out(wheel: &mut Wheel, item: NonNull<RawDelayed>) -> bool {
    // SAFETY: (1).
    let work = unsafe { &(*item.as_ptr()).work };
    // The armed flag changes only under the lock of `wheel`.
    if !work.head().load().is_armed() {
        return false;
    }
    let timer = timer_of(item);
    // SAFETY: (1). The thread that armed the item wrote the field. If this process armed it, that
    // thread also inserted the timer.
    let is_in = unsafe { (&raw const (*timer).process).read() }.is_this();
    if is_in {
        // SAFETY: as above.
        unsafe { wheel.remove(node_of(timer)) };
    } else {
        work.end_claim(State::disarm);
    }
    is_in
}

fn timer_of(item: NonNull<RawDelayed>) -> *mut Timer {
    item.as_ptr().wrapping_byte_add(mem::offset_of!(RawDelayed, timer)).cast()
}

fn node_of(timer: *mut Timer) -> NonNull<Node> {
    NonNull::new(timer.cast()).expect("the address of a timer")
}

/// Returns the item that contains `timer`, which is not null.
fn item_of(timer: *mut Timer) -> NonNull<RawDelayed> {
    let item = timer.wrapping_byte_sub(mem::offset_of!(RawDelayed, timer));
    NonNull::new(item.cast()).expect("the address of an item")
}

impl fmt::Debug for RawDelayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawDelayed").field("work", &self.work).finish_non_exhaustive()
    }
}
