//! `afterwork/workqueue.h`.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::fmt::Display;
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::time::Duration;

use afterwork::rcu;
use afterwork::workqueue::{
    self, AffinityScope, Attrs, BuildError, Builder, CpuId, CpuSet, MAX_ACTIVE, Registry,
    RegistryError, Workqueue,
};
use raw::{HookOfC, Misuse, Modified, Moment, RawDelayed, RawWork, WorkFn};
use sync::atomic::{AtomicUsize, Ordering};
use sync::process::die;

use crate::boundary::{EBUSY, EINVAL, ENOMEM, EPERM, misuse, within};

const _: () = assert!(size_of::<RawWork>() == 64 && align_of::<RawWork>() == 8);
const _: () = assert!(size_of::<RawDelayed>() == 112 && align_of::<RawDelayed>() == 8);

const WQ_BH: c_uint = 1 << 0;
const WQ_UNBOUND: c_uint = 1 << 1;
const WQ_MEM_RECLAIM: c_uint = 1 << 3;
const WQ_HIGHPRI: c_uint = 1 << 4;
const WQ_CPU_INTENSIVE: c_uint = 1 << 5;
const WQ_PERCPU: c_uint = 1 << 8;
const ORDERED: c_uint = 1 << 17;
/// The flags of the header. `WQ_FREEZABLE` (bit 2), `WQ_SYSFS` (6) and `WQ_POWER_EFFICIENT` (7)
/// have no effect.
const ALL: c_uint = 0x1ff | ORDERED;

const WORK_BUSY_PENDING: c_uint = 1 << 0;
const WORK_BUSY_RUNNING: c_uint = 1 << 1;

/// A queue: `struct workqueue_struct`.
#[repr(C)]
#[derive(Debug)]
pub struct Queue {
    magic: u64,
    kind: Kind,
    /// A: the number of items that wait for a grace period before they are queued here.
    nr_held: AtomicUsize,
}

#[derive(Debug)]
enum Kind {
    /// A process-wide queue, built at its first use.
    System(Build),
    Own(Workqueue),
}

type Build = fn() -> Result<&'static Workqueue, BuildError>;

/// Distinguishes a queue from other memory.
const MAGIC: u64 = 0xf771_7565_7565_7731;

impl Queue {
    const fn system(build: Build) -> Self {
        Self::of(Kind::System(build))
    }

    const fn of(kind: Kind) -> Self {
        Self { magic: MAGIC, kind, nr_held: AtomicUsize::new(0) }
    }

    /// Waits until all items that wait for a grace period have been queued.
    fn release_held(&self) {
        // ORDER(rcu-work): publish and consume, other end in `grace_period_is_over`.
        //   callback: queues the item;  nr_held -= 1  Release
        //   here:     nr_held = 0  Acquire;  destroys the queue
        // If the decrement comes first, we see the item in the queue. If our load comes first, it
        // reads a higher number, and we wait.
        // Test: the_suite_passes
        while self.nr_held.load(Ordering::Acquire) > 0 {
            rcu::barrier();
        }
    }
}

static PERCPU: Queue = Queue::system(workqueue::system);
static HIGHPRI: Queue = Queue::system(workqueue::system_highpri);
static LONG: Queue = Queue::system(workqueue::system_long);
static UNBOUND: Queue = Queue::system(workqueue::system_unbound);

/// A process-wide queue, identified for C by its constant address: `system_wq` and similar ones.
#[repr(transparent)]
#[derive(Debug)]
pub struct SystemQueue(*const Queue);

// SAFETY: the pointer is a constant.
unsafe impl Sync for SystemQueue {}

/// Defines the addresses of the process-wide queues for C.
macro_rules! system_queues {
    ($($name:ident = $queue:ident;)*) => { $(
        #[doc = concat!("See [`SystemQueue`]: `", stringify!($queue), "`.")]
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals, reason = "as C names it")]
        pub static $name: SystemQueue = SystemQueue(&raw const $queue);
    )* };
}

system_queues! {
    aw_system_wq = PERCPU;
    aw_system_percpu_wq = PERCPU;
    aw_system_highpri_wq = HIGHPRI;
    aw_system_long_wq = LONG;
    aw_system_unbound_wq = UNBOUND;
    aw_system_dfl_wq = UNBOUND;
    aw_system_freezable_wq = PERCPU;
    aw_system_power_efficient_wq = UNBOUND;
    aw_system_freezable_power_efficient_wq = UNBOUND;
}

