//! Reapers: the destructors that they run may wait for anything, including each other.

use crate::support::*;

/// A queue whose only seat is in use, so that no worker reaches items that were cancelled there.
struct Full {
    queue: Workqueue,
    plug: Plug,
}

impl Full {
    fn new(registry: &Registry) -> Self {
        let (queue, plug) = one_seat("full").plugged_on(registry);
        Self { queue, plug }
    }

    /// Queues and cancels items that own the given values, so that a reaper drops the values.
    fn drop_aside(&self, owned: Vec<Box<dyn Send>>) {
        let works = owned.into_iter().map(|owned| {
            let work = Work::new(owning(owned));
            assert!(self.queue.enqueue(&work) && work.cancel());
            work
        });
        drop(works.collect::<Vec<_>>());
        assert_eq!(waiting(&self.queue), 0);
    }
}

#[test]
fn a_destructor_that_waits_delays_no_other_and_no_end() {
    let registry = registry("2 core");
    let (full, go, last) = (Full::new(&registry), Count::default(), Count::default());
    let waits = |_| Box::new(at_drop(move || wait_until(|| go.get() > 0))) as Box<dyn Send>;
    let mut owned: Vec<_> = (0..3).map(waits).collect();
    owned.push(Box::new(at_drop(last.adder())));
    full.drop_aside(owned);
    wait_until(|| last.get() == 1);
    // Nor does it delay the end of a queue.
    let queue = queue("brief").nice(3).on(&registry);
    let plug = plug_of_owner(&queue);
    drop(queue);
    plug.release();
    wait_until(|| registry.pool_stats().iter().all(|pool| pool.nice != 3));
    go.add();
    full.plug.release();
    drop(full);
    shut_down(registry);
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
fn a_destructor_does_not_wait_for_the_end_of_its_own_thread() {
    for on_the_reserve in [false, true] {
        let registry = registry("2 core");
        let full = Full::new(&registry);
        registry.refuse_threads(on_the_reserve);
        let (shut, go, receive) = shuts_down(registry);
        full.drop_aside(vec![Box::new(shut)]);
        full.plug.release();
        drop(full);
        go.send(()).unwrap();
        assert_eq!(receive.recv_timeout(PATIENCE), Ok(false));
    }
    // The same holds for a local of a worker.
    thread_local!(static LOCAL: RefCell<Option<Box<dyn Send>>> = const { RefCell::new(None) });
    let (registry, queue) = queue("local").help(false).on_own(registry("2 core"));
    let (shut, go, receive) = shuts_down(registry);
    let keep = move || LOCAL.set(Some(Box::new(shut)));
    queue.spawn(keep).join().unwrap();
    // The worker exits with its pool.
    drop(queue);
    go.send(()).unwrap();
    assert_eq!(receive.recv_timeout(PATIENCE), Ok(false));
}

/// Creates `nr` values. The destructor of each one calls `begin`, waits for the next destructor,
/// and increments the count when it ends.
fn chain(nr: usize, begin: impl Fn() + Clone + Send + 'static) -> (Vec<Box<dyn Send>>, Count) {
    let (count, mut last) = (Count::default(), None::<Sender<()>>);
    let mut owned: Vec<Box<dyn Send>> = Vec::new();
    for _ in 0..nr {
        let (ends, waits_for) = mpsc::channel::<()>();
        let (ended, begin) = (last.replace(ends), begin.clone());
        // The last destructor does not wait, because its sender is dropped after the loop.
        owned.push(Box::new(at_drop(move || {
            begin();
            _ = waits_for.recv();
            count.add();
            drop(ended);
        })));
    }
    (owned, count)
}

/// Defers `nr` destructors, each of which waits for the next one, in a registry that cannot create
/// threads. Shuts the registry down when the fallback reaper blocks in the first one. From then on,
/// the registry can create threads if `relents` is set.
fn chain_of_destructors_at_the_end(nr: usize, relents: bool) {
    let registry = registry("2 core");
    let full = Full::new(&registry);
    registry.refuse_threads(true);
    let has_begun = Count::default();
    let (owned, count) = chain(nr, move || has_begun.add());
    full.drop_aside(owned);
    wait_until(|| has_begun.get() > 0);
    full.plug.release();
    drop(full);
    registry.refuse_threads(!relents);
    shut_down(registry);
    assert_eq!(count.get(), nr);
}

#[test]
fn destructors_that_wait_for_each_other_end_with_their_registry() {
    (0..10).for_each(|_| chain_of_destructors_at_the_end(5, true));
    // On the fallback reaper, a destructor may wait for the next one.
    chain_of_destructors_at_the_end(2, false);
}

/// Each destructor waits for the next one. Thread creation fails sporadically.
#[test]
fn chains_of_destructors_end_with_their_registry() {
    let mut dice = Dice::new(seed());
    for _ in 0..30 {
        let (registry, queue) = queue("brief").on_own(registry("2 core"));
        queue.pause();
        let nr = 1 + dice.below(10);
        let (owned, count) = chain(nr, || ());
        for owned in owned {
            let work = Work::new(owning(owned));
            assert!(queue.enqueue(&work) && work.cancel());
        }
        queue.close_in_background();
        for i in 0..dice.below(4) {
            registry.refuse_threads(i % 2 == 0);
            thread::yield_now();
        }
        registry.refuse_threads(false);
        if dice.below(2) == 0 {
            shut_down(registry);
            assert_eq!(count.get(), nr);
        } else {
            drop(registry);
            wait_until(|| count.get() == nr);
        }
    }
}

#[test]
fn a_report_handler_does_not_wait_for_the_end_of_the_manager() {
    let registry = tuned("1 core", |it| it.watchdog_thresh_ms = 20);
    let (queue, plug) = queue("stalls").bh().plugged_on(&registry);
    let waits = queue.spawn(|| ());
    let (send, receive) = mpsc::channel();
    let (go, stop) = mpsc::channel();
    let own = Mutex::new(Some((registry.clone(), stop)));
    registry.on_report(move |_| {
        if let Some((own, stop)) = own.lock().unwrap().take() {
            send.send(()).unwrap();
            stop.recv().unwrap();
            drop(own.shutdown());
            send.send(()).unwrap();
        }
    });
    receive.recv_timeout(PATIENCE).expect("no stall is reported");
    plug.release();
    waits.join().unwrap();
    drop((queue, registry));
    go.send(()).unwrap();
    receive.recv_timeout(PATIENCE).expect("it waits for itself");
}

#[test]
fn very_many_queues_end_in_own_items_and_leave_no_thread() {
    in_own_process(|| {
        let registry = registry("2 core");
        for _ in 0..2000 {
            let queue = queue("brief").on(&registry);
            let own = queue.clone();
            queue.detach(move || drop(own));
        }
        shut_down(registry);
        assert!(our_threads().is_empty());
    });
}
