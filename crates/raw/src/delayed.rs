//! A raw item with a timer.
//!
//! # The protocol
//!
//! All these timers are in the wheel of the process-wide registry, whichever queue they are for, so
//! one lock guards them. An item whose timer is armed is claimed by it, in the item's own word: it
//! is pending to a producer, and no canceller can claim it. So all that is done to an armed item is
//! done under that lock, and by the thread that took it from its timer there:
//!
//! ```text
//! arm:     lock:  step: armed, from idle;  put it in;  unlock;  wake the manager, if it is first
//! disarm:  lock:  armed? take it out;  step: not armed
//! move:    armed, or claimed and cut out of its list;
//!          lock:  take it out;  step: armed or pending;  put it in, or push it
//! manager: lock:  take an expired one out;  enter its queue;  write its home;  step: pending;
//!          unlock;  push it
//! ```
//!
//! So an item that is in no wheel is claimed, pending or idle at every moment, and a thread that
//! moves it never makes it idle. A queue does not end while it is entered (`queues/end.rs`), and
//! its owner takes its timers back before that.
//!
//! A child of `fork` has a registry of its own: an item that its parent has armed is in no wheel
//! there, and idle as soon as any thread there asks for it.

use std::{
    cell::{Cell, UnsafeCell},
    fmt, mem, ptr,
    ptr::NonNull,
    time::Duration,
};

use sync::{Patience, cpu, fork::Process, process, time};
use topology::CpuId;

use workqueue::{
    Workqueue,
    internal::{self, Expiry, Guard, Held, Kind, Node, Place, State, Timers, Wheel},
};

use crate::work::{Claim, Misuse, RawWork};

/// A work item with a timer, in its user's memory: the kernel's `struct delayed_work`.
///
/// Its [`work`](Self::work) may be queued and waited for as any other, while the timer is not armed.
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
    /// Where to queue the item, if it is armed.
    queue: *const Workqueue,
    cpu: u32,
    /// The process that armed it last: a timer that a parent has armed is in no wheel of its
    /// child's.
    process: Process,
}

/// The kind of a raw item's timer.
static RAW: Kind = Kind(expire_node);

/// What became of [`RawDelayed::modify`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Modified {
    /// It was pending, and is.
    WasPending,
    /// It was not pending, and is.
    WasIdle,
    /// It was pending, and was cancelled: it is disabled, or the queue refuses it.
    Cancelled,
    /// It was not pending, and is not: as above.
    Refused,
}

impl RawDelayed {
    /// Makes an item that calls `func`, which is to be put where it stays.
    ///
    /// # Safety
    ///
    /// 1. `func` may be called with the item's address on any thread, whenever the item was queued.
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

