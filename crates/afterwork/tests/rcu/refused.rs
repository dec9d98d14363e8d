//! Callbacks while the system cannot create the thread that runs them.

use crate::children::{NoThreads, exit, set_thread_limit, wait_for};
use crate::*;

#[test]
fn failed_thread_start_is_retried_by_a_later_call() {
    run_alone!("");
    let run = Run::default();
    let no_threads = NoThreads::begin();
    rcu::call(run.callback());
    drop(no_threads);
    // All calls fit into the memory that the first one allocated.
    let mut nr_calls = 1;
    while run.nr() == 0 && nr_calls < 60 {
        rcu::call(run.callback());
        nr_calls += 1;
        // After a failed attempt, the next one is made a few milliseconds later.
        thread::sleep(Duration::from_millis(5));
    }
    until(|| run.nr() >= nr_calls);
}

#[test]
fn callback_flood_regains_a_thread_and_runs_without_a_barrier() {
    run_alone!("");
    let run = Run::default();
    let no_threads = NoThreads::begin();
    let mut nr_calls = 0;
    let mut flood = |nr| {
        (0..nr).for_each(|_| rcu::call(run.callback()));
        nr_calls += nr;
        nr_calls
    };
    flood(100_000);
    assert_eq!(run.nr(), 0, "run by who calls");
    drop(no_threads);
    // A call tries again a few milliseconds after the last failure.
    while run.nr() == 0 {
        flood(100);
    }
    let nr_calls = flood(100_000);
    until(|| run.nr() >= nr_calls);
}

#[test]
fn waiter_runs_callbacks_if_no_thread_can_be_created() {
    run_alone!("");
    let run = Run::default();
    let _no_threads = NoThreads::begin();
    for _ in 0..1000 {
        let (now, then) = (run.callback(), run.callback());
        rcu::call(move || {
            now();
            rcu::call(then);
        });
    }
    rcu::barrier();
    assert!(run.nr() >= 1000);
    rcu::barrier();
    assert_eq!(run.nr(), 2000);
    rcu::set_tunables(rcu::Tunables { wake_from_gp: false, ..rcu::tunables() });
    rcu::synchronize();
    let domain = Domain::new();
    domain.call(run.callback());
    domain.barrier();
    assert_eq!(run.nr(), 2001);
    // The callback leaves a section open on this thread.
    rcu::call(|| std::mem::forget(rcu::read()));
    rcu::barrier();
    rcu::call(run.callback());
    assert!(message_of(rcu::barrier).contains("inside a read-side critical section"));
    assert_eq!(run.nr(), 2001);
}

#[test]
fn callback_forking_on_a_waiter_leaves_the_rest_to_the_parent() {
    run_alone!("");
    let _no_threads = NoThreads::begin();
    for domain in [None, Some(Domain::new())] {
        let run = Run::default();
        let child = Arc::new(AtomicI32::new(0));
        let call = |callback: Box<dyn FnOnce() + Send>| match &domain {
            Some(domain) => domain.call(callback),
            None => rcu::call(callback),
        };
        let pid = child.clone();
        call(Box::new(move || {
            pid.store(fork().unwrap_or(0), Ordering::Relaxed);
        }));
        (0..100).for_each(|_| call(Box::new(run.callback())));
        // In the child, a domain of the parent rejects the call, but RCU does not.
        let waited = match &domain {
            Some(domain) => catch_unwind(AssertUnwindSafe(|| domain.barrier())),
            None => catch_unwind(rcu::barrier),
        };
        let pid = child.load(Ordering::Relaxed);
        if pid == 0 {
            let is_right = run.nr() == 0 && waited.is_err() == domain.is_some();
            exit(i32::from(!is_right));
        }
        assert!(waited.is_ok() && run.nr() == 100);
        assert!(wait_for(pid).success(), "the child ran callbacks of its parent's");
    }
}

/// Forks while the process can create no threads.
fn fork() -> Option<libc::pid_t> {
    let before = set_thread_limit(None);
    let pid = children::fork();
    set_thread_limit(before);
    pid
}

#[test]
fn callbacks_of_a_domain_without_threads_run_at_its_last_drop() {
    run_alone!("");
    let run = Run::default();
    let _no_threads = NoThreads::begin();
    let domain = Domain::new();
    domain.call(run.callback());
    domain.call(|| panic!("on purpose"));
    domain.call(run.callback());
    assert_eq!(run.nr(), 0);
    drop(domain);
    assert_eq!(run.nr(), 2);
    let domain = Domain::new();
    std::mem::forget(domain.read());
    domain.call(run.callback());
    drop(domain);
    assert_eq!(run.nr(), 2, "under a section that never ends");
}

#[test]
fn awaited_grace_period_ends_once_a_thread_can_be_created() {
    run_alone!("");
    await_without_threads(Domain::new().synchronize_async());
    await_without_threads(rcu::synchronize_async());
}

/// Polls at each wake-up. The process can create threads from the fourth poll on.
fn await_without_threads(mut future: impl Future<Output = ()> + Unpin) {
    struct Woken(mpsc::Sender<()>);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.send(()).ok();
        }
    }
    let mut no_threads = Some(NoThreads::begin());
    let (send, woken) = mpsc::channel();
    let waker = Arc::new(Woken(send)).into();
    for nr_polls in 1.. {
        if Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_ready() {
            assert!(nr_polls > 3, "no thread could be had");
            return;
        }
        if nr_polls == 3 {
            drop(no_threads.take());
        }
        woken.recv_timeout(PATIENCE).expect("the task is woken");
    }
}

#[test]
fn a_barrier_in_a_callback_needs_no_second_thread() {
    run_alone!("");
    let run = Run::default();
    let (domain, other) = (Domain::new(), Domain::new());
    let (begin, may_begin) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    let (theirs, counted) = (other.clone(), run.callback());
    domain.call(move || {
        begun.send(()).unwrap();
        may_begin.recv().unwrap();
        theirs.call(counted);
        theirs.barrier();
    });
    has_begun.recv().unwrap();
    let _no_threads = NoThreads::begin();
    begin.send(()).unwrap();
    domain.barrier();
    assert_eq!(run.nr(), 1);
}

#[test]
fn a_domain_called_during_a_failed_start_is_served_later() {
    run_alone!("");
    let run = Run::default();
    let no_threads = NoThreads::begin();
    let domains: Vec<_> = (0..4).map(|_| Domain::new()).collect();
    let call = || domains.iter().for_each(|domain| domain.call(run.callback()));
    call();
    assert_eq!(run.nr(), 0, "run by the caller");
    drop(no_threads);
    let mut nr_calls = 4;
    while run.nr() < nr_calls {
        // The next attempt is made a few milliseconds after a failed one.
        thread::sleep(Duration::from_millis(5));
        if nr_calls < 1000 {
            call();
            nr_calls += 4;
        }
    }
}
