//! Children of `fork`: RCU goes on there, and what cannot says so.

#![cfg(not(any(loom, shuttle)))]

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use afterwork::{
    observe,
    rcu::{self, Rcu, qsbr, srcu::Domain},
    workqueue::{self, Work, Workqueue},
};

/// Ends a child that hangs.
const LIMIT_S: u32 = 30;

/// Threads of other tests would be gone in the child with whatever they hold: of the standard output, say.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Forks; the child calls `body` and ends.
fn in_child(body: impl FnOnce()) {
    // SAFETY: `body` is what this tests: it relies on the C library's memory, which is sane in a child, and on ours.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: takes a number; the signal that is sent then ends the process.
        unsafe { libc::alarm(LIMIT_S) };
        let ended = catch_unwind(AssertUnwindSafe(body));
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(ended.is_err())) }
    }
    assert!(pid > 0, "{}", io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: `status` lives over the call.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(waited, pid);
    assert_eq!(status, 0, "the child failed, or hung for {LIMIT_S} s");
}

/// Does all that RCU is for, with threads of its own.
fn use_rcu() {
    let value = Arc::new(Rcu::new(1_u64));
    let stop = AtomicBool::new(false);
    let nr_run = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(*value.load(&rcu::read()) > 0);
            }
        });
        for round in 2..100 {
            value.replace_sync(round);
            let nr_run = nr_run.clone();
            rcu::call(move || {
                nr_run.fetch_add(1, Ordering::Relaxed);
            });
            rcu::synchronize();
            rcu::cond_synchronize(rcu::start_poll());
        }
        rcu::barrier();
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(nr_run.load(Ordering::Relaxed), 98);
}

/// Does all that a domain is for.
fn use_srcu(domain: &Domain) {
    let guard = domain.read();
    let cookie = domain.get_state();
    assert!(!domain.poll_state(cookie));
    drop(guard);
    domain.synchronize();
    let (sender, receiver) = mpsc::channel();
    domain.call(move || sender.send(()).unwrap());
    domain.barrier();
    receiver.try_recv().unwrap();
}

fn message_of(body: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(body)).expect_err("it did not panic");
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap()
}

#[test]
fn a_child_reads_waits_and_runs_callbacks_of_its_own() {
    let _alone = alone();
    use_rcu();
    in_child(|| {
        use_rcu();
        // And a child of the child.
        in_child(use_rcu);
    });
    use_rcu();
}

#[test]
fn sections_that_were_open_in_other_threads_hold_nothing_up_in_a_child() {
    let _alone = alone();
    let (done, wait) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel();
    let reader = thread::spawn({
        let ready = ready.clone();
        move || {
            let _guard = rcu::read();
            ready.send(()).unwrap();
            wait.recv().ok();
        }
    });
    let (done_too, wait) = mpsc::channel::<()>();
    let looper = thread::spawn(move || {
        let _online = qsbr::Reader::new();
        ready.send(()).unwrap();
        wait.recv().ok();
    });
    is_ready.recv().unwrap();
    is_ready.recv().unwrap();
    // A grace period that waits for the two, and a sweep.
    let waiter = thread::spawn(rcu::synchronize);
    let nr_run = Arc::new(AtomicUsize::new(0));
    let ran = nr_run.clone();
    rcu::call(move || {
        ran.fetch_add(1, Ordering::Relaxed);
    });
    for _ in 0..20 {
        in_child(|| {
            let guard = rcu::read();
            drop(guard);
            use_rcu();
            assert_eq!(
                nr_run.load(Ordering::Relaxed),
                0,
                "the parent's callback ran"
            );
        });
        thread::yield_now();
    }
    drop((done, done_too));
    for thread in [reader, looper, waiter] {
        thread.join().unwrap();
    }
    rcu::barrier();
    assert_eq!(nr_run.load(Ordering::Relaxed), 1);
}

#[test]
fn a_section_of_the_thread_that_forks_is_open_in_the_child_too() {
    let _alone = alone();
    let guard = rcu::read();
    // It makes the section older than a grace period, or of the same number.
    let waiter = thread::spawn(rcu::synchronize);
    for _ in 0..20 {
        let guard = &guard;
        in_child(move || {
            let (ended, wait) = mpsc::channel();
            let waiter = thread::spawn(move || {
                rcu::synchronize();
                ended.send(()).ok();
            });
            for _ in 0..100 {
                thread::yield_now();
                assert!(wait.try_recv().is_err(), "did not wait for the section");
            }
            // SAFETY: this process does not drop it again: it ends without cleaning up.
            drop(unsafe { std::ptr::read(guard) });
            waiter.join().unwrap();
            use_rcu();
        });
    }
    drop(guard);
    waiter.join().unwrap();
}

