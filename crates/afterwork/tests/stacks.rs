//! A stall is reported with the stacks of the stuck workers.

mod children;

use std::sync::atomic::*;
use std::sync::{Arc, mpsc};

use afterwork::params::Params;
use afterwork::workqueue::{Registry, RegistryError, Report, Stack, Stall, Topology, Workqueue};
// A second registry that captures stacks would be rejected.
use children::alone;

const SIGURG: u32 = 23;

/// Creates a registry that has one worker and reports stalls early.
fn impatient() -> (Registry, mpsc::Receiver<Stall>) {
    let params = Params { watchdog_thresh_ms: 20, stall_signal: SIGURG, ..Params::default() };
    let params = Params { max_workers: 1, ..params };
    let registry = Registry::new(Topology::synthetic("1 core").unwrap(), params).unwrap();
    let (send, stalls) = mpsc::channel();
    registry.on_report(move |report| {
        if let Report::Stall(stall) = report {
            send.send(stall.clone()).ok();
        }
    });
    (registry, stalls)
}

/// Blocks the only worker in `item`, and returns the first stall that is `good`.
fn stall_of(item: fn(&AtomicBool), good: impl Fn(&Stall) -> bool) -> Stall {
    let (registry, stalls) = impatient();
    let queue = Workqueue::builder("stuck").help(false).build_in(&registry).unwrap();
    let flag = Arc::new(AtomicBool::new(false));
    let theirs = flag.clone();
    queue.spawn_detached(move || item(&theirs)).unwrap();
    queue.spawn_detached(|| ()).unwrap();
    let stall = stalls.iter().find(|it| good(it)).unwrap();
    flag.store(true, Ordering::Relaxed);
    queue.drain().unwrap();
    stall
}

fn has_a_stack(stall: &Stall) -> bool {
    let mut workers = stall.workers.iter();
    workers.any(|it| it.stack.as_ref().is_some_and(|it| it.missing().is_none()))
}

#[inline(never)]
fn stuck_in_a_loop(flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        // The signal may also arrive in the allocator, under its locks.
        std::hint::black_box(vec![0_u8; 100_000]);
    }
}

#[inline(never)]
fn stuck_asleep(flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[inline(never)]
fn stuck_deep_down(flag: &AtomicBool) {
    fn down(flag: &AtomicBool, depth: u32) -> u32 {
        let room = std::hint::black_box([depth; 1000]);
        match depth {
            0 => stuck_in_a_loop(flag),
            _ => _ = down(flag, depth - 1),
        }
        std::hint::black_box(room[depth as usize % 1000])
    }
    down(flag, 100);
}

#[inline(never)]
fn stuck_behind_a_mask(flag: &AtomicBool) {
    let masked = |how| {
        // SAFETY: the set is a local variable.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, SIGURG as i32);
            libc::pthread_sigmask(how, &set, std::ptr::null_mut());
        }
    };
    masked(libc::SIG_BLOCK);
    stuck_asleep(flag);
    masked(libc::SIG_UNBLOCK);
}

#[test]
fn stall_report_names_the_functions_of_the_workers() {
    let _alone = alone();
    for (item, name) in
        [(stuck_in_a_loop as fn(&AtomicBool), "stuck_in_a_loop"), (stuck_asleep, "stuck_asleep")]
    {
        let stall = stall_of(item, has_a_stack);
        let stack = stall.workers[0].stack.as_ref().unwrap();
        let report = stall.to_string();
        assert!(report.contains(name), "{report}");
        assert!(report.contains("tests/stacks.rs:"), "{report}");
        assert!(!report.contains("gdb"), "{report}");
        assert!(!stack.addresses().is_empty());
        // The stack extends to the start of the thread.
        assert!(!report.contains("and more"), "{report}");
        assert!(report.contains("afterwork_workqueue"), "{report}");
    }
}

#[test]
fn a_stack_that_is_too_deep_is_cut() {
    let _alone = alone();
    let report = stall_of(stuck_deep_down, has_a_stack).to_string();
    assert!(report.contains("stuck_in_a_loop") && report.contains("and more"), "{report}");
}

#[test]
fn unanswered_stack_request_is_reported() {
    let _alone = alone();
    let why = |stall: &Stall| stall.workers.first()?.stack.as_ref()?.missing();
    let is_blocked = |stall: &Stall| why(stall).is_some_and(|it| it.contains("blocks the signal"));
    let report = stall_of(stuck_behind_a_mask, is_blocked).to_string();
    assert!(report.contains("not captured"), "{report}");
    // The signal has arrived by now, and the next one is answered.
    stall_of(stuck_asleep, has_a_stack);
}

#[test]
fn unusable_signal_is_rejected() {
    // SIGSEGV, SIGPIPE (which the standard library ignores), and no signal.
    for (signal, why) in [
        (11, "without a meaning to the kernel"),
        (13, "neither handles"),
        (65, "without a meaning"),
    ] {
        let params = Params { stall_signal: signal, ..Params::default() };
        let error = Registry::new(Topology::synthetic("1 core").unwrap(), params).unwrap_err();
        assert!(matches!(error, RegistryError::Params(_)), "{error}");
        let report = error.to_string();
        let is_named = report.contains(&format!("stall_signal={signal}"));
        assert!(is_named && report.contains(why), "{report}");
    }
}

/// A sink that panics at one of its pieces, or displays another stack there.
struct Hostile<'a> {
    inner: Option<&'a Stack>,
    nr_pieces_before: u32,
}

impl std::fmt::Write for Hostile<'_> {
    fn write_str(&mut self, _: &str) -> std::fmt::Result {
        let Some(nr_pieces_before) = self.nr_pieces_before.checked_sub(1) else {
            let inner = self.inner.take().expect("a sink may panic");
            self.nr_pieces_before = u32::MAX;
            assert!(inner.to_string().contains("stuck_in_a_loop"));
            return Ok(());
        };
        self.nr_pieces_before = nr_pieces_before;
        Ok(())
    }
}

#[test]
fn stack_is_displayed_after_a_panicking_sink_and_when_nested() {
    use std::fmt::Write;
    let _alone = alone();
    let stall = stall_of(stuck_in_a_loop, has_a_stack);
    let stack = stall.workers.iter().find_map(|it| it.stack.as_ref()).unwrap();
    std::thread::scope(|scope| {
        for nth in 0..4 {
            scope.spawn(move || {
                for piece in 0.. {
                    let inner = ((nth + piece) % 2 == 0).then_some(stack);
                    let mut sink = Hostile { inner, nr_pieces_before: piece };
                    let display = std::panic::AssertUnwindSafe(|| write!(sink, "{stack}"));
                    let is_good = std::panic::catch_unwind(display).is_ok();
                    if sink.nr_pieces_before < u32::MAX / 2 && is_good {
                        // The text has fewer pieces.
                        assert!(piece > 20, "{piece}");
                        return;
                    }
                    assert_eq!(is_good, inner.is_some());
                }
            });
        }
    });
    assert!(stall.to_string().contains("stuck_in_a_loop"), "{stall}");
}
