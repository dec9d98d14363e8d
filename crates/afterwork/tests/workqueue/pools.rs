//! Workers: their CPUs, their number, and when they start and exit.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
};

use afterwork::{
    params::{Params, WakeMode},
    workqueue::{AffinityScope, JoinHandle, PoolStats, Registry, Workqueue},
};
use topology::{CpuSet, Topology};

use crate::support::*;

fn here(params: Params) -> Registry {
    Registry::new(Topology::detect().unwrap(), params).unwrap()
}

fn only_pool(registry: &Registry) -> PoolStats {
    let mut pools = registry.pool_stats();
    assert_eq!(pools.len(), 1);
    pools.remove(0)
}

/// Runs `body` on a worker, never on a helper.
fn in_worker<T: Send + 'static>(queue: &Workqueue, body: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    queue
        .spawn_detached(move || drop(send.send(body())))
        .unwrap();
    receive.recv_timeout(PATIENCE).expect("no worker ran it")
}

fn affinity() -> CpuSet {
    sync::cpu::affinity().unwrap()
}

#[test]
fn workers_run_on_the_cpus_of_their_pod() {
    for strict in [false, true] {
        let registry = here(Params::default());
        let queue = queue("pods").affinity(AffinityScope::Cpu).strict(strict);
        let queue = queue.build_in(&registry).unwrap();
        let allowed = affinity();
        threads(allowed.len(), |i| {
            pin(i);
            let mine = affinity();
            let seen = in_worker(&queue, affinity);
            // On a loaded machine, a worker of a queue that is not strict may run on another CPU.
            assert!(
                seen == mine || !strict && seen == allowed,
                "{seen} for {mine}"
            );
        });
        for pool in registry.pool_stats() {
            assert_eq!((pool.cpus.len(), pool.strict), (1, strict));
        }
    }
}

#[test]
fn a_strict_worker_stays_at_home_whatever_happens() {
    let registry = here(Params::default());
    let queue = queue("strict")
        .affinity(AffinityScope::Cpu)
        .strict(true)
        .build_in(&registry)
        .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(0);
            let mine = affinity();
            let plugs: Vec<_> = (0..4).map(|_| plug_into(&queue)).collect();
            eventually("they are seen asleep", || {
                queue.spawn_detached(|| ()).unwrap();
                registry
                    .pool_stats()
                    .iter()
                    .any(|pool| pool.seen_asleep > 0)
            });
            assert_eq!(in_worker(&queue, affinity), mine);
            plugs.iter().for_each(Plug::release);
            queue.drain().unwrap();
            let nr_repatriated: u64 = registry
                .pool_stats()
                .iter()
                .map(|pool| pool.repatriated)
                .sum();
            assert_eq!(nr_repatriated, 0);
        });
    });
}

#[test]
fn a_loose_worker_that_its_cpu_starves_is_let_go_and_comes_home() {
    if affinity().len() < 2 {
        return;
    }
    ends(|| {
        let registry = here(Params::default());
        // With this nice value, the worker rarely gets its CPU, which other threads keep busy.
        let queue = queue("loose").affinity(AffinityScope::Cpu).nice(19);
        let queue = queue.build_in(&registry).unwrap();
        let allowed = affinity();
        pin(0);
        let mine = affinity();
        let let_go = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !let_go.load(Ordering::Relaxed) {
                        std::hint::spin_loop()
                    }
                });
            }
            let items: Vec<_> = (0..3)
                .map(|_| {
                    let allowed = allowed.clone();
                    queue.spawn(move || while affinity() != allowed {})
                })
                .collect();
            // They are not joined, because a join would run an item on this thread.
            eventually("they are let go", || {
                items.iter().all(JoinHandle::is_finished)
            });
            let_go.store(true, Ordering::Relaxed);
        });
        eventually("items run at home again", || {
            in_worker(&queue, affinity) == mine
        });
        let stats = registry.pool_stats();
        assert!(stats.iter().any(|pool| pool.repatriated > 0));
    });
}

