//! Many random operations at once, and very many objects: no item is lost, and no memory is leaked.

use std::sync::LazyLock;

use crate::support::*;

/// Joins items nested `depth` deep, every seventh of which panics. Returns the number of nested
/// items above the outermost panic.
fn descend_and_panic(queue: &Workqueue, depth: usize) -> usize {
    if depth == 0 {
        panic!("as documented");
    }
    let deeper = queue.spawn_own(move |own| {
        let nr_good = descend_and_panic(own, depth - 1);
        assert!(!depth.is_multiple_of(7), "as documented");
        nr_good + 1
    });
    deeper.join().unwrap_or(0)
}

#[test]
fn deep_joins_end_though_items_panic_and_threads_fail() {
    for max in [1, 3] {
        let (registry, queue) = queue("deep").max_active(max).on_own(registry("2 core"));
        for refuse in [false, true] {
            registry.refuse_threads(refuse);
            // The last 6 items are outside the outermost panic.
            assert_eq!(descend_and_panic(&queue, 1000), 1000 % 7);
        }
        assert_eq!(queue.drained().nr_active, 0);
    }
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
