//! The methods of a join handle other than `join`, and the conversion of errors.

use std::error::Error;
use std::marker::PhantomPinned;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::support::*;

fn pool() -> Workqueue {
    queue("handles").alone()
}

#[test]
fn a_handle_is_unpin_and_unwind_safe_for_every_result() {
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
    let cancelled = handle.cancel();
    match handle.join_timeout(PATIENCE).unwrap() {
        Err(JoinError::Cancelled) => assert!(cancelled),
        Err(JoinError::Panicked(_)) => assert!(!cancelled),
        other => panic!("{other:?}"),
    }
}

type Func = Box<dyn FnOnce() + Send>;

fn joins_itself(spawn: fn(&Workqueue, Func) -> JoinHandle<()>) {
    type Join = fn(JoinHandle<()>) -> Result<(), JoinError>;
    let joins: [Join; 2] = [JoinHandle::join, |mut own| own.join_timeout(Duration::MAX).unwrap()];
    for join in joins {
        let (queue, outcome) = (pool(), Log::default());
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
    let (queue, lives) = (pool(), Census::default());
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
fn a_builder_error_converts_to_io_and_keeps_its_source() {
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
