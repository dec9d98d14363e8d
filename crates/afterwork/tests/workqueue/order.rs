//! The order in which items run.

use std::sync::{
    Arc, Barrier, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use afterwork::workqueue::{AffinityScope, Work, Workqueue};

use crate::support::*;

type Log = Arc<Mutex<Vec<(usize, usize)>>>;

fn assert_each_in_order(log: &Log, nr_producers: usize, nr_each: usize) {
    let log = log.lock().unwrap();
    assert_eq!(log.len(), nr_producers * nr_each);
    for producer in 0..nr_producers {
        let seen: Vec<_> = log
            .iter()
            .filter(|(p, _)| *p == producer)
            .map(|(_, i)| *i)
            .collect();
        assert!(seen.is_sorted(), "producer {producer}: {seen:?}");
    }
}

fn one_shots_in_order(queue: &Workqueue) {
    const PRODUCERS: usize = 6;
    const EACH: usize = 2000;
    let log = Log::default();
    threads(PRODUCERS, |producer| {
        pin(producer);
        for i in 0..EACH {
            let log = log.clone();
            queue
                .spawn_detached(move || log.lock().unwrap().push((producer, i)))
                .unwrap();
        }
    });
    queue.drain().unwrap();
    assert_each_in_order(&log, PRODUCERS, EACH);
}

#[test]
fn items_of_one_producer_run_in_order_one_at_a_time_in_one_pool() {
    one_shots_in_order(&alone_on_two(queue("fifo").max_active(1)));
}

#[test]
fn items_of_one_producer_run_in_order_one_at_a_time_over_many_pools() {
    let queue = queue("fifo").affinity(AffinityScope::Cpu).max_active(1);
    one_shots_in_order(&queue.build_in(&registry("64 core")).unwrap());
}

#[test]
fn reusable_items_of_one_producer_run_in_order() {
    let queue = alone_on_two(queue("fifo").max_active(1));
    let log = Log::default();
    threads(4, |producer| {
        let works: Vec<_> = (0..500)
            .map(|i| {
                let log = log.clone();
                Work::new(move || log.lock().unwrap().push((producer, i)))
            })
            .collect();
        for chunk in works.chunks(7) {
            assert_eq!(queue.enqueue_all(chunk), chunk.len());
        }
    });
    queue.drain().unwrap();
    assert_each_in_order(&log, 4, 500);
}

#[test]
fn enqueue_all_queues_only_what_is_not_pending() {
    let queue = alone_on_two(queue("all").max_active(1));
    let plug = plug_into(&queue);
    let count = Count::default();
    let works: Vec<_> = (0..10).map(|_| counting(&count)).collect();
    assert!(queue.enqueue(&works[3]));
    assert_eq!(queue.enqueue_all(&works), 9);
    assert_eq!(queue.enqueue_all(&works), 0);
    assert_eq!(queue.enqueue_all(&[]), 0);
    let twice = [works[0].clone(), works[0].clone()];
    plug.release();
    queue.drain().unwrap();
    assert_eq!(count.get(), 10);
    let plug = plug_into(&queue);
    assert_eq!(queue.enqueue_all(&twice), 1);
    plug.release();
    queue.drain().unwrap();
    assert_eq!(count.get(), 11);
}

#[test]
fn two_queue_the_same_items_on_two_queues_in_opposite_order_while_a_third_cancels_them() {
    ends(|| {
        let registry = registry("2 core");
        let [one, other] = ["one", "other"].map(|it| queue(it).build_in(&registry).unwrap());
        one.pause();
        other.pause();
        let forth: Vec<_> = (0..10_000).map(|_| Work::new(|| ())).collect();
        let back: Vec<_> = forth.iter().rev().cloned().collect();
        let (start, nr_ended) = (Barrier::new(3), AtomicUsize::new(0));
        let enqueue = |queue: &Workqueue, works: &[Work]| {
            for _ in 0..200 {
                start.wait();
                queue.enqueue_all(works);
                nr_ended.fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|s| {
            s.spawn(|| enqueue(&one, &forth));
            s.spawn(|| enqueue(&other, &back));
            for round in 1..=200 {
                start.wait();
                while nr_ended.load(Ordering::Relaxed) < 2 * round {
                    forth.iter().for_each(|work| _ = work.cancel());
                }
            }
        });
        one.cancel_all();
        other.cancel_all();
    });
}

#[test]
fn an_ordered_queue_runs_one_at_a_time_in_the_order_of_queueing() {
    let queue = queue("ordered")
        .ordered()
        .build_in(&registry("8 core"))
        .unwrap();
    let gauge = Gauge::default();
    let ran = Arc::new(Mutex::new(Vec::new()));
    let next = Mutex::new(0usize);
    threads(8, |_| {
        for _ in 0..1000 {
            let mut next = next.lock().unwrap();
            let (i, gauge, ran) = (*next, gauge.clone(), ran.clone());
            queue
                .spawn_detached(move || gauge.within(|| ran.lock().unwrap().push(i)))
                .unwrap();
            *next += 1;
        }
    });
    queue.drain().unwrap();
    assert_eq!(gauge.most(), 1);
    assert!(
        ran.lock().unwrap().iter().copied().eq(0..8000),
        "not in order"
    );
}

#[test]
fn an_item_that_is_cancelled_and_queued_again_goes_to_the_back_of_an_ordered_queue() {
    let queue = queue("ordered")
        .ordered()
        .build_in(&registry("8 core"))
        .unwrap();
    let plug = plug_into(&queue);
    let ran = Arc::new(Mutex::new(String::new()));
    let works: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .map(|name| {
            let ran = ran.clone();
            Work::new(move || ran.lock().unwrap().push_str(name))
        })
        .collect();
    assert_eq!(queue.enqueue_all(&works), 3);
    assert!(works[0].cancel());
    assert!(queue.enqueue(&works[0]));
    assert!(!queue.enqueue(&works[1]));
    plug.release();
    queue.drain().unwrap();
    assert_eq!(*ran.lock().unwrap(), "bca");
}

#[test]
fn an_ordered_queue_keeps_the_order_that_a_plain_list_would() {
    let mut dice = Dice::new(seed());
    let registry = registry("8 core");
    for _ in 0..60 {
        let queue = queue("ordered").ordered().build_in(&registry).unwrap();
        let plug = plug_into(&queue);
        let ran = Arc::new(Mutex::new(Vec::new()));
        let works: Vec<_> = (0..12)
            .map(|i| {
                let ran = ran.clone();
                Work::new(move || ran.lock().unwrap().push(i))
            })
            .collect();
        let mut model: Vec<usize> = Vec::new();
        for _ in 0..dice.below(60) {
            let i = dice.below(works.len());
            if dice.below(3) > 0 {
                let news = !model.contains(&i);
                assert_eq!(queue.enqueue(&works[i]), news);
                if news {
                    model.push(i);
                }
            } else {
                assert_eq!(works[i].cancel(), model.contains(&i));
                model.retain(|&other| other != i);
            }
        }
        plug.release();
        queue.drain().unwrap();
        assert_eq!(*ran.lock().unwrap(), model);
    }
}

#[test]
fn an_ordered_queue_stays_ordered_while_items_are_cancelled_as_it_runs() {
    let queue = queue("ordered")
        .ordered()
        .build_in(&registry("8 core"))
        .unwrap();
    let gauge = Gauge::default();
    let nr_runs = Count::default();
    let nr_due = AtomicUsize::new(0);
    threads(6, |i| {
        let mut dice = Dice::new(i as u64 + 1);
        let works: Vec<_> = (0..5)
            .map(|_| {
                let (gauge, nr_runs) = (gauge.clone(), nr_runs.clone());
                Work::new(move || gauge.within(|| nr_runs.add()))
            })
            .collect();
        for _ in 0..2000 {
            let work = &works[dice.below(works.len())];
            if dice.below(3) > 0 {
                nr_due.fetch_add(usize::from(queue.enqueue(work)), Ordering::SeqCst);
            } else {
                nr_due.fetch_sub(usize::from(work.cancel()), Ordering::SeqCst);
            }
        }
    });
    queue.drain().unwrap();
    assert_eq!(gauge.most(), 1);
    assert_eq!(nr_runs.get(), nr_due.load(Ordering::SeqCst));
}

#[test]
fn closures_cancelled_from_the_back_of_an_ordered_queue_leave_the_others_in_their_order() {
    ends(|| {
        let queue = alone_on_two(queue("ordered").ordered());
        queue.pause();
        let order = Arc::new(Mutex::new(Vec::new()));
        // This took a minute when each cancel walked through the list.
        let spawn = |i| {
            let order = order.clone();
            queue.spawn(move || order.lock().unwrap().push(i))
        };
        let mut handles: Vec<_> = (0..60_000).map(spawn).collect();
        let cancelled = handles.iter_mut().enumerate().rev();
        let mut cancelled = cancelled.filter(|(i, _)| i % 1000 != 7);
        assert!(cancelled.all(|(_, it)| it.cancel()));
        assert_eq!(queue.stats().nr_inactive, 60);
        queue
            .spawn_detached({
                let order = order.clone();
                move || order.lock().unwrap().push(60_000)
            })
            .unwrap();
        queue.resume();
        queue.drain().unwrap();
        let expected: Vec<usize> = (0..60).map(|i| i * 1000 + 7).chain([60_000]).collect();
        assert_eq!(*order.lock().unwrap(), expected);
    });
}
