//! Drains, drops and shutdowns, and the threads and the memory that remain after them.

use std::sync::LazyLock;

use crate::flush::{joined_item, waits_for_all_items};
use crate::support::*;

#[test]
fn drain_waits_for_all_that_is_queued_and_running() {
    let queue = queue("drain").affinity(Cpu).on(&registry("64 core"));
    queue.drain().unwrap();
    waits_for_all_items(&queue, Workqueue::drain);
}

#[test]
fn drain_waits_for_items_that_items_queue() {
    let queue = queue("chained").affinity(Cpu).on(&registry("64 core"));
    for _ in 0..300 {
        let (again, runs) = (queue.clone(), Count::default());
        // The item moves from pod to pod, so a scan of one pod after the other may miss it.
        queue.enqueue(&Work::with_handle(move |this| {
            runs.add();
            if runs.get() < 20 {
                pin(runs.get());
                again.enqueue(this);
            }
        }));
        assert_eq!(runs.after_drain(&queue), 20);
    }
}

#[test]
fn drain_counts_helpers() {
    let queue = queue("drain").alone();
    for _ in 0..300 {
        let (plug, joiner, _) = joined_item(&queue);
        let drainer = beside(&queue, |queue| queue.drain().unwrap());
        assert!(!drainer.is_finished());
        plug.release_and_join(drainer);
        joiner.join().unwrap();
    }
}

#[test]
fn draining_a_queue_from_an_item_that_its_item_helps_fails() {
    let registry = registry("2 core");
    let [queue, other] = ["own", "other"].map(|name| queue(name).max_active(1).on(&registry));
    let drained = queue.spawn_own(|own| {
        // This item holds the only seat, so no worker can run the item that is queued here.
        let inner = own.spawn_own(move |own| {
            other.spawn(|| ()).join().unwrap();
            own.drain()
        });
        inner.join().unwrap()
    });
    assert!(drained.join().unwrap().is_err());
}

#[test]
fn dropping_the_last_handle_waits_for_all_items() {
    let (registry, count) = (registry("2 core"), Count::default());
    for round in 1..100 {
        count.spawn(100, &queue("dropped").on(&registry));
        assert_eq!(count.get(), round * 100);
    }
    assert!(registry.pool_stats().is_empty());
}

/// Calls `start` with 200 queues in turn and a census, drops the handle of the queue while one of
/// its items blocks, and checks that what the item owns is dropped.
fn last_handles(start: impl Fn(usize, &Workqueue, Census, Hole)) {
    let (registry, census) = (registry("2 core"), Census::default());
    for i in 0..200 {
        let queue = queue("inside").on(&registry);
        let (_, plug) = stuck(|hole| start(i, &queue, census, hole));
        drop(queue);
        plug.release();
        census.all_dropped(i + 1);
    }
    wait_until(|| registry.pool_stats().is_empty());
    shut_down(registry);
}

#[test]
fn the_last_handle_may_be_dropped_inside_an_item() {
    last_handles(|i, queue, census, hole| {
        let mut owned = Some((queue.clone(), census.life()));
        let ends = move || {
            hole.sit();
            drop(owned.take());
        };
        match i % 3 {
            0 => queue.detach(ends),
            1 => drop(queue.spawn(ends)),
            _ => _ = queue.enqueue(&Work::new(ends)),
        }
    });
}

#[test]
fn the_last_handle_may_be_dropped_with_a_closure_or_a_result() {
    last_handles(|i, queue, census, hole| {
        let owned = (queue.clone(), census.life());
        match i % 3 {
            0 => queue.detach(keeping(owned, move || hole.sit())),
            1 => _ = queue.enqueue(&Work::new(keeping(owned, move || hole.sit()))),
            _ => drop(queue.spawn(move || {
                hole.sit();
                owned
            })),
        }
    });
}

#[test]
fn the_last_handle_may_be_dropped_by_an_item_of_another_queue() {
    let registry = registry("2 core");
    let (other, count) = (queue("other").on(&registry), Count::default());
    for _ in 0..100 {
        let queue = queue("mine").on(&registry);
        count.spawn(20, &queue);
        other.detach(move || drop(queue));
    }
    assert_eq!(count.after_drain(&other), 2000);
    drop(other);
    shut_down(registry);
}

#[test]
fn shutdown_is_rejected_while_the_registry_is_in_use() {
    let registry = registry("2 core");
    let (queue, clone) = (queue("user").on(&registry), registry.clone());
    let error = registry.shutdown().unwrap_err();
    assert_eq!(error.nr_users, 2);
    assert_eq!(error.to_string(), "2 queues or clones still use the registry");
    drop(clone);
    queue.spawn(|| ()).join().unwrap();
    let error = error.registry.shutdown().unwrap_err();
    assert_eq!(error.nr_users, 1);
    drop(queue);
    error.registry.shutdown().unwrap();
}

