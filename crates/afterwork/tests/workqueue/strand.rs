//! Strands: order, state, panics, cancels, ends, and fairness.

use crate::order::assert_each_in_order;
use crate::support::*;

fn numbers() -> (Workqueue, Strand<Vec<u32>>) {
    let queue = queue("strand").alone();
    let strand = queue.strand(Vec::new());
    (queue, strand)
}

fn detach<S: Send + 'static>(strand: &Strand<S>, func: impl FnOnce(&mut S) + Send + 'static) {
    strand.spawn_detached(func).unwrap();
}

/// Queues a closure that calls `goes_on`, and is queued again while that returns `true`.
fn repeat<S, F>(strand: &Strand<S>, mut goes_on: F)
where
    S: Send + 'static,
    F: FnMut(&mut S) -> bool + Send + 'static,
{
    let own = strand.clone();
    detach(strand, move |state| {
        if goes_on(state) {
            repeat(&own, goes_on);
        }
    });
}

/// Queues a closure that blocks the strand until the plug is released or dropped.
fn block<S: Send + 'static>(strand: &Strand<S>) -> Plug {
    stuck(|hole| detach(strand, move |_| hole.sit())).1
}

#[test]
fn closures_of_each_thread_run_in_order_and_never_overlap() {
    let queue = queue("strand").alone();
    let strand = queue.strand(Vec::new());
    threads(3, |from| {
        (0..2000).for_each(|number| detach(&strand, move |all| all.push((from, number))));
    });
    assert_each_in_order(strand.spawn(mem::take).join().unwrap(), 3, 2000);
}

#[test]
fn ten_thousand_strands_run_each_of_their_closures() {
    const COUNT: usize = 10_000;
    let queue = queue("strands").alone();
    let strands: Vec<_> = (0..COUNT).map(|number| queue.strand(number)).collect();
    strands.iter().for_each(|strand| detach(strand, |number| *number *= 2));
    let sums: Vec<_> = strands.iter().map(|strand| strand.spawn(|number| *number)).collect();
    let sum: usize = sums.into_iter().map(|sum| sum.join().unwrap()).sum();
    assert_eq!(sum, COUNT * (COUNT - 1));
}

#[test]
fn detached_closures_run_before_queue_and_state_are_dropped() {
    let (lives, nr_run) = (Census::default(), Count::default());
    let queue = queue("strand").alone();
    // The state of an idle strand is dropped with the last handle.
    let idle = queue.strand(lives.life());
    let other = idle.clone();
    idle.spawn(|_| ()).join().unwrap();
    queue.flush().unwrap();
    drop(idle);
    assert_eq!(lives.alive(), 1);
    drop(other);
    assert_eq!((lives.alive(), lives.dropped()), (0, 1));
    let strand = queue.strand(lives.life());
    let plug = block(&strand);
    for _ in 0..100 {
        detach(&strand, move |_| {
            assert_eq!(lives.alive(), 1);
            nr_run.add();
        });
    }
    drop(strand);
    assert_eq!(lives.alive(), 1);
    drop(plug);
    drop(queue);
    assert_eq!(nr_run.get(), 100);
    assert_eq!((lives.alive(), lives.dropped()), (0, 2));
}

#[test]
fn a_panic_reaches_the_joiner_and_the_strand_continues() {
    let nr_unseen = Count::default();
    let queue = queue("strand").on_panic(move |_| nr_unseen.add()).alone();
    let strand = queue.strand(Vec::new());
    let panicked = strand.spawn(|all| {
        all.push(1);
        panic!("on purpose");
    });
    detach(&strand, |_| panic!("on purpose"));
    assert_eq!(strand.spawn(|all| all.len()).join().unwrap(), 1);
    assert!(matches!(panicked.join(), Err(JoinError::Panicked(_))));
    assert_eq!((nr_unseen.get(), queue.stats().panicked), (1, 2));
}

#[test]
fn a_cancelled_closure_does_not_run_and_the_others_do() {
    let (_queue, strand) = numbers();
    let plug = block(&strand);
    let mut handles: Vec<_> =
        (0..100).map(|number| strand.spawn(move |all| all.push(number))).collect();
    let mut odd = handles.iter_mut().skip(1).step_by(2);
    assert!(odd.all(|handle| handle.cancel()));
    drop(plug);
    assert!(strand.spawn(mem::take).join().unwrap().into_iter().eq((0..100).step_by(2)));
    for (number, handle) in handles.into_iter().enumerate() {
        assert_eq!(handle.join().is_ok(), number % 2 == 0);
    }
}

#[test]
fn cancel_all_ends_the_closures_of_a_strand_that_waits_or_runs() {
    for runs in [false, true] {
        let (queue, strand) = numbers();
        let plug = runs.then(|| block(&strand));
        if !runs {
            queue.pause();
        }
        let handles: Vec<_> = (0..100).map(|_| strand.spawn(|all| all.push(1))).collect();
        // Closures behind the one that runs are not counted.
        assert_eq!(queue.cancel_all(), if runs { 0 } else { 100 });
        let later = strand.spawn(|all| all.len());
        drop(plug);
        queue.resume();
        assert_eq!(later.join().unwrap(), 0, "runs: {runs}");
        assert!(handles.into_iter().all(|it| is_cancelled(it.join())));
    }
}

