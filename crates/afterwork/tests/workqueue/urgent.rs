//! The urgent lane: it overtakes ordinary items, and starves none of them.

use crate::spawn_async::Door;
use crate::support::*;

fn narrow() -> Workqueue {
    one_seat("narrow").on(&registry("1 core"))
}

#[test]
fn an_urgent_item_starts_before_all_ordinary_ones_that_wait() {
    let (queue, order) = (narrow(), Log::default());
    let plug = plug_into(&queue);
    for name in ["a", "b", "c"] {
        queue.detach(order.note(name));
    }
    // The first call of `urgent` also affects items that are already waiting.
    let urgent = queue.urgent().unwrap();
    urgent.detach(order.note("U"));
    queue.detach(order.note("d"));
    urgent.detach(order.note("V"));
    plug.release_and_drain(&queue);
    assert_eq!(order.take().join(" "), "U V a b c d");
}

#[test]
fn urgent_items_overtake_a_local_batch() {
    // Unlike on `narrow`, a worker takes several items at once.
    let queue = queue("hand").max_active(2).help(false).on(&unwatched("1 core"));
    let order = Log::default();
    let (_, plug) = stuck(|hole| {
        let [a, b] = ["a", "b"].map(|name| Work::new(order.note(name)));
        assert_eq!(queue.task().enqueue_all(&[Work::new(move || hole.sit()), a, b]), 3);
    });
    let urgent = queue.urgent().unwrap();
    urgent.detach(order.note("U"));
    plug.release_and_drain(&queue);
    assert_eq!(order.take().join(" "), "U a b");
}

#[test]
fn ordinary_items_get_every_tenth_start() {
    let (queue, order) = (narrow(), Log::default());
    let urgent = queue.urgent().unwrap();
    let plug = plug_into(&queue);
    (0..3).for_each(|_| queue.detach(order.note("o")));
    (0..25).for_each(|_| urgent.detach(order.note("U")));
    plug.release_and_drain(&queue);
    let nine = "U U U U U U U U U";
    assert_eq!(order.take().join(" "), format!("{nine} o {nine} o U U U U U U U o"));
}

#[test]
fn items_of_other_queues_are_overtaken_only_briefly() {
    let [ours, theirs] = [one_seat("ours"), queue("theirs").help(false)].on(&registry("1 core"));
    let (urgent, order) = (ours.urgent().unwrap(), Log::default());
    let plug = plug_into(&ours);
    (0..20).for_each(|_| urgent.detach(order.note("U")));
    let waits = theirs.spawn(order.note("t"));
    plug.release();
    waits.join().unwrap();
    ours.drain().unwrap();
    let at = order.take().iter().position(|name| *name == "t").unwrap();
    assert!(at <= 3, "{at} items preceded it");
}

#[test]
fn an_ordered_queue_has_no_urgent_lane() {
    let queue = queue("ordered").ordered().on(&registry("1 core"));
    let refused = queue.urgent();
    assert!(matches!(refused, Err(BuildError::OrderedUrgent)));
    assert_eq!(refused.unwrap_err().to_string(), "an ordered queue has no urgent lane");
}

#[test]
fn a_pending_item_keeps_its_lane_and_a_cancelled_one_changes_it() {
    let (queue, order) = (narrow(), Log::default());
    let urgent = queue.urgent().unwrap();
    let plug = plug_into(&queue);
    let [kept, hastened, slowed] =
        ["kept", "hastened", "slowed"].map(|name| Work::new(order.note(name)));
    assert!(queue.enqueue(&kept));
    queue.detach(order.note("o"));
    assert!(!urgent.enqueue(&kept), "it is pending");
    // The tombstones of the cancelled items are still on the lists when the items are queued again.
    assert!(queue.enqueue(&hastened) && hastened.cancel() && urgent.enqueue(&hastened));
    assert!(urgent.enqueue(&slowed) && slowed.cancel() && queue.enqueue(&slowed));
    plug.release_and_drain(&queue);
    assert_eq!(order.take().join(" "), "hastened kept o slowed");
}

#[test]
fn drain_flush_and_cancel_all_cover_both_lanes() {
    for builder in [one_seat("narrow"), one_seat("narrow").shares(10)] {
        let queue = builder.on(&registry("1 core"));
        let urgent = queue.urgent().unwrap();
        let (count, never) = (Count::default(), Count::default());
        let queue_both = |count: Count| [&queue, &urgent].map(|to| count.spawn(20, to));
        queue_both(count);
        urgent.flush().unwrap();
        assert_eq!(count.get(), 40);
        queue_both(count);
        assert_eq!(count.after_drain(&queue), 80);
        let plug = plug_into(&queue);
        queue_both(never);
        assert_eq!((waiting(&queue), waiting(&urgent)), (40, 40));
        queue.pause();
        assert_eq!(queue.cancel_all(), 40);
        // Cancelled items do not accumulate.
        for _ in 0..1000 {
            let work = counting(never);
            assert!(urgent.enqueue(&work) && work.cancel());
        }
        assert_eq!(waiting(&queue), 0);
        queue_both(count);
        plug.release();
        queue.resume_and_drain();
        assert_eq!((count.get(), never.get()), (120, 0));
    }
}

#[test]
fn a_capacity_counts_both_lanes() {
    let queue = queue("full").max_active(1).capacity(2).paused();
    let urgent = queue.urgent().unwrap();
    queue.detach(|| ());
    let waits = urgent.try_spawn(|| ()).unwrap();
    assert!(is_full(urgent.try_spawn(|| ())));
    assert!(is_full(queue.try_spawn(|| ())));
    queue.resume();
    waits.join().unwrap();
}

#[test]
fn delayed_work_and_futures_stay_in_the_lane_of_their_handle() {
    let (queue, order) = (narrow(), Log::default());
    let urgent = queue.urgent().unwrap();
    let (door, note) = (Door::default(), order.note("future"));
    let its = door.clone();
    let future = urgent.spawn_async(async move {
        its.await;
        note();
    });
    wait_until(|| door.nr_waiting() == 1);
    let plug = plug_into(&queue);
    queue.detach(order.note("o"));
    door.open();
    let delayed = DelayedWork::new(order.note("delayed"));
    assert!(urgent.enqueue_after(&delayed, MS));
    wait_until(|| waiting(&queue) == 3);
    plug.release();
    future.join().unwrap();
    queue.drain().unwrap();
    assert_eq!(order.take().join(" "), "future delayed o");
}

#[test]
fn the_urgent_lane_exists_on_later_pools_and_for_joiners() {
    let queue = one_seat("moved").alone();
    let (urgent, order) = (queue.urgent().unwrap(), Log::default());
    queue.set_attrs(|attrs| attrs.nice = 3).unwrap();
    let plug = plug_into(&queue);
    queue.detach(order.note("o"));
    urgent.detach(order.note("U"));
    plug.release_and_drain(&queue);
    assert_eq!(order.take().join(" "), "U o");
    let [other, queue] = ["other", "helped"].map(self::queue).on(&unwatched("1 core"));
    let keeps_worker = plug_into(&other);
    assert_eq!(queue.urgent().unwrap().spawn(|| 6 * 7).join().unwrap(), 42);
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
