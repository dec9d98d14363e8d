//! Changes to attributes, and to the machine, while a queue is in use.

use crate::support::*;

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// Returns the CPUs of the pools of `registry` that have or had workers.
fn used(registry: &Registry) -> Vec<String> {
    let used = registry.pool_stats().into_iter().filter(|pool| pool.created > 0);
    let mut cpus: Vec<_> = used.map(|pool| pool.cpus.to_string()).collect();
    cpus.sort();
    cpus
}

fn used_by(queue: &Workqueue, registry: &Registry) -> Vec<String> {
    queue.spawn(|| ()).join().unwrap();
    used(registry)
}

#[test]
fn new_items_run_with_the_new_nice_value() {
    let queue = queue("nice").help(false).on(&registry("2 core"));
    let before = queue.spawn(nice_here).join().unwrap();
    queue.set_attrs(|attrs| attrs.nice = 7).unwrap();
    assert_eq!(queue.spawn(nice_here).join().unwrap(), 7);
    queue.set_attrs(|attrs| attrs.nice = before).unwrap();
    assert_eq!(queue.spawn(nice_here).join().unwrap(), before);
    assert_eq!(queue.report().attrs.nice, before);
}

#[test]
fn new_items_run_on_the_new_cpus() {
    let (registry, queue) = queue("cpus").help(false).on_own(registry("8 core"));
    for (cpus, expected) in [(Some(set("0-1")), &["0-1"][..]), (None, &["0-1", "0-7"])] {
        queue.set_attrs(|attrs| attrs.cpus = cpus).unwrap();
        assert_eq!(used_by(&queue, &registry), expected);
    }
}

#[test]
fn new_items_go_to_pools_of_the_new_scope() {
    let (registry, queue) = queue("scope").help(false).affinity(System).on_own(registry("8 core"));
    queue.set_attrs(|attrs| attrs.affinity = Cpu).unwrap();
    pin(0);
    queue.spawn(|| ()).join().unwrap();
    assert_eq!(used(&registry), [cpu_here().to_string()]);
    queue.set_attrs(|attrs| attrs.strict = true).unwrap();
    queue.spawn(|| ()).join().unwrap();
    assert!(registry.pool_stats().iter().any(|pool| pool.strict && pool.created > 0));
}

#[test]
fn new_items_do_not_wait_for_items_of_former_attributes() {
    let (queue, plug) = queue("live").help(false).plugged_on(&registry("1 core"));
    let old: Vec<_> = (0..5).map(|i| queue.spawn(move || i)).collect();
    queue.set_attrs(|attrs| attrs.nice = 3).unwrap();
    assert_eq!(queue.spawn(|| 7).join().unwrap(), 7, "waits for the old");
    plug.release();
    let sum: i32 = old.into_iter().map(|it| it.join().unwrap()).sum();
    assert_eq!(sum, 1 + 2 + 3 + 4);
}

#[test]
fn nothing_is_lost_or_run_twice_while_attributes_change() {
    let seed = seed();
    let (registry, queue) = queue("change").max_active(3).on_own(registry("64 core"));
    let (nr_runs, nr_queued, gauge) = (Count::default(), Count::default(), Gauge::default());
    let works: Vec<_> = (0..8).map(|_| Work::new(move || gauge.within(|| nr_runs.add()))).collect();
    threads(5, |i| {
        let mut dice = Dice::of_thread(seed, i);
        for _ in 0..if i == 0 { 300 } else { 3000 } {
            if i == 0 {
                change_something(&queue, &mut dice);
            } else if queue.enqueue(&works[dice.below(works.len())]) {
                nr_queued.add();
            }
        }
    });
    assert_eq!(nr_runs.after_drain(&queue), nr_queued.get());
    assert!(gauge.most() <= 3, "{} at once, 3 allowed", gauge.most());
    drop((queue, works));
    assert!(registry.pool_stats().is_empty(), "a pool is left");
}

fn change_something(queue: &Workqueue, dice: &mut Dice) {
    let cpus = [None, Some(set("0-3")), Some(set("2-40")), Some(set("63"))];
    match dice.below(4) {
        0 => queue.set_attrs(|attrs| attrs.affinity = dice.pick(&AffinityScope::ALL)),
        1 => queue.set_attrs(|attrs| attrs.strict = dice.below(2) == 0),
        2 => queue.set_attrs(|attrs| attrs.cpus = cpus[dice.below(4)].clone()),
        _ => queue.set_attrs(|attrs| attrs.nice = dice.below(3) as i8),
    }
    .unwrap();
}

