//! Items that go to several queues in turn: a batch of a worker contains items of many queues.

use crate::support::*;

fn queues<const NR: usize>(registry: &Registry) -> [Workqueue; NR] {
    std::array::from_fn(|nth| queue(&format!("turn{nth}")).help(false).on(registry))
}

#[test]
fn items_run_in_the_order_of_their_queue_and_count_there() {
    const NR_QUEUES: usize = 20;
    let nr_items = if cfg!(miri) { 3 } else { 200 };
    let registry = tuned("1 core", |it| it.max_workers = 1);
    let queues = queues::<NR_QUEUES>(&registry);
    let logs = [(); NR_QUEUES].map(|()| Log::default());
    for number in 0..nr_items {
        queues.iter().zip(logs).for_each(|(queue, log)| queue.detach(log.note(number)));
    }
    for (queue, log) in queues.iter().zip(logs) {
        queue.drain().unwrap();
        assert!(log.take().into_iter().eq(0..nr_items));
        wait_until(|| queue.stats().completed == nr_items);
        let report = queue.report();
        assert_eq!(report.stats.started, nr_items);
        assert_eq!((report.wait.count, report.run.count), (nr_items, nr_items));
    }
    assert_eq!(registry.pool_stats()[0].completed, nr_items * NR_QUEUES as u64);
}

#[test]
fn time_of_an_item_counts_at_its_own_queue() {
    const SLEEP: Duration = Duration::from_millis(200);
    let registry = unwatched("1 core");
    let [quick, slow, other] = queues(&registry);
    quick.detach(|| ());
    slow.detach(|| thread::sleep(SLEEP));
    other.detach(|| ());
    for (queue, is_slow) in [(&quick, false), (&slow, true), (&other, false)] {
        queue.drain().unwrap();
        wait_until(|| queue.report().run.count == 1);
        let took = Duration::from_nanos(queue.report().run.total_ns);
        assert_eq!(took >= SLEEP, is_slow, "{took:?}");
    }
}

#[test]
fn items_behind_a_blocked_item_of_another_queue_run() {
    let registry = registry("1 core");
    for _ in 0..if cfg!(miri) { 1 } else { 20 } {
        let queues = queues::<5>(&registry);
        let (plug, hole) = stopper();
        let count = Count::default();
        queues[1].enqueue(&counting(count));
        queues[2].detach(move || hole.sit());
        (0..4).for_each(|_| queues.iter().for_each(|it| it.detach(count.adder())));
        plug.wait_until_stuck();
        wait_until(|| count.get() == 21);
        // The blocked worker keeps no seat of another queue.
        let [first, second, blocked, others @ ..] = &queues;
        [first, second].into_iter().chain(others).for_each(|it| it.drain().unwrap());
        plug.release_and_drain(blocked);
    }
}

/// The item of the last queue spins until the other queues, whose items have ended, are flushed and
/// can run as many items as they may.
#[test]
fn queues_do_not_wait_for_a_later_item_of_another_queue() {
    let registry = registry("1 core");
    let queues: [_; 5] = std::array::from_fn(|_| queue("turn").max_active(2).on(&registry));
    let (last, others) = queues.split_last().unwrap();
    for _ in 0..if cfg!(miri) { 1 } else { 20 } {
        // If the last items were long, workers take items one at a time.
        (0..1000).for_each(|_| last.detach(|| ()));
        last.drain().unwrap();
        let [is_running, is_over] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        others.iter().for_each(|it| it.detach(|| ()));
        last.detach({
            let (is_running, is_over) = (is_running.clone(), is_over.clone());
            move || {
                is_running.store(true, Ordering::Release);
                while !is_over.load(Ordering::Acquire) {
                    thread::yield_now();
                }
            }
        });
        wait_until(|| is_running.load(Ordering::Acquire));
        for queue in others {
            queue.drain().unwrap();
            let meet = Arc::new(Barrier::new(2));
            let met = [(); 2].map(|()| meet.clone()).map(|it| queue.spawn(move || _ = it.wait()));
            met.into_iter().for_each(|it| it.join().unwrap());
        }
        is_over.store(true, Ordering::Release);
        last.drain().unwrap();
    }
}

#[test]
fn stall_names_the_queue_of_the_item_that_blocks() {
    let registry = tuned("1 core", |it| {
        it.max_workers = 1;
        it.watchdog_thresh_ms = 20;
    });
    let reports = reports(&registry);
    let queues = queues::<4>(&registry);
    let (plug, hole) = stopper();
    queues[0].detach(|| ());
    queues[1].detach(|| ());
    queues[2].detach(move || hole.sit());
    queues[3].detach(|| ());
    let stall = reports.iter().find_map(|report| match report {
        Report::Stall(stall) => Some(stall),
        _ => None,
    });
    let stall = stall.unwrap();
    assert_eq!((&*stall.item.queue, &*stall.workers[0].item.queue), ("turn3", "turn2"));
    plug.release();
    queues.iter().for_each(|it| it.drain().unwrap());
}