/// The nice value of this thread, from the 19th field of its stat line.
fn nice() -> i8 {
    let stat = fs::read_to_string(format!(
        "/proc/self/task/{}/stat",
        sync::thread::current().0
    ))
    .unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    after_name.split(' ').nth(16).unwrap().parse().unwrap()
}

#[test]
fn workers_have_the_nice_value_of_their_queue() {
    let registry = registry("2 core");
    let before = nice();
    for wanted in [before + 1, 15, 19] {
        let queue = queue("nice").nice(wanted).build_in(&registry).unwrap();
        for _ in 0..3 {
            assert_eq!(in_worker(&queue, nice), wanted);
        }
        assert_eq!(only_pool(&registry).nice, wanted);
    }
    assert_eq!(nice(), before);
    if sync::thread::may_set_nice(-5).is_ok() {
        let queue = queue("nice").nice(-5).build_in(&registry).unwrap();
        assert_eq!(in_worker(&queue, nice), -5);
    }
}

#[test]
fn queues_with_unlike_attributes_have_pools_of_their_own() {
    let registry = registry("2 numa x 2 llc x 4 core x 2 smt");
    let build = |scope| queue("q").affinity(scope).build_in(&registry).unwrap();
    let count = || registry.pool_stats().len();
    let system = build(AffinityScope::System);
    assert_eq!(count(), 1);
    let again = build(AffinityScope::System);
    assert_eq!(count(), 1);
    let numa = build(AffinityScope::Numa);
    assert_eq!(count(), 1 + 2);
    let cache = build(AffinityScope::Cache);
    assert_eq!(count(), 1 + 2 + 4);
    let smt = build(AffinityScope::Smt);
    assert_eq!(count(), 1 + 2 + 4 + 16);
    let strict = queue("q")
        .affinity(AffinityScope::Numa)
        .strict(true)
        .build_in(&registry)
        .unwrap();
    assert_eq!(count(), 1 + 2 + 4 + 16 + 2);
    let nice = queue("q")
        .affinity(AffinityScope::Numa)
        .nice(5)
        .build_in(&registry)
        .unwrap();
    assert_eq!(count(), 1 + 2 + 4 + 16 + 2 + 2);
    for queue in [&system, &again, &numa, &cache, &smt, &strict, &nice] {
        assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
        queue.drain().unwrap();
    }
    drop((system, numa, cache, smt, strict, nice));
    assert_eq!(count(), 1);
    drop(again);
    assert_eq!(count(), 0);
}

/// Runs `count` workers of the only pool at once.
fn meet(queue: &Workqueue, count: usize) {
    let barrier = Arc::new(Barrier::new(count));
    let threads: Vec<_> = (0..count)
        .map(|_| {
            let barrier = barrier.clone();
            queue.spawn(move || {
                barrier.wait();
                sync::thread::current().0
            })
        })
        .collect();
    queue.drain().unwrap();
    let ids: BTreeSet<_> = threads
        .into_iter()
        .map(|handle| handle.join().unwrap())
        .collect();
    assert_eq!(ids.len(), count);
}

#[test]
fn idle_workers_are_culled_down_to_two() {
    let params = Params {
        idle_timeout_ms: 10,
        ..Params::default()
    };
    let registry = registry_with("8 core", params);
    let queue = queue("cull").help(false).build_in(&registry).unwrap();
    for _ in 0..3 {
        meet(&queue, 8);
        eventually("all but two are culled", || {
            only_pool(&registry).nr_workers == 2
        });
        let stats = only_pool(&registry);
        assert!(stats.culled >= 6, "{stats:?}");
    }
    // Two workers stay, although they remain idle.
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(only_pool(&registry).nr_workers, 2);
    assert_eq!(in_worker(&queue, || 1), 1);
}

