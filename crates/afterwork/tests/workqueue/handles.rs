//! Handles of items and queues: their methods other than `join`, and handles as futures.

use std::marker::PhantomPinned;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::support::*;

#[test]
fn a_handle_is_unpin_and_unwind_safe_for_every_result() {
    fn is_free<T: Unpin + UnwindSafe + RefUnwindSafe + Send + Sync>(_: &T) {}
    let queue = queue("handles").alone();
    let handle: JoinHandle<PhantomPinned> = queue.spawn(|| PhantomPinned);
    is_free(&handle);
    is_free(&handle.cancel_on_drop());
    let handle: JoinHandle<&mut (dyn FnMut() + Send)> = queue.spawn(|| panic_any("none"));
    let _: &dyn UnwindSafe = &handle;
    is_free(&queue);
    drop(handle);
}

#[test]
fn a_timed_join_returns_the_handle_and_runs_no_item() {
    let queue = queue("timed").paused();
    let mut handle = queue.spawn(|| 7);
    let start = Instant::now();
    assert!(handle.join_timeout(Duration::ZERO).is_none());
    assert!(handle.join_timeout(2 * MS).is_none());
    assert!(start.elapsed() >= 2 * MS, "{:?}", start.elapsed());
    queue.resume();
    assert_eq!(handle.join_timeout(Duration::MAX).unwrap().unwrap(), 7);
    let mut handle = queue.spawn(|| 8);
    wait_until(|| handle.is_finished());
    assert_eq!(handle.join_timeout(Duration::ZERO).unwrap().unwrap(), 8);
    let (queue, plug) = self::queue("one").max_active(1).plugged();
    let mut handle = queue.spawn(|| 7);
    let waiter = thread::spawn(move || handle.join_timeout(PATIENCE));
    plug.release();
    assert_eq!(waiter.join().unwrap().unwrap().unwrap(), 7);
    let mut handle = queue.spawn(|| panic_any("an item"));
    assert!(matches!(handle.join_timeout(PATIENCE), Some(Err(JoinError::Panicked(_)))));
    queue.pause();
    let mut handle = queue.spawn(|| ());
    assert!(handle.cancel() && handle.join_timeout(PATIENCE).is_some_and(is_cancelled));
}

fn joins_itself(spawn: fn(&Workqueue, Box<dyn FnOnce() + Send>) -> JoinHandle<()>) {
    let joins: [fn(JoinHandle<()>) -> Result<(), JoinError>; 2] =
        [JoinHandle::join, |mut own| own.join_timeout(Duration::MAX).unwrap()];
    for join in joins {
        let (queue, outcome) = (queue("handles").alone(), Log::default());
        let (give, take) = mpsc::channel();
        let joins = Box::new(move || outcome.push(join(take.recv().unwrap())));
        give.send(spawn(&queue, joins)).unwrap();
        queue.drain().unwrap();
        let error = outcome.take().remove(0).unwrap_err();
        assert!(matches!(error, JoinError::OwnItem), "{error}");
        assert_eq!(error.to_string(), "a work item cannot join itself");
    }
}

#[test]
fn a_closure_that_joins_itself_gets_an_error() {
    joins_itself(|queue, joins| queue.spawn(joins));
}

#[test]
fn a_future_that_joins_itself_gets_an_error() {
    joins_itself(|queue, joins| queue.spawn_async(async move { joins() }));
}

