//! Reapers: the destructors that they run may wait for anything, including each other.

use std::{
    cell::RefCell,
    sync::mpsc::{self, Receiver, Sender},
};

use afterwork::{
    params::Params,
    workqueue::{Registry, Work, Workqueue},
};

use crate::support::*;

/// Calls a closure when it is dropped.
struct AtDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for AtDrop<F> {
    fn drop(&mut self) {
        self.0.take().expect("dropped once")();
    }
}

fn at_drop<F: FnOnce()>(func: F) -> AtDrop<F> {
    AtDrop(Some(func))
}

/// A queue whose only seat is in use, so that no worker reaches items that were cancelled there.
struct Full {
    queue: Workqueue,
    plug: Plug,
}

impl Full {
    fn new(registry: &Registry) -> Self {
        let queue = queue("full").max_active(1).help(false);
        let queue = queue.build_in(registry).unwrap();
        let plug = plug_into(&queue);
        Self { queue, plug }
    }

    /// Queues and cancels items that own the given values, so that a reaper drops these.
    fn drop_aside(&self, owned: Vec<Box<dyn Send>>) {
        let works = owned.into_iter().map(|owned| {
            let work = Work::new(move || {
                let _ = &owned;
            });
            assert!(self.queue.enqueue(&work) && work.cancel());
            work
        });
        drop(works.collect::<Vec<_>>());
        assert_eq!(self.queue.stats().nr_inactive, 0);
    }

    fn end(self) {
        self.plug.release();
    }
}

#[test]
fn a_destructor_that_waits_holds_up_none_of_the_others() {
    let full = Full::new(&registry("2 core"));
    let (send, receive) = mpsc::channel();
    let (go, stop) = mpsc::channel::<()>();
    let stop = std::sync::Arc::new(std::sync::Mutex::new(stop));
    let mut owned: Vec<Box<dyn Send>> = Vec::new();
    for _ in 0..3 {
        let stop = stop.clone();
        owned.push(Box::new(at_drop(move || _ = stop.lock().unwrap().recv())));
    }
    owned.push(Box::new(at_drop(move || send.send("last").unwrap())));
    full.drop_aside(owned);
    assert_eq!(receive.recv_timeout(PATIENCE), Ok("last"));
    drop(go);
    full.end();
}

#[test]
fn a_destructor_that_waits_holds_up_no_end_of_a_queue() {
    ends(|| {
        let registry = registry("2 core");
        let full = Full::new(&registry);
        let (go, stop) = mpsc::channel::<()>();
        let waits = at_drop(move || _ = stop.recv());
        full.drop_aside(vec![Box::new(waits)]);
        let queue = queue("brief").nice(3).build_in(&registry).unwrap();
        let (own, (plug, hole)) = (queue.clone(), stopper());
        queue
            .spawn_detached(move || {
                hole.sit();
                drop(own);
            })
            .unwrap();
        plug.wait_until_stuck();
        drop(queue);
        plug.release();
        let has_gone = || registry.pool_stats().iter().all(|pool| pool.nice != 3);
        eventually("the queue has gone", has_gone);
        drop(go);
        full.end();
        shut_down(registry);
    });
}

/// Returns a value whose destructor shuts the registry down, the sender that starts the shutdown,
/// and the receiver of its outcome.
fn shuts_down(registry: Registry) -> (AtDrop<impl FnOnce() + Send>, Sender<()>, Receiver<bool>) {
    let (go, stop) = mpsc::channel();
    let (send, receive) = mpsc::channel();
    let shut = at_drop(move || {
        stop.recv().unwrap();
        send.send(registry.shutdown().is_ok()).unwrap();
    });
    (shut, go, receive)
}

#[test]
fn a_destructor_on_a_reaper_does_not_wait_for_the_end_of_its_reaper() {
    let registry = registry("2 core");
    let full = Full::new(&registry);
    let (shut, go, receive) = shuts_down(registry);
    full.drop_aside(vec![Box::new(shut)]);
    full.end();
    go.send(()).unwrap();
    assert_eq!(receive.recv_timeout(PATIENCE), Ok(false));
}

#[test]
fn a_destructor_on_the_reserve_does_not_wait_for_the_end_of_the_reserve() {
    let registry = registry("2 core");
    let full = Full::new(&registry);
    registry.refuse_threads(true);
    let (shut, go, receive) = shuts_down(registry);
    full.drop_aside(vec![Box::new(shut)]);
    full.end();
    go.send(()).unwrap();
    assert_eq!(receive.recv_timeout(PATIENCE), Ok(false));
}

