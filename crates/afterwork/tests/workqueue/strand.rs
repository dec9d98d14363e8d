//! Strands: order, state, panics, cancels, ends, and fairness.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use afterwork::workqueue::{JoinError, Strand, Workqueue, block_on};

use crate::support::*;

/// A state that counts its drops.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Creates a strand of numbers on `queue`.
fn numbers(queue: &Workqueue) -> Strand<Vec<u32>> {
    queue.strand(Vec::new())
}

/// Queues a closure that blocks the strand until the result is dropped, and waits for its start.
fn block<S: Send + 'static>(strand: &Strand<S>) -> mpsc::Sender<()> {
    let (open, gate) = mpsc::channel::<()>();
    let (start, started) = mpsc::channel();
    strand
        .spawn_detached(move |_| {
            start.send(()).unwrap();
            let _ = gate.recv();
        })
        .unwrap();
    started.recv_timeout(PATIENCE).unwrap();
    open
}

#[test]
fn closures_of_each_thread_run_in_order_and_never_overlap() {
    const COUNT: u32 = 2000;
    let queue = queue("strand").alone();
    let strand = numbers(&queue);
    thread::scope(|scope| {
        for from in 0..3 {
            let strand = strand.clone();
            scope.spawn(move || {
                for number in 0..COUNT {
                    strand
                        .spawn_detached(move |all| all.push(from * COUNT + number))
                        .unwrap();
                }
            });
        }
    });
    let all = strand.spawn(std::mem::take).join().unwrap();
    assert_eq!(all.len(), 3 * COUNT as usize);
    for from in 0..3 {
        let own = all.iter().filter(|number| *number / COUNT == from);
        assert!(own.is_sorted(), "out of the order of thread {from}");
    }
}

#[test]
fn ten_thousand_strands_run_each_of_their_closures() {
    const COUNT: usize = 10_000;
    let queue = queue("strands").alone();
    let strands: Vec<_> = (0..COUNT).map(|number| queue.strand(number)).collect();
    for strand in &strands {
        strand.spawn_detached(|number| *number *= 2).unwrap();
    }
    let sums = strands.iter().map(|strand| strand.spawn(|number| *number));
    let sums: Vec<_> = sums.collect();
    let sum: usize = sums.into_iter().map(|sum| sum.join().unwrap()).sum();
    assert_eq!(sum, COUNT * (COUNT - 1));
}