/// Returns whether the page at `address` of this process is in memory.
fn is_resident(address: usize) -> bool {
    // SAFETY: the call takes a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let (start, mut resident) = (std::ptr::without_provenance_mut(address & !(page - 1)), 0);
    // SAFETY: the page may be unmapped, because the call does not access it.
    assert_eq!(unsafe { libc::mincore(start, page, &raw mut resident) }, 0);
    resident & 1 == 1
}

/// Uses 256 KiB of stack. Returns an address in it.
#[inline(never)]
fn dig() -> usize {
    let deep = [1_u8; 256 << 10];
    std::hint::black_box(&deep).as_ptr().addr()
}

#[test]
fn idle_workers_give_the_memory_of_their_stacks_back() {
    let params = Params {
        idle_timeout_ms: 10,
        ..Params::default()
    };
    let registry = registry_with("1 core", params);
    let queue = queue("deep").help(false).build_in(&registry).unwrap();
    // The second round checks that the manager wakes up again after it has freed the first stack.
    for _ in 0..2 {
        let deep = in_worker(&queue, dig);
        eventually("what was used once goes back", || !is_resident(deep));
        assert_eq!(in_worker(&queue, || 1), 1);
    }
    assert_eq!(only_pool(&registry).culled, 0);
}

#[test]
fn workers_that_came_because_others_joined_are_culled_too() {
    let params = Params {
        idle_timeout_ms: 10,
        ..Params::default()
    };
    for _ in 0..20 {
        let registry = registry_with("1 core", params.clone());
        let queue = queue("cull").help(false).build_in(&registry).unwrap();
        let (a, b) = (queue.clone(), queue.clone());
        // There are three workers: two sleep in a join, and one runs the innermost item.
        in_worker(&queue, move || {
            a.spawn(move || b.spawn(|| ()).join().unwrap())
                .join()
                .unwrap()
        });
        eventually("one of three is culled", || {
            let stats = only_pool(&registry);
            stats.created < 3 || stats.nr_workers <= 2
        });
    }
}

#[test]
fn work_is_done_without_threads_and_workers_come_when_they_may() {
    let registry = registry("4 core");
    registry.refuse_threads(true);
    let queue = queue("refused").help(false).build_in(&registry).unwrap();
    let count = Count::default();
    for i in 0..100 {
        let count = count.clone();
        queue.spawn_detached(move || count.add()).unwrap();
        if i % 2 == 0 {
            queue.drain().unwrap();
        }
    }
    queue.drain().unwrap();
    assert_eq!(count.get(), 100);
    let stats = only_pool(&registry);
    assert_eq!(stats.created, 0);
    assert!(stats.spawn_failed > 0);
    registry.refuse_threads(false);
    eventually("a worker comes", || {
        queue.spawn_detached(|| ()).unwrap();
        queue.drain().unwrap();
        only_pool(&registry).created > 0
    });
    meet(&queue, 4);
    drop(queue);
    registry.shutdown().unwrap();
}

#[test]
fn the_workers_there_are_do_the_work_when_more_are_refused() {
    let registry = registry("4 core");
    let queue = queue("refused").help(false).build_in(&registry).unwrap();
    in_worker(&queue, || ());
    registry.refuse_threads(true);
    let count = Count::default();
    threads(4, |_| {
        for _ in 0..500 {
            let count = count.clone();
            queue.spawn_detached(move || count.add()).unwrap();
        }
    });
    queue.drain().unwrap();
    assert_eq!(count.get(), 2000);
    registry.refuse_threads(false);
    meet(&queue, 4);
}