/// Returns the queue that C passed.
///
/// # Safety
///
/// 1. `queue` is null or points to a readable word.
#[inline]
unsafe fn known<'a>(name: &str, queue: *const Queue) -> Option<&'a Workqueue> {
    // SAFETY: (1).
    if queue.is_null() || unsafe { (&raw const (*queue).magic).read() } != MAGIC {
        return none(name);
    }
    // SAFETY: the word has the magic number of a queue.
    match unsafe { &(*queue).kind } {
        Kind::Own(queue) => Some(queue),
        Kind::System(build) => system(name, *build),
    }
}

#[cold]
fn none<'a>(name: &str) -> Option<&'a Workqueue> {
    misuse(name, &"this is not a workqueue, or it was destroyed", None)
}

/// Returns a process-wide queue. If it cannot be built, reports misuse and returns `None`.
#[inline(never)]
fn system(name: &str, build: Build) -> Option<&'static Workqueue> {
    build().map_or_else(|error| misuse(name, &error, None), Some)
}

/// Returns the queue that C passed. Reports misuse with `what` if it is a process-wide one.
///
/// # Safety
///
/// 1. The same as for [`known`].
unsafe fn known_own<'a>(name: &str, queue: *const Queue, what: &str) -> Option<&'a Workqueue> {
    // SAFETY: (1).
    let own = unsafe { known(name, queue) }?;
    // SAFETY: (1), and `known` has found a queue.
    match unsafe { &(*queue).kind } {
        Kind::Own(_) => Some(own),
        Kind::System(_) => misuse(name, &what, None),
    }
}

/// Calls a function with a queue. Returns its result, or reports misuse and returns `answer`.
///
/// # Safety
///
/// 1. The same as for [`known`].
unsafe fn on_queue<R, E: Display>(
    name: &str,
    queue: *const Queue,
    answer: R,
    call: impl FnOnce(&Workqueue) -> Result<R, E>,
) -> R {
    // SAFETY: (1).
    within(name, || match unsafe { known(name, queue) }.map(call) {
        None => answer,
        Some(Err(error)) => misuse(name, &error, answer),
        Some(Ok(said)) => said,
    })
}

/// Calls a function with an item. Returns its result, or reports misuse and returns `answer`.
#[inline]
fn checked<T, R>(
    name: &str,
    work: *mut T,
    answer: R,
    call: impl FnOnce(NonNull<T>) -> Result<R, Misuse>,
) -> R {
    within(name, || match NonNull::new(work).map(call) {
        None => misuse(name, &"the work item is NULL", answer),
        Some(Err(error)) => misuse(name, &error, answer),
        Some(Ok(said)) => said,
    })
}

/// Calls a function with a queue and an item. If either is invalid, reports misuse.
///
/// # Safety
///
/// 1. The same as for [`known`].
#[inline]
unsafe fn queued<T>(
    name: &str,
    queue: *const Queue,
    work: *mut T,
    call: impl FnOnce(&Workqueue, NonNull<T>) -> Result<bool, Misuse>,
) -> bool {
    checked(name, work, false, |work| {
        // SAFETY: (1).
        unsafe { known(name, queue) }.map_or(Ok(false), |queue| call(queue, work))
    })
}

/// Converts a CPU number. Returns `None` for a negative number.
fn cpu_of(cpu: c_int) -> Option<CpuId> {
    u32::try_from(cpu).ok().map(CpuId::new)
}

/// Converts jiffies. They are milliseconds, because `HZ` is 1000 in the header.
fn delay_of(jiffies: c_ulong) -> Duration {
    Duration::from_millis(jiffies)
}