#[test]
fn no_thread_is_left_after_shutdown() {
    in_own_process(|| {
        for round in 0..100 {
            let registry = registry("4 core");
            for queue in [Cpu, System].map(|scope| queue("threads").affinity(scope).on(&registry)) {
                (0..50).for_each(|_| queue.detach(|| ()));
                if round % 2 == 0 {
                    queue.drain().unwrap();
                }
                // The join may return before the requested worker exists.
                queue.spawn(|| ()).join().unwrap();
            }
            registry.shutdown().unwrap();
            // The kernel wakes a joiner before it removes the thread from its list.
            wait_until(|| our_threads().is_empty());
        }
        // A registry that is dropped without a shutdown ends its threads, too.
        for _ in 0..20 {
            let queue = queue("only").on(&registry("2 core"));
            queue.spawn(|| ()).join().unwrap();
            queue.detach(|| ());
        }
        wait_until(|| our_threads().is_empty());
    });
}

#[test]
fn many_queues_own_no_thread_until_used_and_then_share_pools() {
    in_own_process(|| {
        let registry = registry("8 core");
        let queues: Vec<_> = (0..1000).map(|_| queue("one of many").on(&registry)).collect();
        wait_until(|| our_threads() == ["aw/rescuer", "aw/reserve", "aw/manager"]);
        assert_eq!(registry.pool_stats().len(), 1);
        let count = Count::default();
        queues.iter().for_each(|queue| queue.detach(count.adder()));
        for queue in &queues {
            assert_eq!(queue.drained().started, 1);
        }
        assert_eq!(count.get(), 1000);
        let nr_threads = our_threads().len();
        assert!(nr_threads <= 3 + 8 + 8, "{nr_threads} threads for 8 CPUs");
        drop(queues);
        registry.shutdown().unwrap();
    });
}

#[test]
fn a_thread_may_wait_for_items_while_it_exits() {
    in_own_process(|| {
        for help in [true, false] {
            let (send, receive) = mpsc::channel();
            let at_exit = move |queue: Workqueue| {
                let work = Work::new(|| ());
                queue.enqueue(&work);
                work.flush().unwrap();
                let result = queue.spawn(|| 5).join().unwrap();
                queue.drain().unwrap();
                send.send(result).unwrap();
            };
            let exits = beside(&queue("late").help(help).alone(), move |queue| {
                // The first local of the thread is destroyed last.
                let own = queue.clone();
                drop_at_exit(at_drop(move || at_exit(own)));
                queue.spawn(|| ()).join().unwrap();
                queue.drain().unwrap();
            });
            exits.join().unwrap();
            assert_eq!(receive.recv_timeout(PATIENCE), Ok(5));
        }
    });
}

#[test]
fn threads_that_wait_for_a_drain_are_woken_by_the_last_item() {
    let (queue, plug) = queue("drain").plugged();
    let drainers = [(); 4].map(|()| beside(&queue, |queue| queue.drain().unwrap()));
    // Gives the drainers time to fall asleep. The test passes without this sleep.
    thread::sleep(5 * MS);
    assert!(drainers.iter().all(|drainer| !drainer.is_finished()));
    plug.release();
    drainers.into_iter().for_each(|it| it.join().unwrap());
}

/// Returns the CPU time to create and drop one queue, while `nr_queues` queues exist.
fn ns_per_queue(registry: &Registry, nr_queues: u32) -> u64 {
    let cpu_ns = || sync::usage::cpu_ns(sync::thread::current()).unwrap();
    let start = cpu_ns();
    let mut first = Vec::from_iter((0..nr_queues).map(|_| queue("one of many").on(registry)));
    // Drops the second half from the end and the first half from the start.
    let last = first.split_off(first.len() / 2);
    last.into_iter().rev().for_each(drop);
    first.into_iter().for_each(drop);
    (cpu_ns() - start) / u64::from(nr_queues)
}

#[test]
fn the_cost_of_a_queue_does_not_grow_with_their_number() {
    let registry = registry("2 core");
    let [_, few, many] = [100, 2000, 32_000].map(|nr| ns_per_queue(&registry, nr));
    assert!(many < 4 * few, "{few} ns each of 2000, {many} of 32000");
}

type Makes = fn(&Workqueue);

