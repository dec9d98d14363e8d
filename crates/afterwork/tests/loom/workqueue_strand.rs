//! Strands: order, mutual exclusion, wake-ups, cancels and flushes. A batch is one closure.

use crate::support::*;

/// Two threads spawn on one strand; loom checks the accesses to the state.
fn two_spawners() {
    let (_machine, queue) = queue(1, false);
    let strand = queue.strand(Plain::default());
    let add = |number: u32| {
        move |state: &mut Plain| {
            state.set(10 * state.get() + number);
            state.get()
        }
    };
    let other = spawn_with(strand.clone(), move |strand| {
        strand.spawn_detached(move |state| _ = add(1)(state)).unwrap();
    });
    strand.spawn_detached(move |state| _ = add(2)(state)).unwrap();
    other.join().unwrap();
    // The races are over. As in `wind_up`, the rest is not explored.
    loom::stop_exploring();
    let last = strand.spawn(add(3)).join().unwrap();
    assert!(last == 123 || last == 213, "{last}");
    drop(strand);
    drop(queue);
}

/// A spawn returns while another one queues the strand. No worker runs it yet.
fn spawn_meets_spawn() {
    let (machine, queue) = held(false);
    let strand = queue.strand(());
    let other = spawn_with(strand.clone(), move |strand| strand.spawn_detached(|()| ()).unwrap());
    strand.spawn_detached(|()| ()).unwrap();
    // Adopts the injector, as a flush does.
    let nr_waiting = queue.stats().nr_inactive;
    assert_eq!(nr_waiting, 1, "a flush would not find the strand");
    other.join().unwrap();
    go(&machine);
    drop(strand);
    wind_up(queue);
}

fn cancel_races_with_pop() {
    let (_machine, queue) = queue(1, false);
    let strand = queue.strand(Plain::default());
    let mut handle = strand.spawn(|state| state.set(1));
    let is_cancelled = handle.cancel();
    drop(strand);
    drop(queue);
    match handle.join() {
        Ok(()) => assert!(!is_cancelled),
        Err(error) => assert!(is_cancelled && matches!(error, JoinError::Cancelled)),
    }
}

/// A strand has closures before and after a bulk cancel, which races with its run.
fn bulk_cancel_races_with_a_run() {
    let (machine, queue) = held(false);
    let strand: Strand<Plain> = queue.strand(Plain::default());
    let started = Arc::new(AtomicBool::new(false));
    let first = strand.spawn(|state| state.set(1));
    let starts = started.clone();
    let second = strand.spawn(move |state| {
        starts.store(true, Ordering::Relaxed);
        state.set(2);
    });
    // The canceller starts last, because loom checks for a conflict only at the last access to a
    // word.
    let canceller = spawn_with(queue.clone(), move |queue| {
        queue.cancel_all();
        started.load(Ordering::Relaxed)
    });
    go(&machine);
    machine.pretend_busy(true);
    let has_started = canceller.join().unwrap();
    let later = strand.spawn(|state| state.get());
    go(&machine);
    let (first, second) = (first.join(), second.join());
    assert!(second.is_ok() || !has_started);
    assert!(first.is_ok() || second.is_err(), "out of order");
    assert_eq!(later.join().unwrap(), u32::from(first.is_ok()) + u32::from(second.is_ok()));
    drop(strand);
    wind_up(queue);
}

/// The first bulk cancel closes the color of its run, which queues the strand again and runs all
/// closures. One of these cancels all of them again.
fn bulk_cancels_inside_a_run() {
    let (machine, queue) = held(false);
    let strand = queue.strand(());
    let later = Arc::new(std::sync::Mutex::new(None));
    let (own, canceller, place) = (strand.clone(), queue.clone(), later.clone());
    let first = move |_: &mut ()| {
        canceller.cancel_all();
        let last = own.clone();
        own.spawn_detached(move |()| {
            canceller.cancel_all();
            *place.lock().unwrap() = Some(last.spawn(|()| 7));
        })
        .unwrap();
    };
    strand.spawn_detached(first).unwrap();
    go(&machine);
    let later = later.lock().unwrap().take().expect("it was spawned");
    assert_eq!(later.join().unwrap(), 7);
    drop(strand);
    wind_up(queue);
}

fn bulk_cancel_inside_a_run() {
    let (machine, queue) = held(false);
    let strand = queue.strand(());
    let own = queue.clone();
    let first = strand.spawn(move |()| own.cancel_all());
    let second = strand.spawn(|()| ());
    go(&machine);
    assert_eq!(first.join().unwrap(), 0);
    assert!(matches!(second.join(), Err(JoinError::Cancelled)));
    drop(strand);
    wind_up(queue);
}

fn flush_races_with_a_run() {
    let (machine, queue) = held(false);
    let strand = queue.strand(());
    let (count, nr_run) = counter();
    for _ in 0..2 {
        let count = count.clone();
        strand.spawn_detached(move |()| count()).unwrap();
    }
    let flusher = spawn_with(queue.clone(), move |queue| {
        queue.flush().unwrap();
        assert_eq!(nr_run.load(Ordering::Relaxed), 2, "flushed too early");
    });
    go(&machine);
    flusher.join().unwrap();
    drop(strand);
    wind_up(queue);
}

models! {
    fn closures_of_a_strand_run_in_order_and_none_is_lost() =
        bounded(1, two_spawners).detects(["strand: forgets a late push"]);
    fn a_closure_of_a_strand_is_in_flight_after_its_spawn() =
        bounded(3, spawn_meets_spawn)
            .detects(["strand: returns before it is queued", "strand: relaxed count"]);
    fn a_cancelled_closure_of_a_strand_ends_once() =
        bounded(2, cancel_races_with_pop).detects(["strand: pops a claimed closure"]);
    fn bulk_cancel_leaves_no_pending_closure_of_a_strand() =
        bounded(2, bulk_cancel_races_with_a_run);
    fn closures_spawned_after_a_bulk_cancel_run() =
        bounded(1, bulk_cancels_inside_a_run).detects(["strand: is unqueued while it runs"]);
    fn bulk_cancel_reaches_the_closures_behind_the_running_one() =
        bounded(1, bulk_cancel_inside_a_run).detects(["strand: starts what was cancelled"]);
    fn a_flush_waits_for_the_closures_of_a_strand() =
        bounded(3, flush_races_with_a_run).detects(["strand: ends during a flush"]);
}