/// Returns the builder for the flags of the header.
fn described(name: &str, flags: c_uint, max_active: c_int) -> Option<Builder> {
    let max_active = u32::try_from(max_active).ok()?;
    let has = |flag| flags & flag != 0;
    let is_of_two_kinds =
        has(WQ_UNBOUND) && has(WQ_PERCPU) || has(WQ_BH) && has(!(WQ_BH | WQ_HIGHPRI | WQ_PERCPU));
    if has(!ALL) || is_of_two_kinds {
        return None;
    }
    let mut builder = Workqueue::builder(name);
    if has(ORDERED) {
        builder = builder.ordered();
    } else {
        if !has(WQ_UNBOUND | WQ_BH) {
            builder = builder.per_cpu();
        }
        if max_active > 0 && !has(WQ_BH) {
            builder = builder.max_active(max_active.min(MAX_ACTIVE));
        }
    }
    if has(WQ_BH) {
        builder = builder.bh();
    }
    if has(WQ_MEM_RECLAIM) {
        builder = builder.with_rescuer();
    }
    if has(WQ_CPU_INTENSIVE) {
        builder = builder.cpu_intensive();
    }
    Some(builder)
}

/// Creates a queue. Returns null on failure.
///
/// # Safety
///
/// 1. `name` is a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_alloc_workqueue(
    name: *const c_char,
    flags: c_uint,
    max_active: c_int,
) -> *mut Queue {
    within("alloc_workqueue", || {
        if name.is_null() {
            return misuse("alloc_workqueue", &"the name is NULL", ptr::null_mut());
        }
        // SAFETY: (1).
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let described = || described(&name, flags, max_active);
        let is_highpri = flags & (WQ_HIGHPRI | WQ_BH) == WQ_HIGHPRI;
        let first = described().map(|builder| if is_highpri { builder.highpri() } else { builder });
        let built = match first.map(Builder::build) {
            // If the process may not raise priorities, the workers are ordinary.
            Some(Err(BuildError::NicePermission(..))) => described().map(Builder::build),
            built => built,
        };
        match built {
            Some(Ok(queue)) => Box::into_raw(Box::new(Queue::of(Kind::Own(queue)))),
            Some(Err(BuildError::Registry(RegistryError::Params(error)))) => {
                misuse("alloc_workqueue", &error, ptr::null_mut())
            }
            Some(Err(_)) | None => ptr::null_mut(),
        }
    })
}

/// Runs all items of the queue, and destroys it.
///
/// # Safety
///
/// 1. `queue` is null, or came from `aw_alloc_workqueue` and is not used after this call begins.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_destroy_workqueue(queue: *mut Queue) {
    const NAME: &str = "destroy_workqueue";
    within(NAME, || {
        if queue.is_null() {
            return;
        }
        let what = "a system queue cannot be destroyed";
        // SAFETY: (1).
        let Some(inner) = (unsafe { known_own(NAME, queue, what) }) else {
            return;
        };
        raw::take_back_timers(inner);
        // The last items of a round may arm timers until they have ended. If such a timer queues an
        // item after the first round, the second round finds it. After the second round, no timer
        // queues an item.
        for _ in 0..2 {
            // SAFETY: (1), and the word has the magic number of a queue.
            unsafe { &*queue }.release_held();
            if let Err(error) = inner.shutdown(Duration::MAX) {
                // The process cannot continue: items, timers and callers would use a freed queue.
                die(&format!("{NAME}: {error}"));
            }
            raw::take_back_timers(inner);
        }
        // SAFETY: as above.
        unsafe { &*queue }.release_held();
        // SAFETY: (1). The queue was created from a box.
        let mut queue = unsafe { Box::from_raw(queue) };
        // This makes it possible to detect a later use. The compiler would remove a plain store
        // before the free.
        // SAFETY: this thread has exclusive access to the queue.
        unsafe { (&raw mut queue.magic).write_volatile(0) };
    });
}

/// # Safety
///
/// 1. `queue` is null or points to a queue.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_flush_workqueue(queue: *const Queue) {
    // SAFETY: (1).
    unsafe { on_queue("flush_workqueue", queue, (), Workqueue::flush) }
}

/// # Safety
///
/// 1. `queue` is null or points to a queue.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_drain_workqueue(queue: *const Queue) {
    // SAFETY: (1).
    unsafe { on_queue("drain_workqueue", queue, (), Workqueue::drain) }
}

/// # Safety
///
/// 1. `queue` is null or points to a queue.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_workqueue_set_max_active(queue: *const Queue, max_active: c_int) -> c_int {
    let wanted = u32::try_from(max_active).unwrap_or(0).min(MAX_ACTIVE);
    let set = |queue: &Workqueue| queue.set_max_active(wanted).map(|()| 0);
    // SAFETY: (1).
    unsafe { on_queue("workqueue_set_max_active", queue, -EINVAL, set) }
}