    /// Queues the item after `delay`, at once if that is zero; false when it is pending, its timer included, or disabled, or
    /// the queue is being drained by somebody else.
    ///
    /// # Blocking
    ///
    /// For a short lock; may wake a thread.
    ///
    /// # Errors
    ///
    /// [`Misuse::Uninitialised`], [`Misuse::Misaligned`], and [`Misuse::NoFunction`].
    ///
    /// # Safety
    ///
    /// 1. `this` points at memory of an item's size that may be read and written.
    /// 2. The item stays where it is until its function is called, or it is cancelled, or flushed.
    /// 3. `queue` stays where it is as long as the timer is armed, or until [`take_back_timers`].
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
        // SAFETY: armed by our step, so nobody else has its timer; we hold the lock; (2), (3).
        let is_first = is_armed && unsafe { put_in(&mut wheel, this, queue, cpu, delay) };
        drop(wheel);
        if is_first {
            timers.wake_manager();
        }
        Ok(is_armed)
    }

    /// Makes the item, pending or not, be queued after `delay` from now. One that is pending is so throughout: whoever queues it
    /// meanwhile is told so.
    ///
    /// # Blocking
    ///
    /// As [`queue`](Self::queue), and as [`RawWork::cancel`].
    ///
    /// # Errors
    ///
    /// [`Misuse::Uninitialised`], [`Misuse::Misaligned`], and [`Misuse::NoFunction`].
    ///
    /// # Safety
    ///
    /// 1. And (2), (3): as of [`queue`](Self::queue).
    pub unsafe fn modify(
        this: NonNull<Self>,
        queue: &Workqueue,
        cpu: Option<CpuId>,
        delay: Duration,
    ) -> Result<Modified, Misuse> {
        // SAFETY: (1).
        let work = unsafe { RawWork::known(Self::work(this)) }?;
        if !internal::admits(queue) {
            // SAFETY: (1), and it is an item.
            let was_pending = unsafe { Self::take_back(this) };
            return Ok(if was_pending {
                Modified::Cancelled
            } else {
                Modified::Refused
            });
        }
        let mut patience = Patience::new();
        loop {
            match work.claim() {
                Claim::Ours => {
                    let wheel = (!delay.is_zero()).then(|| timers().lock());
                    // SAFETY: (1), (2), (3), and claimed above.
                    return Ok(unsafe { Self::place_anew(wheel, this, queue, cpu, delay) });
                }
                Claim::Timers => {
                    let mut wheel = timers().lock();
                    // SAFETY: (1), and we hold the lock.
                    if unsafe { take_out(&mut wheel, this) } {
                        // SAFETY: (1), (2), (3), and taken from its timer above.
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
                    // Somebody else was faster.
                    patience.pause();
                }
            }
        }
    }

    /// Ends the caller's claim of an item that is in no list and no wheel, in one step.
    ///
    /// # Safety
    ///
    /// 1. And (2), (3): as of [`queue`](Self::queue).
    /// 4. The item is claimed by the caller, or armed and taken out of `wheel`, which is that of
    ///    all and there unless `delay` is zero.
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
            // A step with the look: whoever disables it later finds it where it is put.
            let is_enabled = state.disable_depth() == 0;
            is_placed.set(is_enabled);
            if is_enabled {
                to(state)
            } else {
                state.disarm()
            }
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
                // SAFETY: armed by our step, so nobody else has its timer; we hold the lock; (2), (3).
                Some(wheel) if is_placed.get() => unsafe { put_in(wheel, this, queue, cpu, delay) },
                _ => false,
            };
            drop(wheel);
            if is_first {
                timers().wake_manager();
            }
        }
        if is_placed.get() {
            Modified::WasPending
        } else {
            Modified::Cancelled
        }
    }

    /// Takes the item out of the timer or the queue if it has not started; returns `true` if it did.
    ///
    /// # Blocking
    ///
    /// As [`RawWork::cancel`].
    ///
    /// # Errors
    ///
    /// [`Misuse::Uninitialised`], [`Misuse::Misaligned`], and [`Misuse::NoFunction`].
    ///
    /// # Safety
    ///
    /// 1. `this` points at memory of an item's size that may be read and written.
    pub unsafe fn cancel(this: NonNull<Self>) -> Result<bool, Misuse> {
        // SAFETY: (1).
        unsafe { RawWork::known(Self::work(this)) }?;
        // SAFETY: (1), and it is an item.
        Ok(unsafe { Self::take_back(this) })
    }

    /// # Safety
    ///
    /// 1. `this` is an item.
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
                // It has just expired, or is being moved.
                Claim::Timers => {}
            }
        }
    }

    /// Cancels, and waits until the item does not run; returns `true` if it was pending. Queueing is refused meanwhile.
    ///
    /// # Blocking
    ///
    /// As [`RawWork::cancel_sync`].
    ///
    /// # Errors
    ///
    /// As of [`RawWork::cancel_sync`].
    ///
    /// # Panics
    ///
    /// As of [`RawWork::flush`].
    ///
    /// # Safety
    ///
    /// 1. As of [`cancel`](Self::cancel).
    pub unsafe fn cancel_sync(this: NonNull<Self>) -> Result<bool, Misuse> {
        // SAFETY: (1).
        let was_pending = unsafe { Self::disable(this, true) }?;
        // SAFETY: (1).
        unsafe { RawWork::enable(Self::work(this)) }?;
        Ok(was_pending)
    }

    /// Refuses queueing until as many [`RawWork::enable`]s have come, and cancels; returns `true` if it was pending. If it
    /// `waits`, the item does not run either when this returns.
    ///
    /// # Blocking
    ///
    /// As [`RawWork::disable`] and [`RawWork::disable_sync`].
    ///
    /// # Errors
    ///
    /// As of [`RawWork::disable`].
    ///
    /// # Panics
    ///
    /// As of [`RawWork::flush`], if it waits.
    ///
    /// # Safety
    ///
    /// 1. As of [`cancel`](Self::cancel).
    pub unsafe fn disable(this: NonNull<Self>, waits: bool) -> Result<bool, Misuse> {
        // SAFETY: (1).
        let work = unsafe { RawWork::known(Self::work(this)) }?;
        if waits {
            work.must_be_free_to_wait();
        }
        work.refuse()?;
        // Whoever arms it from now on sees that it is disabled.
        // SAFETY: (1), and it is an item.
        let was_pending = unsafe { Self::take_back(this) };
        if waits {
            work.wait_for_run();
        }
        Ok(was_pending)
    }

    /// Queues the item at once if its timer is armed, and waits for it as [`RawWork::flush`] does.
    ///
    /// # Blocking
    ///
    /// Until the run has ended.
    ///
    /// # Errors
    ///
    /// As of [`RawWork::flush`].
    ///
    /// # Panics
    ///
    /// As of [`RawWork::flush`].
    ///
    /// # Safety
    ///
    /// 1. As of [`cancel`](Self::cancel).
    pub unsafe fn flush(this: NonNull<Self>) -> Result<bool, Misuse> {
        // SAFETY: (1).
        let work = unsafe { RawWork::known(Self::work(this)) }?;
        let mut was_armed = work.head().load().is_armed() && !work.name().is_current();
        if was_armed {
            let mut wheel = timers().lock();
            // SAFETY: (1), and we hold the lock; and it was armed when we took it out.
            was_armed = unsafe { take_out(&mut wheel, this) && expire(wheel, this) };
        }
        // SAFETY: (1).
        Ok(unsafe { RawWork::flush(Self::work(this)) }? || was_armed)
    }
}

