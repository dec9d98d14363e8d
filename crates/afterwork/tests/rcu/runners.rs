//! The threads that run callbacks of sleepable domains.

use crate::*;

/// Returns the folders of the threads of this process that run callbacks of domains.
fn threads() -> impl Iterator<Item = PathBuf> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path());
    let name = |task: &PathBuf| fs::read_to_string(task.join("comm"));
    tasks.filter(move |task| name(task).is_ok_and(|name| name.trim_end() == "aw-srcu"))
}

fn nr_threads() -> usize {
    threads().count()
}

#[test]
fn domains_whose_readers_are_slow_share_a_few_threads() {
    run_alone!("");
    let run = Run::default();
    let domains: Vec<_> = (0..300).map(|_| Domain::new()).collect();
    let guards: Vec<_> = domains.iter().map(Domain::read_owned).collect();
    domains.iter().for_each(|it| it.call(run.callback()));
    // Domains without readers are served at the same time.
    for _ in 0..100 {
        let domain = Domain::new();
        domain.call(|| ());
        domain.barrier();
    }
    assert_eq!(run.nr(), 0, "run under a reader");
    // For each thread that waits for a CPU for 10 ms during a turn, another thread may be started.
    assert!(nr_threads() < 30, "{} threads", nr_threads());
    drop(guards);
    domains.iter().for_each(Domain::barrier);
    assert_eq!(run.nr(), 300);
}

#[test]
fn a_domain_that_is_dropped_right_after_a_call_leaves_no_thread() {
    run_alone!("");
    let (send, run) = mpsc::channel();
    let mut most = 0;
    for number in 0..1000 {
        let send = send.clone();
        Domain::new().call(move || send.send(number).unwrap());
        most = most.max(if number % 10 == 0 { nr_threads() } else { 0 });
    }
    drop(send);
    let mut numbers: Vec<_> = run.iter().collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..1000));
    assert!(most < 100, "{most} threads");
}

#[test]
fn a_callback_may_wait_for_barriers_of_other_domains() {
    // Each callback waits for the callbacks of the next domain.
    let domains: Arc<[Domain]> = (0..6).map(|_| Domain::new()).collect();
    // No callback runs before all are queued.
    let readers: Vec<_> = domains.iter().map(Domain::read_owned).collect();
    let (send, ended) = mpsc::channel();
    for number in 0..domains.len() {
        let (send, theirs) = (send.clone(), domains.clone());
        domains[number].call(move || {
            if let Some(next) = theirs.get(number + 1) {
                next.synchronize();
                next.barrier();
            }
            send.send(number).unwrap();
        });
    }
    drop(readers);
    let order: Vec<_> = (0..6).map(|_| ended.recv_timeout(PATIENCE)).collect();
    assert!(order.into_iter().eq((0..6).rev().map(Ok)));
}

#[test]
fn a_blocking_callback_does_not_stop_other_domains() {
    let (open, closed) = mpsc::channel::<()>();
    let blocked = Domain::new();
    let (begun, has_begun) = mpsc::channel();
    blocked.call(move || {
        begun.send(()).unwrap();
        closed.recv().unwrap();
    });
    has_begun.recv_timeout(PATIENCE).unwrap();
    for _ in 0..20 {
        let domain = Domain::new();
        let guard = domain.read_owned();
        let (send, ran) = mpsc::channel();
        domain.call(move || send.send(()).unwrap());
        drop(guard);
        assert_eq!(ran.recv_timeout(PATIENCE), Ok(()));
        domain.synchronize();
    }
    open.send(()).unwrap();
    blocked.barrier();
}

fn nr_sleeps() -> usize {
    threads().filter_map(|task| number_in(task.join("status"), "voluntary_ctxt_switches:")).sum()
}

#[test]
fn a_thread_whose_readers_stay_sleeps() {
    run_alone!("");
    let domain = Domain::new();
    let guard = domain.read_owned();
    let (send, ran) = mpsc::channel();
    domain.call(move || send.send(()).unwrap());
    // This is longer than a thread without callbacks waits before it exits.
    thread::sleep(Duration::from_secs(2));
    let before = nr_sleeps();
    thread::sleep(Duration::from_secs(2));
    assert_eq!(nr_threads(), 1);
    let nr_sleeps = nr_sleeps() - before;
    assert!(nr_sleeps < 10, "woke {nr_sleeps} times");
    drop(guard);
    assert_eq!(ran.recv_timeout(PATIENCE), Ok(()));
}