/// An item that waits for a grace period: `struct rcu_work`.
#[repr(C)]
#[derive(Debug)]
pub struct RcuWork {
    work: RawWork,
    head: [usize; 3],
    queue: *const Queue,
}

const _: () = assert!(
    size_of::<RcuWork>() == 96 && align_of::<RcuWork>() == 8 && size_of::<rcu::Head>() <= 24
);

/// Queues an item after a grace period.
///
/// # Safety
///
/// 1. `queue` is null or points to a queue. `work` points to memory of the size of such an item,
///    which stays valid until the item's function has been called or the item has been flushed.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_queue_rcu_work(queue: *const Queue, work: *mut RcuWork) -> bool {
    let hold = |inner: &_, work: NonNull<RcuWork>| {
        // SAFETY: (1).
        let holds = unsafe { RawWork::hold(work.cast(), inner) }?;
        if holds {
            let work = work.as_ptr();
            // SAFETY: (1). This thread holds the item, so only this thread uses its head.
            let head = unsafe {
                (&raw mut (*work).queue).write(queue);
                (*queue).nr_held.fetch_add(1, Ordering::Relaxed);
                &raw mut (*work).head
            };
            // SAFETY: (1). The callback derives the item's address from the head.
            unsafe { rcu::raw::call_c(head.cast(), grace_period_is_over) };
        }
        Ok(holds)
    };
    // SAFETY: (1).
    unsafe { queued("queue_rcu_work", queue, work, hold) }
}

/// # Safety
///
/// 1. `head` belongs to a held [`RcuWork`] whose grace period is over.
unsafe extern "C-unwind" fn grace_period_is_over(head: *mut rcu::Head) {
    let work = head.wrapping_byte_sub(offset_of!(RcuWork, head)).cast::<RcuWork>();
    // SAFETY: (1). A queue is not freed before `nr_held` is 0.
    let queue = unsafe { &*(*work).queue };
    // SAFETY: as above.
    let inner = unsafe { known("queue_rcu_work", queue) };
    if let (Some(work), Some(inner)) = (NonNull::new(work), inner) {
        // SAFETY: (1).
        unsafe { RawWork::queue_held(work.cast(), inner) };
    }
    // ORDER(rcu-work): the release end; see `release_held`.
    // Test: the_suite_passes
    queue.nr_held.fetch_sub(1, Ordering::Release);
}

/// Waits until the item is idle, after the runs of all earlier enqueues and their grace periods.
///
/// # Safety
///
/// 1. `work` points to memory of the size of such an item.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_flush_rcu_work(work: *mut RcuWork) -> bool {
    checked("flush_rcu_work", work, false, |work| {
        // SAFETY: (1).
        let was_pending = unsafe { RawWork::busy(work.cast()) }?.pending;
        if was_pending {
            rcu::barrier();
        }
        // SAFETY: (1).
        Ok(unsafe { RawWork::flush(work.cast()) }? || was_pending)
    })
}

/// The attributes of a queue's workers: `struct workqueue_attrs`.
#[repr(C)]
#[derive(Debug)]
pub struct QueueAttrs {
    nice: c_int,
    affn_scope: c_int,
    affn_strict: bool,
    cpumask: [c_ulong; 16],
}

const _: () = assert!(size_of::<QueueAttrs>() == 144);

/// Changes the CPUs and priority of a queue's workers.
///
/// # Safety
///
/// 1. `queue` is null or points to a queue. `attrs` is null or points to valid attributes.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_apply_workqueue_attrs(
    queue: *const Queue,
    attrs: *const QueueAttrs,
) -> c_int {
    const NAME: &str = "apply_workqueue_attrs";
    within(NAME, || {
        let what = "a system queue cannot be changed";
        // SAFETY: (1).
        let known = unsafe { (known_own(NAME, queue, what), attrs.as_ref()) };
        let (Some(inner), Some(attrs)) = known else {
            return -EINVAL;
        };
        let affinity = match attrs.affn_scope {
            0 => inner.report().attrs.affinity,
            at @ 1..=6 => AffinityScope::ALL[at as usize - 1],
            _ => return -EINVAL,
        };
        let is_set = |&cpu: &u32| attrs.cpumask[cpu as usize / 64] >> (cpu % 64) & 1 != 0;
        let cpus: CpuSet = (0..16 * 64).filter(is_set).map(CpuId::new).collect();
        let Ok(nice) = i8::try_from(attrs.nice) else {
            return -EINVAL;
        };
        let wanted = Attrs {
            affinity,
            strict: attrs.affn_strict,
            // A full mask is treated as no mask, so that the queue follows changes to the machine.
            cpus: (cpus.len() < 16 * 64).then_some(cpus),
            nice,
        };
        match inner.set_attrs(|attrs| *attrs = wanted) {
            Ok(()) => 0,
            Err(BuildError::NicePermission(..)) => -EPERM,
            Err(BuildError::OwnQueue) => -EBUSY,
            Err(_) => -EINVAL,
        }
    })
}

