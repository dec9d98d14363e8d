//! Resets settings that a new thread inherits from its starting thread and that should not affect
//! library threads:
//!
//! | setting | new value |
//! |---|---|
//! | timer slack, memory policy | those at process start, set for example by systemd or numactl |
//! | I/O priority | that of the process's first thread, as set by ionice |
//! | floating-point modes | the defaults, because compiled code relies on them |
//!
//! Only the first thread can read its slack and policy, so the loader calls [`record`] when the
//! library is loaded. If another thread loads it, by `dlopen`, the system's defaults are used
//! instead. If the system rejects a setting, the thread keeps the value of the starting thread. A
//! thread that has nothing to reset makes four system calls.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::system::punctual::{set_slack, slack_ns};

/// The timer slack of the machine's first process, and of most others.
const DEFAULT_SLACK_NS: u64 = 50_000;

/// Makes the loader call [`record`] before `main`, or in `dlopen`.
#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = record;

static SLACK_NS: AtomicU64 = AtomicU64::new(DEFAULT_SLACK_NS);

/// The recorded memory policy: its mode, then its nodes.
static POLICY: [AtomicU64; 1 + NR_NODES / 64] = [const { AtomicU64::new(0) }; 1 + NR_NODES / 64];

/// Must not allocate, because the program's allocator may not be ready.
#[cfg_attr(miri, expect(dead_code))]
extern "C" fn record() {
    if !crate::system::start::is_first() {
        return;
    }
    // A real-time thread has a slack of 0.
    if let Some(slack_ns) = slack_ns().filter(|&ns| ns > 0) {
        SLACK_NS.store(slack_ns, Relaxed);
    }
    if let Some(policy) = MemoryPolicy::of_this_thread() {
        let words = [policy.mode as u64].into_iter().chain(policy.nodes);
        POLICY.iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
    }
}

/// Resets the settings of this new thread. `first` is the ID of the process's first thread.
pub(crate) fn reset(first: libc::pid_t) {
    reset_arithmetic();
    // Prevents the linker from dropping `RECORD`: nothing else refers to it.
    #[cfg(not(miri))]
    std::hint::black_box(&RECORD);
    let wanted = SLACK_NS.load(Relaxed);
    // A real-time thread has a slack of 0, and its timers are not delayed.
    if slack_ns().is_some_and(|ns| ns != 0 && ns != wanted)
        && let Ok(wanted) = wanted.try_into()
    {
        set_slack(wanted);
    }
    let wanted = MemoryPolicy::recorded();
    if MemoryPolicy::of_this_thread().is_some_and(|policy| policy != wanted) {
        wanted.set();
    }
    let wanted = io_priority(first);
    if wanted >= 0 && io_priority(0) != wanted {
        // SAFETY: the call takes numbers; 0 is this thread.
        unsafe { libc::syscall(libc::SYS_ioprio_set, OF_THREAD, 0, wanted) };
    }
}

const NR_NODES: usize = 1024;

/// The policy by which a thread's memory is allocated: a mode of linux/mempolicy.h, and its nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct MemoryPolicy {
    mode: libc::c_int,
    nodes: [u64; NR_NODES / 64],
}

impl MemoryPolicy {
    /// The default policy, which allocates on the node of the CPU on which a thread runs.
    const DEFAULT: Self = Self { mode: libc::MPOL_DEFAULT, nodes: [0; NR_NODES / 64] };

    fn recorded() -> Self {
        Self {
            mode: POLICY[0].load(Relaxed) as libc::c_int,
            nodes: std::array::from_fn(|at| POLICY[1 + at].load(Relaxed)),
        }
    }

    /// The number of nodes to pass to the system calls, which use one less.
    const NR: usize = NR_NODES + 1;

    /// Returns the policy of this thread, or `None` if the call fails or is not supported.
    fn of_this_thread() -> Option<Self> {
        let mut policy = Self::DEFAULT;
        let (mode, nodes) = (&raw mut policy.mode, policy.nodes.as_mut_ptr());
        // SAFETY: the call writes the mode and the `NR_NODES` bits of `nodes`.
        let refused =
            unsafe { libc::syscall(libc::SYS_get_mempolicy, mode, nodes, Self::NR, 0, 0) };
        (refused == 0).then_some(policy)
    }

    fn set(&self) {
        // SAFETY: the call reads the `NR_NODES` bits of `nodes`.
        unsafe { libc::syscall(libc::SYS_set_mempolicy, self.mode, self.nodes.as_ptr(), Self::NR) };
    }
}

/// `IOPRIO_WHO_PROCESS`: the number in the I/O priority calls is a thread ID.
const OF_THREAD: libc::c_int = 1;

/// Returns the I/O priority and class of `thread` (0 is this one), or a negative number.
fn io_priority(thread: libc::pid_t) -> libc::c_long {
    // SAFETY: the call takes numbers and returns one.
    let priority = unsafe { libc::syscall(libc::SYS_ioprio_get, OF_THREAD, thread) };
    // Older kernels report level 4 for a thread without a class.
    if priority >> 13 == 0 { 0 } else { priority }
}

/// Sets the ABI's floating-point modes: round to nearest, keep denormal numbers, raise no signal.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn reset_arithmetic() {
    let (mxcsr, x87) = (0x1f80_u32, 0x37f_u16);
    // SAFETY: this sets the modes that compiled code relies on. `fnclex` clears pending exceptions.
    unsafe {
        core::arch::asm!(
            "ldmxcsr [{mxcsr}]",
            "fnclex",
            "fldcw [{x87}]",
            mxcsr = in(reg) &raw const mxcsr,
            x87 = in(reg) &raw const x87,
            options(nostack, readonly),
        );
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
fn reset_arithmetic() {
    // SAFETY: this sets the modes that compiled code relies on.
    unsafe {
        core::arch::asm!("msr fpcr, xzr", "msr fpsr, xzr", options(nomem, nostack));
    }
}

/// Does nothing: on other machines threads keep the modes of the starting thread.
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn reset_arithmetic() {}
