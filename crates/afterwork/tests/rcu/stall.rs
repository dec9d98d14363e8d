//! Readers that delay grace periods, and the tunables.

use crate::*;

/// Holds the lock of the process's tunables, and restores them when it is dropped.
pub struct Tuned(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

pub fn tuned(tunables: Tunables) -> Tuned {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    rcu::set_tunables(tunables);
    Tuned(alone)
}

sync::on_drop!(Tuned, this => rcu::set_tunables(Tunables::default()));

#[test]
fn a_reader_that_stalls_a_grace_period_is_named() {
    let _tuned = tuned(Tunables { stall_timeout_ms: 5, ..Tunables::default() });
    let (notifier, stalls) = mpsc::channel();
    let notify = move |stall: &Stall| _ = notifier.send(stall.clone());
    rcu::on_stall(Some(Box::new(notify)));
    let (close, closing) = mpsc::channel::<()>();
    let (opened, open) = mpsc::channel();
    let read = move || {
        let guard = rcu::read();
        opened.send(()).unwrap();
        closing.recv().unwrap();
        drop(guard);
    };
    let reader = thread::Builder::new().name("staller".into()).spawn(read).unwrap();
    open.recv().unwrap();
    let waiter = thread::spawn(rcu::synchronize);
    // Readers of other tests may also be reported.
    let stall = stalls.iter().find(|stall| stall.name.as_deref() == Some("staller")).unwrap();
    assert!(stall.waited >= Duration::from_millis(5));
    assert!(stall.to_string().contains("(staller)"));
    assert!(stall.doing.is_some_and(|doing| doing.starts_with("asleep")));
    // Each period has one report, so there will be another one.
    stalls.recv().unwrap();
    close.send(()).unwrap();
    waiter.join().unwrap();
    reader.join().unwrap();
    rcu::on_stall(None);
}

#[test]
fn fixed_waits_elapse_and_an_early_report_skips_the_second() {
    let timed = |early_qs| {
        let _tuned =
            tuned(Tunables { early_qs, first_fqs_ms: 3, next_fqs_ms: 4, ..Tunables::default() });
        let start = Instant::now();
        rcu::synchronize();
        start.elapsed()
    };
    assert!(timed(true) >= Duration::from_millis(3));
    assert!(timed(false) >= Duration::from_millis(7));
}

#[test]
fn waiting_by_callback_waits_for_a_grace_period_too() {
    let _tuned = tuned(Tunables { wake_from_gp: false, ..Tunables::default() });
    rcu::synchronize();
    rcu::synchronize_expedited();
}

#[test]
fn stall_handler_that_waits_for_a_grace_period_panics() {
    let _tuned = tuned(Tunables { stall_timeout_ms: 5, ..Tunables::default() });
    let (notifier, stalls) = mpsc::channel();
    rcu::on_stall(Some(Box::new(move |_| {
        for wait in [rcu::synchronize as fn(), rcu::barrier] {
            notifier.send(message_of(wait)).ok();
        }
        panic!("on purpose");
    })));
    let guard = rcu::read();
    let waiter = thread::spawn(rcu::synchronize);
    for what in ["synchronize", "barrier"] {
        let message = stalls.recv().unwrap();
        assert!(message.starts_with(what) && message.contains("waits for itself"), "{message}");
    }
    drop(guard);
    waiter.join().unwrap();
    rcu::on_stall(None);
}

#[test]
fn a_stall_does_not_count_time_in_which_the_process_was_stopped() {
    run_alone!("rcu.stall_timeout=5");
    let (report, reports) = mpsc::channel();
    let notify = move |stall: &Stall| _ = report.send((stall.waited, Instant::now()));
    rcu::on_stall(Some(Box::new(notify)));
    let guard = rcu::read();
    let start = Instant::now();
    let waiter = thread::spawn(rcu::synchronize);
    reports.recv().unwrap();
    // The first signals may arrive before the process has stopped.
    let resume = "for i in 1 2 3 4 5; do sleep 3; kill -CONT $PPID; done";
    let mut resumer = Command::new("sh").args(["-c", resume]).spawn().unwrap();
    let before = Instant::now();
    // SAFETY: the call takes a number. The child resumes the process.
    assert_eq!(unsafe { libc::raise(libc::SIGSTOP) }, 0);
    let after = Instant::now();
    resumer.kill().unwrap();
    resumer.wait().unwrap();
    let (waited, now) = reports.iter().find(|(_, now)| *now > after).unwrap();
    drop(guard);
    waiter.join().unwrap();
    let awake = (now - start) - (after - before);
    assert!(waited <= awake + Duration::from_secs(1), "{waited:?} of {awake:?} spent awake");
}
