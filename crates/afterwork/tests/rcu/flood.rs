//! Threads that add callbacks faster than they run.

use crate::*;

const MARK: usize = 100;
const TUNED: &str = "rcu.qhimark=100";
/// The waits at three of seven marks: the list is taken at most once, and then starts again.
const LEAST: Duration = Duration::from_millis(10 + 20 + 40);
/// One-word closures that pass seven marks. A bag holds 126 of them and counts as 63.
const NR_CLOSURES: usize = 15 * MARK;
const NR_HEADS: usize = 8 * MARK;
const REPORT: &str = "callbacks wait in one list, to which thread";

/// Calls `call` `nr` times on another thread while no callback may run. Returns the elapsed time.
fn under_a_reader(nr: usize, call: impl Fn(usize) + Send) -> Duration {
    let guard = rcu::read();
    let took = thread::scope(|scope| {
        let flood = scope.spawn(|| {
            stay_on_one_cpu();
            let start = Instant::now();
            (0..nr).for_each(call);
            start.elapsed()
        });
        flood.join().unwrap()
    });
    drop(guard);
    rcu::barrier();
    took
}

#[test]
fn a_flood_of_callbacks_is_slowed_down_and_reported() {
    run_alone!(TUNED, REPORT, 1);
    let dropped = Run::default();
    let count = |_| rcu::call_drop(Counted(dropped.clone()));
    assert!(under_a_reader(NR_CLOSURES, count) >= LEAST);
    assert_eq!(dropped.nr(), NR_CLOSURES);
    assert!(under_a_reader(NR_HEADS, |_| call_head(Box::new(|| ()))) >= LEAST);
    let cell = Rcu::new(0);
    assert!(under_a_reader(NR_CLOSURES, |number| cell.replace(number)) >= LEAST);
    assert!(under_a_reader(NR_CLOSURES, |_| cell.update(|number| number + 1)) >= LEAST);
}

#[test]
fn a_flood_of_a_domain_is_slowed_down_and_reported() {
    run_alone!(TUNED, REPORT, 1);
    let domain = Domain::new();
    let guard = domain.read();
    let start = Instant::now();
    (0..NR_HEADS).for_each(|_| domain.call(|| ()));
    assert!(start.elapsed() >= LEAST);
    drop(guard);
    domain.barrier();
}

#[test]
fn a_flood_does_not_block_threads_that_must_not_wait() {
    run_alone!(TUNED, REPORT, 1);
    let run = Run::default();
    let flood = |run: &Run| (0..100 * MARK).for_each(|_| rcu::call(run.callback()));
    // A wait for the thread's own section would take seconds at each of a hundred marks.
    let guard = rcu::read();
    flood(&run);
    assert_eq!(run.nr(), 0);
    drop(guard);
    let (send, flooded) = mpsc::channel();
    let theirs = run.clone();
    rcu::call(move || {
        flood(&theirs);
        send.send(theirs.nr()).unwrap();
    });
    assert_eq!(flooded.recv().unwrap(), 100 * MARK, "in the order of calls");
    rcu::barrier();
    assert_eq!(run.nr(), 200 * MARK);
}

/// Calls `try_call` under a reader until it is rejected.
fn until_full<E>(try_call: impl Fn() -> Result<(), E> + Sync) {
    let nr_added = || (0..10 * MARK).position(|_| try_call().is_err());
    let guard = rcu::read();
    let added = thread::scope(|scope| {
        let flood = scope.spawn(|| {
            stay_on_one_cpu();
            (nr_added(), try_call().is_err())
        });
        flood.join().unwrap()
    });
    let (Some(nr_added), true) = added else {
        panic!("a thousand were added: {added:?}");
    };
    assert!(nr_added >= MARK, "rejected after {nr_added}");
    drop(guard);
    rcu::barrier();
    assert!(try_call().is_ok(), "rejected after a barrier");
}

#[test]
fn try_call_adds_nothing_to_a_full_list() {
    run_alone!(TUNED);
    let (nr_run, nr_back) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let counts: &'static _ = Box::leak(Box::new((nr_run, nr_back)));
    let nr_called = AtomicUsize::new(0);
    until_full(|| {
        nr_called.fetch_add(1, Ordering::Relaxed);
        let run = || _ = counts.0.fetch_add(1, Ordering::Relaxed);
        rcu::try_call(run).inspect_err(|Full(_)| _ = counts.1.fetch_add(1, Ordering::Relaxed))
    });
    rcu::barrier();
    let [nr_run, nr_back] = [&counts.0, &counts.1].map(|nr| nr.load(Ordering::Relaxed));
    assert_eq!(nr_back, 2);
    assert_eq!(nr_run + nr_back, nr_called.into_inner());
}

#[test]
fn try_replace_leaves_a_cell_as_it_is_if_the_list_is_full() {
    run_alone!(TUNED);
    let (cell, next) = (Rcu::new(0), AtomicUsize::new(1));
    until_full(|| {
        let before = *cell.load(&cell.read());
        let replaced = cell.try_replace(next.fetch_add(1, Ordering::Relaxed));
        let after = *cell.load(&cell.read());
        assert_eq!(after != before, replaced.is_ok());
        replaced
    });
}

#[test]
fn a_domain_adds_no_callback_to_a_full_list() {
    run_alone!(TUNED);
    let (domain, run) = (Domain::new(), Run::default());
    let guard = domain.read();
    let try_call = || domain.try_call(run.callback());
    let nr_added = (0..10 * MARK).position(|_| try_call().is_err());
    // The list may be taken once, and then waits for the reader.
    let nr_added = nr_added.expect("a thousand were added");
    assert!((MARK..=2 * MARK).contains(&nr_added), "{nr_added}");
    drop(guard);
    domain.barrier();
    assert_eq!(run.nr(), nr_added);
    assert!(try_call().is_ok());
    domain.barrier();
}

#[test]
fn high_mark_of_zero_disables_the_slowdown() {
    run_alone!("rcu.qhimark=0", REPORT, 0);
    assert_eq!(rcu::tunables().qhimark, 0);
    let guard = rcu::read();
    let flood = || (0..100_000).for_each(|_| call_head(Box::new(|| ())));
    thread::scope(|scope| scope.spawn(flood).join().unwrap());
    drop(guard);
    rcu::set_tunables(Tunables::default());
    rcu::barrier();
}

#[test]
fn threads_that_call_once_each_are_no_flood() {
    run_alone!(TUNED, REPORT, 0);
    let run = Run::default();
    let count = || rcu::call(run.callback());
    let call_each_alone = |_| thread::scope(|scope| scope.spawn(count).join().unwrap());
    // The number is below the mark, and each closure is in its own bag.
    under_a_reader(MARK - 10, call_each_alone);
    // Next to a head, each closure is also in its own bag.
    let call_both = |_| {
        count();
        call_head(Box::new(|| ()));
    };
    under_a_reader(MARK / 2 - 10, call_both);
    assert_eq!(run.nr(), MARK - 10 + MARK / 2 - 10);
}
