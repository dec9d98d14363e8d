//! Sections in signal handlers, at every instruction.

use crate::*;

/// The trap flag of x86.
const TRAP: i64 = 0x100;
const NOT_ARMED: u32 = u32::MAX;

/// The instruction of the stepped function at which the handler acts.
static AT: AtomicU32 = AtomicU32::new(NOT_ARMED);
static STEP: AtomicU32 = AtomicU32::new(0);
static NR_ASKED: AtomicU32 = AtomicU32::new(0);
static NR_WAITED: AtomicU32 = AtomicU32::new(0);
static NR_UNPROTECTED: AtomicU32 = AtomicU32::new(0);

/// Opens a section at instruction `AT`, while another thread waits for a grace period.
extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the registers of the interrupted thread.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let step = STEP.fetch_add(1, Ordering::Relaxed);
    let at = AT.load(Ordering::Relaxed);
    if step == at {
        let guard = rcu::read_in_signal_handler();
        let nr_asked = NR_ASKED.fetch_add(1, Ordering::SeqCst) + 1;
        let has_waited = || NR_WAITED.load(Ordering::SeqCst) >= nr_asked;
        for _ in 0..16 {
            // This call accesses no memory of the library.
            thread::yield_now();
            if has_waited() {
                NR_UNPROTECTED.fetch_add(1, Ordering::SeqCst);
                break;
            }
        }
        drop(guard.expect("this thread has read before"));
    }
    if step >= at || at == NOT_ARMED {
        context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP;
    }
}

#[inline(never)]
fn stepped(at: u32) {
    STEP.store(0, Ordering::Relaxed);
    AT.store(at, Ordering::Relaxed);
    // SAFETY: the instructions set the trap flag, whose signal has a handler.
    unsafe { std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    let guard = rcu::read();
    AT.store(NOT_ARMED, Ordering::Relaxed);
    drop(guard);
}

#[test]
fn grace_period_waits_for_a_section_in_a_signal_handler() {
    // SAFETY: a zeroed structure is valid, and the handler is async-signal-safe.
    unsafe {
        let mut act: libc::sigaction = std::mem::zeroed();
        act.sa_sigaction = on_trap as *const () as usize;
        act.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGTRAP, &act, std::ptr::null_mut());
    }
    const STOP: u32 = 1 << 31;
    let updater = thread::spawn(|| {
        let mut nr_done = 0;
        loop {
            let asked = NR_ASKED.load(Ordering::SeqCst);
            if asked & !STOP > nr_done {
                rcu::synchronize_expedited();
                nr_done += 1;
                NR_WAITED.fetch_add(1, Ordering::SeqCst);
            } else if asked & STOP != 0 {
                return nr_done;
            } else {
                thread::yield_now();
            }
        }
    });
    drop(rcu::read());
    for at in 0..1000 {
        // Parks this thread, as any sleep in the library does.
        Parker::with_spin_limit(0).park_timeout(Duration::from_nanos(1));
        let nr_before = NR_ASKED.load(Ordering::SeqCst);
        stepped(at);
        if NR_ASKED.load(Ordering::SeqCst) == nr_before {
            // The function has fewer instructions.
            break;
        }
        until(|| NR_WAITED.load(Ordering::SeqCst) >= NR_ASKED.load(Ordering::SeqCst));
    }
    NR_ASKED.fetch_or(STOP, Ordering::SeqCst);
    let nr_tried = updater.join().unwrap();
    assert!(nr_tried > 30, "{nr_tried} places");
    assert_eq!(NR_UNPROTECTED.load(Ordering::SeqCst), 0, "of {nr_tried} places");
}

#[test]
fn a_thread_that_has_not_read_has_no_section_in_a_handler() {
    let before = thread::spawn(|| rcu::read_in_signal_handler().is_none());
    assert!(before.join().unwrap());
    drop(rcu::read());
    let outer = rcu::read_in_signal_handler().unwrap();
    let inner = rcu::read_in_signal_handler();
    drop(outer);
    assert!(inner.is_some());
}