/// Takes all timers back that are armed for `queue`, whose items are then idle; returns how many there were. Before the queue
/// goes, and after the last of its items that may arm one has ended.
///
/// # Blocking
///
/// For the lock of all timers, as long as it takes to look at each, and until those that have just expired are in the queue.
pub fn take_back_timers(queue: &Workqueue) -> usize {
    // A child of `fork` has armed none for a queue of its parent's.
    if !internal::is_at_home(queue) {
        return 0;
    }
    let mut nr_gone = 0;
    timers().lock().for_each(|wheel, node| {
        // SAFETY: a node that is in the wheel is there, and guarded by its lock, which we hold.
        if !ptr::eq(unsafe { node.as_ref() }.kind, &RAW) {
            return;
        }
        let timer = node.as_ptr().cast::<Timer>();
        // SAFETY: as above, and the node of this kind is the first part of a timer.
        if ptr::eq(unsafe { (*timer).queue }, queue) {
            nr_gone += 1;
            // SAFETY: as above.
            unsafe { wheel.remove(node) };
            let work = item_of(timer).cast::<RawWork>();
            // SAFETY: armed until our step, so its user keeps it. The step is made under the lock:
            // after it the user may free the item.
            unsafe { work.as_ref() }.end_claim(State::disarm);
        }
    });
    // One that has just expired may be on its way into the queue.
    internal::outlast_visitors(queue);
    nr_gone
}

