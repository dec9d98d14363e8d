//! Items that block: they report it, or the manager finds it, or other workers run the rest.

use crate::support::*;

/// Runs two items on a pool of one CPU. The first one calls `wait`, which needs the second to run.
fn another_item_runs<T: Send + 'static>(
    wait: impl FnOnce() -> T + Send + 'static,
    serve: impl FnOnce() + Send + 'static,
) -> T {
    let queue = queue("blocking").help(false).on(&unwatched("1 core"));
    let waits = queue.spawn(wait);
    let serves = queue.spawn(serve);
    let result = waits.join().unwrap();
    serves.join().unwrap();
    result
}

/// Runs two items on a pool of one CPU. The first one calls `wait`, which fails to receive when
/// the second one runs.
fn receives_at_the_same_time<T: Send + 'static>(
    wait: impl FnOnce(Receiver<()>) -> T + Send + 'static,
) {
    let (send, receive) = mpsc::channel();
    another_item_runs(move || wait(receive), move || drop(send));
}

#[test]
fn another_worker_runs_while_one_is_inside_blocking() {
    receives_at_the_same_time(|wait| blocking(|| wait.recv().is_err()));
}

#[test]
fn another_worker_runs_while_one_is_inside_nested_blocking() {
    receives_at_the_same_time(|wait| blocking(|| blocking(|| wait.recv().is_err())));
}

#[test]
fn another_worker_runs_again_after_a_panic_inside_blocking() {
    receives_at_the_same_time(|wait| {
        assert!(catch_unwind(|| blocking(|| panic!("inside"))).is_err());
        blocking(|| wait.recv().is_err())
    });
}

#[test]
fn a_wait_of_a_parker_inside_an_item_is_reported() {
    let mut parker = Parker::new();
    let unparker = parker.unparker();
    another_item_runs(move || parker.park(), move || unparker.unpark());
}

#[test]
fn a_wait_of_an_event_count_inside_an_item_is_reported() {
    static EVENT: EventCount = EventCount::new();
    static DONE: AtomicBool = AtomicBool::new(false);
    let wait = || EVENT.wait_until(|| DONE.load(Ordering::SeqCst));
    another_item_runs(wait, || {
        DONE.store(true, Ordering::SeqCst);
        EVENT.notify_all();
    });
}

#[test]
fn a_wait_of_a_mailbox_inside_an_item_is_reported() {
    let (send, receive) = mpsc::channel();
    let wait = move || {
        let mut mailbox = Mailbox::<u32>::new();
        send.send(mailbox.poster()).unwrap();
        mailbox.wait(1).unwrap();
    };
    another_item_runs(wait, move || receive.recv().unwrap().post(7).unwrap());
}

#[test]
fn waits_for_a_permit_and_a_reply_inside_an_item_are_reported() {
    let mut mailbox = Mailbox::builder().capacity(1).build();
    let poster = mailbox.poster();
    let wait = move || {
        let first = poster.call(|to| to).unwrap();
        let (to, second) = mailbox::reply();
        poster.send_blocking(to).unwrap();
        (first.wait(), second.wait())
    };
    let answers = another_item_runs(wait, move || {
        for answer in [1, 2] {
            mailbox.wait(1).unwrap();
            mailbox.try_recv().unwrap().reply(answer).unwrap();
        }
    });
    assert_eq!(answers, (Ok(1), Ok(2)));
}

#[test]
fn blocking_on_a_thread_that_is_no_worker_calls_its_body() {
    assert_eq!(blocking(|| blocking(|| 42)), 42);
}

#[test]
fn a_pool_above_its_target_parks_surplus_workers() {
    let (registry, queue) = queue("shrinks").help(false).on_own(unwatched("1 core"));
    let plugs = [(); 6].map(|()| stuck(|hole| queue.detach(move || blocking(|| hole.sit()))).1);
    plugs.iter().for_each(Plug::release);
    queue.drain().unwrap();
    // The surplus workers are parked or about to park, so the next items do not use them.
    assert!(concurrency(&queue, 200) <= 1);
    let stats = registry.pool_stats().remove(0);
    assert!((6..=8).contains(&stats.nr_workers), "{stats:?}");
    wait_until(|| {
        let stats = registry.pool_stats().remove(0);
        stats.nr_idle == stats.nr_workers
    });
}

