//! Items that wait for items.

use crate::support::*;

fn fib(queue: &Workqueue, n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (left, right) = (queue.clone(), queue.clone());
    let left = queue.spawn(move || fib(&left, n - 1));
    let right = queue.spawn(move || fib(&right, n - 2));
    left.join().unwrap() + right.join().unwrap()
}

#[test]
fn nested_items_end_under_any_limit_without_outer_joiner() {
    for max in [1, 2, 3] {
        let queue = queue("fib").max_active(max).alone();
        assert_eq!(queue.in_worker(|own| fib(own, 11)), 89);
        queue.drain().unwrap();
    }
}

#[test]
fn a_limit_of_one_holds_for_threads_while_items_nest() {
    let queue = queue("nest").max_active(1).alone();
    let inner = |own: &Workqueue| own.stats().nr_active;
    assert_eq!(queue.spawn_own(move |own| own.spawn_own(inner).join().unwrap()).join().unwrap(), 1);
    assert_eq!(queue.drained().nr_active, 0);
}

#[test]
fn nested_items_of_two_queues_in_turn_end() {
    /// Returns the depth that the calls reached.
    fn dive(here: &Workqueue, there: &Workqueue, depth: u32) -> u32 {
        if depth == 0 {
            return 0;
        }
        let (a, b) = (here.clone(), there.clone());
        let joiner = thread::current().id();
        let inner = there.spawn(move || {
            // If a worker runs the item, it has no seat for the inner items.
            let helped = thread::current().id() == joiner;
            1 + if helped { dive(&b, &a, depth - 1) } else { 0 }
        });
        inner.join().unwrap()
    }
    let registry = registry("2 core");
    let [first, second] = ["first", "second"].map(|it| queue(it).max_active(1).on(&registry));
    while dive(&first, &second, 40) < 40 {}
    first.drain().unwrap();
    second.drain().unwrap();
}

#[test]
fn nested_items_end_without_help_while_there_are_seats() {
    for scope in [System, Cpu] {
        let queue = queue("fib").help(false).affinity(scope).max_active(512).alone();
        assert_eq!(queue.spawn_own(|own| fib(own, 8)).join().unwrap(), 21);
        assert_eq!(queue.stats().helped, 0);
    }
    // The monitor does not run, so only reports from joiners can start more workers.
    let queue = queue("report").help(false).on(&unwatched("1 core"));
    assert_eq!(queue.spawn_own(|own| fib(own, 6)).join().unwrap(), 8);
}

pub fn descend(queue: &Workqueue, depth: usize) -> usize {
    if depth == 0 {
        return 0;
    }
    let inner = queue.clone();
    let deeper = queue.spawn(move || descend(&inner, depth - 1));
    deeper.join().unwrap() + 1
}

#[test]
fn a_deep_chain_of_joins_ends() {
    assert_eq!(descend(&queue("deep").alone(), 300), 300);
    assert_eq!(descend(&queue("deep").help(false).alone(), 60), 60);
    for max in [1, 2, 16] {
        assert_eq!(descend(&queue("deep").max_active(max).alone(), 10_000), 10_000);
    }
}

#[test]
fn a_panic_climbs_through_nested_joins() {
    let queue = queue("climb").alone();
    let outer = queue.spawn_own(|own| {
        let Err(error) = own.spawn(|| panic!("deep down")).join();
        error.resume_unwind();
    });
    let error = outer.join().unwrap_err();
    assert!(matches!(error, JoinError::Panicked(_)));
    assert_eq!(error.to_string(), "the work item panicked: deep down");
    assert_eq!(queue.drained().panicked, 2);
}

#[test]
fn an_item_may_flush_and_cancel_items_of_other_queues() {
    let [outer, inner] = ["outer", "inner"].map(queue).on(&registry("2 core"));
    let count = Count::default();
    let handles = [(); 50].map(|()| {
        let (inner, work) = (inner.clone(), counting(count));
        outer.spawn(move || {
            inner.enqueue(&work);
            work.flush().unwrap();
            inner.enqueue(&work);
            inner.flush().unwrap();
            inner.enqueue(&work);
            work.cancel_sync();
            assert!(!work.is_busy());
        })
    });
    handles.into_iter().for_each(|it| it.join().unwrap());
    assert!(count.get() >= 100);
}

#[test]
fn thread_locals_of_a_deep_join_are_dropped_outside_all_items() {
    thread_local!(static LOCAL: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) });
    fn dive(queue: &Workqueue, depth: u32, bottom: Box<dyn FnOnce() + Send>) {
        let inner = queue.clone();
        let deeper = queue.spawn(move || match depth {
            0 => bottom(),
            _ => dive(&inner, depth - 1, bottom),
        });
        deeper.join().unwrap();
    }
    // No other worker replaces the blocked one, so joiners help at every level.
    let [other, queue] = ["other", "deep"].map(queue).on(&unwatched("1 core"));
    let plug = plug_into(&other);
    let (send, drained) = mpsc::channel();
    let (may_go, theirs) = (Count::default(), queue.clone());
    let at_exit = at_drop(move || {
        wait_until(|| may_go.get() > 0);
        send.send(theirs.drain()).unwrap();
    });
    dive(&queue, 200, Box::new(|| LOCAL.set(Some(Box::new(at_exit)))));
    plug.release();
    may_go.add();
    assert_eq!(drained.recv_timeout(PATIENCE / 2), Ok(Ok(())));
}
