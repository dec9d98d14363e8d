//! Many random operations at once, and very many objects: no item is lost, and no memory is leaked.

use std::time::Duration;

use afterwork::{
    observe,
    workqueue::{AffinityScope, Builder, DelayedWork, Registry, Work, Workqueue},
};

use crate::support::*;

/// The number of threads that queue and cancel items.
const NR_CANCELLERS: usize = 3;

/// Queues and cancels random items. Returns the number of runs that are due.
fn cancel_by_the_dice(queues: &[Workqueue], count: &Count, rounds: usize, seed: u64) -> usize {
    let mut dice = Dice::new(seed);
    let own: Vec<_> = (0..8).map(|_| counting(count)).collect();
    let mut nr_due = 0;
    for _ in 0..rounds {
        let queue = &queues[dice.below(queues.len())];
        let work = &own[dice.below(own.len())];
        match dice.below(8) {
            0 => nr_due += usize::from(queue.enqueue(work)),
            1..4 => nr_due -= usize::from(work.cancel()),
            4 => {
                let count = count.clone();
                // Rejected during a drain.
                if let Ok(mut handle) = queue.try_spawn(move || count.add()) {
                    nr_due += usize::from(!handle.cancel());
                }
            }
            5 => {
                let work = counting(count);
                nr_due += usize::from(queue.enqueue(&work));
                nr_due -= usize::from(work.cancel());
            }
            6 => {
                let works: Vec<_> = (0..dice.below(40)).map(|_| counting(count)).collect();
                nr_due += queue.enqueue_all(&works);
                nr_due -= works.iter().filter(|work| work.cancel()).count();
            }
            _ => {
                nr_due += usize::from(queue.enqueue(work));
                nr_due -= usize::from(work.cancel());
            }
        }
    }
    nr_due
}

/// Pauses, drains and changes random queues. Each pause is followed by a resume.
fn change_by_the_dice(queues: &[Workqueue], rounds: usize, seed: u64) {
    let mut dice = Dice::new(seed);
    for _ in 0..rounds {
        let queue = &queues[dice.below(queues.len())];
        match dice.below(9) {
            0 => {
                queue.pause();
                std::thread::yield_now();
                queue.resume();
            }
            1 => drop(queue.set_max_active(1 + dice.below(3) as u32)),
            2 => drop(queue.set_attrs(|attrs| attrs.affinity = AffinityScope::Cpu)),
            3 => drop(queue.set_attrs(|attrs| attrs.affinity = AffinityScope::System)),
            4 => drop(queue.set_attrs(|attrs| attrs.nice = dice.below(3) as i8)),
            5 => queue.flush().unwrap(),
            6 => assert!(queue.stats().nr_active <= 600),
            7 => queue.drain().unwrap(),
            _ => drop(queue.report().wait),
        }
    }
}

#[test]
fn items_are_taken_back_while_their_queues_pause_drain_and_change() {
    let seed = seed();
    ends(move || {
        let registry = registry("4 core");
        let build = |builder: Builder| builder.build_in(&registry).unwrap();
        let queues = [
            build(queue("one").max_active(1)),
            build(queue("ordered").ordered()),
            build(queue("plain")),
            build(queue("alone").help(false).affinity(AffinityScope::Cpu)),
        ];
        let count = Count::default();
        let nr_due = std::sync::atomic::AtomicUsize::new(0);
        threads(NR_CANCELLERS + 2, |i| {
            let seed = seed.wrapping_add(i as u64 * 7919);
            if i < NR_CANCELLERS {
                let due = cancel_by_the_dice(&queues, &count, 4000, seed);
                nr_due.fetch_add(due, std::sync::atomic::Ordering::SeqCst);
            } else {
                change_by_the_dice(&queues, 600, seed);
            }
        });
        for queue in &queues {
            queue.drain().unwrap();
            let stats = queue.stats();
            assert_eq!((stats.nr_active, stats.nr_inactive), (0, 0));
        }
        assert_eq!(count.get(), nr_due.into_inner());
        assert!(
            registry
                .pool_stats()
                .iter()
                .all(|pool| pool.nr_pending == 0)
        );
    });
}

/// Joins items nested `depth` deep, every seventh of which panics. Returns the number of nested
/// items above the outermost panic.
fn descend_and_panic(queue: &Workqueue, depth: usize) -> usize {
    if depth == 0 {
        panic!("as told");
    }
    let inner = queue.clone();
    let deeper = queue.spawn(move || {
        let nr_good = descend_and_panic(&inner, depth - 1);
        assert!(!depth.is_multiple_of(7), "as told");
        nr_good + 1
    });
    deeper.join().unwrap_or(0)
}

#[test]
fn deep_joins_end_though_items_panic_and_threads_are_refused() {
    for max in [1, 3] {
        ends(move || {
            let registry = registry("2 core");
            let queue = queue("deep").max_active(max).build_in(&registry).unwrap();
            for refuse in [false, true] {
                registry.refuse_threads(refuse);
                // The last 6 items are outside the outermost panic.
                assert_eq!(descend_and_panic(&queue, 1000), 1000 % 7);
            }
            queue.drain().unwrap();
            assert_eq!(queue.stats().nr_active, 0);
        });
    }
}

/// Creates and drops a number of objects of one kind.
type Makes = fn(&Workqueue, usize);