/// Runs an item with `func` on each CPU that the process may use, and waits for all of them.
///
/// # Safety
///
/// 1. `func` may be called on any thread with such an item.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_schedule_on_each_cpu(func: Option<WorkFn>) -> c_int {
    const NAME: &str = "schedule_on_each_cpu";
    within(NAME, || {
        let Some(func) = func else {
            return misuse(NAME, &"the function is NULL", -EINVAL);
        };
        let (Ok(queue), Ok(registry)) = (workqueue::system(), Registry::global()) else {
            return -ENOMEM;
        };
        // An item for a CPU that the queue may not use would run on one of these as well.
        let topology = registry.topology();
        let mut works = Vec::new();
        if works.try_reserve_exact(topology.allowed().len()).is_err() {
            return -ENOMEM;
        }
        for cpu in topology.allowed().iter() {
            // SAFETY: (1).
            works.push((cpu, unsafe { RawWork::new(func) }));
        }
        for (cpu, work) in &mut works {
            // SAFETY: the item does not move before it is flushed below.
            let _ = unsafe { RawWork::queue(work.into(), queue, Some(*cpu)) };
        }
        for (_, work) in &mut works {
            let work = NonNull::from(work);
            // SAFETY: as above.
            if let Err(error) = unsafe { RawWork::flush(work) } {
                misuse(NAME, &error, ());
                // The item is freed below, so it must not remain queued.
                // SAFETY: as above.
                let _ = unsafe { RawWork::cancel_sync(work) };
            }
        }
        0
    })
}

/// Defines functions that queue an item.
macro_rules! that_queue {
    ($(
        $(#[$about:meta])*
        $name:ident($place:ident; $($delay:ident: $delay_type:ty)?) = $kernel:literal: $type:ty
            => |$queue:ident, $work:ident| $call:expr;
    )*) => { $(
        $(#[$about])*
        ///
        /// # Safety
        ///
        /// 1. `queue` is null or points to a queue. `work` is null or points to memory that is
        ///    large enough for an item.
        /// 2. The item stays valid until its function has been called, or until it has been
        ///    cancelled or flushed. `destroy_workqueue` cancels timers before it frees the queue.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            $place: c_int,
            queue: *const Queue,
            work: *mut $type,
            $($delay: $delay_type)?
        ) -> bool {
            // SAFETY: (1), (2).
            let call = |$queue: &Workqueue, $work| unsafe { $call };
            // SAFETY: (1).
            unsafe { queued($kernel, queue, work, call) }
        }
    )* };
}

that_queue! {
    /// Queues an item, on `cpu` unless it is negative.
    aw_queue_work(cpu;) = "queue_work": RawWork
        => |queue, work| RawWork::queue(work, queue, cpu_of(cpu));
    /// Queues an item on a NUMA node. A negative number means the node of the caller.
    aw_queue_work_node(node;) = "queue_work_node": RawWork
        => |queue, work| match u32::try_from(node) {
            Ok(node) => RawWork::queue_node(work, queue, node),
            Err(_) => RawWork::queue(work, queue, None),
        };
    /// Queues an item after a delay, on `cpu` unless it is negative.
    aw_queue_delayed_work(cpu; delay: c_ulong) = "queue_delayed_work": RawDelayed
        => |queue, work| RawDelayed::queue(work, queue, cpu_of(cpu), delay_of(delay));
    /// Queues an item after a delay from now, whether it is already pending or not.
    aw_mod_delayed_work(cpu; delay: c_ulong) = "mod_delayed_work": RawDelayed
        => |queue, work| {
            let modified = RawDelayed::modify(work, queue, cpu_of(cpu), delay_of(delay));
            modified.map(|modified| matches!(modified, Modified::WasPending | Modified::Cancelled))
        };
}

/// Defines a function on one item that returns a `bool`.
macro_rules! of_one {
    ($($name:ident = $kernel:literal: $type:ty => |$work:ident| $call:expr;)*) => { $(
        /// # Safety
        ///
        /// 1. `work` points to memory of an item's size.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(work: *mut $type) -> bool {
            // SAFETY: (1).
            checked($kernel, work, false, |$work| unsafe { $call })
        }
    )* };
}

