//! An item with a deadline starts or expires, never both, in any order.

use crate::support::*;

/// A deadline that does not expire by itself.
const LATER: Duration = Duration::from_secs(3600);

/// Returns a counter of runs. It is leaked so that the closure has nothing to drop, because a twin
/// moves the closure out twice.
fn counter() -> &'static AtomicU32 {
    Box::leak(Box::new(AtomicU32::new(0)))
}

/// The deadline expires while a worker reaches the item and its owner, or a handle, cancels.
fn due_at(cancels: bool, has_handle: bool) {
    let (_machine, queue) = queue(1, false);
    let runs = counter();
    let mut canceller = CancelHandle::default();
    let mut options = queue.task().deadline(Instant::now() + LATER);
    if has_handle {
        options = options.cancel_handle(&mut canceller);
    }
    let mut handle = options.spawn(move || _ = runs.fetch_add(1, Ordering::Relaxed));
    let other = has_handle.then(|| spawn(move || canceller.cancel()));
    let mut is_cancelled = cancels && handle.cancel();
    let has_expired = handle.expire_now();
    is_cancelled |= other.is_some_and(|it| it.join().unwrap());
    match handle.join() {
        // The future was cancelled too late, because its poll was already running.
        Ok(()) => assert!(!has_expired && runs.load(Ordering::Relaxed) == 1),
        Err(JoinError::Expired) => assert!(has_expired && runs.load(Ordering::Relaxed) == 0),
        Err(JoinError::Cancelled) => assert!(is_cancelled && runs.load(Ordering::Relaxed) == 0),
        Err(error) => panic!("{error}"),
    }
    assert!(!(has_expired && runs.load(Ordering::Relaxed) > 0), "both");
    wind_up(queue);
}

fn is_over(as_future: bool) {
    let (_machine, queue) = queue(1, true);
    let runs = counter();
    let handle = queue.spawn_overdue(as_future, move || _ = runs.fetch_add(1, Ordering::Relaxed));
    assert!(matches!(handle.join(), Err(JoinError::Expired)));
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    wind_up(queue);
}

/// The deadline expires before any worker reaches the item, while a new waker polls its handle.
fn expires_while_awaited() {
    let machine = Arc::new(machine(1, 1));
    let queue = plain().build_in(machine.registry()).unwrap();
    machine.pretend_busy(true);
    let mut handle = queue.task().deadline(Instant::now() + LATER).spawn(|| ());
    let (first, mut last) = (Task::new(), Task::new());
    assert!(first.poll(&mut handle).is_pending());
    let firing = spawn_with(machine.clone(), move |machine| machine.fire_timers(2 * LATER));
    match last.poll(&mut handle) {
        Poll::Ready(outcome) => {
            assert!(matches!(outcome, Err(JoinError::Expired)));
            firing.join().unwrap();
        }
        Poll::Pending => {
            firing.join().unwrap();
            assert!(last.was_woken(), "no thread notifies it");
            assert!(handle.expire_now());
        }
    }
    drop(handle);
    go(&machine);
    wind_up(queue);
}

models! {
    fn task_awaiting_an_item_is_notified_of_its_deadline() =
        bounded(2, expires_while_awaited).detects(["deadline: the wheel wakes no task"]);
    fn an_item_is_started_or_expires() =
        bounded(2, || due_at(false, false)).detects(["deadline: expires a started item"]);
    fn a_cancel_handle_and_a_deadline_end_an_item_once() = bounded(2, || due_at(false, true));
    fn an_item_with_a_deadline_is_cancelled_once() = bounded(2, || due_at(true, false));
    fn an_item_whose_deadline_is_over_never_starts() =
        bounded(2, || is_over(false)).detects(["deadline: starts after it"]),
        bounded(2, || is_over(true)).detects(["deadline: starts after it"]);
}
