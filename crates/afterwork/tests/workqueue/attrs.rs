//! Changes of attributes, and of the machine, while a queue is in use.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use afterwork::{
    params::Params,
    workqueue::{AffinityScope, Attrs, BuildError, PoolStats, Registry},
};
use topology::{CpuSet, Topology};

use crate::support::*;

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// Returns the CPUs of the pools of `registry` that have or had workers.
fn used(registry: &Registry) -> Vec<String> {
    let pools = registry.pool_stats();
    let used = pools.iter().filter(|pool| pool.created > 0);
    let mut cpus: Vec<_> = used.map(|pool| pool.cpus.to_string()).collect();
    cpus.sort();
    cpus
}

fn pool_on(registry: &Registry, cpus: &str) -> PoolStats {
    let pools = registry.pool_stats();
    let pool = pools.iter().find(|pool| pool.cpus == set(cpus));
    pool.unwrap_or_else(|| panic!("no pool on {cpus}")).clone()
}

fn nice_here() -> i32 {
    rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap()
}

#[test]
fn new_items_run_with_the_new_nice_value() {
    let queue = queue("nice").help(false);
    let queue = queue.build_in(&registry("2 core")).unwrap();
    let before = queue.spawn(nice_here).join().unwrap();
    queue.set_attrs(|attrs| attrs.nice = 7).unwrap();
    assert_eq!(queue.spawn(nice_here).join().unwrap(), 7);
    queue.set_attrs(|attrs| attrs.nice = before as i8).unwrap();
    assert_eq!(queue.spawn(nice_here).join().unwrap(), before);
    assert_eq!(i32::from(queue.attrs().nice), before);
}

#[test]
fn new_items_run_on_the_new_cpus() {
    let registry = registry("8 core");
    let queue = queue("cpus").help(false).build_in(&registry).unwrap();
    queue
        .set_attrs(|attrs| attrs.cpus = Some(set("0-1")))
        .unwrap();
    queue.spawn(|| ()).join().unwrap();
    assert_eq!(used(&registry), ["0-1"]);
    queue.set_attrs(|attrs| attrs.cpus = None).unwrap();
    queue.spawn(|| ()).join().unwrap();
    assert_eq!(used(&registry), ["0-1", "0-7"]);
}

#[test]
fn new_items_go_to_pools_of_the_new_scope() {
    let registry = registry("8 core");
    let queue = queue("scope").help(false);
    let queue = queue.affinity(AffinityScope::System).build_in(&registry);
    let queue = queue.unwrap();
    queue
        .set_attrs(|attrs| attrs.affinity = AffinityScope::Cpu)
        .unwrap();
    pin(0);
    queue.spawn(|| ()).join().unwrap();
    let cpu = sync::cpu::current().to_string();
    assert_eq!(used(&registry), [cpu.trim_start_matches("cpu").trim()]);
    queue.set_attrs(|attrs| attrs.strict = true).unwrap();
    queue.spawn(|| ()).join().unwrap();
    assert!(
        registry
            .pool_stats()
            .iter()
            .any(|pool| pool.strict && pool.created > 0)
    );
}

#[test]
fn items_that_are_queued_run_where_they_are_and_new_ones_do_not_wait_for_them() {
    ends(|| {
        let registry = registry("1 core");
        let queue = queue("live").help(false).build_in(&registry).unwrap();
        let plug = plug_into(&queue);
        let old: Vec<_> = (0..5).map(|i| queue.spawn(move || i)).collect();
        queue.set_attrs(|attrs| attrs.nice = 3).unwrap();
        assert_eq!(queue.spawn(|| 7).join().unwrap(), 7, "waits for the old");
        plug.release();
        let sum: i32 = old.into_iter().map(|it| it.join().unwrap()).sum();
        assert_eq!(sum, 1 + 2 + 3 + 4);
    });
}

#[test]
fn nothing_is_lost_or_run_twice_while_attributes_change() {
    let seed = seed();
    let registry = registry("64 core");
    let queue = queue("change").max_active(3).build_in(&registry).unwrap();
    let nr_runs = Count::default();
    let gauge = Gauge::default();
    let works: Vec<_> = (0..8)
        .map(|_| {
            let (nr_runs, gauge) = (nr_runs.clone(), gauge.clone());
            afterwork::workqueue::Work::new(move || gauge.within(|| nr_runs.add()))
        })
        .collect();
    let nr_queued = Count::default();
    threads(5, |i| {
        let mut dice = Dice::new(seed + i as u64);
        for _ in 0..if i == 0 { 300 } else { 3000 } {
            if i == 0 {
                change_something(&queue, &mut dice);
            } else if queue.enqueue(&works[dice.below(works.len())]) {
                nr_queued.add();
            }
        }
    });
    queue.drain().unwrap();
    assert_eq!(nr_runs.get(), nr_queued.get());
    assert!(gauge.most() <= 3, "{} at once, 3 allowed", gauge.most());
    drop(queue);
    drop(works);
    assert!(registry.pool_stats().is_empty(), "a pool is left");
}