of_one! {
    aw_flush_work = "flush_work": RawWork => |work| RawWork::flush(work);
    aw_cancel_work = "cancel_work": RawWork => |work| RawWork::cancel(work);
    aw_cancel_work_sync = "cancel_work_sync": RawWork => |work| RawWork::cancel_sync(work);
    aw_disable_work = "disable_work": RawWork => |work| RawWork::disable(work);
    aw_disable_work_sync = "disable_work_sync": RawWork => |work| RawWork::disable_sync(work);
    aw_enable_work = "enable_work": RawWork => |work| RawWork::enable(work);
    aw_flush_delayed_work = "flush_delayed_work": RawDelayed => |work| RawDelayed::flush(work);
    aw_cancel_delayed_work = "cancel_delayed_work": RawDelayed => |work| RawDelayed::cancel(work);
    aw_cancel_delayed_work_sync = "cancel_delayed_work_sync": RawDelayed
        => |work| RawDelayed::cancel_sync(work);
    aw_disable_delayed_work = "disable_delayed_work": RawDelayed
        => |work| RawDelayed::disable(work, false);
    aw_disable_delayed_work_sync = "disable_delayed_work_sync": RawDelayed
        => |work| RawDelayed::disable(work, true);
}

/// Returns flags for the states of an item: pending, running, or both.
///
/// # Safety
///
/// 1. `work` points to memory of an item's size.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_work_busy(work: *mut RawWork) -> c_uint {
    checked("work_busy", work, 0, |work| {
        // SAFETY: (1).
        let busy = unsafe { RawWork::busy(work) }?;
        let flag = |is, flag| if is { flag } else { 0 };
        Ok(flag(busy.pending, WORK_BUSY_PENDING) | flag(busy.executing, WORK_BUSY_RUNNING))
    })
}

/// Returns the item that the caller runs, or null.
#[unsafe(no_mangle)]
extern "C" fn aw_current_work() -> *const RawWork {
    within("current_work", raw::current)
}

/// Sets the description of the item that the caller runs, until the item has ended.
///
/// # Safety
///
/// 1. `what` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_set_worker_desc(what: *const c_char) {
    within("set_worker_desc", || {
        if what.is_null() {
            return misuse("set_worker_desc", &"the description is NULL", ());
        }
        // SAFETY: (1).
        raw::describe(unsafe { CStr::from_ptr(what) }.to_bytes());
    });
}

/// Makes threads that run items call `hook` when they start. Returns the previous hook.
///
/// # Safety
///
/// 1. `hook` may be called on any thread until the process ends.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_on_worker_start(hook: Option<HookOfC>) -> Option<HookOfC> {
    // SAFETY: (1).
    unsafe { raw::set_hook_of_c(Moment::Start, hook) }
}

/// Makes threads that run items call `hook` when they stop. Returns the previous hook.
///
/// # Safety
///
/// 1. The same as for [`aw_on_worker_start`].
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_on_worker_stop(hook: Option<HookOfC>) -> Option<HookOfC> {
    // SAFETY: (1).
    unsafe { raw::set_hook_of_c(Moment::Stop, hook) }
}

/// Calls `func` after informing the pool that the caller may sleep.
///
/// # Safety
///
/// 1. `func` may be called with `data`.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_blocking(
    func: Option<unsafe extern "C-unwind" fn(*mut c_void) -> c_long>,
    data: *mut c_void,
) -> c_long {
    within("afterwork_blocking", || match func {
        Some(func) => {
            // SAFETY: (1).
            let call = || unsafe { func(data) };
            let what = "function of afterwork_blocking";
            workqueue::blocking(|| raw::of_c(what, func as usize, call))
        }
        None => misuse("afterwork_blocking", &"the function is NULL", 0),
    })
}
