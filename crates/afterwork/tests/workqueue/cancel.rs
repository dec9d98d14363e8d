//! Cancelling items.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use afterwork::workqueue::{AffinityScope, JoinHandle, Work, Workqueue};

use crate::support::*;

#[test]
fn a_pending_item_that_is_cancelled_does_not_run() {
    for ordered in [false, true] {
        let builder = if ordered {
            queue("cancel").ordered()
        } else {
            queue("cancel").max_active(1)
        };
        let queue = alone_on_two(builder);
        let plug = plug_into(&queue);
        let count = Count::default();
        let work = counting(&count);
        assert!(queue.enqueue(&work));
        assert!(work.cancel());
        assert!(!work.is_busy());
        assert!(!work.cancel());
        plug.release();
        queue.drain().unwrap();
        assert_eq!(count.get(), 0);
        assert!(queue.enqueue(&work));
        queue.drain().unwrap();
        assert_eq!(count.get(), 1);
    }
}

#[test]
fn neither_a_running_nor_an_idle_item_is_cancelled() {
    let queue = alone_on_two(queue("cancel"));
    let (plug, hole) = stopper();
    let work = Work::new(move || hole.sit());
    assert!(!work.cancel());
    assert!(!work.cancel_sync());
    queue.enqueue(&work);
    plug.wait_until_stuck();
    assert!(!work.cancel());
    plug.release();
    queue.drain().unwrap();
    assert!(!work.cancel());
}

#[test]
fn cancel_sync_waits_until_a_run_has_ended() {
    let queue = alone_on_two(queue("sync"));
    let ((plug, hole), over) = (stopper(), Arc::new(AtomicBool::new(false)));
    let ended = over.clone();
    let work = Work::new(move || {
        hole.sit();
        ended.store(true, Ordering::SeqCst);
    });
    queue.enqueue(&work);
    plug.wait_until_stuck();
    queue.enqueue(&work);
    let canceller = {
        let work = work.clone();
        std::thread::spawn(move || (work.cancel_sync(), over.load(Ordering::SeqCst)))
    };
    eventually("the canceller sleeps", || is_slept_for(&work));
    assert!(!queue.enqueue(&work), "refused while somebody cancels");
    plug.release();
    assert_eq!(
        canceller.join().unwrap(),
        (true, true),
        "was pending, has ended"
    );
    assert!(!work.is_busy());
}

#[test]
fn cancel_sync_stops_an_item_that_queues_itself() {
    ends(|| {
        let queue = alone_on_two(queue("sync"));
        for _ in 0..200 {
            let again = queue.clone();
            let work = Work::with_handle(move |this| {
                again.enqueue(this);
            });
            queue.enqueue(&work);
            work.cancel_sync();
            assert!(!work.is_busy(), "{work:?}");
            assert!(queue.enqueue(&work));
            work.cancel_sync();
        }
    });
}

#[test]
fn cancel_sync_from_inside_does_not_wait_for_itself() {
    ends(|| {
        let queue = alone_on_two(queue("sync"));
        let (again, seen) = (queue.clone(), Arc::new(Mutex::new(None)));
        let said = seen.clone();
        let work = Work::with_handle(move |this| {
            let queued = again.enqueue(this);
            *said.lock().unwrap() = Some((queued, this.cancel_sync(), this.cancel_sync()));
        });
        queue.enqueue(&work);
        queue.drain().unwrap();
        assert_eq!(*seen.lock().unwrap(), Some((true, true, false)));
        assert!(!work.is_busy());
    });
}

#[test]
fn many_may_cancel_at_once_while_others_queue() {
    ends(|| {
        let queues = [alone_on_two(queue("a")), alone_on_two(queue("b").ordered())];
        let count = Count::default();
        let work = counting(&count);
        threads(8, |i| {
            for n in 0..3000 {
                if i % 2 == 0 {
                    queues[n % 2].enqueue(&work);
                } else if n % 7 == 0 {
                    work.cancel_sync();
                } else {
                    work.cancel();
                }
            }
        });
        work.cancel_sync();
        assert!(!work.is_busy(), "{work:?}");
        let before = count.get();
        assert!(queues[0].enqueue(&work));
        work.flush().unwrap();
        queues[0].drain().unwrap();
        assert_eq!(count.get(), before + 1);
    });
}

#[test]
fn an_item_cancelled_on_a_stuck_queue_runs_from_another() {
    let stuck = alone_on_two(queue("stuck").max_active(1));
    let other = alone_on_two(queue("other"));
    let plug = plug_into(&stuck);
    let count = Count::default();
    let work = counting(&count);
    assert!(stuck.enqueue(&work));
    assert!(!other.enqueue(&work), "pending there");
    assert!(work.cancel());
    assert!(other.enqueue(&work));
    other.drain().unwrap();
    assert_eq!(count.get(), 1);
    plug.release();
    stuck.drain().unwrap();
    assert_eq!(count.get(), 1);
}

