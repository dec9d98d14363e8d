//! Timers that fire while their item is cancelled, changed, queued or disabled.

use crate::support::*;

/// Creates a machine without workers, an item, and its count of runs. The model runs the items.
fn one_item() -> (Arc<Machine>, Workqueue, DelayedWork, Arc<AtomicU32>) {
    let (machine, queue) = held(false);
    let (runs, count) = counter();
    (machine, queue, DelayedWork::new(runs), count)
}

/// Fires due timers on another thread while `meet` acts on the item, then runs the waiting items.
fn fire_during<R>(
    meet: impl FnOnce(&Workqueue, &DelayedWork) -> R,
    check: impl FnOnce(R, &DelayedWork, &dyn Fn() -> u32),
) {
    let (machine, queue, work, count) = one_item();
    assert!(queue.enqueue_after(&work, SOON));
    let firing = spawn_with(machine.clone(), move |machine| machine.fire_timers(2 * SOON));
    let met = meet(&queue, &work);
    firing.join().unwrap();
    // The timer may have expired while `meet` held its item's lock.
    machine.run_fallback();
    go(&machine);
    check(met, &work, &|| {
        machine.pretend_busy(true);
        machine.fire_timers(2 * LATER);
        go(&machine);
        count.load(Ordering::Relaxed)
    });
    wind_up(queue);
}

fn cancel_races_with_firing() {
    fire_during(
        |_, work| work.cancel(),
        |cancelled, work, runs| {
            assert!(!work.is_pending());
            assert_eq!(runs(), u32::from(!cancelled));
        },
    );
}

fn requeue_races_with_firing() {
    fire_during(
        |queue, work| queue.enqueue_after(work, Duration::ZERO),
        |queued, _, runs| assert_eq!(runs(), 1 + u32::from(queued)),
    );
}

fn mod_races_with_firing() {
    fire_during(
        |queue, work| queue.reschedule(work, LATER).unwrap(),
        |is_new, work, runs| {
            assert!(work.is_pending(), "it is not due");
            assert_eq!(runs(), 1 + u32::from(is_new));
        },
    );
}

/// The item is claimed before its timer is disarmed.
fn mod_to_now_races_with_firing() {
    fire_during(
        |queue, work| queue.reschedule(work, Duration::ZERO).unwrap(),
        |is_new, _, runs| assert_eq!(runs(), 1 + u32::from(is_new)),
    );
}

fn disable_races_with_arming() {
    let (machine, queue, work, count) = one_item();
    let arming = spawn_with((queue.clone(), work.clone()), move |(queue, work)| {
        queue.enqueue_after(&work, SOON)
    });
    work.disable();
    assert!(!work.is_pending(), "pending although disabled");
    arming.join().unwrap();
    machine.pretend_busy(false);
    machine.fire_timers(2 * SOON);
    machine.help_out();
    assert!(!work.is_pending() && count.load(Ordering::Relaxed) == 0);
    wind_up(queue);
}

fn disable_races_with_firing() {
    fire_during(
        |_, work| work.disable(),
        |was_pending, work, runs| {
            assert!(!work.is_pending(), "pending although disabled");
            assert_eq!(runs(), u32::from(!was_pending));
        },
    );
}

/// A reaper fires the timer, because a cancelled enqueue left the item's link on a paused queue.
fn mod_races_with_a_reaper() {
    let (machine, other, work, count) = one_item();
    let paused = plain().build_in(machine.registry()).unwrap();
    paused.pause();
    assert!(paused.enqueue_after(&work, Duration::ZERO) && work.cancel());
    assert!(other.enqueue_after(&work, SOON));
    machine.fire_timers(2 * SOON);
    let reaper = spawn_with(machine.clone(), move |machine| machine.run_fallback());
    let is_new = other.reschedule(&work, LATER).unwrap();
    assert!(work.is_pending(), "it is not due");
    assert!(reaper.join().unwrap(), "a cleanup was queued");
    go(&machine);
    let nr_runs = count.load(Ordering::Relaxed);
    assert_eq!(nr_runs, u32::from(is_new));
    work.cancel();
    // Removes the cancelled enqueues, for which the queues would wait.
    machine.pretend_busy(true);
    paused.resume();
    go(&machine);
    wind_up([other, paused]);
}

models! {
    fn timer_is_either_cancelled_or_fires() = bounded(3, cancel_races_with_firing);
    fn an_item_is_armed_or_pending_and_never_both_or_neither() =
        bounded(3, requeue_races_with_firing).detects(["delayed: unlocks before it claims"]);
    fn a_timer_that_was_changed_does_not_fire_at_its_former_time() =
        bounded(3, mod_races_with_firing).detects(["delayed: fires a changed timer"]);
    fn an_item_that_is_moved_to_now_is_queued_once() =
        bounded(3, mod_to_now_races_with_firing).detects(["delayed: unlocks before it claims"]);
    fn disabled_item_is_not_and_cannot_be_armed() =
        bounded(3, disable_races_with_arming).detects(["delayed: arming overlooks disable"]);
    fn timer_fires_or_disable_reports_the_item_as_pending() =
        bounded(3, disable_races_with_firing).detects(["delayed: firing overlooks disable"]);
    fn a_timer_that_was_changed_is_not_fired_by_a_reaper() =
        bounded(2, mod_races_with_a_reaper).detects(["delayed: fires a changed timer"]);
}