#[test]
fn an_ordered_queue_keeps_all_items_in_order_while_it_changes() {
    let mut dice = Dice::new(seed());
    let queue = queue("ordered").ordered().on(&registry("64 core"));
    let (count, log, gauge) = (Count::default(), Log::default(), Gauge::default());
    for i in 0..2000 {
        queue.detach(move || {
            gauge.within(|| log.push(i));
            count.add();
        });
        if dice.below(10) == 0 {
            let change = |attrs: &mut Attrs| {
                attrs.nice = dice.below(4) as i8;
                attrs.cpus = [None, Some(set("0-1"))][dice.below(2)].clone();
            };
            let before = queue.report().attrs;
            queue.set_attrs(change).unwrap();
            let changes = before != queue.report().attrs;
            assert!(!changes || count.get() == i + 1, "not drained");
        }
    }
    queue.drain().unwrap();
    assert_eq!(gauge.most(), 1, "two items ran at once");
    assert!(log.take().into_iter().eq(0..2000));
}

#[test]
fn a_change_of_an_ordered_queue_drains_it_first() {
    let queue = queue("ordered").ordered().on(&registry("8 core"));
    let (plug, changed) = (plug_into(&queue), Count::default());
    queue.detach(move || assert_eq!(changed.get(), 0));
    let changer = beside(&queue, move |queue| {
        queue.set_attrs(|attrs| attrs.nice = 4).unwrap();
        changed.add();
    });
    wait_until(|| is_closed(queue.try_spawn(|| ())));
    assert_eq!(queue.report().attrs.nice, 0, "changed before it was drained");
    plug.release_and_join(changer);
    assert_eq!(queue.spawn(nice_here).join().unwrap(), 4);
    assert_eq!(queue.stats().panicked, 0, "changed while an old item ran");
    // Setting equal attributes does not drain it.
    let plug = plug_into(&queue);
    queue.set_attrs(|_| ()).unwrap();
    queue.set_attrs(|attrs| attrs.nice = 4).unwrap();
    let item = queue.try_spawn(|| 7).unwrap();
    plug.release();
    assert_eq!(item.join().unwrap(), 7);
}

#[test]
fn an_item_that_changes_its_own_ordered_queue_gets_an_error() {
    let queue = queue("ordered").ordered().on(&registry("8 core"));
    let error = queue.spawn_own(|own| own.set_attrs(|attrs| attrs.nice = 4)).join().unwrap();
    assert!(matches!(error, Err(BuildError::OwnQueue)), "{error:?}");
    assert_eq!(queue.report().attrs.nice, 0);
    queue.set_attrs(|attrs| attrs.nice = 5).unwrap();
}

#[test]
fn attributes_out_of_range_are_rejected_and_change_nothing() {
    let plain = queue("wrong").alone();
    let before = plain.report().attrs;
    assert!(matches!(plain.set_attrs(|attrs| attrs.nice = 20), Err(BuildError::Nice(20))));
    let refused = plain.set_attrs(|attrs| attrs.cpus = Some(CpuSet::new()));
    assert!(matches!(refused, Err(BuildError::NoCpus)));
    assert_eq!(plain.report().attrs, before);
    let ordered = queue("wrong").ordered().alone();
    let refused = ordered.set_attrs(|attrs| attrs.affinity = Cpu);
    assert!(matches!(refused, Err(BuildError::OrderedScope(Cpu))));
    ordered.set_attrs(|attrs| attrs.affinity = System).unwrap();
    // A destroyed queue takes no attributes.
    for queue in [queue("destroyed"), queue("destroyed").ordered()].map(On::alone) {
        queue.shutdown(Duration::MAX).unwrap();
        let error = queue.set_attrs(|attrs| attrs.nice = 4).unwrap_err();
        assert!(matches!(error, BuildError::Destroyed), "{error}");
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(queue.report().attrs.nice, 0);
    }
}

#[test]
fn a_queue_drains_items_of_former_attributes_too() {
    let queue = queue("drain").on(&registry("8 core"));
    let (plug, nr_runs) = (plug_into(&queue), Count::default());
    for nice in 0..3 {
        queue.set_attrs(|attrs| attrs.nice = nice).unwrap();
        queue.enqueue(&counting(nr_runs));
    }
    assert_eq!(plug.release_and_count(&queue, nr_runs), 3);
}

#[test]
fn pools_without_routes_end_their_workers_after_late_items() {
    let (registry, queue) = queue("desert").help(false).on_own(registry("4 core"));
    let again = queue.clone();
    let (_, plug) = stuck(|hole| {
        queue.enqueue(&in_first_run(move |this| {
            // The second run is in the same pool.
            again.enqueue(this);
            hole.sit();
        }))
    });
    queue.set_attrs(|attrs| attrs.nice = 2).unwrap();
    plug.release_and_drain(&queue);
    let is_deserted = |it: &PoolStats| it.nice != 0 || it.nr_workers == 0;
    wait_until(|| registry.pool_stats().iter().all(is_deserted));
    queue.set_attrs(|attrs| attrs.nice = 0).unwrap();
    assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
}