#[test]
fn a_queue_may_go_while_an_item_runs_that_was_cancelled_on_it() {
    let (first, second) = (
        alone_on_two(queue("first")),
        alone_on_two(queue("second").ordered()),
    );
    let (plug, hole) = stopper();
    let work = Work::new(move || {
        hole.sit();
        panic!("as told");
    });
    assert!(first.enqueue(&work));
    plug.wait_until_stuck();
    assert!(second.enqueue(&work));
    assert!(work.cancel());
    second.drain().unwrap();
    drop(second);
    plug.release();
    first.drain().unwrap();
    assert_eq!(
        first.stats().panicked,
        1,
        "the panic belongs to the queue that ran it"
    );
}

#[test]
fn a_panic_is_counted_by_the_queue_that_ran_the_item() {
    let (first, second) = (
        alone_on_two(queue("first")),
        alone_on_two(queue("second").max_active(1)),
    );
    let stuck = plug_into(&second);
    let ((plug, hole), mut fails) = (stopper(), true);
    let work = Work::new(move || {
        if std::mem::take(&mut fails) {
            hole.sit();
            panic!("as told");
        }
    });
    assert!(first.enqueue(&work));
    plug.wait_until_stuck();
    assert!(second.enqueue(&work));
    plug.release();
    first.drain().unwrap();
    stuck.release();
    second.drain().unwrap();
    assert_eq!((first.stats().panicked, second.stats().panicked), (1, 0));
}

#[test]
fn a_queue_drains_although_a_helped_item_moves_to_another_queue_during_its_run() {
    ends(|| {
        let registry = registry("2 core");
        let second = queue("second")
            .affinity(AffinityScope::System)
            .build_in(&registry)
            .unwrap();
        for _ in 0..300 {
            let first = queue("first")
                .affinity(AffinityScope::System)
                .build_in(&registry)
                .unwrap();
            let to = second.clone();
            let mut first_run = true;
            let work = Work::with_handle(move |this| {
                if std::mem::take(&mut first_run) {
                    assert!(to.enqueue(this));
                    if this.cancel() {
                        to.enqueue(this);
                    }
                }
            });
            let filler: Vec<_> = (0..20).map(|_| Work::new(|| ())).collect();
            first.enqueue_all(&filler);
            first.enqueue(&work);
            work.flush().unwrap();
            drop(first);
            second.drain().unwrap();
            assert!(!work.is_busy(), "{work:?}");
        }
    });
}

#[test]
fn a_cancelled_item_that_owns_the_last_handle_of_its_queue_is_freed() {
    ends(|| {
        let registry = registry("2 core");
        let queue = queue("last").max_active(1).build_in(&registry).unwrap();
        let plug = plug_into(&queue);
        let (census, to) = (Census::default(), queue.clone());
        let owned = (census.life(), queue.clone());
        let work = Work::new(move || {
            let _ = &owned;
        });
        assert!(to.enqueue(&work));
        assert!(work.cancel());
        drop((work, to, queue));
        plug.release();
        census.all_dropped(1);
        eventually("the registry is free", || registry.pool_stats().is_empty());
    });
}

/// Queues and cancels 100,000 closures and 100,000 items, among ten that wait. Returns the smallest
/// growth of the process during a tenth of them, in KiB. The smallest counts because cancelled
/// items remain while a thread that was preempted holds the pool lock. If all of them remained, the
/// growth would be 1.5 MiB.
fn storm(queue: &Workqueue, order: &Arc<Mutex<Vec<usize>>>, name: &str) -> usize {
    let mut sizes = Vec::new();
    for i in 0..100_000 {
        if i % 10_000 == 0 {
            let order = order.clone();
            queue
                .spawn_detached(move || order.lock().unwrap().push(i))
                .unwrap();
        }
        if i % 10_000 == 9_999 {
            sizes.push(resident_kib());
        }
        assert!(queue.spawn(|| ()).cancel());
        let work = Work::new(|| ());
        assert!(queue.enqueue(&work) && work.cancel());
    }
    assert!(
        queue.stats().nr_inactive <= 30,
        "{name}: {:?}",
        queue.stats()
    );
    let grown = sizes.windows(2).map(|two| two[1].saturating_sub(two[0]));
    grown.min().unwrap()
}

