//! The urgent lane: it overtakes ordinary items, and starves none of them.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use afterwork::workqueue::{BuildError, DelayedWork, Work, Workqueue};

use crate::support::*;

/// Records the order in which items start.
#[derive(Clone, Default)]
struct Order(Arc<Mutex<Vec<String>>>);

impl Order {
    fn note(&self, name: &str) -> impl Fn() + Send + Sync + use<> {
        let (order, name) = (self.clone(), name.to_owned());
        move || order.0.lock().unwrap().push(name.clone())
    }

    fn is(&self, names: &str) {
        assert_eq!(self.0.lock().unwrap().join(" "), names);
    }
}

/// Builds a queue with one seat, in a pool of one CPU.
fn narrow() -> Workqueue {
    let queue = queue("narrow").max_active(1).help(false);
    queue.build_in(&registry("1 core")).unwrap()
}

#[test]
fn an_urgent_item_starts_before_all_ordinary_ones_that_wait() {
    let (queue, order) = (narrow(), Order::default());
    let plug = plug_into(&queue);
    for name in ["a", "b", "c"] {
        queue.spawn_detached(order.note(name)).unwrap();
    }
    // The first call of `urgent` takes effect for items that wait already.
    let urgent = queue.urgent().unwrap();
    urgent.spawn_detached(order.note("U")).unwrap();
    queue.spawn_detached(order.note("d")).unwrap();
    urgent.spawn_detached(order.note("V")).unwrap();
    plug.release();
    queue.drain().unwrap();
    order.is("U V a b c d");
}

#[test]
fn what_a_worker_has_in_hand_is_overtaken_as_well() {
    // Unlike on `narrow`, a worker takes several items at once.
    let registry = unwatched("1 core");
    let queue = queue("hand").max_active(2).help(false);
    let (queue, order) = (queue.build_in(&registry).unwrap(), Order::default());
    let (plug, hole) = stopper();
    let first = Work::new(move || hole.sit());
    let works: Vec<_> = ["a", "b"].map(|name| Work::new(order.note(name))).into();
    let all: Vec<_> = [first].into_iter().chain(works).collect();
    assert_eq!(queue.enqueue_all(&all), 3);
    plug.wait_until_stuck();
    let urgent = queue.urgent().unwrap();
    urgent.spawn_detached(order.note("U")).unwrap();
    plug.release();
    queue.drain().unwrap();
    order.is("U a b");
}

#[test]
fn ordinary_items_get_every_tenth_start() {
    let (queue, order) = (narrow(), Order::default());
    let urgent = queue.urgent().unwrap();
    let plug = plug_into(&queue);
    for _ in 0..3 {
        queue.spawn_detached(order.note("o")).unwrap();
    }
    for _ in 0..25 {
        urgent.spawn_detached(order.note("U")).unwrap();
    }
    plug.release();
    queue.drain().unwrap();
    let nine = "U U U U U U U U U";
    order.is(&format!("{nine} o {nine} o U U U U U U U o"));
}

#[test]
fn items_of_other_queues_are_not_overtaken_for_long() {
    let registry = registry("1 core");
    let ours = queue("ours")
        .max_active(1)
        .help(false)
        .build_in(&registry)
        .unwrap();
    let theirs = queue("theirs").help(false).build_in(&registry).unwrap();
    let (urgent, order) = (ours.urgent().unwrap(), Order::default());
    let plug = plug_into(&ours);
    for _ in 0..20 {
        urgent.spawn_detached(order.note("U")).unwrap();
    }
    let waits = theirs.spawn(order.note("t"));
    plug.release();
    waits.join().unwrap();
    ours.drain().unwrap();
    let order = order.0.lock().unwrap();
    let at = order.iter().position(|name| name == "t").unwrap();
    assert!(at <= 3, "{at} went before it");
}

#[test]
fn an_ordered_queue_has_no_urgent_lane() {
    let queue = queue("ordered")
        .ordered()
        .build_in(&registry("1 core"))
        .unwrap();
    let refused = queue.urgent();
    assert!(matches!(refused, Err(BuildError::OrderedUrgent)));
    let message = refused.unwrap_err().to_string();
    assert_eq!(message, "an ordered queue has no urgent lane");
}

#[test]
fn a_pending_item_keeps_its_lane_and_a_cancelled_one_changes_it() {
    let (queue, order) = (narrow(), Order::default());
    let urgent = queue.urgent().unwrap();
    let plug = plug_into(&queue);
    let [kept, hastened, slowed] =
        ["kept", "hastened", "slowed"].map(|name| Work::new(order.note(name)));
    assert!(queue.enqueue(&kept));
    queue.spawn_detached(order.note("o")).unwrap();
    assert!(!urgent.enqueue(&kept), "it is pending");
    // Their tombstones are still on the lists when they are queued again.
    assert!(queue.enqueue(&hastened) && hastened.cancel() && urgent.enqueue(&hastened));
    assert!(urgent.enqueue(&slowed) && slowed.cancel() && queue.enqueue(&slowed));
    plug.release();
    queue.drain().unwrap();
    order.is("hastened kept o slowed");
}

