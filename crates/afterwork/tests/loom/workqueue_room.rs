//! A queue with a capacity: the first waiter acquires a freed capacity permit, once.

use std::{
    sync::Arc,
    task::{Context, Wake, Waker},
};

use afterwork::workqueue::{
    Work,
    model::{Places, Turn},
};
use sync::{
    atomic::{AtomicBool, AtomicU32, Ordering},
    twin::must_fail,
};

use crate::support::{bounded, exhaustive, machine, plain, spawn, wind_up};

fn full(capacity: usize) -> Arc<Places> {
    let places = Arc::new(Places::new(capacity));
    for _ in 0..capacity {
        assert!(places.try_take());
    }
    places
}

/// A capacity permit is released while one thread waits for it and another tries to acquire it. One
/// of them acquires it at a time, and no thread waits while it is free.
fn one_place() {
    let places = full(1);
    let inside = Arc::new(AtomicBool::new(false));
    let hold = {
        let (places, inside) = (places.clone(), inside.clone());
        move || {
            assert!(!inside.swap(true, Ordering::Relaxed), "one place for two");
            inside.store(false, Ordering::Relaxed);
            places.give_back();
        }
    };
    let waiter = spawn({
        let (places, hold) = (places.clone(), hold.clone());
        move || {
            places.wait();
            hold();
        }
    });
    let comer = spawn({
        let places = places.clone();
        move || {
            if places.try_take() {
                hold();
            }
        }
    });
    assert!(!inside.load(Ordering::Relaxed), "one place for two");
    places.give_back();
    waiter.join().unwrap();
    comer.join().unwrap();
    assert_eq!(places.nr_free(), 1, "as many as there are");
}

/// Two waiters. The first cancels while the permit is released, and the second acquires it.
fn who_leaves() {
    let places = full(1);
    let context = &Context::from_waker(Waker::noop());
    let [first, mut second] = [(); 2].map(|()| {
        let mut turn = Turn::default();
        assert!(!places.poll(&mut turn, context), "all are taken");
        turn
    });
    let giver = spawn({
        let places = places.clone();
        move || places.give_back()
    });
    places.leave(first);
    giver.join().unwrap();
    assert!(places.poll(&mut second, context), "it was let in");
    assert_eq!(places.nr_free(), 0);
    places.give_back();
    assert_eq!(places.nr_free(), 1);
}

struct Bell(AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task polls while the permit is released. It acquires the permit or is woken.
fn a_task() {
    let places = full(1);
    let mut turn = Turn::default();
    let context = &Context::from_waker(Waker::noop());
    assert!(!places.poll(&mut turn, context), "all are taken");
    let giver = spawn({
        let places = places.clone();
        move || places.give_back()
    });
    let bell = Arc::new(Bell(AtomicU32::new(0)));
    let waker = Waker::from(bell.clone());
    let has_place = places.poll(&mut turn, &Context::from_waker(&waker));
    giver.join().unwrap();
    if has_place {
        places.give_back();
    } else {
        assert_eq!(bell.0.load(Ordering::Relaxed), 1, "the task is not woken");
        places.leave(turn);
    }
    assert_eq!(places.nr_free(), 1);
}

/// An item of a queue with capacity 1 is cancelled while a worker reaches it.
fn an_item(ordered: bool) {
    let machine = machine(2, 1);
    let queue = plain().capacity(1);
    let queue = if ordered { queue.ordered() } else { queue };
    let queue = queue.build_in(machine.registry()).unwrap();
    let work = Work::new(|| ());
    assert_eq!(queue.try_enqueue(&work), Ok(true));
    assert_eq!(queue.room(), Some(0));
    machine.start_workers(1);
    let canceller = spawn({
        let work = work.clone();
        move || work.cancel()
    });
    canceller.join().unwrap();
    work.flush().unwrap();
    assert_eq!(queue.room(), Some(1));
    wind_up(queue);
}

/// Cancels a future of a queue with capacity 1, also from another thread if `others`, while a
/// worker may poll it for the first time. Its capacity permit is released once, at once.
fn a_future(worker_first: bool, others: bool) {
    let machine = machine(2, 1);
    let queue = plain().capacity(1).build_in(machine.registry()).unwrap();
    let (mut handle, abort) = queue.spawn_async_abortable(async {});
    assert_eq!(queue.room(), Some(0));
    if worker_first {
        machine.start_workers(1);
    }
    let canceller = others.then(|| spawn(move || abort.abort()));
    let mut is_cancelled = handle.cancel();
    if let Some(canceller) = canceller {
        is_cancelled |= canceller.join().unwrap();
    }
    if !worker_first {
        assert!(is_cancelled && handle.is_finished());
        assert_eq!(queue.room(), Some(1), "no worker has taken it");
        machine.start_workers(1);
    }
    let _ = handle.join();
    assert_eq!(queue.room(), Some(1));
    wind_up(queue);
}

#[test]
fn a_cancelled_future_frees_its_capacity_once() {
    bounded(2, || a_future(true, false));
    bounded(2, || a_future(false, true));
    bounded(1, || a_future(true, true));
}

#[test]
fn a_place_that_comes_free_is_had_once() {
    bounded(3, one_place);
}

#[test]
fn who_leaves_the_line_passes_his_place_on() {
    exhaustive(who_leaves);
}

#[test]
fn a_task_that_waits_for_room_is_woken() {
    exhaustive(a_task);
}

#[test]
fn an_item_gives_its_place_back_once() {
    bounded(2, || an_item(false));
    bounded(1, || an_item(true));
}

#[test]
fn standing_in_line_for_room_needs_a_second_look() {
    must_fail("room: no check after joining", || bounded(3, one_place));
}

#[test]
fn a_giver_that_overlooks_the_line_is_found() {
    must_fail("room: a release overlooks the waiters", || {
        bounded(3, one_place)
    });
}

#[test]
fn a_recount_must_not_read_an_old_count() {
    must_fail("room: a recount reads an old word", || {
        bounded(3, one_place)
    });
}

#[test]
fn a_place_given_twice_is_found() {
    must_fail("room: lets in without room", || bounded(3, one_place));
}

#[test]
fn a_place_that_is_lost_with_its_waiter_is_found() {
    must_fail("room: a waiter that gives up keeps its place", || {
        exhaustive(who_leaves)
    });
}

#[test]
fn a_place_that_a_start_keeps_is_found() {
    must_fail("room: a start keeps its place", || {
        bounded(2, || an_item(false))
    });
}