#[test]
fn what_is_cancelled_on_a_full_or_paused_queue_leaves_it() {
    in_own_process(
        "cancel::what_is_cancelled_on_a_full_or_paused_queue_leaves_it",
        || {
            let queue = alone_on_two(queue("full").max_active(1).help(false));
            let order = Arc::default();
            let plug = plug_into(&queue);
            let grown_kib = storm(&queue, &order, "full");
            queue.pause();
            plug.release();
            let paused_kib = storm(&queue, &order, "paused");
            assert!(
                grown_kib < 512 && paused_kib < 512,
                "{grown_kib}, {paused_kib} KiB"
            );
            queue.resume();
            queue.drain().unwrap();
            let all: Vec<_> = (0..100_000).step_by(10_000).collect();
            assert_eq!(*order.lock().unwrap(), [all.clone(), all].concat());
        },
    );
}

/// If each queue counted only its own tombstones, none of the three would ever remove any.
#[test]
fn what_several_queues_cancel_by_turns_leaves_a_busy_pool() {
    let registry = unwatched("1 core");
    let queues: Vec<_> = (0..3)
        .map(|_| queue("turns").build_in(&registry).unwrap())
        .collect();
    let plug = plug_into(&queues[0]);
    let count = Count::default();
    let waiting: Vec<_> = (0..30).map(|_| counting(&count)).collect();
    assert_eq!(queues[0].enqueue_all(&waiting), waiting.len());
    let mut most = 0;
    for _ in 0..20_000 {
        for queue in &queues {
            assert!(queue.spawn(|| ()).cancel());
        }
        most = most.max(registry.pool_stats()[0].nr_pending);
    }
    // The bound is the number of waiting items plus the cancels of each queue between two checks.
    assert!(most <= 2 * waiting.len() + 3 * 64, "{most} in the list");
    plug.release();
    queues.iter().for_each(|queue| queue.drain().unwrap());
    assert_eq!(count.get(), waiting.len());
}

#[test]
fn a_cancelled_item_does_not_count_as_inactive() {
    let queue = alone_on_two(queue("counts").max_active(1).help(false));
    let plug = plug_into(&queue);
    let mut handles: Vec<_> = (0..10).map(|_| queue.spawn(|| ())).collect();
    eventually("all wait", || queue.stats().nr_inactive == 10);
    assert!(handles.iter_mut().take(7).all(|handle| handle.cancel()));
    assert_eq!(queue.stats().nr_inactive, 3);
    plug.release();
    queue.drain().unwrap();
    assert_eq!(
        handles.into_iter().filter(JoinHandle::is_finished).count(),
        10
    );
}

/// The item's values may wait for anything, so a canceller of another item must not drop them.
#[test]
fn an_item_that_left_a_full_queue_is_dropped_aside() {
    struct Names(std::sync::mpsc::Sender<String>);
    impl Drop for Names {
        fn drop(&mut self) {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            self.0.send(name).unwrap();
        }
    }
    let queue = alone_on_two(queue("aside").max_active(1).help(false));
    let plug = plug_into(&queue);
    let (send, receive) = std::sync::mpsc::channel();
    let names = Names(send);
    let work = Work::new(move || {
        let _ = &names;
    });
    assert!(queue.enqueue(&work) && work.cancel());
    drop(work);
    assert_eq!(queue.stats().nr_inactive, 0);
    assert_eq!(receive.recv_timeout(PATIENCE).as_deref(), Ok("aw/reaper"));
    plug.release();
}

/// Makes a worker take a blocking item and then `work` in one batch of the first queue. Returns
/// `None` if the worker took fewer items.
fn in_a_batch_behind_what_blocks(work: &Work) -> Option<(Workqueue, Workqueue, Plug)> {
    let registry = unwatched("1 core");
    let former = queue("former").help(false).max_active(4);
    let former = former.build_in(&registry).unwrap();
    let next = queue("next").help(false).build_in(&registry).unwrap();
    let (plug, hole) = stopper();
    former.pause();
    former.spawn_detached(move || hole.sit()).unwrap();
    assert!(former.enqueue(work));
    // When this item runs, the worker has already set the items of the paused queue aside.
    next.spawn(|| ()).join().unwrap();
    former.resume();
    plug.wait_until_stuck();
    if former.stats().nr_inactive > 0 {
        plug.release();
        return None;
    }
    Some((former, next, plug))
}

#[test]
fn an_enqueue_does_not_wait_for_a_blocking_item_of_the_batch() {
    ends(|| {
        let mut nr_met = 0;
        for _ in 0..20 {
            let count = Count::default();
            let work = counting(&count);
            let Some((former, next, plug)) = in_a_batch_behind_what_blocks(&work) else {
                continue;
            };
            nr_met += 1;
            assert!(work.cancel());
            assert!(next.enqueue(&work));
            plug.release();
            former.drain().unwrap();
            next.drain().unwrap();
            assert_eq!(count.get(), 1);
        }
        assert!(nr_met > 0, "no worker took both at once");
    });
}