#[test]
fn a_fork_amid_everything_leaves_a_sane_child() {
    let _alone = alone();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    drop(rcu::read());
                    rcu::call(|| ());
                    rcu::synchronize();
                    // One that comes and goes.
                    scope.spawn(|| drop(rcu::read())).join().unwrap();
                }
            });
        }
        let children = || (0..50).for_each(|_| in_child(use_rcu));
        let ended = catch_unwind(children);
        stop.store(true, Ordering::Relaxed);
        ended.unwrap();
    });
    rcu::barrier();
}

#[test]
fn a_callback_that_forks_goes_on_in_both() {
    let _alone = alone();
    let (sender, receiver) = mpsc::channel();
    rcu::call(move || {
        // SAFETY: as in `in_child`.
        let pid = unsafe { libc::fork() };
        if pid > 0 {
            return sender.send(pid).unwrap();
        }
        // SAFETY: takes a number.
        unsafe { libc::alarm(LIMIT_S) };
        // The sweep ends, and the next one has this.
        rcu::call(|| {
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(3) }
        });
    });
    let pid = receiver.recv().unwrap();
    let mut status = 0;
    // SAFETY: `status` lives over the call.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 3);
    rcu::barrier();
}

#[test]
fn a_domain_of_the_parent_says_so_and_one_of_the_child_works() {
    let _alone = alone();
    let domain = Domain::new();
    use_srcu(&domain);
    in_child(|| {
        // Sections are to be had in any case.
        drop(domain.read());
        for refused in [
            message_of(|| domain.synchronize()),
            message_of(|| domain.call(|| ())),
            message_of(|| domain.barrier()),
        ] {
            assert!(
                refused.contains("before the process was forked"),
                "{refused}"
            );
        }
        use_srcu(&Domain::new());
    });
    use_srcu(&domain);
}

/// Does what a queue is for.
fn use_queue(queue: &Workqueue) {
    let sums = (0..100_u64).map(|at| queue.spawn(move || at));
    let sums: Vec<_> = sums.collect();
    let sum: u64 = sums.into_iter().map(|sum| sum.join().unwrap()).sum();
    assert_eq!(sum, 4950);
    queue.drain().unwrap();
}

#[test]
fn a_queue_of_the_parent_says_so_and_those_of_the_child_work() {
    let _alone = alone();
    let made = || Workqueue::builder("made").build().unwrap();
    let (queue, system) = (made(), workqueue::system().unwrap());
    use_queue(&queue);
    use_queue(system);
    in_child(|| {
        let work = Work::new(|| ());
        for refused in [
            message_of(|| assert!(queue.enqueue(&work))),
            message_of(|| drop(queue.spawn(|| ()))),
            message_of(|| system.spawn_detached(|| ())),
            message_of(|| queue.flush().unwrap()),
            message_of(|| queue.drain().unwrap()),
        ] {
            assert!(
                refused.contains("before the process was forked"),
                "{refused}"
            );
        }
        // It waits for nobody.
        drop(queue.clone());
        use_queue(&made());
        use_queue(workqueue::system().unwrap());
    });
    use_queue(&queue);
}

#[test]
fn an_item_of_the_parent_is_not_waited_for_in_the_child() {
    let _alone = alone();
    let queue = Workqueue::builder("slow").build().unwrap();
    let (done, wait) = mpsc::channel::<()>();
    let runs = queue.spawn(move || wait.recv().is_err());
    let ended = queue.spawn(|| 7);
    queue.spawn(|| ()).join().unwrap();
    while !ended.is_finished() {
        thread::yield_now();
    }
    let mut both = Some((runs, ended));
    let last = AssertUnwindSafe(&mut both);
    in_child(move || {
        // SAFETY: this process ends without dropping the originals.
        let (runs, ended) = unsafe { std::ptr::read(last.0) }.unwrap();
        assert_eq!(ended.join().unwrap(), 7);
        let refused = message_of(|| drop(runs.join()));
        assert!(
            refused.contains("before the process was forked"),
            "{refused}"
        );
    });
    drop(done);
    let (runs, ended) = both.take().unwrap();
    assert!(runs.join().unwrap() && ended.join().unwrap() == 7);
}

#[test]
fn a_child_is_shown_by_a_page_of_its_own() {
    let _alone = alone();
    let path = observe::publish().unwrap();
    in_child(|| {
        let of_child = observe::publish().unwrap();
        assert_ne!(of_child, path);
        assert!(of_child.exists());
        assert!(observe::unpublish() && !of_child.exists());
        // And not its parent's.
        assert!(!observe::unpublish() && path.exists());
    });
    assert!(path.exists() && observe::unpublish());
}