#[test]
fn detached_closures_run_before_queue_and_state_are_dropped() {
    let nr_dropped = Arc::new(AtomicUsize::new(0));
    let nr_run = Arc::new(AtomicUsize::new(0));
    let queue = queue("strand").alone();
    let strand = queue.strand(Dropped(nr_dropped.clone()));
    let open = block(&strand);
    for _ in 0..100 {
        let (nr_run, nr_dropped) = (nr_run.clone(), nr_dropped.clone());
        strand
            .spawn_detached(move |_| {
                assert_eq!(nr_dropped.load(Ordering::Relaxed), 0);
                nr_run.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
    }
    drop(strand);
    assert_eq!(nr_dropped.load(Ordering::Relaxed), 0);
    drop(open);
    drop(queue);
    assert_eq!(nr_run.load(Ordering::Relaxed), 100);
    assert_eq!(nr_dropped.load(Ordering::Relaxed), 1);
}

#[test]
fn the_state_of_an_idle_strand_is_dropped_with_the_last_handle() {
    let nr_dropped = Arc::new(AtomicUsize::new(0));
    let queue = queue("strand").alone();
    let strand = queue.strand(Dropped(nr_dropped.clone()));
    let other = strand.clone();
    strand.spawn(|_| ()).join().unwrap();
    queue.flush().unwrap();
    drop(strand);
    assert_eq!(nr_dropped.load(Ordering::Relaxed), 0);
    drop(other);
    assert_eq!(nr_dropped.load(Ordering::Relaxed), 1);
}

#[test]
fn a_panic_reaches_the_joiner_and_the_strand_continues() {
    let nr_unseen = Arc::new(AtomicU32::new(0));
    let seen = nr_unseen.clone();
    let queue = queue("strand").on_panic(move |_| {
        seen.fetch_add(1, Ordering::Relaxed);
    });
    let queue = queue.alone();
    let strand = numbers(&queue);
    let panicked = strand.spawn(|all| {
        all.push(1);
        panic!("on purpose");
    });
    strand.spawn_detached(|_| panic!("on purpose")).unwrap();
    assert_eq!(strand.spawn(|all| all.len()).join().unwrap(), 1);
    assert!(matches!(panicked.join(), Err(JoinError::Panicked(_))));
    assert_eq!(nr_unseen.load(Ordering::Relaxed), 1);
    assert_eq!(queue.stats().panicked, 2);
}

#[test]
fn a_cancelled_closure_does_not_run_and_the_others_do() {
    let queue = queue("strand").alone();
    let strand = numbers(&queue);
    let open = block(&strand);
    let mut handles: Vec<_> = (0..100)
        .map(|number| strand.spawn(move |all| all.push(number)))
        .collect();
    let mut odd = handles.iter_mut().skip(1).step_by(2);
    assert!(odd.all(|handle| handle.cancel()));
    drop(open);
    let all = strand.spawn(std::mem::take).join().unwrap();
    assert!(all.into_iter().eq((0..100).step_by(2)));
    for (number, handle) in handles.into_iter().enumerate() {
        assert_eq!(handle.join().is_ok(), number % 2 == 0);
    }
}

#[test]
fn cancel_all_ends_the_closures_of_a_strand_that_waits() {
    let queue = queue("strand").alone();
    let strand = numbers(&queue);
    queue.pause();
    let handles: Vec<_> = (0..100).map(|_| strand.spawn(|all| all.push(1))).collect();
    assert_eq!(queue.cancel_all(), 100);
    for handle in handles {
        assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
    }
    let later = strand.spawn(|all| all.len());
    queue.resume();
    assert_eq!(later.join().unwrap(), 0);
}

#[test]
fn cancel_all_ends_the_closures_behind_the_one_that_runs() {
    let queue = queue("strand").alone();
    let strand = numbers(&queue);
    let open = block(&strand);
    let handles: Vec<_> = (0..100).map(|_| strand.spawn(|all| all.push(1))).collect();
    assert_eq!(queue.cancel_all(), 0, "they are not counted");
    let later = strand.spawn(|all| all.len());
    drop(open);
    assert_eq!(later.join().unwrap(), 0);
    for handle in handles {
        assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
    }
}

#[test]
fn joining_a_later_closure_of_the_same_strand_is_an_error() {
    let queue = queue("strand").alone();
    let strand = numbers(&queue);
    let own = strand.clone();
    let both = strand.spawn(move |_| {
        let joined = own.spawn(|_| ()).join();
        let awaited = block_on(own.spawn(|_| ()));
        let timed = own.spawn(|_| ()).join_timeout(PATIENCE);
        [joined, awaited, timed.expect("it does not wait")]
    });
    for outcome in ends(move || both.join()).unwrap() {
        assert!(matches!(outcome, Err(JoinError::OwnQueue)));
    }
    // On a queue with one seat, a closure of another strand cannot start either.
    let queue = queue_of_one();
    let (one, other) = (numbers(&queue), numbers(&queue));
    let outcome = one.spawn(move |_| other.spawn(|_| ()).join());
    let outcome = ends(move || outcome.join()).unwrap();
    assert!(matches!(outcome, Err(JoinError::OwnQueue)));
}

fn queue_of_one() -> Workqueue {
    queue("one").max_active(1).alone()
}

#[test]
fn a_strand_may_join_another_strand() {
    let queue = queue("strand").alone();
    let (one, other) = (queue.strand(1), queue.strand(2));
    let sum = one.spawn(move |own| *own + other.spawn(|theirs| *theirs).join().unwrap());
    assert_eq!(ends(move || sum.join()).unwrap(), 3);
}

#[test]
fn a_queue_that_is_full_or_destroyed_rejects_closures() {
    let queue = queue("strand").capacity(2).alone();
    let strand = numbers(&queue);
    queue.pause();
    let handles: Vec<_> = (0..3).map(|_| strand.spawn(|_| ())).collect();
    assert_eq!(strand.backlog(), 2);
    queue.resume();
    let outcomes: Vec<_> = handles.into_iter().map(|handle| handle.join()).collect();
    assert!(outcomes[0].is_ok() && outcomes[1].is_ok());
    assert!(matches!(outcomes[2], Err(JoinError::Full)));
    queue.flush().unwrap();
    assert_eq!(queue.report().free_capacity, Some(2));
    // A cancel releases capacity, too.
    queue.pause();
    let mut handle = strand.spawn(|_| ());
    assert_eq!(queue.report().free_capacity, Some(1));
    assert!(handle.cancel());
    assert_eq!(queue.report().free_capacity, Some(2));
    let _last = strand.spawn(|_| ());
    queue.destroy().unwrap();
    assert_eq!(strand.backlog(), 0);
    assert!(matches!(
        strand.spawn(|_| ()).join(),
        Err(JoinError::Closed)
    ));
}

#[test]
fn a_drain_waits_for_the_closures_that_closures_spawn() {
    let queue = queue("strand").alone();
    let strand = queue.strand(0);
    let own = strand.clone();
    fn again(strand: Strand<u32>, left: u32) {
        strand
            .clone()
            .spawn_detached(move |nr_run| {
                *nr_run += 1;
                if left > 0 {
                    again(strand, left - 1);
                }
            })
            .unwrap();
    }
    again(own, 199);
    queue.drain().unwrap();
    assert_eq!(strand.spawn(|nr_run| *nr_run).join().unwrap(), 200);
}

#[test]
fn a_flush_waits_for_all_closures_that_were_spawned_before() {
    let queue = queue("strand").alone();
    for round in 0..50 {
        let strand = queue.strand(0);
        let nr_run = Arc::new(AtomicUsize::new(0));
        // Several batches, the last of them not full.
        for _ in 0..100 + round {
            let nr_run = nr_run.clone();
            strand
                .spawn_detached(move |_| {
                    nr_run.fetch_add(1, Ordering::Relaxed);
                })
                .unwrap();
        }
        queue.flush().unwrap();
        assert_eq!(nr_run.load(Ordering::Relaxed), 100 + round);
    }
}

#[test]
fn a_flush_does_not_wait_for_a_strand_that_is_never_idle() {
    let queue = queue("strand").max_active(1).alone();
    let strand = queue.strand(());
    let stop = Arc::new(AtomicU32::new(0));
    fn again(strand: Strand<()>, stop: Arc<AtomicU32>) {
        strand
            .clone()
            .spawn_detached(move |()| {
                if stop.load(Ordering::Relaxed) == 0 {
                    again(strand, stop);
                }
            })
            .unwrap();
    }
    // More chains than a batch has closures.
    for _ in 0..100 {
        again(strand.clone(), stop.clone());
    }
    let flushed = queue.clone();
    ends(move || flushed.flush()).unwrap();
    // Other items have their turn, too, though there is one seat.
    let item = queue.spawn(|| 7);
    assert_eq!(ends(move || item.join()).unwrap(), 7);
    stop.store(1, Ordering::Relaxed);
    queue.drain().unwrap();
}

#[test]
fn strand_yields_to_others_after_a_batch() {
    let queue = queue_of_one();
    let (long, short) = (queue.strand(()), queue.strand(()));
    let order = Arc::new(Mutex::new(Vec::new()));
    queue.pause();
    for number in 0..200 {
        let order = order.clone();
        long.spawn_detached(move |()| order.lock().unwrap().push(number))
            .unwrap();
    }
    let at = order.clone();
    let at = short.spawn(move |()| at.lock().unwrap().len());
    queue.resume();
    assert_eq!(at.join().unwrap(), 32);
    queue.drain().unwrap();
    assert!(order.lock().unwrap().is_sorted());
}

#[test]
fn urgent_strand_is_served_first() {
    let queue = queue_of_one();
    let urgent = queue.urgent().unwrap().strand(());
    let order = Arc::new(Mutex::new(Vec::new()));
    queue.pause();
    let push = |name| {
        let order = order.clone();
        move || order.lock().unwrap().push(name)
    };
    queue.spawn_detached(push("ordinary")).unwrap();
    let push = push("urgent");
    urgent.spawn_detached(move |()| push()).unwrap();
    queue.resume();
    queue.drain().unwrap();
    assert_eq!(*order.lock().unwrap(), ["urgent", "ordinary"]);
}

#[test]
fn bulk_cancel_of_running_strands_leaves_no_waiting_closure() {
    let queue = queue("strand").alone();
    let strands: Vec<_> = (0..4).map(|_| queue.strand(0u32)).collect();
    let nr_run = Arc::new(AtomicUsize::new(0));
    ends(move || {
        for _ in 0..200 {
            let mut handles = Vec::new();
            for number in 0..400 {
                let nr_run = nr_run.clone();
                handles.push(strands[number % 4].spawn(move |_| {
                    nr_run.fetch_add(1, Ordering::Relaxed);
                }));
            }
            queue.cancel_all();
            for handle in handles {
                match handle.join() {
                    Ok(()) | Err(JoinError::Cancelled) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        queue.flush().unwrap();
        assert!(strands.iter().all(|strand| strand.backlog() == 0));
    });
}

/// The second cancel occurs while the strand runs and is queued again, after a batch.
#[test]
fn closures_that_are_spawned_after_a_bulk_cancel_run() {
    let queue = queue("strand").alone();
    let strand = queue.strand(());
    let (send, receive) = mpsc::channel();
    let (own, canceller) = (strand.clone(), queue.clone());
    strand
        .spawn_detached(move |()| {
            canceller.cancel_all();
            for _ in 1..32 {
                own.spawn_detached(|()| ()).unwrap();
            }
            let last = own.clone();
            own.spawn_detached(move |()| {
                canceller.cancel_all();
                send.send(last.spawn(|()| 7)).unwrap();
            })
            .unwrap();
        })
        .unwrap();
    let later = receive.recv_timeout(PATIENCE).unwrap();
    assert_eq!(ends(move || later.join()).unwrap(), 7);
}
