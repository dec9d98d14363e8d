//! An item that is queued on an ordered queue while it runs on another queue.

use crate::support::*;

/// An item that runs on `first` until the plug is released, and waits for that on `ordered`.
struct Deferred {
    work: Work,
    plug: Plug,
    runs: Count,
    /// A later item of `ordered`, which returns how many runs of `work` have begun before it.
    later: JoinHandle<usize>,
}

fn deferred(first: &Workqueue, ordered: &Workqueue, body: impl Fn() + Send + 'static) -> Deferred {
    must_end();
    let runs = Count::default();
    let (work, plug) = stuck_with(first, move |hole| {
        runs.add();
        if runs.get() == 1 {
            hole.sit();
            body();
        }
    });
    assert!(ordered.enqueue(&work));
    let later = ordered.spawn(move || runs.get());
    Deferred { work, plug, runs, later }
}

fn two_queues() -> [Workqueue; 2] {
    let registry = registry("4 core");
    [queue("first"), queue("ordered").ordered()].map(|it| it.on(&registry))
}

#[test]
fn later_item_does_not_overtake_it() {
    let [first, ordered] = two_queues();
    let Deferred { plug, later, .. } = deferred(&first, &ordered, || ());
    assert!(!holds_within(Duration::from_millis(50), || later.is_finished()));
    plug.release();
    assert_eq!(later.join().unwrap(), 2);
}

#[test]
fn cancel_lets_the_later_item_run() {
    let [first, ordered] = two_queues();
    let Deferred { work, plug, later, .. } = deferred(&first, &ordered, || ());
    assert!(work.cancel());
    assert_eq!(later.join().unwrap(), 1);
    plug.release_and_drain(&first);
}

#[test]
fn cancel_of_all_items_covers_it() {
    let [first, ordered] = two_queues();
    let Deferred { plug, runs, later, .. } = deferred(&first, &ordered, || ());
    // The worker that took it has handed it over.
    let busy = || still_busy(ordered.drain_timeout(Duration::ZERO)).unwrap();
    wait_until(|| busy().left.iter().any(|it| it.func.is_none()));
    assert_eq!(ordered.cancel_all(), 1);
    assert!(is_cancelled(later.join()));
    // A later item does not wait for the run that has the cancelled one.
    assert_eq!(ordered.spawn(move || runs.get()).join().unwrap(), 1);
    plug.release_and_drain(&first);
    ordered.drain().unwrap();
}

#[test]
fn destruction_of_the_queue_waits_for_it() {
    let [first, ordered] = two_queues();
    let Deferred { plug, runs, .. } = deferred(&first, &ordered, || ());
    plug.release();
    drop(ordered);
    assert_eq!(runs.get(), 2);
}

/// If the queue is not ordered, an item that still runs from another queue is in no list.
#[test]
fn a_shutdown_reports_a_queue_whose_item_is_in_no_list() {
    for alone in [true, false] {
        let registry = registry("4 core");
        let [first, second] = ["first", "second"].map(|name| queue(name).on(&registry));
        let (work, plug) = stuck_in(&first);
        assert!(second.enqueue(&work));
        wait_until(|| is_handed_off(&work));
        let text = still_busy(second.drain_timeout(Duration::ZERO)).unwrap().to_string();
        assert!(text.contains("are still running from other queues"), "{text}");
        if alone {
            assert!(second.shutdown(Duration::ZERO).is_err());
        } else {
            let left = shutdown_in_order(&[&first, &second], Duration::ZERO).unwrap();
            assert!(left.iter().map(|it| it.nr_left).eq([1, 0]), "{left:?}");
        }
        plug.release_and_drain(&first);
        assert!(!work.is_pending());
    }
}

#[test]
fn it_has_no_seat_in_the_group() {
    let registry = registry("4 core");
    let group = Group::builder("group").max_active(1).build_in(&registry).unwrap();
    let [first, other, ordered] =
        [queue("first"), queue("other").help(false), queue("ordered").ordered()]
            .map(|it| it.group(&group).on(&registry));
    let joins = move || other.spawn(|| ()).join().unwrap();
    let Deferred { plug, later, .. } = deferred(&first, &ordered, joins);
    plug.release();
    assert_eq!(later.join().unwrap(), 2);
}

/// Inside a run of an item that is also queued on `ordered`, waits for that queue are rejected, and
/// its last handle may be dropped. A drain of the queue's group is rejected too.
#[test]
fn its_run_does_not_wait_for_the_queue() {
    let registry = registry("4 core");
    let group = Group::builder("group").build_in(&registry).unwrap();
    let first = queue("first").on(&registry);
    let ordered = queue("ordered").ordered().group(&group).on(&registry);
    let ours = Arc::new(Mutex::new(Some(ordered.clone())));
    let waits = move || {
        let ordered = ours.lock().unwrap().take().unwrap();
        let error = ordered.flush().unwrap_err();
        assert_eq!(error.queue(), "ordered");
        assert_eq!(ordered.drain_timeout(Duration::MAX), Err(error.into()));
        let error = group.drain_timeout(Duration::MAX).unwrap_err();
        assert!(matches!(error, DrainError::OwnQueue(_)));
        let changed = ordered.set_attrs(|attrs| attrs.nice = 1);
        assert!(matches!(changed, Err(BuildError::OwnQueue)));
    };
    let Deferred { plug, runs, later, .. } = deferred(&first, &ordered, waits);
    drop(ordered);
    plug.release_and_drain(&first);
    assert_eq!((later.join().unwrap(), runs.get()), (2, 2));
}