fn change_something(queue: &afterwork::workqueue::Workqueue, dice: &mut Dice) {
    let cpus = [None, Some(set("0-3")), Some(set("2-40")), Some(set("63"))];
    match dice.below(4) {
        0 => queue.set_attrs(|attrs| attrs.affinity = AffinityScope::ALL[dice.below(6)]),
        1 => queue.set_attrs(|attrs| attrs.strict = dice.below(2) == 0),
        2 => queue.set_attrs(|attrs| attrs.cpus = cpus[dice.below(4)].clone()),
        _ => queue.set_attrs(|attrs| attrs.nice = dice.below(3) as i8),
    }
    .unwrap();
}

#[test]
fn an_ordered_queue_loses_and_reorders_nothing_over_changes_of_its_attributes() {
    let mut dice = Dice::new(seed());
    let queue = queue("ordered").ordered();
    let queue = queue.build_in(&registry("64 core")).unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let gauge = Gauge::default();
    const NR_ITEMS: usize = 2000;
    for i in 0..NR_ITEMS {
        queue
            .spawn_detached({
                let (log, gauge) = (log.clone(), gauge.clone());
                move || gauge.within(|| log.lock().unwrap().push(i))
            })
            .unwrap();
        if dice.below(10) == 0 {
            let change = |attrs: &mut Attrs| {
                attrs.nice = dice.below(4) as i8;
                attrs.cpus = [None, Some(set("0-1"))][dice.below(2)].clone();
            };
            let before = queue.attrs();
            queue.set_attrs(change).unwrap();
            let nr_run = log.lock().unwrap().len();
            let changes = before != queue.attrs();
            assert!(!changes || nr_run == i + 1, "not drained");
        }
    }
    queue.drain().unwrap();
    assert_eq!(gauge.most(), 1, "two items ran at once");
    assert!(log.lock().unwrap().iter().copied().eq(0..NR_ITEMS));
}

#[test]
fn a_change_of_an_ordered_queue_waits_for_its_items_and_refuses_others() {
    ends(|| {
        let queue = queue("ordered").ordered();
        let queue = queue.build_in(&registry("8 core")).unwrap();
        let plug = plug_into(&queue);
        let changed = Arc::new(AtomicBool::new(false));
        queue
            .spawn_detached({
                let changed = changed.clone();
                move || assert!(!changed.load(Ordering::SeqCst))
            })
            .unwrap();
        let changer = std::thread::spawn({
            let queue = queue.clone();
            move || {
                queue.set_attrs(|attrs| attrs.nice = 4).unwrap();
                changed.store(true, Ordering::SeqCst);
            }
        });
        eventually("the change refuses items", || {
            queue.try_spawn(|| ()).is_err_and(|error| !error.is_full())
        });
        assert_eq!(queue.attrs().nice, 0, "changed before it was drained");
        plug.release();
        changer.join().unwrap();
        assert_eq!(queue.spawn(nice_here).join().unwrap(), 4);
        assert_eq!(queue.stats().panicked, 0, "changed while an old item ran");
    });
}

#[test]
fn an_item_that_changes_its_own_ordered_queue_gets_an_error() {
    ends(|| {
        let queue = queue("ordered").ordered();
        let queue = queue.build_in(&registry("8 core")).unwrap();
        let inside = queue.clone();
        let error = queue
            .spawn(move || inside.set_attrs(|attrs| attrs.nice = 4))
            .join()
            .unwrap();
        assert!(matches!(error, Err(BuildError::OwnQueue)), "{error:?}");
        assert_eq!(queue.attrs().nice, 0);
        queue.set_attrs(|attrs| attrs.nice = 5).unwrap();
    });
}

#[test]
fn attributes_out_of_range_are_refused_and_change_nothing() {
    let queue = alone_on_two(queue("wrong"));
    let before = queue.attrs();
    assert!(matches!(
        queue.set_attrs(|attrs| attrs.nice = 20),
        Err(BuildError::Nice(20))
    ));
    assert!(matches!(
        queue.set_attrs(|attrs| attrs.cpus = Some(CpuSet::new())),
        Err(BuildError::NoCpus)
    ));
    assert_eq!(queue.attrs(), before);
    let ordered = alone_on_two(crate::support::queue("wrong").ordered());
    assert!(matches!(
        ordered.set_attrs(|attrs| attrs.affinity = AffinityScope::Cpu),
        Err(BuildError::OrderedScope(AffinityScope::Cpu))
    ));
    ordered
        .set_attrs(|attrs| attrs.affinity = AffinityScope::System)
        .unwrap();
}

