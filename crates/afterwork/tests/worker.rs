//! Dedicated workers and local futures as the system sees them: priorities, and children of `fork`.

#![cfg(not(any(loom, shuttle)))]

mod children;

use std::{future::poll_fn, io::ErrorKind, panic::AssertUnwindSafe, sync::mpsc, task::Poll};

use afterwork::task_work::{JoinError, LocalSet, Mailbox, Woken, Worker, WorkerError, spawn_local};
use children::{alone, in_child, spawn};

/// The wake-up of a local future.
struct Woke(Woken);

impl From<Woken> for Woke {
    fn from(woken: Woken) -> Self {
        Self(woken)
    }
}

#[test]
fn a_child_wakes_no_local_future_of_its_parents_and_ends_no_worker() {
    let _alone = alone();
    let mut mailbox = Mailbox::<Woke>::new();
    let futures = LocalSet::new(&mailbox);
    let (send, receive) = mpsc::channel();
    let parked = futures.spawn_local(poll_fn(move |cx| {
        send.send(cx.waker().clone()).unwrap();
        Poll::<()>::Pending
    }));
    assert!(futures.poll(mailbox.try_recv().unwrap().0));
    let waker = receive.recv().unwrap();
    let worker = Worker::builder("parents").build().unwrap();
    let pending = worker.spawn_local(std::future::pending::<()>);
    let theirs = Worker::builder("dropped").build().unwrap();
    let bodies = AssertUnwindSafe((&mut mailbox, &futures, &waker, &worker, &parked));
    let (ended, said) = in_child(move || {
        let (mailbox, futures, waker, worker, parked) = { bodies }.0;
        let waker = waker.clone();
        spawn(move || waker.wake()).join().unwrap();
        assert!(!parked.cancel() && parked.is_finished());
        assert!(mailbox.is_empty(), "woken");
        let refused = futures.spawn_local(async {}).join();
        assert!(matches!(refused, Err(JoinError::Refused)));
        assert!(matches!(worker.flush(), Err(JoinError::Refused)));
        worker.spawn_detached(|| unreachable!("nobody runs it"));
        assert!(matches!(pending.join(), Err(JoinError::Cancelled)));
        drop(theirs);
        // Its own are as any.
        let own = Worker::builder("own").build().unwrap();
        let sum = own.spawn_local(|| async { spawn_local(async { 3 }).await });
        assert_eq!(sum.join().unwrap().unwrap(), 3);
    });
    assert!(
        ended.success(),
        "the child failed, or hung: {ended}, {said}"
    );
    waker.wake();
    assert!(futures.poll(mailbox.try_recv().unwrap().0));
    worker.flush().unwrap();
    worker.shutdown_background();
}

#[test]
fn a_worker_is_real_time_or_says_why_not() {
    let _alone = alone();
    let policy = || {
        // SAFETY: 0 names this thread.
        unsafe { libc::sched_getscheduler(0) }
    };
    let if_permitted = Worker::builder("audio").fifo_if_permitted(1).build();
    let theirs = if_permitted.unwrap().spawn(policy).join().unwrap();
    match Worker::builder("audio").fifo(1).build() {
        Ok(worker) => {
            assert_eq!(worker.spawn(policy).join().unwrap(), libc::SCHED_FIFO);
            assert_eq!(theirs, libc::SCHED_FIFO);
        }
        Err(WorkerError::Fifo(error)) => {
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert_ne!(theirs, libc::SCHED_FIFO);
        }
        Err(error) => panic!("{error}"),
    }
}
