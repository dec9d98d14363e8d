//! Callbacks: each runs once, in order, after its grace period.

use crate::*;

#[test]
fn barrier_waits_for_all_callbacks_of_all_threads() {
    let run = Run::default();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| rcu::call(run.callback())));
        }
    });
    rcu::barrier();
    assert_eq!(run.nr(), 4000);
    rcu::barrier();
}

#[test]
fn a_callback_waits_for_an_open_section() {
    let guard = rcu::read();
    let is_closed = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    let was_closed = is_closed.clone();
    rcu::call(move || sender.send(was_closed.load(Ordering::Acquire)).unwrap());
    assert!(receiver.try_recv().is_err());
    is_closed.store(true, Ordering::Release);
    drop(guard);
    assert!(receiver.recv().unwrap(), "the section was still open");
}

#[test]
fn a_barrier_in_a_callback_panics_and_a_grace_period_does_not() {
    let _alone = children::alone();
    let (sender, receiver) = mpsc::channel();
    rcu::call(move || {
        let message = message_of(rcu::barrier);
        rcu::synchronize();
        sender.send(message).unwrap();
    });
    rcu::barrier();
    assert_eq!(receiver.recv().unwrap(), "barrier inside a callback waits for itself");
}

#[test]
fn closures_and_heads_of_a_thread_run_in_call_order() {
    let _alone = children::alone();
    static ORDER: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let note = |at| ORDER.lock().unwrap().push(at);
    thread::spawn(move || {
        stay_on_one_cpu();
        for at in 0..1000 {
            if at % 7 == 3 {
                call_head(Box::new(move || note(at)));
            } else {
                rcu::call(move || note(at));
            }
        }
    })
    .join()
    .unwrap();
    rcu::barrier();
    assert!(ORDER.lock().unwrap().iter().copied().eq(0..1000));
}

#[test]
fn callbacks_of_an_exiting_thread_run() {
    static NR_RUN: AtomicUsize = AtomicUsize::new(0);
    struct Last;
    sync::on_drop!(Last, this => {
        (0..3).for_each(|_| rcu::call(|| _ = NR_RUN.fetch_add(1, Ordering::Relaxed)));
    });
    thread_local!(static LAST: Last = const { Last });
    for is_first in [true, false] {
        thread::spawn(move || {
            if is_first {
                LAST.with(|_| ());
            }
            rcu::call(|| ());
            LAST.with(|_| ());
        })
        .join()
        .unwrap();
    }
    rcu::barrier();
    assert_eq!(NR_RUN.load(Ordering::Relaxed), 6);
}

#[test]
fn a_panic_in_a_callback_loses_no_other() {
    // Runs in its own process: the executor of another test may panic late and be counted here.
    run_alone!("");
    let run = Run::default();
    for number in 0..10 {
        let count = run.callback();
        rcu::call(move || {
            assert!(number % 3 != 0, "on purpose");
            count();
        });
    }
    rcu::barrier();
    assert_eq!(run.nr(), 6);
    assert_eq!(rcu::nr_panicked(), 4);
}

#[test]
fn a_grace_period_that_was_started_ends_by_itself() {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                drop(rcu::read());
            }
        });
        for _ in 0..20 {
            let cookie = rcu::start_poll();
            until(|| rcu::poll_state(cookie));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn batches_run_where_the_user_wants() {
    let _alone = children::alone();
    let nr_batches = Arc::new(AtomicUsize::new(0));
    let count = nr_batches.clone();
    rcu::run_callbacks_on(Some(Box::new(move |batch| {
        // Every second batch runs on another thread. A dropped batch runs here.
        if count.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
            thread::spawn(move || batch.run());
        }
    })));
    let run = Run::default();
    for _ in 0..4 {
        rcu::call(run.callback());
        rcu::barrier();
    }
    rcu::run_callbacks_on(None);
    assert_eq!(run.nr(), 4);
    assert!(nr_batches.load(Ordering::Relaxed) >= 4);
}

#[test]
fn panic_of_a_batch_runner_loses_no_callback() {
    let _alone = children::alone();
    let before = rcu::nr_panicked();
    rcu::run_callbacks_on(Some(Box::new(|_| panic!("on purpose"))));
    let run = Run::default();
    for _ in 0..2 {
        rcu::call(run.callback());
        rcu::barrier();
    }
    rcu::run_callbacks_on(None);
    assert_eq!(run.nr(), 2);
    assert!(rcu::nr_panicked() > before);
}