#[test]
fn attributes_that_are_restored_find_their_pools() {
    let (registry, queue) = queue("back").on_own(registry("8 core"));
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
    let (registry, one) = queue("one").help(false).on_own(registry("8 core"));
    let two = queue("two").help(false).cpus(set("0-2")).on(&registry);
    registry.set_unbound_cpus(Some(set("2-3")));
    one.spawn(|| ()).join().unwrap();
    assert_eq!(used_by(&two, &registry), ["2", "2-3"]);
    assert_eq!(registry.unbound_cpus(), Some(set("2-3")));
    let three = queue("three").help(false).on(&registry);
    assert_eq!(used_by(&three, &registry), ["2", "2-3"], "a new queue keeps to it too");
    registry.set_unbound_cpus(None);
    assert_eq!(used_by(&one, &registry), ["0-7", "2", "2-3"]);
}

#[test]
fn a_queue_whose_cpus_are_all_out_of_bounds_uses_those_within() {
    let (registry, queue) = queue("lost").help(false).cpus(set("6-7")).on_own(registry("8 core"));
    registry.set_unbound_cpus(Some(set("0-1")));
    assert_eq!(used_by(&queue, &registry), ["0-1"]);
}

/// Takes the CPUs other than `cpus` offline. Returns the former machine.
fn restrict(registry: &Registry, cpus: &str) -> Topology {
    let machine = Topology::clone(&registry.topology());
    registry.set_topology(machine.restricted_to(&set(cpus)).unwrap());
    machine
}

#[test]
fn queues_follow_cpus_that_go_offline_and_online() {
    let registry = registry("2 llc x 4 core");
    let (queue, plug) = queue("follow").help(false).affinity(System).plugged_on(&registry);
    let waiting = queue.spawn(|| 1);
    let machine = restrict(&registry, "0-3");
    assert_eq!(queue.spawn(|| 2).join().unwrap(), 2);
    assert_eq!(used(&registry), ["0-3", "0-7"]);
    plug.release();
    assert_eq!(waiting.join().unwrap(), 1, "lost with its CPUs");
    registry.set_topology(machine);
    assert_eq!(used_by(&queue, &registry), ["0-3", "0-7"]);
}

#[test]
fn setting_attributes_moves_an_ordered_queue_to_new_cpus() {
    let (registry, queue) = queue("ordered").ordered().on_own(registry("8 core"));
    restrict(&registry, "0-3");
    assert_eq!(used_by(&queue, &registry), ["0-7"]);
    queue.set_attrs(|_| ()).unwrap();
    assert_eq!(used_by(&queue, &registry), ["0-3", "0-7"]);
}

/// Creates a registry whose source reports once that only CPUs 1 and 2 remain.
fn with_source(change: impl FnOnce(&mut Params)) -> Registry {
    let machine = Topology::synthetic("4 core").unwrap();
    let mut news = vec![machine.restricted_to(&set("1-2")).unwrap()];
    let mut params = Params::default();
    change(&mut params);
    Registry::watching(machine, params, move || news.pop()).unwrap()
}

#[test]
fn manager_checks_the_machine_while_work_waits() {
    let (registry, queue) = queue("source").on_own(with_source(|it| it.topology_refresh_ms = 1));
    wait_until(|| {
        let burst: Vec<_> = (0..100).map(|_| queue.spawn(|| ())).collect();
        burst.into_iter().for_each(|it| it.join().unwrap());
        registry.topology().allowed() == &set("1-2")
    });
    let (registry, queue) = self::queue("source").help(false).on_own(with_source(|_| ()));
    assert!(registry.refresh_topology());
    assert!(!registry.refresh_topology());
    assert_eq!(registry.topology().allowed(), &set("1-2"));
    assert_eq!(used_by(&queue, &registry), ["1-2"]);
}

#[test]
fn the_registry_of_the_process_follows_its_affinity_mask() {
    in_own_process(|| {
        let all = sync::cpu::affinity().unwrap();
        let registry = Registry::global().unwrap();
        assert_eq!(*registry.params(), Params::default());
        assert_eq!(registry.topology().allowed(), &all);
        let first: CpuSet = all.iter().take(1).collect();
        sync::cpu::set_affinity(None, &first).unwrap();
        assert!(!registry.refresh_topology(), "one thread does not matter");
        for allowed in [&first, &all] {
            for thread in fs::read_dir("/proc/self/task").unwrap() {
                let name = thread.unwrap().file_name().into_string().unwrap();
                let thread = sync::thread::ThreadId(name.parse().unwrap());
                sync::cpu::set_affinity(Some(thread), allowed).unwrap();
            }
            wait_until(|| {
                registry.refresh_topology();
                registry.topology().allowed() == allowed
            });
        }
    });
}