/// Returns the timers of the process-wide registry, to which all timers of raw items belong.
fn timers() -> &'static Timers {
    match internal::timers() {
        Ok(timers) => timers,
        Err(error) => process::die(&format!(
            "queue_delayed_work: no registry for timers: {error}"
        )),
    }
}

/// Puts a timer in; returns `true` if it is the first to expire.
///
/// # Safety
///
/// 1. `item` is there, the caller's step has armed it, and `wheel` is that of all.
/// 2. And it, and `queue`, stay so: as of [`RawDelayed::queue`].
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
    // SAFETY: (1): nobody else has it, and what is there may be anything.
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

/// Takes the timer back; returns `true` if it was armed.
///
/// # Safety
///
/// 1. `item` is an item.
unsafe fn disarm(item: NonNull<RawDelayed>) -> bool {
    // SAFETY: (1).
    let work = unsafe { &(*item.as_ptr()).work };
    // Whoever arms it later comes after us.
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

/// Queues the item of a timer whose time has come.
///
/// # Safety
///
/// 1. `node` is that of a [`Timer`], and was just taken out of `wheel`, which is that of all.
unsafe fn expire_node<'a>(
    node: NonNull<Node>,
    wheel: Guard<'a>,
    _: &mut Vec<Expiry>,
) -> Option<Guard<'a>> {
    // SAFETY: (1); it was in the wheel, so its item is there, and armed.
    unsafe { expire(wheel, item_of(node.as_ptr().cast())) };
    None
}

/// Queues an item now whose timer was armed; returns `false` if its queue has ended.
///
/// # Safety
///
/// 1. `item` is an armed item, was just taken out of `wheel`, and `wheel` is that of all.
unsafe fn expire(wheel: Guard<'_>, item: NonNull<RawDelayed>) -> bool {
    // SAFETY: (1).
    let work = unsafe { &(*item.as_ptr()).work };
    // SAFETY: it was armed, so its queue is there, and does not go before it has taken its timers back, by our lock.
    let (queue, cpu) = unsafe {
        let timer = timer_of(item);
        (Held::of(&*(*timer).queue), CpuId::new((*timer).cpu))
    };
    // An end that comes now waits for us.
    queue.visit(cpu, |home| {
        let Some(home) = home else {
            work.end_claim(State::disarm);
            return false;
        };
        home.set_home(work.head());
        work.head().update(|state| Some(home.fire(state)));
        // From here on a canceller waits until it is pushed.
        drop(wheel);
        // SAFETY: (1).
        home.push(unsafe { RawWork::head_of(RawDelayed::work(item)) });
        true
    })
}

/// Takes a timer out; returns `true` if it was in. One that a parent of this process has armed is idle then, and was not.
///
/// # Safety
///
/// 1. `item` is an item, and `wheel` is that of all.
unsafe fn take_out(wheel: &mut Wheel, item: NonNull<RawDelayed>) -> bool {
    // SAFETY: (1).
    let work = unsafe { &(*item.as_ptr()).work };
    // It is changed under the lock of `wheel` alone.
    if !work.head().load().is_armed() {
        return false;
    }
    let timer = timer_of(item);
    // SAFETY: (1). If this process has armed it, that was with what is read here, and put it in.
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
    item.as_ptr()
        .wrapping_byte_add(mem::offset_of!(RawDelayed, timer))
        .cast()
}

fn node_of(timer: *mut Timer) -> NonNull<Node> {
    NonNull::new(timer.cast()).expect("the address of a timer")
}

/// Returns the item of which `timer`, which is not null, is the timer.
fn item_of(timer: *mut Timer) -> NonNull<RawDelayed> {
    let item = timer.wrapping_byte_sub(mem::offset_of!(RawDelayed, timer));
    NonNull::new(item.cast()).expect("the address of an item")
}

impl fmt::Debug for RawDelayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawDelayed")
            .field("work", &self.work)
            .finish_non_exhaustive()
    }
}
