//! Tasks that sleep, and periodic work: a timer fires during a poll, a drop, or the end of a run.

use crate::support::*;

fn firing(machine: &Arc<Machine>) -> loom::thread::JoinHandle<()> {
    spawn_with(machine.clone(), move |machine| machine.fire_timers(2 * SOON))
}

fn poll_races_with_firing() {
    let machine = Arc::new(machine(1, 1));
    let (first, mut last) = (Task::new(), Task::new());
    let mut sleep = machine.registry().sleep(SOON);
    assert!(first.poll(&mut sleep).is_pending());
    let firing = firing(&machine);
    let polled = last.poll(&mut sleep);
    firing.join().unwrap();
    assert!(polled.is_ready() || last.was_woken(), "a wake-up is lost");
    assert!(last.poll(&mut sleep).is_ready());
}

fn drop_races_with_firing() {
    let machine = Arc::new(machine(1, 1));
    let (one, mut other) = (Task::new(), Task::new());
    let mut dropped = machine.registry().sleep(SOON);
    let mut later = machine.registry().sleep(LATER);
    assert!(one.poll(&mut dropped).is_pending() && other.poll(&mut later).is_pending());
    let firing = firing(&machine);
    drop(dropped);
    drop(later);
    firing.join().unwrap();
    machine.fire_timers(2 * LATER);
    assert!(!other.was_woken(), "fired after its drop");
}

/// A thread sleeps. Another is the manager, which parks until it is notified of a timer.
fn block_on_races_with_the_manager() {
    let mut machine = machine(1, 1);
    let sleep = machine.registry().sleep(SOON);
    let nr_looks = AtomicU32::new(0);
    let managing = spawn(move || {
        // After one notification the manager has checked the condition twice.
        machine.serve_until(|| nr_looks.fetch_add(1, Ordering::Relaxed) > 0);
        machine.fire_timers(2 * SOON);
    });
    block_on(sleep);
    managing.join().unwrap();
}

/// A run is about to arm its timer again while the periodic work is dropped, or all items of its
/// queue are cancelled.
fn stop_races_with_the_end_of_a_run(is_dropped: bool) {
    let (machine, queue) = held(false);
    let ((count, nr_runs), nr_dropped) = (counter(), Arc::new(AtomicU32::new(0)));
    let life = Life(nr_dropped.clone());
    let run = move || {
        let _life = &life;
        count();
    };
    let mut ticks = Some(queue.every(SOON, run).unwrap());
    machine.fire_timers(2 * SOON);
    machine.pretend_busy(false);
    let running = spawn_with(machine.clone(), move |machine| machine.help_out());
    if is_dropped {
        ticks = None;
    } else {
        queue.cancel_all();
    }
    running.join().unwrap();
    // If the work was dropped, no timer holds the closure any more.
    assert_eq!(nr_dropped.load(Ordering::Relaxed), u32::from(is_dropped));
    let then = nr_runs.load(Ordering::Relaxed);
    assert!(then <= 1);
    // The time of the next run has passed long ago.
    machine.fire_timers(100 * SOON);
    machine.help_out();
    assert_eq!(nr_runs.load(Ordering::Relaxed), then);
    drop(ticks);
    wind_up(queue);
}

models! {
    fn a_sleep_wakes_the_last_poll_or_that_is_ready() =
        bounded(3, poll_races_with_firing).detects(["sleep: a poll keeps the first waker"]);
    fn sleep_dropped_early_wakes_no_task() =
        bounded(3, drop_races_with_firing)
            .detects(["sleep: a drop leaves the timer", "sleep: an expiry publishes nothing"]);
    fn manager_is_notified_of_the_first_sleep_and_ends_it() =
        bounded(3, block_on_races_with_the_manager).detects(["sleep: the first wakes no thread"]);
    fn dropped_periodic_work_does_not_run_again() =
        bounded(2, || stop_races_with_the_end_of_a_run(true))
            .detects(["every: arms a disabled item"]);
    fn cancelled_periodic_work_does_not_run_again() =
        bounded(2, || stop_races_with_the_end_of_a_run(false))
            .detects(["every: arms a cancelled item"]);
}
