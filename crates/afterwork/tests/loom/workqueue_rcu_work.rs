//! Items that wait for readers, and are cancelled, queued or flushed while a grace period ends.

use crate::support::*;

/// Ends the grace period while `meet` acts. Returns the run count and the result of `meet`.
fn end_during<R>(meet: impl FnOnce(&Workqueue, &RcuWork) -> R) -> (u32, R) {
    rcu::synchronize();
    let (machine, queue) = held(false);
    let (runs, count) = counter();
    let work = RcuWork::new(runs);
    assert!(queue.task().enqueue_rcu(&work));
    let sweeping = spawn(sweep);
    let met = meet(&queue, &work);
    sweeping.join().unwrap();
    sweep();
    machine.fire_timers(std::time::Duration::from_millis(10));
    go(&machine);
    assert!(!work.is_pending());
    wind_up(queue);
    (count.load(Ordering::Relaxed), met)
}

fn cancel_races_with_the_end() {
    let (nr_runs, cancelled) = end_during(|_, work| work.cancel());
    assert_eq!(nr_runs, u32::from(!cancelled));
}

fn requeue_races_with_the_end() {
    let (nr_runs, queued) = end_during(|queue, work| queue.task().enqueue_rcu(work));
    // The item stays pending: it waits for readers first and then for a worker.
    assert_eq!((nr_runs, queued), (1, false));
}

fn flush_races_with_queueing() {
    rcu::synchronize();
    let (machine, queue) = held(true);
    let has_run = Arc::new(AtomicBool::new(false));
    let runs = has_run.clone();
    let work = RcuWork::new(move || runs.store(true, Ordering::Relaxed));
    let stop = Arc::new(AtomicBool::new(false));
    let queueing =
        spawn_with((queue.clone(), work.clone(), stop.clone()), move |(queue, work, stop)| {
            assert!(queue.task().enqueue_rcu(&work));
            while !stop.load(Ordering::Relaxed) {
                sweep_when_wanted();
            }
        });
    if work.is_pending() {
        assert_eq!(work.flush(), Ok(true));
        assert!(has_run.load(Ordering::Relaxed), "flushed and has not run");
    }
    stop.store(true, Ordering::Relaxed);
    let _ = rcu::start_poll();
    queueing.join().unwrap();
    sweep();
    go(&machine);
    wind_up(queue);
}

models! {
    fn cancel_prevents_or_undoes_queueing_by_a_grace_period() =
        bounded(2, cancel_races_with_the_end);
    fn rcu_work_is_either_armed_or_pending() =
        bounded(2, requeue_races_with_the_end).detects(["delayed: unlocks before it claims"]);
    fn flush_waits_for_an_item_with_an_unsubmitted_callback() =
        bounded(2, flush_races_with_queueing).detects(["rcu_work: flush asks once"]);
}