#[test]
fn objects_that_are_dropped_leave_no_memory_behind() {
    in_own_process(|| {
        let [idle, full] = [queue("idle"), one_seat("full")].on(&registry("2 core"));
        let plug = plug_into(&full);
        let kinds: [(&str, &Workqueue, Makes); 11] = [
            ("items", &idle, |queue| assert!(queue.enqueue(&Work::new(|| ())))),
            ("items that never ran", &idle, |_| drop(Work::new(|| ()))),
            ("delayed items", &idle, |queue| {
                let work = DelayedWork::new(|| ());
                assert!(queue.enqueue_after(&work, HOUR) && work.cancel());
            }),
            ("joins", &idle, |queue| assert_eq!(queue.spawn(|| 7).join().unwrap(), 7)),
            ("handles that are dropped", &idle, |queue| drop(queue.spawn(|| 7))),
            ("futures", &idle, |queue| {
                assert_eq!(queue.spawn_async(async { 7 }).join().unwrap(), 7);
            }),
            ("futures that are cancelled", &idle, |queue| {
                assert!(queue.spawn_async(pending::<()>()).cancel());
            }),
            ("items that are cancelled", &full, |queue| {
                let work = Work::new(|| ());
                assert!(queue.enqueue(&work) && work.cancel());
                assert!(queue.spawn(|| 7).cancel());
            }),
            ("flushes and clones", &idle, |queue| queue.clone().flush().unwrap()),
            ("mailboxes", &idle, |_| {
                let mut mailbox = Mailbox::builder().name("brief").build();
                let (poster, other) = (mailbox.poster(), mailbox.poster());
                for number in 0..5 {
                    poster.post(number).unwrap();
                    other.clone().post(number).unwrap();
                }
                assert_eq!(mailbox.drain(7).count(), 7);
                mailbox.close();
            }),
            ("posters", &idle, |_| {
                static KEPT: LazyLock<Mutex<Mailbox<u32>>> = LazyLock::new(Mutex::default);
                let mut mailbox = KEPT.lock().unwrap();
                mailbox.poster().post(7).unwrap();
                assert_eq!(mailbox.try_recv(), Ok(7));
            }),
        ];
        for (name, queue, makes) in kinds {
            // A leak of 40 bytes for each of them would be 1600 KiB.
            retains_less_than(1024, name, || {
                (0..40_000).for_each(|_| makes(queue));
                idle.drain().unwrap();
            });
        }
        plug.release_and_drain(&full);
    });
}

type Uses = fn(&Registry, usize);

#[test]
fn queues_that_are_dropped_leave_no_memory_behind() {
    in_own_process(|| {
        let (registry, _keeps_pool) = queue("keeps").on_own(registry("2 core"));
        fn brief(builder: Builder, registry: &Registry) {
            builder.on(registry).detach(|| ());
        }
        // The number of queues. Kinds that own a thread have fewer.
        let kinds: [(&str, usize, Uses); 7] = [
            ("queues", 8000, |registry, _| {
                brief(queue("short").max_active(2), registry);
            }),
            ("ordered queues", 4000, |registry, _| brief(queue("line").ordered(), registry)),
            ("queues with a rescuer", 1200, |registry, _| {
                brief(queue("rescued").with_rescuer(), registry);
            }),
            ("queues with a pool of their own", 800, |registry, nth| {
                brief(queue("alone").nice(1 + (nth % 19) as i8), registry);
            }),
            ("queues that change", 400, |registry, nth| {
                let queue = queue("changes").on(registry);
                for nice in 0..10 {
                    queue.set_attrs(|attrs| attrs.nice = (nice + (nth % 2) as i8) % 2).unwrap();
                    queue.detach(|| ());
                }
            }),
            ("queues that end in an item", 1200, |registry, _| {
                drop(queue("own").on(registry).spawn_own(|_| ()));
            }),
            ("timed items without handles", 2000, |registry, _| {
                let queue = queue("timed").on(registry);
                for delay_us in 1..10 {
                    let work = DelayedWork::new(|| ());
                    queue.enqueue_after(&work, Duration::from_micros(delay_us));
                }
            }),
        ];
        let is_alone = || {
            let now = snapshot_of(&registry);
            now.queues.len() == 1 && now.pools.len() == 1
        };
        for (name, count, uses) in kinds {
            // The limit allows for a few thread stacks.
            retains_less_than(2048, name, || {
                (0..count).for_each(|nth| uses(&registry, nth));
                wait_until(|| is_alone() && nr_threads() <= 12);
            });
        }
    });
}

#[test]
fn registries_that_are_shut_down_leave_no_memory_behind() {
    in_own_process(|| {
        retains_less_than(1024, "registries", || {
            for _ in 0..200 {
                let (registry, queue) = queue("brief").on_own(registry("2 core"));
                queue.spawn(|| ()).join().unwrap();
                drop(queue);
                shut_down(registry);
            }
        });
        wait_until(|| nr_threads() <= 2);
    });
}
