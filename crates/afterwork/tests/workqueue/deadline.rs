//! Items with a deadline: they start in time or expire, and their joiner is notified.

use std::{
    pin::Pin,
    sync::{Arc, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use afterwork::workqueue::{self, JoinError, JoinHandle, TrySpawnError};

use crate::support::{Census, Count, alone_on_two, ends, eventually, plug_into, queue};

const LATER: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(2);

struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

fn poll<T>(handle: &mut JoinHandle<T>) -> Option<Result<T, JoinError>> {
    let waker = Waker::from(Arc::new(Nobody));
    match Pin::new(handle).poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

fn has_expired<T>(outcome: Result<T, JoinError>) -> bool {
    matches!(outcome, Err(JoinError::Expired))
}

#[test]
fn an_item_that_starts_in_time_runs() {
    let queue = alone_on_two(queue("in time"));
    let handle = queue.spawn_before(Instant::now() + LATER, || 7);
    assert_eq!(handle.join().unwrap(), 7);
    let handle = queue.spawn_before(Instant::now() + LATER, || 8);
    assert_eq!(handle.join_timeout(LATER).unwrap().unwrap(), 8);
    assert_eq!(queue.stats().expired, 0);
}

#[test]
fn a_deadline_in_the_past_expires_at_once() {
    let queue = alone_on_two(queue("past"));
    queue.pause();
    let lives = Census::default();
    let life = lives.life();
    let handle = queue.spawn_before(Instant::now(), move || drop(life));
    assert!(handle.is_finished());
    lives.all_dropped(1);
    let Err(error) = handle.join() else {
        panic!("it ran");
    };
    assert!(matches!(error, JoinError::Expired));
    assert!(error.to_string().contains("deadline"));
    assert_eq!((queue.len(), queue.stats().expired), (0, 1));
    queue.resume();
}

#[test]
fn a_joiner_is_told_when_the_deadline_comes_and_no_worker_does() {
    ends(|| {
        let queue = alone_on_two(queue("stuck"));
        queue.pause();
        let lives = Census::default();
        let life = lives.life();
        let handle = queue.spawn_before(Instant::now() + SOON, move || drop(life));
        assert!(has_expired(handle.join()));
        lives.all_dropped(1);
        let handle = queue.spawn_before(Instant::now() + SOON, || ());
        assert!(has_expired(handle.join_timeout(LATER).unwrap()));
        let handle = queue.spawn_before(Instant::now() + LATER, || ());
        let handle = handle.join_timeout(SOON).unwrap_err();
        assert!(!handle.is_finished(), "its deadline has not come");
        drop(handle);
        assert_eq!(queue.stats().expired, 2);
        queue.resume();
    });
}

#[test]
fn a_worker_passes_over_what_has_expired() {
    ends(|| {
        let queue = alone_on_two(queue("behind").max_active(1).help(false));
        let plug = plug_into(&queue);
        let (lives, count) = (Census::default(), Count::default());
        let deadline = Instant::now() + SOON;
        let handles: Vec<_> = (0..10)
            .map(|_| {
                let (life, count) = (lives.life(), count.clone());
                queue.spawn_before(deadline, move || {
                    drop(life);
                    count.add();
                })
            })
            .collect();
        while Instant::now() < deadline {
            thread::sleep(SOON);
        }
        let after = queue.spawn(|| ());
        plug.release();
        after.join().unwrap();
        eventually("all have been passed over", || {
            handles.iter().all(JoinHandle::is_finished)
        });
        assert!(handles.into_iter().all(|handle| has_expired(handle.join())));
        lives.all_dropped(10);
        assert_eq!((count.get(), queue.stats().expired), (0, 10));
    });
}

#[test]
fn a_task_is_told_when_it_polls_after_the_deadline() {
    let queue = alone_on_two(queue("polled"));
    queue.pause();
    let deadline = Instant::now() + SOON;
    let mut handle = queue.spawn_before(deadline, || ());
    let mut outcome = poll(&mut handle);
    while outcome.is_none() {
        thread::sleep(SOON);
        outcome = poll(&mut handle);
    }
    assert!(Instant::now() >= deadline);
    assert!(outcome.is_some_and(has_expired));
    queue.resume();
}

#[test]
fn a_task_that_awaits_is_told_when_the_deadline_comes_and_no_worker_does() {
    ends(|| {
        let stuck = alone_on_two(queue("awaited"));
        stuck.pause();
        let tasks = alone_on_two(queue("tasks"));
        let lives = Census::default();
        let life = lives.life();
        let deadline = Instant::now() + SOON;
        let handle = stuck.spawn_before(deadline, move || drop(life));
        let outcome = tasks.spawn_async(async move {
            let outcome = handle.await;
            assert!(Instant::now() >= deadline);
            has_expired(outcome)
        });
        assert!(outcome.join().unwrap());
        lives.all_dropped(1);
        // The second poll registers another waker than the first.
        let mut handle = stuck.spawn_before(Instant::now() + SOON, || ());
        // On a loaded machine the deadline may have passed.
        let outcome = poll(&mut handle).unwrap_or_else(|| workqueue::block_on(handle));
        assert!(has_expired(outcome));
        // An item that is cancelled before its deadline leaves no timer.
        let mut handle = stuck.spawn_before(Instant::now() + LATER, || ());
        assert!(poll(&mut handle).is_none());
        assert!(handle.cancel());
        drop(handle);
        assert_eq!((stuck.len(), stuck.stats().expired), (0, 2));
        stuck.resume();
    });
}

#[test]
fn a_task_that_awaits_what_has_started_is_told_of_its_end_alone() {
    ends(|| {
        let queue = alone_on_two(queue("started").help(false));
        let (go, may_go) = mpsc::channel::<()>();
        let (started, has_started) = mpsc::channel();
        let mut handle = queue.spawn_before(Instant::now() + LATER, move || {
            started.send(()).unwrap();
            let _ = may_go.recv();
            5
        });
        has_started.recv().unwrap();
        assert!(poll(&mut handle).is_none());
        drop(go);
        assert_eq!(workqueue::block_on(handle).unwrap(), 5);
    });
}

#[test]
fn a_deadline_goes_with_room_that_is_had_or_tried_for() {
    ends(|| {
        let queue = alone_on_two(queue("bounded").capacity(1));
        queue.pause();
        let past = Instant::now();
        let permit = workqueue::block_on(queue.reserve());
        let handle = permit.spawn_before(past, || ()).unwrap();
        assert!(has_expired(handle.join()));
        assert_eq!(queue.room(), Some(1), "its place is given back");
        let handle =
            workqueue::block_on(queue.reserve()).spawn_before(Instant::now() + SOON, || ());
        assert!(matches!(
            queue.try_spawn_before(Instant::now() + LATER, || ()),
            Err(TrySpawnError::Full(_))
        ));
        assert!(has_expired(
            queue.try_spawn_before(past, || ()).unwrap().join()
        ));
        assert!(has_expired(handle.unwrap().join()));
        let handle = queue
            .try_spawn_before(Instant::now() + LATER, || 7)
            .unwrap();
        queue.resume();
        assert_eq!(handle.join().unwrap(), 7);
        queue.destroy().unwrap();
        let closed = queue.try_spawn_before(Instant::now() + LATER, || ());
        assert!(matches!(closed, Err(TrySpawnError::Closed(_))));
        assert_eq!(queue.stats().expired, 3);
    });
}

#[test]
fn an_item_that_has_started_is_let_run_beyond_its_deadline() {
    ends(|| {
        let queue = alone_on_two(queue("started").help(false));
        let (go, may_go) = mpsc::channel::<()>();
        let (started, has_started) = mpsc::channel();
        // Usually long enough for a worker to start the item. If the item expires, the span
        // doubles.
        let mut span = Duration::from_millis(50);
        let (deadline, handle) = loop {
            let deadline = Instant::now() + span;
            let (go, started) = (mpsc::channel::<()>(), started.clone());
            let handle = queue.spawn_before(deadline, move || {
                started.send(go.0).unwrap();
                let _ = go.1.recv();
                5
            });
            if let Ok(go) = has_started.recv_timeout(span * 2) {
                while Instant::now() < deadline {
                    thread::sleep(SOON);
                }
                drop(go);
                break (deadline, handle);
            }
            assert!(has_expired(handle.join()));
            span *= 2;
        };
        drop((go, may_go));
        assert!(Instant::now() >= deadline);
        assert_eq!(handle.join().unwrap(), 5);
    });
}

#[test]
fn a_cancelled_item_is_cancelled_and_not_expired() {
    let queue = alone_on_two(queue("cancelled"));
    queue.pause();
    let mut handle = queue.spawn_before(Instant::now() + LATER, || ());
    assert!(handle.cancel());
    assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
    queue.resume();
}

#[test]
fn an_expired_item_gives_its_place_back() {
    ends(|| {
        let queue = alone_on_two(queue("bounded").capacity(1));
        queue.pause();
        let handle = queue.spawn_before(Instant::now() + SOON, || ());
        let refused = queue.spawn_before(Instant::now() + LATER, || ());
        assert!(matches!(refused.join(), Err(JoinError::Refused)));
        assert!(has_expired(handle.join()));
        assert_eq!(queue.room(), Some(1));
        // A detached item releases its permit when a worker reaches it.
        let deadline = Instant::now() + SOON;
        drop(queue.spawn_before(deadline, || unreachable!("it has expired")));
        while Instant::now() < deadline {
            thread::sleep(SOON);
        }
        queue.resume();
        eventually("a worker has come", || queue.room() == Some(1));
    });
}

#[test]
fn what_the_drop_of_an_expired_closure_panics_with_is_lost() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("in a drop");
        }
    }
    ends(|| {
        let queue = alone_on_two(queue("foreign").help(false));
        let captured = Panics;
        let past = queue.spawn_before(Instant::now(), move || drop(captured));
        assert!(has_expired(past.join()));
        queue.pause();
        let captured = Panics;
        let joined = queue.spawn_before(Instant::now() + SOON, move || drop(captured));
        assert!(has_expired(joined.join()));
        let (captured, deadline) = (Panics, Instant::now() + SOON);
        let found = queue.spawn_before(deadline, move || drop(captured));
        while Instant::now() < deadline {
            thread::sleep(SOON);
        }
        queue.resume();
        eventually("a worker has found it", || found.is_finished());
        assert!(has_expired(found.join()));
        assert_eq!(queue.stats().panicked, 0);
    });
}