#[test]
fn a_worker_that_sleeps_without_a_report_is_counted() {
    let (registry, queue) = queue("found").help(false).on_own(registry("1 core"));
    let plug = plug_into(&queue);
    // The joiner does not help, so a second worker ran the item.
    queue.spawn(|| ()).join().unwrap();
    plug.release_and_drain(&queue);
    let stats = registry.pool_stats().remove(0);
    assert!(stats.seen_asleep >= 1, "{stats:?}");
}

#[test]
fn item_that_hogs_the_cpu_does_not_delay_its_pool() {
    let registry = registry("1 core");
    let (queue, stop) = (queue("hogs").help(false).on(&registry), Count::default());
    let hog = queue.spawn(hogging(stop));
    queue.spawn(stop.adder()).join().unwrap();
    hog.join().unwrap();
    let stats = registry.pool_stats().remove(0);
    assert!(stats.cpu_intensive >= 1, "{stats:?}");
}

#[test]
fn an_item_runs_that_unblocks_all_workers() {
    for machine in ["1 core", "2 core"] {
        let queue = queue("blocked").on(&registry(machine));
        let plugs = [(); 8].map(|()| plug_into(&queue));
        queue.in_worker(|_| ());
        plugs.iter().for_each(Plug::release);
        queue.drain().unwrap();
    }
}

#[test]
fn items_that_all_wait_for_each_other_end() {
    run_at_once(&queue("wait").affinity(System).on(&registry("1 core")), 20);
}

/// The item of the last queue spins until each of the other queues, whose items have ended, has
/// been drained and has run two items at once.
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
fn items_behind_a_blocked_item_of_another_queue_run() {
    let registry = registry("1 core");
    for _ in 0..20 {
        let queues = [(); 5].map(|()| queue("turn").help(false).on(&registry));
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

/// Queues a tiny item, one that blocks, and `rest` at once, so that one worker takes several of
/// them.
fn plug_in_a_batch(queue: &Workqueue, rest: &[Work]) -> Plug {
    let (_, plug) = stuck(|hole| {
        let mut works = vec![Work::new(|| ()), Work::new(move || hole.sit())];
        works.extend_from_slice(rest);
        assert_eq!(queue.task().enqueue_all(&works), works.len());
    });
    plug
}

#[test]
fn others_run_the_local_batch_of_a_blocked_worker() {
    let queue = queue("hand").help(false).on(&registry("1 core"));
    let count = Count::default();
    let rest = [(); 30].map(|()| counting(count));
    let plug = plug_in_a_batch(&queue, &rest);
    wait_until(|| count.get() == 30);
    plug.release_and_drain(&queue);
    // They do so although other work moves.
    let registry = registry("2 core");
    for _ in 0..10 {
        let queue = self::queue("hand").help(false).on(&registry);
        let (stop, count) = (Count::default(), Count::default());
        let rest = [(); 60].map(|()| counting(count));
        queue.enqueue(&restless(&queue, stop));
        let plug = plug_in_a_batch(&queue, &rest);
        wait_until(|| count.get() == 60);
        stop.add();
        plug.release_and_drain(&queue);
    }
}

#[test]
fn a_blocked_local_batch_can_be_helped_cancelled_and_moved() {
    let [queue, other] = ["hand", "other"].map(|name| queue(name).on(&registry("1 core")));
    let count = Count::default();
    let rest = [(); 30].map(|()| counting(count));
    let plug = plug_in_a_batch(&queue, &rest);
    let mut nr_due = 30;
    for (i, work) in rest.iter().enumerate() {
        match i % 3 {
            0 => drop(work.flush().unwrap()),
            1 => nr_due -= usize::from(work.cancel()),
            _ => assert!(!work.cancel() || other.enqueue(work)),
        }
    }
    other.drain().unwrap();
    assert_eq!(plug.release_and_count(&queue, count), nr_due);
}