#[test]
fn a_pool_does_not_grow_past_max_workers() {
    let params = Params {
        max_workers: 3,
        ..Params::default()
    };
    let registry = registry_with("8 core", params);
    let queue = queue("few").help(false).build_in(&registry).unwrap();
    let plugs: Vec<_> = (0..3).map(|_| plug_into(&queue)).collect();
    let count = Count::default();
    for _ in 0..100 {
        let count = count.clone();
        queue.spawn_detached(move || count.add()).unwrap();
    }
    eventually("all are seen asleep", || {
        only_pool(&registry).seen_asleep == 3
    });
    assert_eq!(only_pool(&registry).nr_workers, 3);
    plugs.iter().for_each(Plug::release);
    queue.drain().unwrap();
    assert_eq!(count.get(), 100);
    assert!(only_pool(&registry).created <= 3);
}

#[test]
fn both_ways_of_waking_do_the_same_work() {
    for wake in [WakeMode::Deferred, WakeMode::UnderLock] {
        ends(move || {
            let registry = registry_with(
                "64 core",
                Params {
                    wake,
                    ..Params::default()
                },
            );
            for scope in [AffinityScope::Cpu, AffinityScope::System] {
                let queue = queue("wake").affinity(scope).build_in(&registry).unwrap();
                let count = Count::default();
                threads(4, |i| {
                    pin(i);
                    let work = counting(&count);
                    for n in 0..1000 {
                        assert_eq!(queue.spawn(move || n).join().unwrap(), n);
                        assert!(queue.enqueue(&work));
                        work.flush().unwrap();
                        let count = count.clone();
                        queue.spawn_detached(move || count.add()).unwrap();
                    }
                });
                queue.drain().unwrap();
                assert_eq!(count.get(), 8000);
            }
            registry.shutdown().unwrap();
        });
    }
}

#[test]
fn the_histogram_counts_each_hold_of_a_kick() {
    for wake in [WakeMode::Deferred, WakeMode::UnderLock] {
        let params = Params {
            wake,
            lock_stat: true,
            worker_spin_limit: 0,
            ..Params::default()
        };
        let registry = registry_with("2 core", params);
        let queue = queue("hold").help(false).build_in(&registry).unwrap();
        assert_eq!(registry.lock_hold().count, 0);
        for _ in 0..200 {
            in_worker(&queue, || ());
            queue.drain().unwrap();
        }
        let hold = registry.lock_hold();
        assert!(hold.count > 0 && hold.count <= 400, "{}", hold.count);
        assert_eq!(hold.count, hold.buckets.iter().sum::<u64>());
        assert!(hold.total_ns > 0 && hold.mean_ns() > 0.0);
        assert!(hold.quantile_ns(0.5) <= hold.quantile_ns(1.0));
    }
    let quiet = registry("2 core");
    let queue = queue("hold").build_in(&quiet).unwrap();
    in_worker(&queue, || ());
    assert_eq!(quiet.lock_hold().count, 0, "nobody asked for it");
}

#[test]
fn odd_tunables_still_work() {
    for params in [
        Params {
            max_batch: 0,
            ..Params::default()
        },
        Params {
            max_batch: usize::MAX,
            ..Params::default()
        },
        Params {
            worker_spin_limit: 0,
            ..Params::default()
        },
        Params {
            worker_spin_limit: u32::MAX,
            ..Params::default()
        },
        Params {
            idle_timeout_ms: 0,
            ..Params::default()
        },
        Params {
            idle_timeout_ms: u64::MAX,
            ..Params::default()
        },
        Params {
            watch_tick_us: 0,
            ..Params::default()
        },
        Params {
            watch_tick_us: u64::MAX,
            ..Params::default()
        },
        Params {
            max_workers: 1,
            ..Params::default()
        },
        Params {
            max_workers: 0,
            ..Params::default()
        },
    ] {
        ends(move || {
            let registry = registry_with("4 core", params);
            let queue = queue("odd").help(false).build_in(&registry).unwrap();
            let count = Count::default();
            for _ in 0..2000 {
                let count = count.clone();
                queue.spawn_detached(move || count.add()).unwrap();
            }
            queue.drain().unwrap();
            assert_eq!(count.get(), 2000);
            drop(queue);
            registry.shutdown().unwrap();
        });
    }
}