#[test]
fn joining_a_later_closure_of_the_same_strand_is_an_error() {
    let (queue, strand) = numbers();
    let own = strand.clone();
    let both = strand.spawn(move |_| {
        let joined = own.spawn(|_| ()).join();
        let awaited = block_on(own.spawn(|_| ()));
        let timed = own.spawn(|_| ()).join_timeout(PATIENCE);
        [joined, awaited, timed.expect("it does not wait")]
    });
    for outcome in both.join().unwrap() {
        assert!(matches!(outcome, Err(JoinError::OwnQueue)));
    }
    let (one, other) = (queue.strand(1), queue.strand(2));
    let sum = one.spawn(move |own| *own + other.spawn(|theirs| *theirs).join().unwrap());
    assert_eq!(sum.join().unwrap(), 3);
    // On a queue with one seat, a closure of another strand cannot start either.
    let queue = self::queue("one").max_active(1).alone();
    let (one, other) = (queue.strand(()), queue.strand(()));
    let outcome = one.spawn(move |_| other.spawn(|_| ()).join());
    assert!(matches!(outcome.join().unwrap(), Err(JoinError::OwnQueue)));
}

#[test]
fn a_queue_that_is_full_or_destroyed_rejects_closures() {
    let queue = queue("strand").capacity(2).paused();
    let strand = queue.strand(());
    let handles: Vec<_> = (0..3).map(|_| strand.spawn(|_| ())).collect();
    assert_eq!(strand.backlog(), 2);
    queue.resume();
    let outcomes: Vec<_> = handles.into_iter().map(|handle| handle.join()).collect();
    assert!(outcomes[0].is_ok() && outcomes[1].is_ok());
    assert!(matches!(outcomes[2], Err(JoinError::Full)));
    queue.flush().unwrap();
    assert_eq!(free(&queue), Some(2));
    // A cancel also releases capacity.
    queue.pause();
    let mut handle = strand.spawn(|_| ());
    assert_eq!(free(&queue), Some(1));
    assert!(handle.cancel());
    assert_eq!(free(&queue), Some(2));
    let _last = strand.spawn(|_| ());
    queue.shutdown(Duration::MAX).unwrap();
    assert_eq!(strand.backlog(), 0);
    assert!(matches!(strand.spawn(|_| ()).join(), Err(JoinError::Closed)));
}

#[test]
fn flush_and_drain_wait_for_the_closures_of_strands() {
    let queue = queue("strand").alone();
    for round in 0..50 {
        let (strand, nr_run) = (queue.strand(0), Count::default());
        // The closures make several batches, the last of which is not full.
        (0..100 + round).for_each(|_| detach(&strand, move |_| nr_run.add()));
        queue.flush().unwrap();
        assert_eq!(nr_run.get(), 100 + round);
    }
    // A drain also waits for the closures that closures spawn.
    let strand = queue.strand(0);
    repeat(&strand, |nr_run| {
        *nr_run += 1;
        *nr_run < 200
    });
    queue.drain().unwrap();
    assert_eq!(strand.spawn(|nr_run| *nr_run).join().unwrap(), 200);
}

#[test]
fn a_flush_does_not_wait_for_a_strand_that_is_never_idle() {
    let queue = queue("one").max_active(1).alone();
    let (strand, stop) = (queue.strand(()), Count::default());
    // There are more chains than a batch has closures.
    (0..100).for_each(|_| repeat(&strand, move |()| stop.get() == 0));
    queue.clone().flush().unwrap();
    // Other items run in between, although there is only one seat.
    assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
    stop.add();
    queue.drain().unwrap();
}

#[test]
fn strand_yields_to_others_after_a_batch() {
    let (queue, log) = (queue("one").max_active(1).alone(), Log::default());
    let (long, short) = (queue.strand(()), queue.strand(()));
    queue.pause();
    (0..200).for_each(|number| detach(&long, move |()| log.push(number)));
    let first = short.spawn(move |()| log.take());
    queue.resume();
    assert!(first.join().unwrap().into_iter().eq(0..32));
    queue.drain().unwrap();
    assert!(log.take().into_iter().eq(32..200));
    // An urgent strand is served first.
    let urgent = queue.urgent().unwrap().strand(());
    queue.pause();
    queue.detach(log.note(2));
    detach(&urgent, move |()| log.push(1));
    queue.resume_and_drain();
    assert_eq!(log.take(), [1, 2]);
}

#[test]
fn bulk_cancel_of_running_strands_leaves_no_waiting_closure() {
    let queue = queue("strand").alone();
    let strands = [(); 4].map(|()| queue.strand(()));
    for _ in 0..200 {
        let spawn = |number: usize| strands[number % 4].spawn(|()| ());
        let handles: Vec<_> = (0..400).map(spawn).collect();
        queue.cancel_all();
        for handle in handles {
            let joined = handle.join();
            assert!(matches!(joined, Ok(()) | Err(JoinError::Cancelled)), "{joined:?}");
        }
    }
    queue.flush().unwrap();
    assert!(strands.iter().all(|strand| strand.backlog() == 0));
}

/// The second cancel occurs while the strand runs and is queued again, after a batch.
#[test]
fn closures_that_are_spawned_after_a_bulk_cancel_run() {
    let queue = queue("strand").alone();
    let strand = queue.strand(());
    let (send, receive) = mpsc::channel();
    let (own, canceller) = (strand.clone(), queue.clone());
    detach(&strand, move |()| {
        canceller.cancel_all();
        (1..32).for_each(|_| detach(&own, |()| ()));
        let last = own.clone();
        detach(&own, move |()| {
            canceller.cancel_all();
            send.send(last.spawn(|()| 7)).unwrap();
        });
    });
    assert_eq!(receive.recv_timeout(PATIENCE).unwrap().join().unwrap(), 7);
}