#[test]
fn a_cancelling_handle_drops_its_item_unless_it_is_kept() {
    let (queue, lives) = (queue("kept").paused(), Census::default());
    let nr_runs = Count::default();
    let item = || queue.spawn(keeping(lives.life(), nr_runs.adder()));
    drop(item().cancel_on_drop());
    assert_eq!((lives.alive(), nr_runs.get()), (0, 0));
    drop(item().cancel_on_drop().keep());
    let joined = item().cancel_on_drop();
    assert!(!joined.is_finished());
    queue.resume();
    joined.join().unwrap();
    wait_until(|| nr_runs.get() == 2);
    lives.all_dropped(3);
    // It also drops a future, and can be awaited.
    let (queue, lives) = (self::queue("handles").alone(), Census::default());
    let waits = queue.spawn_async(lives.future());
    drop(waits.cancel_on_drop());
    lives.all_dropped(1);
    let inner = queue.clone();
    let outer = queue.spawn_async(async move { inner.spawn(|| 7).cancel_on_drop().await });
    assert_eq!(outer.join().unwrap().unwrap(), 7);
    // The closure may panic when it is dropped.
    let queue = self::queue("panics").paused();
    let bomb = at_drop(|| panic_any("dropped"));
    let item = queue.spawn(move || drop(bomb)).cancel_on_drop();
    // The handle may also be dropped while a panic unwinds.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let _item = item;
        panic_any("the owner");
    }));
    assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"the owner"));
}

#[test]
fn a_weak_handle_upgrades_while_its_queue_exists() {
    let queue = queue("weak").max_active(1).alone();
    let weak = WeakWorkqueue::new(&queue);
    let again = weak.clone().upgrade().expect("it is there");
    assert_eq!(again.spawn(|| 7).join().unwrap(), 7);
    drop(queue);
    assert!(weak.upgrade().is_some(), "the other handle keeps it");
    // The last handle is dropped inside the queue's own item. The queue is destroyed later, and
    // no new handle can be created.
    let (seen, gone, plug) = (weak.clone(), Count::default(), plug_into(&again));
    again.enqueue(&Work::new(move || {
        assert!(seen.upgrade().is_none());
        gone.add();
    }));
    again.close_in_background();
    assert!(weak.upgrade().is_none());
    plug.release();
    wait_until(|| gone.get() == 1);
}

#[test]
fn a_handle_is_a_future() {
    let queue = queue("future").alone();
    for i in 0..3000 {
        assert_eq!(block_on(queue.spawn(move || i)).unwrap(), i);
    }
    assert_eq!(queue.stats().helped, 0, "a poll never runs the closure");
    // A panic reaches the awaiting task.
    let error = block_on(queue.spawn(|| panic!("async"))).unwrap_err();
    assert_eq!(error.to_string(), "the work item panicked: async");
}

#[test]
fn the_waker_of_the_last_poll_is_woken_once_and_no_other() {
    let queue = queue("wakers").alone();
    let (mut handle, plug) = stuck(|hole| queue.spawn(move || hole.sit()));
    let [(first, first_rung), (last, last_rung)] = [counting_waker(), counting_waker()];
    for _ in 0..3 {
        for waker in [&first, &last] {
            assert!(poll_with(&mut handle, waker).is_pending());
        }
    }
    plug.release();
    wait_until(|| last_rung.get() > 0);
    queue.drain().unwrap();
    assert_eq!((first_rung.get(), last_rung.get()), (0, 1));
    assert!(poll_with(&mut handle, &first).is_ready());
    // The last of ever new wakers is not lost.
    for _ in 0..1000 {
        let mut handle = queue.spawn(|| 9);
        loop {
            let [(waker, rung), (newer, newer_rung)] = [counting_waker(), counting_waker()];
            if let Poll::Ready(value) = poll_with(&mut handle, &waker) {
                assert_eq!(value.unwrap(), 9);
                break;
            }
            if poll_with(&mut handle, &newer).is_ready() {
                break;
            }
            wait_until(|| newer_rung.get() == 1);
            assert!(rung.get() <= 1);
        }
    }
}

#[test]
fn wakers_are_dropped_with_their_handles() {
    let (queue, census) = (queue("wakers").max_active(1).alone(), Census::default());
    for i in 0..200 {
        let (plug, life) = (plug_into(&queue), census.life());
        let waker = waker(move || _ = &life);
        let mut handle = polled(queue.spawn(|| ()), &waker);
        drop(waker);
        match i % 3 {
            0 => drop(handle),
            1 => drop(handle.cancel()),
            _ => {
                plug.release();
                handle.join().unwrap();
                continue;
            }
        }
        plug.release();
    }
    queue.drain().unwrap();
    census.all_dropped(200);
}
