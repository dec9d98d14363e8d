//! Behavior while no thread can be created.

use crate::children::NoThreads;
use crate::support::*;

fn kinds() -> Vec<fn(Builder) -> Builder> {
    vec![
        |it| it.affinity(Cpu),
        |it| it.affinity(Smt),
        |it| it.affinity(Cache),
        |it| it.affinity(CacheShard),
        |it| it.affinity(Numa),
        |it| it.affinity(System),
        |it| it.affinity(Cpu).strict(true),
        |it| it.per_cpu(),
        |it| it.nice(5),
        |it| it.cpu_intensive(),
        |it| it.ordered(),
        |it| it.max_active(1),
    ]
}

#[test]
fn an_item_runs_although_all_workers_sleep_without_threads() {
    for kind in kinds() {
        let registry = registry("1 core");
        let two = [queue("sleeps"), queue("waits")];
        let [sleeps, waits] = two.map(|it| kind(it).help(false).on(&registry));
        let plug = plug_into(&sleeps);
        registry.refuse_threads(true);
        (0..3).for_each(|i| assert_eq!(waits.spawn(move || i).join().unwrap(), i));
        assert_eq!(registry.pool_stats()[0].created, 1);
        plug.release_and_drain(&sleeps);
        // This item reports to the pool that it blocks.
        let (_, plug) = stuck(|hole| sleeps.detach(move || blocking(|| hole.sit())));
        assert_eq!(waits.spawn(|| 7).join().unwrap(), 7);
        plug.release();
    }
}

#[test]
fn an_item_runs_although_the_only_worker_hogs_the_cpu() {
    let (registry, queue) = queue("hogs").help(false).on_own(registry("1 core"));
    queue.spawn(|| ()).join().unwrap();
    registry.refuse_threads(true);
    let stop = Count::default();
    queue.detach(hogging(stop));
    queue.spawn(stop.adder()).join().unwrap();
}

#[test]
fn pools_without_workers_take_turns_with_the_rescuer_of_all() {
    let (registry, first) = queue("first").help(false).on_own(threadless("1 core"));
    let second = queue("second").nice(5).help(false).on(&registry);
    let stop = Count::default();
    let work = restless(&first, stop);
    first.enqueue(&work);
    assert_eq!(second.spawn(|| 7).join().unwrap(), 7);
    stop.add();
    first.drain().unwrap();
    assert!(!work.is_busy());
    assert!(registry.pool_stats().iter().all(|it| it.created == 0));
}

#[test]
fn pools_of_a_queue_take_turns_with_its_rescuer() {
    let (registry, plain) = queue("plain").help(false).on_own(threadless("2 core"));
    let keeps_rescuer_of_all = plug_into(&plain);
    let queue = queue("reclaim").with_rescuer().affinity(Cpu).help(false).on(&registry);
    let (again, stop) = (queue.clone(), Count::default());
    let work = Work::with_handle(move |this| {
        if stop.get() == 0 {
            on_cpu(&again, 0).enqueue(this);
        }
    });
    on_cpu(&queue, 0).enqueue(&work);
    wait_until(|| queue.stats().rescued > 0);
    assert_eq!(on_cpu(&queue, 1).spawn(|| 7).join().unwrap(), 7);
    stop.add();
    queue.drain().unwrap();
    assert!(!work.is_busy());
    keeps_rescuer_of_all.release();
}

#[test]
fn queues_of_every_kind_work_without_further_threads() {
    in_own_process(|| {
        let registry = detected();
        let mut kinds = kinds();
        kinds.extend([Builder::bh as fn(Builder) -> Builder, Builder::highpri]);
        let rescued = queue("rescued").with_rescuer().on(&registry);
        let _no_threads = NoThreads::begin();
        assert!(thread::Builder::new().spawn(|| ()).is_err());
        for kind in kinds {
            // A queue with a priority that the process may not set is rejected with an error.
            let Ok(queue) = kind(queue("kind").help(false)).build_in(&registry) else {
                continue;
            };
            assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
            queue.detach(|| ());
            queue.flush().unwrap();
            queue.drain().unwrap();
        }
        assert!(queue("late").with_rescuer().build_in(&registry).is_err());
        assert_eq!(rescued.spawn(|| 7).join().unwrap(), 7);
        drop(rescued);
        shut_down(registry);
    });
}
