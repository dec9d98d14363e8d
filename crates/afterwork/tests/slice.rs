//! Extensions of time slices on an emulated kernel: each thread has a `slice_ctrl` of its own, and
//! a signal handler grants extensions to the thread that it interrupts, as the kernel does.

#![cfg(not(any(loom, shuttle, sim, miri)))]

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::{array, hint, mem, panic, ptr, thread};

use afterwork::mailbox::Mailbox;
use afterwork::params::Params;
use afterwork::percpu::{PerCpu, Qpw};
use afterwork::workqueue::{Registry, Topology, Workqueue};
use sync::slice::{self, Ctrl, Kernel, Section, Wait};

/// The signal that simulates an interrupt.
const INTERRUPT: i32 = libc::SIGUSR1;

thread_local! {
    static CTRL: Ctrl = const { Ctrl { request: AtomicU8::new(0), granted: AtomicU8::new(0) } };
    static NR_GRANTED: Cell<u32> = const { Cell::new(0) };
    static NR_YIELDS: Cell<u32> = const { Cell::new(0) };
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// The threads of the library that have enabled extensions.
static OURS: Mutex<Vec<i32>> = Mutex::new(Vec::new());
/// The extensions of these threads, and their yields.
static ALL_GRANTED: AtomicU32 = AtomicU32::new(0);
static ALL_YIELDS: AtomicU32 = AtomicU32::new(0);

fn state() -> (u8, u8) {
    CTRL.with(|ctrl| (ctrl.request.load(Relaxed), ctrl.granted.load(Relaxed)))
}

/// Grants an extension if this thread requests one.
fn interrupt() {
    CTRL.with(|ctrl| {
        if ctrl.request.swap(0, Relaxed) != 0 {
            ctrl.granted.store(1, Relaxed);
            NR_GRANTED.set(NR_GRANTED.get() + 1);
            ALL_GRANTED.fetch_add(IS_OURS.get().into(), Relaxed);
        }
    });
}

extern "C" fn on_signal(_: i32) {
    interrupt();
}

fn revoke() {
    CTRL.with(|ctrl| ctrl.granted.store(0, Relaxed));
}

fn enable() -> bool {
    // The first call is that of `turn_on`.
    if slice::is_on() {
        IS_OURS.set(true);
        // SAFETY: the call only returns a number.
        OURS.lock().unwrap().push(unsafe { libc::gettid() });
    }
    true
}

fn slice_yield() {
    assert_eq!(state(), (0, 1), "a yield without an extension");
    revoke();
    NR_YIELDS.set(NR_YIELDS.get() + 1);
    ALL_YIELDS.fetch_add(IS_OURS.get().into(), Relaxed);
}

/// Turns extensions on for the process. The first call also checks that a kernel may refuse.
fn turn_on() {
    static IS_ON: OnceLock<()> = OnceLock::new();
    IS_ON.get_or_init(|| {
        let refuse = || false;
        // SAFETY: (1): `CTRL` is in this executable, and has no destructor.
        let kernel = |enable| unsafe { CTRL.with(|ctrl| Kernel::new(ctrl, enable, slice_yield)) };
        assert!(!slice::turn_on_with(kernel(refuse)) && !slice::is_on());
        drop(Section::enter());
        assert!(slice::turn_on_with(kernel(enable)) && slice::is_on());
        handle(INTERRUPT, on_signal as *const () as usize, 0);
    });
}

fn handle(signal: i32, handler: usize, flags: i32) {
    // SAFETY: a zeroed action is valid, and the handlers only access atomics and thread-locals that
    // need no initialization.
    unsafe {
        let mut act: libc::sigaction = mem::zeroed();
        act.sa_sigaction = handler;
        act.sa_flags = flags | libc::SA_RESTART;
        assert_eq!(libc::sigaction(signal, &act, ptr::null_mut()), 0);
    }
}

/// Returns the extensions and yields of this thread during `body`.
fn counted(body: impl FnOnce()) -> (u32, u32) {
    turn_on();
    let before = (NR_GRANTED.get(), NR_YIELDS.get());
    assert_eq!(state(), (0, 0));
    body();
    assert_eq!(state(), (0, 0));
    (NR_GRANTED.get() - before.0, NR_YIELDS.get() - before.1)
}

#[test]
fn section_yields_once_if_its_extension_is_not_revoked() {
    assert_eq!(counted(|| drop(Section::enter())), (0, 0));
    let section = || {
        let _section = Section::enter();
        assert_eq!(state(), (1, 0));
        interrupt();
        interrupt();
        assert_eq!(state(), (0, 1));
    };
    assert_eq!(counted(section), (1, 1));
    let revoked = || {
        let _section = Section::enter();
        interrupt();
        revoke();
    };
    assert_eq!(counted(revoked), (1, 0));
    // An interrupt outside a section grants nothing.
    assert_eq!(counted(interrupt), (0, 0));
}

#[test]
fn nested_section_changes_nothing() {
    let nested = || {
        let _outer = Section::enter();
        drop(Section::enter());
        assert_eq!(state(), (1, 0));
        interrupt();
        drop(Section::enter());
        assert_eq!(state(), (0, 1));
    };
    assert_eq!(counted(nested), (1, 1));
}

#[test]
fn panic_ends_the_section() {
    let panics = || {
        let caught = panic::catch_unwind(|| {
            let _section = Section::enter();
            interrupt();
            panic::resume_unwind(Box::new(()));
        });
        assert!(caught.is_err());
    };
    assert_eq!(counted(panics), (1, 1));
}

#[test]
fn wait_inside_a_section_requests_nothing() {
    let waits = || {
        let _section = Section::enter();
        let wait = Wait::begin();
        assert_eq!(state(), (0, 0));
        interrupt();
        drop(wait);
        assert_eq!(state(), (1, 0));
        interrupt();
        // This wait gives up the extension.
        drop(Wait::begin());
        assert_eq!(state(), (1, 0));
    };
    assert_eq!(counted(waits), (1, 1));
    assert_eq!(counted(|| drop(Wait::begin())), (0, 0));
}

#[test]
fn lock_that_waits_requests_nothing() {
    turn_on();
    let (lock, held) = (sync::Mutex::new(()), Barrier::new(2));
    let ctrl = AtomicPtr::<Ctrl>::new(ptr::null_mut());
    thread::scope(|scope| {
        scope.spawn(|| {
            let waits = || {
                let _section = Section::enter();
                CTRL.with(|mine| ctrl.store(ptr::from_ref(mine).cast_mut(), Relaxed));
                held.wait();
                assert_eq!(state(), (1, 0));
                let _guard = lock.lock();
                assert_eq!(state(), (1, 0));
            };
            assert_eq!(counted(waits), (0, 0));
        });
        let guard = lock.lock();
        held.wait();
        // SAFETY: the thread cannot end before it has the lock.
        let theirs = unsafe { &*ctrl.load(Relaxed) };
        while theirs.request.load(Relaxed) != 0 {
            hint::spin_loop();
        }
        drop(guard);
    });
}

#[test]
fn calls_on_percpu_data_are_sections_unless_they_are_queued() {
    for (qpw, of_owner) in [(Qpw::EveryOp, 1), (Qpw::OnDemand, 0), (Qpw::Queue, 0)] {
        let slots = PerCpu::builder().qpw(qpw).build(|_| ()).unwrap();
        let cpu = slots.cpus().first().unwrap();
        assert_eq!(counted(|| slots.run_on(cpu, |()| interrupt())), (1, 1), "{qpw}");
        let mut owner = slots.attach(cpu).unwrap();
        assert_eq!(counted(|| owner.with(|()| interrupt())), (of_owner, of_owner), "{qpw}");
    }
}

/// Steps through functions, with interrupts after one instruction or after each.
#[cfg(target_arch = "x86_64")]
mod stepped {
    use super::*;

    /// The trap flag of x86: it raises a signal after each instruction.
    const TRAP: i64 = 0x100;

    #[derive(Clone, Copy, PartialEq)]
    enum At {
        One(u32),
        Each,
        /// The function has ended.
        End,
    }

    thread_local! {
        static AT: Cell<At> = const { Cell::new(At::End) };
        static STEP: Cell<u32> = const { Cell::new(0) };
    }

    extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel passes the registers of the interrupted thread.
        let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
        let step = STEP.replace(STEP.get() + 1);
        if [At::One(step), At::Each].contains(&AT.get()) {
            interrupt();
        }
        if AT.get() == At::End {
            context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP;
        }
    }

    /// Returns the number of extensions during `body`, each of which must be yielded.
    fn nr_granted(at: At, body: impl FnOnce()) -> u32 {
        turn_on();
        handle(libc::SIGTRAP, on_trap as *const () as usize, libc::SA_SIGINFO);
        let (granted, yields) = counted(|| {
            STEP.set(0);
            AT.set(at);
            // SAFETY: the code sets the trap flag, whose signal has a handler.
            unsafe { std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
            body();
            AT.set(At::End);
        });
        assert_eq!(granted, yields);
        granted
    }

    #[test]
    fn section_may_be_interrupted_after_any_instruction() {
        let mut nr = 0;
        for step in 0.. {
            nr += nr_granted(At::One(step), || drop(Section::enter()));
            if step > STEP.get() {
                break;
            }
        }
        assert!(nr > 10, "{nr} extensions");
    }

    #[test]
    fn wait_inside_a_section_gives_up_its_extension() {
        let waits = || {
            let _outer = Section::enter();
            let _inner = Section::enter();
            drop(Wait::begin());
        };
        // The section requests another one after the wait.
        assert_eq!(nr_granted(At::Each, waits), 2);
    }

    #[test]
    fn push_to_a_mailbox_is_a_section() {
        let mailbox = Mailbox::new();
        let poster = mailbox.poster();
        // The first post pushes a block, and the second one adds to it.
        let post = || nr_granted(At::Each, || poster.post_lazy(1).unwrap());
        assert_eq!([post(), post()], [1, 0]);
    }

    #[test]
    fn lock_of_a_pool_is_a_section() {
        let queue = Workqueue::builder("stepped").build().unwrap();
        assert!(nr_granted(At::Each, || _ = queue.stats()) > 0);
    }
}

#[test]
fn threads_of_the_library_yield_each_extension_once() {
    /// Ends the interrupts, also if the test panics.
    struct End<'a>(&'a AtomicBool);
    sync::on_drop!(End<'_>, this => this.0.store(true, Relaxed));

    turn_on();
    let params = Params { rseq_slice_ext: true, ..Params::default() };
    let registry = Registry::new(Topology::detect().unwrap(), params).unwrap();
    let queue = Workqueue::builder("interrupted").build_in(&registry).unwrap();
    let slots = Arc::new(PerCpu::builder().qpw(Qpw::EveryOp).build(|_| 0_u64).unwrap());
    let mut mailbox = Mailbox::new();
    let (poster, is_over) = (mailbox.poster(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                for &thread in &*OURS.lock().unwrap() {
                    // SAFETY: the signal has a handler. A number of no thread is an error.
                    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, INTERRUPT) };
                }
                thread::yield_now();
            }
        });
        let _end = End(&is_over);
        while ALL_GRANTED.load(Relaxed) < 20 {
            let items: [_; 64] = array::from_fn(|_| {
                let (poster, slots) = (poster.clone(), slots.clone());
                queue.spawn(move || {
                    slots.with_current(|count| (0..1000).for_each(|_| *count += 1));
                    poster.post_lazy(1).unwrap();
                })
            });
            items.into_iter().for_each(|item| item.join().unwrap());
            assert_eq!(mailbox.drain(64).sum::<u32>(), 64);
        }
    });
    drop(queue);
    registry.shutdown().unwrap();
    assert_eq!(ALL_GRANTED.load(Relaxed), ALL_YIELDS.load(Relaxed));
}
