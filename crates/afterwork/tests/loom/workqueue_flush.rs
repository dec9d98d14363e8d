//! Flushing a queue: the items queued before the flush have ended, whichever thread ran them.

use crate::support::*;

fn flush_races_with_a_worker() {
    let (_machine, queue) = queue(1, false);
    let ran = Arc::new(Plain::default());
    let run = ran.clone();
    queue.spawn_detached(move || run.set(1)).unwrap();
    queue.flush().unwrap();
    // Races with the run if the run has not ended.
    assert_eq!(ran.get(), 1);
    wind_up(queue);
}

/// A joiner runs its item during a flush. If `adopted`, the joiner cannot take the item off its
/// list.
fn flush_races_with_a_helper(adopted: bool) {
    let (machine, queue) = held(true);
    let (count, nr_runs) = counter();
    let work = Work::new(count);
    queue.enqueue(&work);
    if adopted {
        queue.spawn_detached(|| ()).unwrap();
    }
    let flusher = spawn_with((machine.clone(), queue.clone()), move |(machine, queue)| {
        if adopted {
            go(&machine);
        }
        queue.flush().unwrap();
        assert_eq!(nr_runs.load(Ordering::Relaxed), 1, "flushed before the run ended");
    });
    work.flush().unwrap();
    if !adopted {
        go(&machine);
    }
    flusher.join().unwrap();
    wind_up(queue);
}

/// A worker, as which the run itself acts, pops an item while its joiner runs it, in a flush. If
/// `is_moved`, the run queues its item elsewhere, which moves its list link and in-flight count.
fn worker_races_with_a_helped_item(is_moved: bool) {
    let (machine, queue) = held(true);
    let other = plain().build_in(machine.registry()).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let (worker, ends, mut elsewhere) = (machine.clone(), done.clone(), Some(other.clone()));
    let work = Work::with_handle(move |this| {
        if let Some(elsewhere) = elsewhere.take() {
            go(&worker);
            if is_moved {
                worker.pretend_busy(true);
                assert!(elsewhere.enqueue(this));
            }
            ends.store(true, Ordering::Relaxed);
        }
    });
    queue.enqueue(&work);
    // The second item is on top, so the joiner cannot take `work` off its list.
    queue.spawn_detached(|| ()).unwrap();
    let flusher = spawn_with(queue.clone(), move |queue| {
        queue.flush().unwrap();
        assert!(done.load(Ordering::Relaxed), "flushed before the run ended");
    });
    work.flush().unwrap();
    if is_moved {
        go(&machine);
    }
    flusher.join().unwrap();
    wind_up([queue, other]);
}

/// Each of two flushes has its own earlier item. With two colors, one flush may have to wait.
fn two_flushes() {
    let (_machine, queue) = queue(1, false);
    let ran = [0, 1].map(|_| Arc::new(Plain::default()));
    let [first, second] = ran.clone();
    queue.spawn_detached(move || first.set(1)).unwrap();
    let other = spawn_with((queue.clone(), ran[0].clone()), move |(queue, ran)| {
        queue.flush().unwrap();
        assert_eq!(ran.get(), 1);
    });
    queue.spawn_detached(move || second.set(1)).unwrap();
    queue.flush().unwrap();
    assert_eq!(ran[0].get() + ran[1].get(), 2);
    other.join().unwrap();
    wind_up(queue);
}

fn flush_of_a_requeued_item() {
    let (_machine, queue) = queue(2, false);
    let (work, count) = counting();
    let nr_queued = u32::from(queue.enqueue(&work)) + u32::from(queue.enqueue(&work));
    queue.flush().unwrap();
    assert_eq!(count.get(), nr_queued);
    wind_up(queue);
}

models! {
    fn queue_flush_sees_writes_of_the_run() =
        bounded(2, flush_races_with_a_worker).detects([
            "flush: forgets the injector",
            "flush: the last item of a color does not notify",
        ]);
    fn flush_waits_for_all_items_queued_before_it() =
        bounded(3, || flush_races_with_a_helper(false)).detects([
            "flush: no fence",
            "flush: forgets the helpers",
            "flush: the last helper does not notify",
        ]);
    fn flush_waits_for_a_helper_whose_link_a_worker_popped() =
        bounded(2, || flush_races_with_a_helper(true));
    fn flush_waits_for_a_helper_that_started_after_it() =
        bounded(2, || worker_races_with_a_helped_item(false))
            .detects(["item: forgets a helper's link"]);
    fn a_flush_waits_for_a_helper_whose_item_was_queued_elsewhere() =
        bounded(2, || worker_races_with_a_helped_item(true))
            .detects(["flush: checks for helpers once"]);
    fn overlapping_flushes_wait_each_for_earlier_items() = bounded(1, two_flushes);
    fn a_flush_waits_for_both_runs_of_an_item_queued_twice() = bounded(1, flush_of_a_requeued_item);
}
