//! Items with a deadline: they start in time or expire, and their joiner is notified.

use std::{
    pin::Pin,
    sync::{Arc, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use afterwork::workqueue::{self, JoinError, JoinHandle};

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
    let handle = queue.task().deadline(Instant::now() + LATER).spawn(|| 7);
    assert_eq!(handle.join().unwrap(), 7);
    let mut handle = queue.task().deadline(Instant::now() + LATER).spawn(|| 8);
    assert_eq!(handle.join_timeout(LATER).unwrap().unwrap(), 8);
    assert_eq!(queue.stats().expired, 0);
}

#[test]
fn a_deadline_in_the_past_expires_at_once() {
    let queue = alone_on_two(queue("past"));
    queue.pause();
    let lives = Census::default();
    let life = lives.life();
    let handle = queue
        .task()
        .deadline(Instant::now())
        .spawn(move || drop(life));
    assert!(handle.is_finished());
    lives.all_dropped(1);
    let Err(error) = handle.join() else {
        panic!("it ran");
    };
    assert!(matches!(error, JoinError::Expired));
    assert!(error.to_string().contains("deadline"));
    assert_eq!((queue.stats().nr_inactive, queue.stats().expired), (0, 1));
    queue.resume();
}

#[test]
fn a_joiner_is_told_when_the_deadline_comes_and_no_worker_does() {
    ends(|| {
        let queue = alone_on_two(queue("stuck"));
        queue.pause();
        let lives = Census::default();
        let life = lives.life();
        let handle = queue
            .task()
            .deadline(Instant::now() + SOON)
            .spawn(move || drop(life));
        assert!(has_expired(handle.join()));
        lives.all_dropped(1);
        let mut handle = queue.task().deadline(Instant::now() + SOON).spawn(|| ());
        assert!(has_expired(handle.join_timeout(LATER).unwrap()));
        let mut handle = queue.task().deadline(Instant::now() + LATER).spawn(|| ());
        assert!(handle.join_timeout(SOON).is_none());
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
                queue.task().deadline(deadline).spawn(move || {
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
    let mut handle = queue.task().deadline(deadline).spawn(|| ());
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
        let handle = stuck.task().deadline(deadline).spawn(move || drop(life));
        let outcome = tasks.spawn_async(async move {
            let outcome = handle.await;
            assert!(Instant::now() >= deadline);
            has_expired(outcome)
        });
        assert!(outcome.join().unwrap());
        lives.all_dropped(1);
        // The second poll registers another waker than the first.
        let mut handle = stuck.task().deadline(Instant::now() + SOON).spawn(|| ());
        // On a loaded machine the deadline may have passed.
        let outcome = poll(&mut handle).unwrap_or_else(|| workqueue::block_on(handle));
        assert!(has_expired(outcome));
        // An item that is cancelled before its deadline leaves no timer.
        let mut handle = stuck.task().deadline(Instant::now() + LATER).spawn(|| ());
        assert!(poll(&mut handle).is_none());
        assert!(handle.cancel());
        drop(handle);
        assert_eq!((stuck.stats().nr_inactive, stuck.stats().expired), (0, 2));
        stuck.resume();
    });
}

#[test]
fn a_task_that_awaits_what_has_started_is_told_of_its_end_alone() {
    ends(|| {
        let queue = alone_on_two(queue("started").help(false));
        let (go, may_go) = mpsc::channel::<()>();
        let (started, has_started) = mpsc::channel();
        let mut handle = queue
            .task()
            .deadline(Instant::now() + LATER)
            .spawn(move || {
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
        let permit = workqueue::block_on(queue.task().reserve());
        let handle = permit.deadline(past).spawn(|| ());
        assert!(has_expired(handle.join()));
        assert_eq!(queue.report().nr_free, Some(1), "its place is given back");
        let handle = workqueue::block_on(queue.task().reserve())
            .deadline(Instant::now() + SOON)
            .spawn(|| ());
        assert!(
            queue
                .task()
                .deadline(Instant::now() + LATER)
                .try_spawn(|| ())
                .is_err_and(|error| error.is_full())
        );
        assert!(has_expired(
            queue.task().deadline(past).try_spawn(|| ()).unwrap().join()
        ));
        assert!(has_expired(handle.join()));
        let handle = queue
            .task()
            .deadline(Instant::now() + LATER)
            .try_spawn(|| 7)
            .unwrap();
        queue.resume();
        assert_eq!(handle.join().unwrap(), 7);
        queue.destroy().unwrap();
        let closed = queue
            .task()
            .deadline(Instant::now() + LATER)
            .try_spawn(|| ());
        assert!(closed.is_err_and(|error| !error.is_full()));
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
            let handle = queue.task().deadline(deadline).spawn(move || {
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
    let mut handle = queue.task().deadline(Instant::now() + LATER).spawn(|| ());
    assert!(handle.cancel());
    assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
    queue.resume();
}

#[test]
fn an_expired_item_gives_its_place_back() {
    ends(|| {
        let queue = alone_on_two(queue("bounded").capacity(1));
        queue.pause();
        let handle = queue.task().deadline(Instant::now() + SOON).spawn(|| ());
        let refused = queue.task().deadline(Instant::now() + LATER).spawn(|| ());
        assert!(matches!(refused.join(), Err(JoinError::Full)));
        assert!(has_expired(handle.join()));
        assert_eq!(queue.report().nr_free, Some(1));
        // A detached item releases its permit when a worker reaches it.
        let deadline = Instant::now() + SOON;
        drop(
            queue
                .task()
                .deadline(deadline)
                .spawn(|| unreachable!("it has expired")),
        );
        while Instant::now() < deadline {
            thread::sleep(SOON);
        }
        queue.resume();
        eventually("a worker has come", || queue.report().nr_free == Some(1));
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
        let past = queue
            .task()
            .deadline(Instant::now())
            .spawn(move || drop(captured));
        assert!(has_expired(past.join()));
        queue.pause();
        let captured = Panics;
        let joined = queue
            .task()
            .deadline(Instant::now() + SOON)
            .spawn(move || drop(captured));
        assert!(has_expired(joined.join()));
        let (captured, deadline) = (Panics, Instant::now() + SOON);
        let found = queue
            .task()
            .deadline(deadline)
            .spawn(move || drop(captured));
        while Instant::now() < deadline {
            thread::sleep(SOON);
        }
        queue.resume();
        eventually("a worker has found it", || found.is_finished());
        assert!(has_expired(found.join()));
        assert_eq!(queue.stats().panicked, 0);
    });
}