#[test]
fn drain_flush_and_cancel_all_are_about_both_lanes() {
    let queue = narrow();
    let urgent = queue.urgent().unwrap();
    let (count, never) = (Count::default(), Count::default());
    let queue_both = |count: &Count| {
        for _ in 0..20 {
            for handle in [&queue, &urgent] {
                let count = count.clone();
                handle.spawn_detached(move || count.add()).unwrap();
            }
        }
    };
    queue_both(&count);
    urgent.flush().unwrap();
    assert_eq!(count.get(), 40);
    queue_both(&count);
    queue.drain().unwrap();
    assert_eq!(count.get(), 80);
    let plug = plug_into(&queue);
    queue_both(&never);
    assert_eq!(
        (queue.stats().nr_inactive, urgent.stats().nr_inactive),
        (40, 40)
    );
    assert_eq!(queue.cancel_all(), 40);
    plug.release();
    queue.drain().unwrap();
    assert_eq!(never.get(), 0);
}

#[test]
fn cancelled_urgent_items_do_not_pile_up() {
    let queue = narrow();
    let urgent = queue.urgent().unwrap();
    let plug = plug_into(&queue);
    for _ in 0..1000 {
        let work = Work::new(|| ());
        assert!(urgent.enqueue(&work) && work.cancel());
    }
    assert_eq!(queue.stats().nr_inactive, 0);
    plug.release();
}

#[test]
fn a_capacity_counts_both_lanes() {
    let queue = queue("full").max_active(1).capacity(2);
    let queue = queue.build_in(&registry("1 core")).unwrap();
    let urgent = queue.urgent().unwrap();
    queue.pause();
    queue.spawn_detached(|| ()).unwrap();
    let waits = urgent.try_spawn(|| ()).unwrap();
    assert!(urgent.try_spawn(|| ()).is_err_and(|error| error.is_full()));
    assert!(queue.try_spawn(|| ()).is_err_and(|error| error.is_full()));
    queue.resume();
    waits.join().unwrap();
}

#[test]
fn delayed_work_and_futures_stay_in_the_lane_of_their_handle() {
    let (queue, order) = (narrow(), Order::default());
    let urgent = queue.urgent().unwrap();
    let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
    let (left, at_last) = (waker.clone(), order.note("future"));
    let mut woken = false;
    let future = urgent.spawn_async(poll_fn(move |context: &mut Context<'_>| {
        if std::mem::replace(&mut woken, true) {
            at_last();
            return Poll::Ready(());
        }
        *left.lock().unwrap() = Some(context.waker().clone());
        Poll::Pending
    }));
    eventually("the future waits", || waker.lock().unwrap().is_some());
    let plug = plug_into(&queue);
    queue.spawn_detached(order.note("o")).unwrap();
    waker.lock().unwrap().take().unwrap().wake();
    let delayed = DelayedWork::new(order.note("delayed"));
    assert!(urgent.enqueue_after(&delayed, Duration::from_millis(1)));
    eventually("its time has come", || queue.stats().nr_inactive == 3);
    plug.release();
    future.join().unwrap();
    queue.drain().unwrap();
    order.is("future delayed o");
}

#[test]
fn the_lane_is_there_on_pools_that_come_later() {
    let registry = registry("2 core");
    let queue = queue("moved")
        .max_active(1)
        .help(false)
        .build_in(&registry)
        .unwrap();
    let (urgent, order) = (queue.urgent().unwrap(), Order::default());
    queue.set_attrs(|attrs| attrs.nice = 3).unwrap();
    let plug = plug_into(&queue);
    queue.spawn_detached(order.note("o")).unwrap();
    urgent.spawn_detached(order.note("U")).unwrap();
    plug.release();
    queue.drain().unwrap();
    order.is("U o");
}

#[test]
fn a_joiner_helps_with_an_urgent_item() {
    let registry = unwatched("1 core");
    let other = queue("other").build_in(&registry).unwrap();
    let keeps_worker = plug_into(&other);
    let queue = queue("helped").build_in(&registry).unwrap();
    let urgent = queue.urgent().unwrap();
    assert_eq!(urgent.spawn(|| 6 * 7).join().unwrap(), 42);
    assert_eq!(queue.stats().helped, 1);
    keeps_worker.release();
}

#[test]
fn a_queue_lives_as_long_as_its_urgent_handle() {
    let queue = narrow();
    let urgent = queue.urgent().unwrap();
    drop(queue);
    let again = urgent.clone();
    drop(urgent);
    assert!(format!("{again:?}").contains("lane: Urgent"));
    assert_eq!(again.spawn(|| 1).join().unwrap(), 1);
}
