//! Items with a deadline: they start in time or expire, and their joiner is notified.

use crate::support::*;

fn in_an_hour() -> Instant {
    Instant::now() + HOUR
}

#[test]
fn a_deadline_in_the_past_expires_at_once() {
    let (queue, lives) = (queue("past").paused(), Census::default());
    let handle = queue.task().deadline(Instant::now()).spawn(lives.closure());
    assert!(handle.is_finished());
    lives.all_dropped(1);
    let outcome = handle.join();
    assert!(outcome.as_ref().unwrap_err().to_string().contains("deadline"));
    assert!(has_expired(outcome));
    assert_eq!((waiting(&queue), queue.stats().expired), (0, 1));
}

#[test]
fn the_deadline_ends_a_join_without_a_worker() {
    let (queue, lives) = (queue("stuck").paused(), Census::default());
    let handle = queue.task().deadline(Instant::now() + SHORT).spawn(lives.closure());
    assert!(has_expired(handle.join()));
    lives.all_dropped(1);
    let mut handle = queue.task().deadline(Instant::now() + SHORT).spawn(|| ());
    assert!(has_expired(handle.join_timeout(HOUR).unwrap()));
    let mut handle = queue.task().deadline(in_an_hour()).spawn(|| ());
    assert!(handle.join_timeout(SHORT).is_none());
    assert!(!handle.is_finished(), "its deadline has not come");
    drop(handle);
    assert_eq!(queue.stats().expired, 2);
    // A poll after the deadline is ready.
    let deadline = Instant::now() + SHORT;
    let mut handle = queue.task().deadline(deadline).spawn(|| ());
    let mut outcome = None;
    wait_until(|| {
        outcome = poll(&mut handle, Waker::noop());
        outcome.is_some()
    });
    assert!(Instant::now() >= deadline);
    assert!(outcome.is_some_and(has_expired));
}

#[test]
fn a_worker_skips_expired_items() {
    let queue = one_seat("behind").alone();
    let (plug, lives) = (plug_into(&queue), Census::default());
    let deadline = Instant::now() + SHORT;
    let handles = [(); 10].map(|()| queue.task().deadline(deadline).spawn(lives.closure()));
    wait_until(|| Instant::now() >= deadline);
    let after = queue.spawn(|| ());
    plug.release();
    after.join().unwrap();
    wait_until(|| handles.iter().all(JoinHandle::is_finished));
    assert!(handles.into_iter().all(|handle| has_expired(handle.join())));
    lives.all_dropped(10);
    assert_eq!(queue.stats().expired, 10);
}

#[test]
fn the_deadline_wakes_an_awaiting_task_without_a_worker() {
    let [idle, tasks] = ["awaited", "tasks"].map(|name| queue(name).alone());
    idle.pause();
    let (lives, deadline) = (Census::default(), Instant::now() + SHORT);
    let handle = idle.task().deadline(deadline).spawn(lives.closure());
    let outcome = tasks.spawn_async(async move {
        let outcome = handle.await;
        assert!(Instant::now() >= deadline);
        has_expired(outcome)
    });
    assert!(outcome.join().unwrap());
    lives.all_dropped(1);
    // The second poll registers a different waker.
    let mut handle = idle.task().deadline(Instant::now() + SHORT).spawn(|| ());
    // On a loaded machine the deadline may have passed.
    assert!(has_expired(poll(&mut handle, Waker::noop()).unwrap_or_else(|| block_on(handle))));
    // An item that is cancelled before its deadline leaves no timer.
    let handle = idle.task().deadline(in_an_hour()).spawn(|| ());
    let mut handle = polled(handle, Waker::noop());
    assert!(handle.cancel());
    assert!(is_cancelled(handle.join()));
    assert_eq!((waiting(&idle), idle.stats().expired), (0, 2));
    idle.resume();
    // A task that awaits a started item is woken at its end.
    let queue = queue("started").help(false).alone();
    let (handle, plug) =
        stuck(|hole| queue.task().deadline(in_an_hour()).spawn(move || hole.sit()));
    let handle = polled(handle, Waker::noop());
    plug.release();
    block_on(handle).unwrap();
}

#[test]
fn an_expired_item_releases_its_permit_once_it_is_found() {
    let queue = queue("bounded").capacity(1).paused();
    let past = Instant::now();
    let handle = block_on(queue.task().reserve()).deadline(past).spawn(|| ());
    assert!(has_expired(handle.join()));
    assert_eq!(free(&queue), Some(1), "its permit is released");
    let handle = block_on(queue.task().reserve()).deadline(Instant::now() + SHORT).spawn(|| ());
    assert!(is_full(queue.task().deadline(in_an_hour()).try_spawn(|| ())));
    assert!(is_refused(queue.task().deadline(in_an_hour()).spawn(|| ()).join()));
    let expired = queue.task().deadline(past).try_spawn(|| ()).unwrap();
    assert!(has_expired(expired.join()));
    assert!(has_expired(handle.join()));
    assert_eq!(free(&queue), Some(1));
    // A detached item releases its permit when a worker reaches it.
    let deadline = Instant::now() + SHORT;
    drop(queue.task().deadline(deadline).spawn(|| unreachable!("it has expired")));
    wait_until(|| Instant::now() >= deadline);
    queue.resume();
    wait_until(|| free(&queue) == Some(1));
    queue.pause();
    let handle = queue.task().deadline(in_an_hour()).try_spawn(|| 7).unwrap();
    queue.resume();
    assert_eq!(handle.join().unwrap(), 7);
    queue.shutdown(Duration::MAX).unwrap();
    assert!(is_closed(queue.task().deadline(in_an_hour()).try_spawn(|| ())));
    assert_eq!(queue.stats().expired, 4);
}

#[test]
fn started_item_may_run_past_its_deadline() {
    let queue = queue("started").help(false).alone();
    let result = before_deadline(|deadline| {
        let item = move || {
            wait_until(|| Instant::now() > deadline);
            5
        };
        queue.task().deadline(deadline).spawn(item).join()
    });
    assert_eq!(result, 5);
}

#[test]
fn the_panic_of_an_expired_closures_drop_is_lost() {
    let queue = queue("foreign").help(false).alone();
    let spawn = |deadline| {
        let captured = at_drop(|| panic!("in a drop"));
        queue.task().deadline(deadline).spawn(move || drop(captured))
    };
    assert!(has_expired(spawn(Instant::now()).join()));
    queue.pause();
    assert!(has_expired(spawn(Instant::now() + SHORT).join()));
    let deadline = Instant::now() + SHORT;
    let found = spawn(deadline);
    wait_until(|| Instant::now() >= deadline);
    queue.resume();
    wait_until(|| found.is_finished());
    assert!(has_expired(found.join()));
    assert_eq!(queue.stats().panicked, 0);
}
