//! The methods of a join handle other than `join`, and the conversion of errors.

use std::{
    error::Error,
    future::pending,
    io,
    marker::PhantomPinned,
    panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind, panic_any},
    sync::mpsc,
    time::{Duration, Instant},
};

use afterwork::workqueue::{BuildError, JoinError, JoinHandle, Work, Workqueue};

use crate::support::*;

fn pool() -> Workqueue {
    alone_on_two(queue("handles"))
}

#[test]
fn a_handle_may_be_moved_and_carried_through_a_panic_whatever_it_gives() {
    fn is_free<T: Unpin + UnwindSafe + RefUnwindSafe + Send + Sync>(_: &T) {}
    let queue = pool();
    let handle: JoinHandle<PhantomPinned> = queue.spawn(|| PhantomPinned);
    is_free(&handle);
    is_free(&handle.cancel_on_drop());
    let handle: JoinHandle<&mut (dyn FnMut() + Send)> = queue.spawn(|| panic_any("none"));
    let _: &dyn UnwindSafe = &handle;
    is_free(&queue);
    drop(handle);
}

#[test]
fn a_join_with_a_timeout_gives_the_handle_back_and_runs_nothing_itself() {
    ends(|| {
        let queue = pool();
        queue.pause();
        let mut handle = queue.spawn(|| 7);
        let start = Instant::now();
        assert!(handle.join_timeout(Duration::ZERO).is_none());
        assert!(handle.join_timeout(Duration::from_millis(2)).is_none());
        assert!(start.elapsed() >= Duration::from_millis(2));
        queue.resume();
        assert_eq!(handle.join_timeout(Duration::MAX).unwrap().unwrap(), 7);
        let mut handle = queue.spawn(|| 8);
        eventually("it ends", || handle.is_finished());
        assert_eq!(handle.join_timeout(Duration::ZERO).unwrap().unwrap(), 8);
    });
}

#[test]
fn a_join_with_a_timeout_is_woken_by_the_end_and_by_a_cancel() {
    ends(|| {
        let queue = alone_on_two(queue("one").max_active(1));
        let plug = plug_into(&queue);
        let mut handle = queue.spawn(|| 7);
        let waiter = std::thread::spawn(move || handle.join_timeout(PATIENCE));
        plug.release();
        assert_eq!(waiter.join().unwrap().unwrap().unwrap(), 7);
        let mut handle = queue.spawn(|| panic_any("an item"));
        let cancelled = handle.cancel();
        match handle.join_timeout(PATIENCE).unwrap() {
            Err(JoinError::Cancelled) => assert!(cancelled),
            Err(JoinError::Panicked(_)) => assert!(!cancelled),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn an_item_that_joins_itself_with_a_timeout_is_told() {
    ends(|| {
        let queue = pool();
        let (send, receive) = mpsc::channel::<JoinHandle<()>>();
        let (sender, receiver) = mpsc::channel();
        let handle = queue.spawn(move || {
            let mut own = receive.recv().unwrap();
            let outcome = own.join_timeout(Duration::MAX).unwrap();
            sender
                .send(matches!(outcome, Err(JoinError::OwnItem)))
                .unwrap();
        });
        send.send(handle).unwrap();
        assert_eq!(receiver.recv(), Ok(true));
    });
}

#[test]
fn a_handle_that_cancels_drops_what_has_not_started_and_may_be_kept() {
    ends(|| {
        let queue = pool();
        let lives = Census::default();
        let nr_runs = Count::default();
        queue.pause();
        let item = || {
            let (life, count) = (lives.life(), nr_runs.clone());
            queue.spawn(move || {
                let _life = life;
                count.add();
            })
        };
        drop(item().cancel_on_drop());
        assert_eq!((lives.alive(), nr_runs.get()), (0, 0));
        drop(item().cancel_on_drop().keep());
        let joined = item().cancel_on_drop();
        assert!(!joined.is_finished());
        queue.resume();
        joined.join().unwrap();
        eventually("the one that was kept has run", || nr_runs.get() == 2);
        lives.all_dropped(3);
    });
}

#[test]
fn a_handle_that_cancels_drops_a_future_and_can_be_awaited() {
    ends(|| {
        let queue = pool();
        let lives = Census::default();
        let life = lives.life();
        let waits = queue.spawn_async(async move {
            let _life = life;
            pending::<()>().await;
        });
        drop(waits.cancel_on_drop());
        lives.all_dropped(1);
        let inner = queue.clone();
        let outer = queue.spawn_async(async move { inner.spawn(|| 7).cancel_on_drop().await });
        assert_eq!(outer.join().unwrap().unwrap(), 7);
    });
}

#[test]
fn what_a_dropped_handle_cancels_may_panic_in_its_drop() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic_any("dropped");
        }
    }
    ends(|| {
        let queue = pool();
        queue.pause();
        let bomb = Bomb;
        let item = queue.spawn(move || drop(bomb)).cancel_on_drop();
        // The handle may also be dropped while a panic unwinds.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let _item = item;
            panic_any("the owner");
        }));
        assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"the owner"));
        queue.resume();
    });
}

#[test]
fn an_error_of_a_builder_is_one_of_io_that_still_says_what_it_was() {
    fn build() -> io::Result<Workqueue> {
        Ok(queue("none").max_active(0).build()?)
    }
    let error = build().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let inner = error.get_ref().and_then(|it| it.downcast_ref());
    assert!(matches!(inner, Some(BuildError::MaxActive(0))));
    let denied = io::Error::from(io::ErrorKind::PermissionDenied);
    let error = io::Error::from(BuildError::NicePermission(-5, denied));
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert!(error.source().is_some());
}

#[test]
fn a_weak_handle_keeps_no_queue_and_gives_it_as_long_as_it_is_there() {
    ends(|| {
        let queue = alone_on_two(queue("weak").max_active(1));
        let weak = queue.downgrade();
        let again = weak.clone().upgrade().expect("it is there");
        assert_eq!(again.spawn(|| 7).join().unwrap(), 7);
        drop(queue);
        assert!(weak.upgrade().is_some(), "the other handle keeps it");
        // The last handle is dropped inside the queue's own item. The queue is destroyed later, and
        // no new handle can be created.
        let (send, receive) = mpsc::channel();
        let seen = weak.clone();
        let work = Work::new(move || send.send(seen.upgrade().is_none()).unwrap());
        let plug = plug_into(&again);
        again.enqueue(&work);
        again.close_in_background();
        assert!(weak.upgrade().is_none());
        plug.release();
        assert!(receive.recv_timeout(PATIENCE).unwrap());
    });
}
