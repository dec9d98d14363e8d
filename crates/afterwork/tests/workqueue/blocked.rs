//! Items that block without reporting it to the pool.

use crate::support::*;

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
fn a_chain_of_items_each_waiting_for_the_next_ends() {
    let queue = queue("chain").affinity(System).on(&registry("1 core"));
    // Each item waits for the next one, so all must run at once.
    let (first, last) = mpsc::channel();
    let mut ends = first;
    for _ in 0..20 {
        let (send, waits_for) = mpsc::channel::<()>();
        let ended = mem::replace(&mut ends, send);
        queue.detach(move || {
            waits_for.recv().unwrap();
            ended.send(()).unwrap();
        });
    }
    ends.send(()).unwrap();
    last.recv_timeout(PATIENCE).expect("the chain hangs");
    queue.drain().unwrap();
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