#[test]
fn a_queue_drains_items_of_former_attributes_too() {
    ends(|| {
        let queue = queue("drain").build_in(&registry("8 core")).unwrap();
        let plug = plug_into(&queue);
        let nr_runs = Count::default();
        let works: Vec<_> = (0..3).map(|_| counting(&nr_runs)).collect();
        for (nice, work) in works.iter().enumerate() {
            queue.set_attrs(|attrs| attrs.nice = nice as i8).unwrap();
            queue.enqueue(work);
        }
        plug.release();
        queue.drain().unwrap();
        assert_eq!(nr_runs.get(), 3);
    });
}

#[test]
fn pools_without_routes_let_all_their_workers_go_and_serve_late_items() {
    ends(|| {
        let registry = registry("4 core");
        let queue = queue("desert").help(false).build_in(&registry).unwrap();
        let (plug, hole) = stopper();
        let again = queue.clone();
        let work = afterwork::workqueue::Work::with_handle({
            let mut first = true;
            move |this| {
                if std::mem::take(&mut first) {
                    // The second run is in the same pool.
                    again.enqueue(this);
                    hole.sit();
                }
            }
        });
        queue.enqueue(&work);
        plug.wait_until_stuck();
        queue.set_attrs(|attrs| attrs.nice = 2).unwrap();
        plug.release();
        queue.drain().unwrap();
        eventually("its workers have gone", || {
            let pools = registry.pool_stats();
            pools
                .iter()
                .filter(|pool| pool.nice == 0)
                .all(|pool| pool.nr_workers == 0)
        });
        queue.set_attrs(|attrs| attrs.nice = 0).unwrap();
        assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
        drop(work);
    });
}

#[test]
fn attributes_that_come_back_find_their_pools() {
    let registry = registry("8 core");
    let queue = queue("back").build_in(&registry).unwrap();
    for _ in 0..100 {
        for nice in 0..3 {
            queue.set_attrs(|attrs| attrs.nice = nice).unwrap();
        }
    }
    assert_eq!(registry.pool_stats().len(), 3);
    drop(queue);
    assert!(registry.pool_stats().is_empty());
}

#[test]
fn the_bound_of_unbound_queues_moves_all_of_them() {
    let registry = registry("8 core");
    let one = queue("one").help(false).build_in(&registry).unwrap();
    let two = queue("two")
        .help(false)
        .cpus(set("0-2"))
        .build_in(&registry)
        .unwrap();
    registry.set_unbound_cpus(Some(set("2-3")));
    one.spawn(|| ()).join().unwrap();
    two.spawn(|| ()).join().unwrap();
    assert_eq!(used(&registry), ["2", "2-3"]);
    assert_eq!(registry.unbound_cpus(), Some(set("2-3")));
    let three = queue("three").help(false).build_in(&registry).unwrap();
    three.spawn(|| ()).join().unwrap();
    assert_eq!(used(&registry), ["2", "2-3"], "a new queue keeps to it too");
    registry.set_unbound_cpus(None);
    one.spawn(|| ()).join().unwrap();
    assert_eq!(used(&registry), ["0-7", "2", "2-3"]);
}

#[test]
fn a_queue_whose_cpus_are_all_out_of_bounds_uses_those_within() {
    let registry = registry("8 core");
    let queue = queue("lost")
        .help(false)
        .cpus(set("6-7"))
        .build_in(&registry);
    let queue = queue.unwrap();
    registry.set_unbound_cpus(Some(set("0-1")));
    queue.spawn(|| ()).join().unwrap();
    assert_eq!(used(&registry), ["0-1"]);
}

#[test]
fn queues_follow_cpus_that_go_and_come_back() {
    ends(|| {
        let machine = Topology::synthetic("2 llc x 4 core").unwrap();
        let registry = Registry::new(machine.clone(), Params::default()).unwrap();
        let queue = queue("follow").help(false).affinity(AffinityScope::System);
        let queue = queue.build_in(&registry).unwrap();
        let plug = plug_into(&queue);
        let waiting = queue.spawn(|| 1);
        let half = machine.restricted_to(&set("0-3")).unwrap();
        registry.set_topology(half);
        assert_eq!(queue.spawn(|| 2).join().unwrap(), 2);
        assert!(pool_on(&registry, "0-3").created > 0);
        plug.release();
        assert_eq!(waiting.join().unwrap(), 1, "lost with its CPUs");
        registry.set_topology(machine);
        assert_eq!(queue.spawn(|| 3).join().unwrap(), 3);
        assert_eq!(used(&registry), ["0-3", "0-7"]);
    });
}

