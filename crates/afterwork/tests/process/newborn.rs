//! Settings that library threads must not inherit, each tested in a separate process.

use crate::*;

/// A set of nodes in the format of the memory policy calls. Node 0 exists on every machine.
type Nodes = [u64; 16];
const NODE_0: Nodes = {
    let mut nodes = [0; 16];
    nodes[0] = 1;
    nodes
};

/// The settings that the kernel copies to a new thread from the thread that starts it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct State {
    slack_ns: libc::c_int,
    io_priority: libc::c_long,
    memory_policy: (libc::c_int, Nodes),
    float_modes: [u64; 2],
}

impl State {
    fn of_this_thread() -> Self {
        let (mut mode, mut nodes) = (0, [0; 16]);
        // SAFETY: the calls take numbers. The first one writes to an integer and to 1024 bits.
        unsafe {
            libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, nodes.as_mut_ptr(), 1025, 0, 0);
            Self {
                slack_ns: libc::prctl(libc::PR_GET_TIMERSLACK),
                io_priority: libc::syscall(libc::SYS_ioprio_get, 1, 0),
                memory_policy: (mode, nodes),
                float_modes: float_modes(),
            }
        }
    }
}

/// Returns the control bits, without the flags that any inexact result sets.
#[cfg(target_arch = "x86_64")]
fn float_modes() -> [u64; 2] {
    let (mut mxcsr, mut x87) = (0_u32, 0_u16);
    // SAFETY: the instructions write to the two variables.
    unsafe {
        std::arch::asm!("stmxcsr [{}]", "fnstcw [{}]", in(reg) &raw mut mxcsr, in(reg) &raw mut x87);
    }
    [u64::from(mxcsr & !0x3f), x87.into()]
}

#[cfg(target_arch = "aarch64")]
fn float_modes() -> [u64; 2] {
    let fpcr: u64;
    // SAFETY: the instruction reads a register.
    unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) fpcr) };
    [fpcr, 0]
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn float_modes() -> [u64; 2] {
    [0; 2]
}

/// Makes this thread round toward zero and drop denormal numbers.
#[cfg(target_arch = "x86_64")]
fn make_float_modes_odd() {
    let (mxcsr, x87) = (0xffc0_u32, 0xf7f_u16);
    // SAFETY: the instructions read two variables. The thread computes no floating-point numbers.
    unsafe {
        std::arch::asm!("ldmxcsr [{}]", "fldcw [{}]", in(reg) &raw const mxcsr, in(reg) &raw const x87);
    }
}

#[cfg(target_arch = "aarch64")]
fn make_float_modes_odd() {
    // SAFETY: the instruction sets a register. The thread computes no floating-point numbers.
    unsafe { std::arch::asm!("msr fpcr, {}", in(reg) 0x01c0_0000_u64) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn make_float_modes_odd() {}

fn make_slack_odd() {
    // SAFETY: the call takes numbers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 200_000_000_u64) };
}

fn make_io_priority_odd() {
    const IDLE: libc::c_int = 3 << 13;
    // SAFETY: the call takes numbers.
    unsafe { libc::syscall(libc::SYS_ioprio_set, 1, 0, IDLE) };
}

fn make_memory_policy_odd() {
    // SAFETY: the call reads the 1024 bits of `NODE_0`.
    unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_BIND, NODE_0.as_ptr(), 1025) };
}

/// Starts library threads of each kind, and returns their states.
fn states_of_ours() -> Vec<(&'static str, State)> {
    let (report, reports) = mpsc::channel();
    let mut nr_kinds = 0;
    let mut reporter = |kind| {
        nr_kinds += 1;
        let report = report.clone();
        move || report.send((kind, State::of_this_thread())).unwrap()
    };
    let queue = Workqueue::builder("newborn").build().unwrap();
    queue.spawn_detached(reporter("worker")).unwrap();
    let reclaim = Workqueue::builder("reclaim").with_rescuer().build().unwrap();
    reclaim.spawn_detached(reporter("worker of a queue with a rescuer")).unwrap();
    let bh = Workqueue::builder("bh").bh().build().unwrap();
    bh.spawn_detached(reporter("worker of bottom halves")).unwrap();
    let worker = Worker::builder("newborn").build().unwrap();
    worker.spawn(reporter("dedicated worker")).join().unwrap();
    rcu::call(reporter("rcu"));
    let domain = Domain::new();
    domain.call(reporter("srcu"));
    let thread = sync::thread::spawn("newborn", reporter("other"));
    thread.unwrap().join().unwrap();
    let states = reports.into_iter().take(nr_kinds).collect();
    // The manager serves timers.
    block_on(sleep(std::time::Duration::from_micros(1)));
    states
}

fn assert_ours_are(expected: &State) {
    for (kind, state) in states_of_ours() {
        assert_eq!(&state, expected, "{kind}");
    }
}

#[test]
fn library_threads_inherit_nothing_odd_from_their_starter() {
    const ODD: [(&str, fn()); 5] = [
        ("slack", make_slack_odd),
        ("I/O priority", make_io_priority_odd),
        ("memory policy", make_memory_policy_odd),
        ("float modes", make_float_modes_odd),
        ("all", || {
            make_slack_odd();
            make_io_priority_odd();
            make_memory_policy_odd();
            make_float_modes_odd();
        }),
    ];
    let _alone = alone();
    for (what, make_odd) in ODD {
        eprintln!("{what}");
        let output = succeeds_in_child(|| {
            let plain = State::of_this_thread();
            let odd = spawn(move || {
                make_odd();
                if State::of_this_thread() == plain {
                    eprintln!("skipped: this thread may have no odd {what}");
                }
                assert_ours_are(&plain);
            });
            odd.join().unwrap_or_else(|payload| resume_unwind(payload));
        });
        eprint!("{output}");
    }
}

#[test]
fn library_threads_keep_the_settings_of_the_process() {
    const TEST: &str = "newborn::library_threads_keep_the_settings_of_the_process";
    if mode().is_some() {
        limit_time();
        // The test harness started this thread from the first thread.
        let started = State::of_this_thread();
        assert_eq!(started.slack_ns, 200_000_000);
        let odd = std::thread::spawn(move || {
            // SAFETY: the call takes numbers, and no nodes.
            unsafe {
                libc::prctl(libc::PR_SET_TIMERSLACK, 7_000_u64);
                libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_DEFAULT, 0, 0);
                libc::syscall(libc::SYS_ioprio_set, 1, 0, 2 << 13 | 7);
            }
            assert_ours_are(&started);
        });
        odd.join().unwrap();
        return;
    }
    let mut command = this_test(TEST, "inner");
    let before_exec = || -> io::Result<()> {
        make_slack_odd();
        make_io_priority_odd();
        make_memory_policy_odd();
        Ok(())
    };
    // SAFETY: the function only makes system calls.
    let ended = unsafe { command.pre_exec(before_exec) }.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}
