//! The order in which items run.

use crate::support::*;

/// Checks that the log has `nr_each` entries of each producer, in order.
pub fn assert_each_in_order(log: Vec<(usize, usize)>, nr_producers: usize, nr_each: usize) {
    assert_eq!(log.len(), nr_producers * nr_each);
    for producer in 0..nr_producers {
        let seen = log.iter().filter(|(it, _)| *it == producer);
        assert!(seen.is_sorted(), "producer {producer}: {log:?}");
    }
}

fn one_shots_in_order(queue: &Workqueue) {
    let log = Log::default();
    threads(6, |producer| {
        pin(producer);
        (0..1000).for_each(|i| queue.detach(log.note((producer, i))));
    });
    queue.drain().unwrap();
    assert_each_in_order(log.take(), 6, 1000);
}

#[test]
fn items_of_one_producer_run_in_order_one_at_a_time_in_one_pool() {
    one_shots_in_order(&queue("fifo").max_active(1).alone());
}

#[test]
fn items_of_one_producer_run_one_at_a_time_over_many_pools() {
    let queue = queue("fifo").affinity(Cpu).max_active(1);
    one_shots_in_order(&queue.on(&registry("64 core")));
}

#[test]
fn reusable_items_of_one_producer_run_in_order() {
    let (queue, log) = (queue("fifo").max_active(1).alone(), Log::default());
    threads(4, |producer| {
        let work = |i| Work::new(log.note((producer, i)));
        let works: Vec<_> = (0..500).map(work).collect();
        for chunk in works.chunks(7) {
            assert_eq!(queue.task().enqueue_all(chunk), chunk.len());
        }
    });
    queue.drain().unwrap();
    assert_each_in_order(log.take(), 4, 500);
}

#[test]
fn enqueue_all_queues_only_items_that_are_not_pending() {
    let queue = queue("all").max_active(1).alone();
    let (plug, count) = (plug_into(&queue), Count::default());
    let works = [(); 10].map(|()| counting(count));
    assert!(queue.enqueue(&works[3]));
    assert_eq!(queue.task().enqueue_all(&works), 9);
    assert_eq!([&works[..], &[]].map(|it| queue.task().enqueue_all(it)), [0, 0]);
    assert_eq!(plug.release_and_count(&queue, count), 10);
    let plug = plug_into(&queue);
    let twice = [works[0].clone(), works[0].clone()];
    assert_eq!(queue.task().enqueue_all(&twice), 1);
    assert_eq!(plug.release_and_count(&queue, count), 11);
}

#[test]
fn an_ordered_queue_runs_one_at_a_time_in_the_order_of_queueing() {
    let queue = queue("ordered").ordered().on(&registry("8 core"));
    let (gauge, log, next) = (Gauge::default(), Log::default(), Mutex::new(0));
    threads(8, |_| {
        for _ in 0..1000 {
            let mut next = next.lock().unwrap();
            let note = log.note(*next);
            queue.detach(move || gauge.within(note));
            *next += 1;
        }
    });
    queue.drain().unwrap();
    assert_eq!(gauge.most(), 1);
    assert!(log.take().into_iter().eq(0..8000), "not in order");
}

#[test]
fn a_requeued_item_goes_to_the_back_of_an_ordered_queue() {
    let queue = queue("ordered").ordered().on(&registry("8 core"));
    let (plug, log) = (plug_into(&queue), Log::default());
    let works = ["a", "b", "c"].map(|name| Work::new(log.note(name)));
    assert_eq!(queue.task().enqueue_all(&works), 3);
    assert!(works[0].cancel());
    assert!(queue.enqueue(&works[0]));
    assert!(!queue.enqueue(&works[1]));
    plug.release_and_drain(&queue);
    assert_eq!(log.take(), ["b", "c", "a"]);
}

#[test]
fn an_ordered_queue_keeps_the_order_of_a_plain_list() {
    let mut dice = Dice::new(seed());
    let registry = registry("8 core");
    for _ in 0..60 {
        let queue = queue("ordered").ordered().on(&registry);
        let (plug, log) = (plug_into(&queue), Log::default());
        let works: Vec<_> = (0..12).map(|i| Work::new(log.note(i))).collect();
        let mut model: Vec<usize> = Vec::new();
        for _ in 0..dice.below(60) {
            let i = dice.below(works.len());
            if dice.below(3) > 0 {
                let is_new = !model.contains(&i);
                assert_eq!(queue.enqueue(&works[i]), is_new);
                model.extend(is_new.then_some(i));
            } else {
                assert_eq!(works[i].cancel(), model.contains(&i));
                model.retain(|&other| other != i);
            }
        }
        plug.release_and_drain(&queue);
        assert_eq!(log.take(), model);
    }
}

#[test]
fn an_ordered_queue_stays_ordered_while_items_are_cancelled() {
    let queue = queue("ordered").ordered().on(&registry("8 core"));
    let (gauge, nr_runs) = (Gauge::default(), Count::default());
    let works = [(); 20].map(|()| Work::new(move || gauge.within(|| nr_runs.add())));
    let nr_due = changed_by_threads(&works, |step, work| match step % 3 {
        0 => -i64::from(work.cancel()),
        _ => queue.enqueue(work).into(),
    });
    assert_eq!(nr_runs.after_drain(&queue) as i64, nr_due);
    assert_eq!(gauge.most(), 1);
    let (queue, log) = (self::queue("ordered").ordered().paused(), Log::default());
    // This would take a minute if each cancel walked through the list.
    let mut handles: Vec<_> = (0..60_000).map(|i| queue.spawn(log.note(i))).collect();
    let mut backwards = handles.iter_mut().enumerate().rev();
    assert!(backwards.all(|(i, it)| i % 1000 == 7 || it.cancel()));
    assert_eq!(waiting(&queue), 60);
    queue.detach(log.note(60_000));
    queue.resume_and_drain();
    assert!(log.take().into_iter().eq((0..60).map(|i| i * 1000 + 7).chain([60_000])));
}