#[test]
fn an_ordered_queue_follows_the_machine_when_its_attributes_are_set() {
    ends(|| {
        let machine = Topology::synthetic("8 core").unwrap();
        let registry = Registry::new(machine.clone(), Params::default()).unwrap();
        let queue = queue("ordered").ordered().build_in(&registry).unwrap();
        registry.set_topology(machine.restricted_to(&set("0-3")).unwrap());
        queue.spawn(|| ()).join().unwrap();
        assert_eq!(used(&registry), ["0-7"]);
        queue.set_attrs(|_| ()).unwrap();
        queue.spawn(|| ()).join().unwrap();
        assert_eq!(used(&registry), ["0-3", "0-7"]);
    });
}

#[test]
fn a_registry_asks_its_source_and_follows() {
    let machine = Topology::synthetic("4 core").unwrap();
    let mut news = vec![machine.restricted_to(&set("1-2")).unwrap()];
    let registry = Registry::watching(machine, Params::default(), move || news.pop()).unwrap();
    let queue = queue("source").help(false).build_in(&registry).unwrap();
    assert!(registry.refresh_topology());
    assert!(!registry.refresh_topology());
    assert_eq!(registry.topology().allowed(), &set("1-2"));
    queue.spawn(|| ()).join().unwrap();
    assert_eq!(used(&registry), ["1-2"]);
}

#[test]
fn the_manager_looks_at_the_machine_while_work_waits() {
    ends(|| {
        let machine = Topology::synthetic("4 core").unwrap();
        let mut news = vec![machine.restricted_to(&set("1-2")).unwrap()];
        let params = Params {
            topology_refresh_ms: 1,
            ..Params::default()
        };
        let registry = Registry::watching(machine, params, move || news.pop()).unwrap();
        let queue = queue("source").build_in(&registry).unwrap();
        eventually("it has looked", || {
            let burst: Vec<_> = (0..100).map(|_| queue.spawn(|| ())).collect();
            burst.into_iter().for_each(|it| it.join().unwrap());
            registry.topology().allowed() == &set("1-2")
        });
    });
}

#[test]
fn the_registry_of_the_process_follows_its_affinity_mask() {
    in_own_process(
        "attrs::the_registry_of_the_process_follows_its_affinity_mask",
        || {
            let all = sync::cpu::affinity().unwrap();
            let registry = Registry::global().unwrap();
            assert_eq!(registry.topology().allowed(), &all);
            let first: CpuSet = all.iter().take(1).collect();
            sync::cpu::set_affinity(None, &first).unwrap();
            assert!(
                !registry.refresh_topology(),
                "a thread that pins itself is no matter"
            );
            for allowed in [&first, &all] {
                for thread in std::fs::read_dir("/proc/self/task").unwrap() {
                    let name = thread.unwrap().file_name().into_string().unwrap();
                    let thread = sync::thread::ThreadId(name.parse().unwrap());
                    sync::cpu::set_affinity(Some(thread), allowed).unwrap();
                }
                eventually("it follows", || {
                    registry.refresh_topology();
                    registry.topology().allowed() == allowed
                });
            }
        },
    );
}

#[test]
fn a_change_that_changes_nothing_does_not_drain_an_ordered_queue() {
    ends(|| {
        let queue = queue("ordered").ordered();
        let queue = queue.build_in(&registry("8 core")).unwrap();
        let plug = plug_into(&queue);
        queue.set_attrs(|_| ()).unwrap();
        queue.set_attrs(|attrs| attrs.nice = 0).unwrap();
        let item = queue.try_spawn(|| 7).unwrap();
        plug.release();
        assert_eq!(item.join().unwrap(), 7);
    });
}

#[test]
fn a_destroyed_queue_takes_no_attributes() {
    for ordered in [false, true] {
        let builder = queue("destroyed");
        let builder = if ordered { builder.ordered() } else { builder };
        let queue = alone_on_two(builder);
        queue.destroy().unwrap();
        let error = queue.set_attrs(|attrs| attrs.nice = 4).unwrap_err();
        assert!(matches!(error, BuildError::Destroyed), "{error}");
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(queue.attrs().nice, 0);
    }
}
