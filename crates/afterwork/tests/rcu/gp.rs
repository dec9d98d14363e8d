//! Read-side critical sections and grace periods.

use crate::*;

#[test]
fn synchronize_waits_for_sections_and_not_for_idle_threads() {
    let (opened, receiver) = mpsc::channel();
    let (close, closing) = mpsc::channel::<()>();
    let reader = thread::spawn(move || {
        let guard = rcu::read();
        opened.send(()).unwrap();
        closing.recv().unwrap();
        drop(guard);
        // The thread is idle, and still registered.
        opened.send(()).unwrap();
        closing.recv().unwrap();
    });
    receiver.recv().unwrap();
    let before = rcu::get_state();
    let done = Arc::new(AtomicBool::new(false));
    let is_done = done.clone();
    let updater = thread::spawn(move || {
        rcu::synchronize();
        assert!(is_done.load(Ordering::Relaxed), "the section was still open");
    });
    assert!(!rcu::poll_state(before));
    done.store(true, Ordering::Relaxed);
    close.send(()).unwrap();
    updater.join().unwrap();
    receiver.recv().unwrap();
    (0..100).for_each(|_| rcu::synchronize());
    close.send(()).unwrap();
    reader.join().unwrap();
}

#[test]
fn sections_nest_and_end_in_any_order() {
    let outer = rcu::read();
    let inner = rcu::read();
    drop(outer);
    let cookie = rcu::get_state();
    thread::scope(|scope| {
        let helper = scope.spawn(move || rcu::poll_state(cookie));
        assert!(!helper.join().unwrap(), "the inner section was forgotten");
    });
    drop(inner);
    rcu::synchronize();
}

#[test]
fn a_wait_in_a_section_panics_instead_of_waiting_for_itself() {
    let cookie = rcu::get_state();
    let waits: [(&str, &dyn Fn()); 4] = [
        ("synchronize", &rcu::synchronize),
        ("synchronize_expedited", &rcu::synchronize_expedited),
        ("cond_synchronize", &|| rcu::cond_synchronize(rcu::get_state())),
        ("barrier", &rcu::barrier),
    ];
    for (what, wait) in waits {
        let guard = rcu::read();
        let message = message_of(wait);
        assert!(message.contains("inside a read-side critical section"), "{what}: {message}");
        drop(guard);
        // The panic leaves no trace, so a later wait succeeds.
        wait();
    }
    assert!(rcu::poll_state(cookie));
}

#[test]
fn many_waiters_are_all_woken() {
    const NR_WAITERS: usize = 200;
    let (together, stop) = (Barrier::new(NR_WAITERS), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                drop(rcu::read());
            }
        });
        let waiters = [(); NR_WAITERS].map(|()| {
            scope.spawn(|| {
                together.wait();
                (0..3).for_each(|_| rcu::synchronize());
            })
        });
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn threads_that_start_and_exit_leave_no_memory_behind() {
    run_alone!("");
    let domain = &rcu::srcu::Domain::new();
    let start_and_exit = |nr_threads: usize| {
        for _ in 0..nr_threads / 20 {
            thread::scope(|scope| {
                for _ in 0..20 {
                    scope.spawn(|| {
                        let guard = rcu::read();
                        drop(domain.read());
                        rcu::call(|| ());
                        drop(guard);
                    });
                }
            });
        }
        rcu::barrier();
        domain.synchronize();
    };
    let resident_kib = || number_in("/proc/self/status", "VmRSS:").unwrap();
    let grown_kib = || {
        let before = resident_kib();
        start_and_exit(2000);
        resident_kib().saturating_sub(before)
    };
    start_and_exit(400);
    // A leaked slot per thread would be 250 KiB a round, and a leaked bag 1000 KiB. The first
    // rounds grow by the largest number of bags that wait at once.
    let times = (0..30).map(|_| grown_kib());
    let grown_kib: Vec<_> = times.take_while(|grown| *grown >= 100).collect();
    assert!(grown_kib.len() < 30, "{grown_kib:?} KiB");
}

#[test]
fn thread_local_destructors_may_read_and_end_sections() {
    struct ReadsAtExit;
    sync::on_drop!(ReadsAtExit, this => {
        let outer = rcu::read();
        drop(rcu::read());
        drop(outer);
        let mut reader = Reader::new();
        reader.quiescent();
        reader.offline(|| ());
        reader.quiescent();
    });
    thread_local!(static EARLY: ReadsAtExit = const { ReadsAtExit });
    thread_local!(static LATE: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) });
    let begin: [fn() -> Box<dyn Any>; 2] = [|| Box::new(rcu::read()), || Box::new(Reader::new())];
    for begin in begin.into_iter().cycle().take(40) {
        thread::spawn(move || {
            // The order in which the locals are dropped is unspecified.
            EARLY.with(|_| ());
            LATE.set(Some(begin()));
        })
        .join()
        .unwrap();
        rcu::synchronize();
    }
}

/// When it is dropped, it waits for the section that it keeps open.
struct WaitsForItself(Option<rcu::Guard>, mpsc::Sender<[bool; 3]>);

sync::on_drop!(WaitsForItself, this => {
    let cookie = rcu::get_state();
    let is_refused = [rcu::synchronize, rcu::barrier, rcu::synchronize_expedited]
        .map(|wait| std::panic::catch_unwind(wait).is_err());
    assert!(!rcu::poll_state(cookie));
    this.1.send(is_refused).unwrap();
    this.0.take();
    rcu::cond_synchronize(cookie);
});

#[test]
fn waiting_within_a_section_of_an_ending_thread_panics() {
    thread_local!(static LATE: std::cell::OnceCell<WaitsForItself> = const { std::cell::OnceCell::new() });
    let (sender, is_refused) = mpsc::channel();
    let reader = thread::spawn(move || {
        // The order in which the local and the thread's slot are dropped is unspecified.
        LATE.with(|_| ());
        let waits = WaitsForItself(Some(rcu::read()), sender);
        LATE.with(|late| assert!(late.set(waits).is_ok()));
    });
    assert_eq!(is_refused.recv().unwrap(), [true; 3]);
    reader.join().unwrap();
}

#[test]
fn a_cell_that_cannot_wait_keeps_its_version() {
    let cell = rcu::Rcu::new(1);
    let guard = rcu::read();
    assert!(catch_unwind(AssertUnwindSafe(|| cell.replace_sync(2))).is_err());
    assert_eq!(*cell.load(&guard), 1);
    drop(guard);
    let panics = || cell.update(|_| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(cell.replace_sync(3), 1);
}

#[test]
fn a_grace_period_that_was_waited_for_ends_every_earlier_cookie() {
    // In a section, `poll_state` considers only the number of grace periods.
    let polled_in_a_section = |cookie| {
        let _guard = rcu::read();
        rcu::poll_state(cookie)
    };
    let waits: [fn(); 4] = [
        rcu::synchronize,
        rcu::synchronize_expedited,
        || rcu::qsbr::Reader::new().synchronize(),
        || {
            rcu::call(|| ());
            rcu::barrier();
        },
    ];
    for wait in waits {
        let (cookie, other) = (rcu::get_state(), rcu::start_poll());
        wait();
        assert!(polled_in_a_section(cookie) && polled_in_a_section(other));
        rcu::cond_synchronize(cookie);
        let cookie = rcu::get_state();
        wait();
        assert!(polled_in_a_section(cookie));
    }
    let domain = rcu::srcu::Domain::new();
    let cookie = domain.get_state();
    domain.synchronize();
    let _guard = domain.read();
    assert!(domain.poll_state(cookie));
}