/// Defers `nr` destructors, each of which waits for the next one, in a registry that cannot create
/// threads. Shuts the registry down when the fallback reaper blocks in the first one. From then on
/// the registry can create threads if `relents`.
fn chain_of_destructors_at_the_end(nr: usize, relents: bool) {
    ends(move || {
        let registry = registry("2 core");
        let full = Full::new(&registry);
        registry.refuse_threads(true);
        let (begun, has_begun) = mpsc::channel();
        let (count, mut previous) = (Count::default(), None::<Sender<()>>);
        let mut owned: Vec<Box<dyn Send>> = Vec::new();
        for _ in 0..nr {
            let (sender, waits_for) = mpsc::channel::<()>();
            let (previous, count, begun) = (previous.replace(sender), count.clone(), begun.clone());
            // The last destructor does not wait, because its sender is dropped after the loop.
            owned.push(Box::new(at_drop(move || {
                begun.send(()).unwrap();
                _ = waits_for.recv();
                count.add();
                drop(previous);
            })));
        }
        drop(previous);
        full.drop_aside(owned);
        has_begun
            .recv_timeout(PATIENCE)
            .expect("the reserve stands in");
        full.end();
        registry.refuse_threads(!relents);
        shut_down(registry);
        assert_eq!(count.get(), nr);
    });
}

#[test]
fn destructors_that_wait_for_each_other_end_with_their_registry() {
    for _ in 0..10 {
        chain_of_destructors_at_the_end(5, true);
    }
}

#[test]
fn a_destructor_on_the_reserve_may_wait_for_the_next_one_at_the_end_of_a_registry_without_threads()
{
    chain_of_destructors_at_the_end(2, false);
}

/// Each destructor waits for the next one. Thread creation fails at times.
#[test]
fn chains_of_destructors_end_whenever_their_registry_goes() {
    ends(|| {
        let mut dice = Dice::new(seed());
        for _ in 0..30 {
            let registry = registry("2 core");
            let queue = queue("brief").build_in(&registry).unwrap();
            queue.pause();
            let (count, mut previous) = (Count::default(), None::<Sender<()>>);
            let nr = 1 + dice.below(10);
            for _ in 0..nr {
                let (sender, waits_for) = mpsc::channel::<()>();
                let (previous, count) = (previous.replace(sender), count.clone());
                let owned = at_drop(move || {
                    _ = waits_for.recv();
                    count.add();
                    drop(previous);
                });
                let work = Work::new(move || {
                    let _ = &owned;
                });
                assert!(queue.enqueue(&work) && work.cancel());
            }
            drop(previous);
            queue.close_in_background();
            for i in 0..dice.below(4) {
                registry.refuse_threads(i % 2 == 0);
                std::thread::yield_now();
            }
            registry.refuse_threads(false);
            if dice.below(2) == 0 {
                shut_down(registry);
                assert_eq!(count.get(), nr);
            } else {
                drop(registry);
                eventually("all are dropped", || count.get() == nr);
            }
        }
    });
}

#[test]
fn a_local_of_a_workers_thread_does_not_wait_for_the_end_of_the_thread() {
    thread_local!(static LOCAL: RefCell<Option<Box<dyn Send>>> = const { RefCell::new(None) });
    let registry = registry("2 core");
    let queue = queue("local").help(false).build_in(&registry).unwrap();
    let (shut, go, receive) = shuts_down(registry);
    queue
        .spawn(move || LOCAL.set(Some(Box::new(shut))))
        .join()
        .unwrap();
    // The worker exits with its pool.
    drop(queue);
    go.send(()).unwrap();
    assert_eq!(receive.recv_timeout(PATIENCE), Ok(false));
}

#[test]
fn a_report_handler_does_not_wait_for_the_end_of_the_manager() {
    let params = Params {
        watchdog_thresh_ms: 20,
        ..Params::default()
    };
    let registry = registry_with("1 core", params);
    let queue = queue("stalls").bh().build_in(&registry).unwrap();
    let (plug, hole) = stopper();
    queue.spawn_detached(move || hole.sit()).unwrap();
    plug.wait_until_stuck();
    let waits = queue.spawn(|| ());
    let (own, (send, receive)) = (
        std::sync::Mutex::new(Some(registry.clone())),
        mpsc::channel(),
    );
    let (go, stop) = mpsc::channel();
    let stop = std::sync::Mutex::new(stop);
    registry.on_report(move |_| {
        if let Some(own) = own.lock().unwrap().take() {
            send.send(()).unwrap();
            stop.lock().unwrap().recv().unwrap();
            drop(own.shutdown());
            send.send(()).unwrap();
        }
    });
    receive.recv_timeout(PATIENCE).expect("no stall is told");
    plug.release();
    waits.join().unwrap();
    drop((queue, registry));
    go.send(()).unwrap();
    receive.recv_timeout(PATIENCE).expect("it waits for itself");
}

#[test]
fn very_many_queues_end_in_items_of_their_own_and_leave_no_thread() {
    in_own_process(
        "reapers::very_many_queues_end_in_items_of_their_own_and_leave_no_thread",
        || {
            let registry = registry("2 core");
            for _ in 0..2000 {
                let queue = queue("brief").build_in(&registry).unwrap();
                let own = queue.clone();
                queue.spawn_detached(move || drop(own)).unwrap();
            }
            shut_down(registry);
            let threads = std::fs::read_dir("/proc/self/task").unwrap();
            let names = threads
                .filter_map(|it| std::fs::read_to_string(it.unwrap().path().join("comm")).ok());
            assert_eq!(names.filter(|name| name.starts_with("aw/")).count(), 0);
        },
    );
}
