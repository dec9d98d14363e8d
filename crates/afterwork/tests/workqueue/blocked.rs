//! Items that block without reporting it to the pool.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
    mpsc,
};

use afterwork::workqueue::{AffinityScope, Work};

use crate::support::*;

#[test]
fn an_item_runs_that_unblocks_all_workers() {
    for machine in ["1 core", "2 core"] {
        let queue = queue("blocked").build_in(&registry(machine)).unwrap();
        let plugs: Vec<_> = (0..8).map(|_| plug_into(&queue)).collect();
        let (send, receive) = mpsc::channel();
        queue
            .spawn_detached(move || send.send(()).unwrap())
            .unwrap();
        receive.recv_timeout(PATIENCE).expect("no worker came");
        plugs.iter().for_each(Plug::release);
        queue.drain().unwrap();
    }
}

#[test]
fn a_chain_of_items_each_waiting_for_the_next_ends() {
    let queue = queue("chain")
        .affinity(AffinityScope::System)
        .build_in(&registry("1 core"))
        .unwrap();
    let (done, all_done) = mpsc::channel();
    // Each item waits for the next one, so all must run at once.
    let mut wait: Option<mpsc::Receiver<()>> = None;
    let mut senders = Vec::new();
    for _ in 0..20 {
        let (send, receive) = mpsc::channel();
        senders.push((send, wait.replace(receive)));
    }
    senders.reverse();
    let last = wait;
    for (send, wait) in senders.into_iter().rev() {
        let done = done.clone();
        queue
            .spawn_detached(move || {
                if let Some(wait) = wait {
                    wait.recv().unwrap();
                }
                send.send(()).unwrap();
                done.send(()).unwrap();
            })
            .unwrap();
    }
    last.unwrap()
        .recv_timeout(PATIENCE)
        .expect("the chain hangs");
    for _ in 0..20 {
        all_done.recv_timeout(PATIENCE).unwrap();
    }
}

/// Queues a tiny item, `blocker` and `rest` at once, so that one worker takes several of them.
fn queue_in_one_hand(queue: &afterwork::workqueue::Workqueue, blocker: Work, rest: &[Work]) {
    let mut works = vec![Work::new(|| ()), blocker];
    works.extend_from_slice(rest);
    assert_eq!(queue.enqueue_all(&works), works.len());
}

#[test]
fn what_a_blocked_worker_has_in_hand_is_run_by_others() {
    let queue = queue("hand")
        .help(false)
        .build_in(&registry("1 core"))
        .unwrap();
    let (plug, hole) = stopper();
    let count = Count::default();
    let rest: Vec<_> = (0..30).map(|_| counting(&count)).collect();
    queue_in_one_hand(&queue, Work::new(move || hole.sit()), &rest);
    plug.wait_until_stuck();
    eventually("the others run", || count.get() == 30);
    plug.release();
    queue.drain().unwrap();
}

#[test]
fn what_a_blocked_worker_has_in_hand_is_run_although_other_work_moves() {
    let registry = registry("2 core");
    for _ in 0..10 {
        let queue = queue("hand").help(false).build_in(&registry).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (again, stopped) = (queue.clone(), stop.clone());
        let busy = Work::with_handle(move |this| {
            if !stopped.load(Ordering::SeqCst) {
                again.enqueue(this);
            }
        });
        let (plug, hole) = stopper();
        let count = Count::default();
        let rest: Vec<_> = (0..60).map(|_| counting(&count)).collect();
        queue.enqueue(&busy);
        queue_in_one_hand(&queue, Work::new(move || hole.sit()), &rest);
        plug.wait_until_stuck();
        eventually("the others run", || count.get() == 60);
        stop.store(true, Ordering::SeqCst);
        plug.release();
        queue.drain().unwrap();
    }
}

#[test]
fn what_a_blocked_worker_has_in_hand_can_be_helped_cancelled_and_moved() {
    let registry = registry("1 core");
    let queue = queue("hand").build_in(&registry).unwrap();
    let other = crate::support::queue("other")
        .build_in(&crate::support::registry("1 core"))
        .unwrap();
    let (plug, hole) = stopper();
    let count = Count::default();
    let rest: Vec<_> = (0..30).map(|_| counting(&count)).collect();
    queue_in_one_hand(&queue, Work::new(move || hole.sit()), &rest);
    plug.wait_until_stuck();
    let mut nr_due = 30;
    for (i, work) in rest.iter().enumerate() {
        match i % 3 {
            0 => drop(work.flush().unwrap()),
            1 => nr_due -= usize::from(work.cancel()),
            _ => {
                if work.cancel() {
                    assert!(other.enqueue(work));
                }
            }
        }
    }
    other.drain().unwrap();
    plug.release();
    queue.drain().unwrap();
    assert_eq!(count.get(), nr_due);
}

#[test]
fn a_worker_that_blocks_may_move_its_own_hand_to_another_queue() {
    ends(|| {
        let registry = registry("1 core");
        let queue = queue("hand").build_in(&registry).unwrap();
        let other = crate::support::queue("other").build_in(&registry).unwrap();
        let count = Count::default();
        let rest: Vec<_> = (0..20).map(|_| counting(&count)).collect();
        let (to, mine) = (other.clone(), rest.clone());
        let mover = Work::new(move || {
            for work in &mine {
                if work.cancel() {
                    assert!(to.enqueue(work));
                }
            }
        });
        queue_in_one_hand(&queue, mover, &rest);
        queue.drain().unwrap();
        other.drain().unwrap();
        assert_eq!(count.get(), 20);
    });
}

#[test]
fn workers_that_block_leave_a_pool_that_still_serves_many_queues() {
    let registry = registry("2 core");
    let stuck = queue("stuck").build_in(&registry).unwrap();
    let plugs: Vec<_> = (0..20).map(|_| plug_into(&stuck)).collect();
    for _ in 0..50 {
        let queue = queue("others").build_in(&registry).unwrap();
        let (send, receive) = mpsc::channel();
        queue
            .spawn_detached(move || send.send(()).unwrap())
            .unwrap();
        receive.recv_timeout(PATIENCE).expect("nobody serves it");
    }
    plugs.iter().for_each(Plug::release);
    stuck.drain().unwrap();
}