#[test]
fn dropped_objects_leave_no_memory_behind() {
    let test = "storms::dropped_objects_leave_no_memory_behind";
    in_own_process(test, || {
        let registry = registry("2 core");
        let idle = queue("idle").build_in(&registry).unwrap();
        let full = queue("full").max_active(1).help(false);
        let full = full.build_in(&registry).unwrap();
        let plug = plug_into(&full);
        let kinds: [(&str, &Workqueue, Makes); 9] = [
            ("items", &idle, |queue, count| {
                (0..count).for_each(|_| assert!(queue.enqueue(&Work::new(|| ()))));
            }),
            ("items that never ran", &idle, |_, count| {
                (0..count).for_each(|_| drop(Work::new(|| ())));
            }),
            ("delayed items", &idle, |queue, count| {
                let hour = Duration::from_secs(3600);
                for _ in 0..count {
                    let work = DelayedWork::new(|| ());
                    assert!(queue.enqueue_after(&work, hour) && work.cancel());
                }
            }),
            ("joins", &idle, |queue, count| {
                (0..count).for_each(|i| assert_eq!(queue.spawn(move || i).join().unwrap(), i));
            }),
            ("handles that are dropped", &idle, |queue, count| {
                (0..count).for_each(|i| drop(queue.spawn(move || i)));
            }),
            ("futures", &idle, |queue, count| {
                (0..count).for_each(|i| {
                    assert_eq!(queue.spawn_async(async move { i }).join().unwrap(), i)
                });
            }),
            ("futures that are cancelled", &idle, |queue, count| {
                for _ in 0..count {
                    assert!(queue.spawn_async(std::future::pending::<()>()).cancel());
                }
            }),
            ("items that are cancelled", &full, |queue, count| {
                for i in 0..count {
                    let work = Work::new(|| ());
                    assert!(queue.enqueue(&work) && work.cancel());
                    assert!(queue.spawn(move || i).cancel());
                }
            }),
            ("flushes and clones", &idle, |queue, count| {
                (0..count).for_each(|_| queue.clone().flush().unwrap());
            }),
        ];
        for (what, queue, makes) in kinds {
            let settle = || idle.drain().unwrap();
            // The first round creates what is cached for later.
            makes(queue, 10_000);
            settle();
            // A leak of 40 bytes for each of the 40,000 would be 1600 KiB.
            leaves_less_than(1024, what, || {
                for _ in 0..4 {
                    makes(queue, 10_000);
                    settle();
                }
            });
        }
        plug.release();
        full.drain().unwrap();
    });
}

/// Uses queues of one kind on a registry.
type Uses = fn(&Registry, usize);

#[test]
fn queues_that_are_made_and_dropped_leave_no_memory_behind() {
    let test = "storms::queues_that_are_made_and_dropped_leave_no_memory_behind";
    in_own_process(test, || {
        let registry = registry("2 core");
        let _keeps_pool = queue("keeps").build_in(&registry).unwrap();
        fn brief(builder: Builder, registry: &Registry) {
            builder
                .build_in(registry)
                .unwrap()
                .spawn_detached(|| ())
                .unwrap();
        }
        // The number of queues per round. Kinds that own a thread have fewer.
        let kinds: [(&str, usize, Uses); 7] = [
            ("queues", 2000, |registry, _| {
                brief(queue("short").max_active(2), registry);
            }),
            ("ordered queues", 1000, |registry, _| {
                brief(queue("line").ordered(), registry)
            }),
            ("queues with a rescuer", 300, |registry, _| {
                brief(queue("rescued").with_rescuer(), registry);
            }),
            ("queues with a pool of their own", 200, |registry, nth| {
                brief(queue("alone").nice(1 + (nth % 19) as i8), registry);
            }),
            ("queues that change", 100, |registry, nth| {
                let queue = queue("changes").build_in(registry).unwrap();
                for nice in 0..10 {
                    queue
                        .set_attrs(|attrs| attrs.nice = (nice + (nth % 2) as i8) % 2)
                        .unwrap();
                    queue.spawn_detached(|| ()).unwrap();
                }
            }),
            (
                "queues whose last handle goes in an item",
                300,
                |registry, _| {
                    let queue = queue("own").build_in(registry).unwrap();
                    let own = queue.clone();
                    queue.spawn_detached(move || drop(own)).unwrap();
                },
            ),
            (
                "items that nobody has when their time comes",
                500,
                |registry, _| {
                    let queue = queue("timed").build_in(registry).unwrap();
                    for delay_us in 1..10 {
                        let work = DelayedWork::new(|| ());
                        queue.enqueue_after(&work, Duration::from_micros(delay_us));
                    }
                },
            ),
        ];
        let is_alone = || {
            let now = observe::snapshot_of(&registry);
            now.queues.len() == 1 && now.pools.len() == 1
        };
        for (what, count, uses) in kinds {
            let makes = |count| {
                (0..count).for_each(|nth| uses(&registry, nth));
                eventually("all queues have gone", is_alone);
            };
            makes(count);
            // The limit allows for some thread stacks.
            leaves_less_than(2048, what, || {
                makes(4 * count);
                eventually("their threads have gone", || nr_threads() <= 12);
            });
        }
    });
}

#[test]
fn registries_that_are_made_and_shut_down_leave_no_memory_behind() {
    let test = "storms::registries_that_are_made_and_shut_down_leave_no_memory_behind";
    in_own_process(test, || {
        let makes = |count| {
            for _ in 0..count {
                let registry = registry("2 core");
                let queue = queue("brief").build_in(&registry).unwrap();
                queue.spawn(|| ()).join().unwrap();
                drop(queue);
                shut_down(registry);
            }
        };
        makes(50);
        leaves_less_than(1024, "registries", || makes(200));
        eventually("no thread is left", || nr_threads() <= 2);
    });
}
