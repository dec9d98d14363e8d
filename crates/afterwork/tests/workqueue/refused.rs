//! Behavior while no thread can be created.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use afterwork::{
    params::Params,
    workqueue::{self, AffinityScope, Builder, CpuId, Registry, Work},
};
use topology::Topology;

use crate::support::*;

/// Returns settings of queues that use different pools.
fn kinds() -> Vec<fn(Builder) -> Builder> {
    vec![
        |it| it.affinity(AffinityScope::Cpu),
        |it| it.affinity(AffinityScope::Smt),
        |it| it.affinity(AffinityScope::Cache),
        |it| it.affinity(AffinityScope::CacheShard),
        |it| it.affinity(AffinityScope::Numa),
        |it| it.affinity(AffinityScope::System),
        |it| it.affinity(AffinityScope::Cpu).strict(true),
        |it| it.per_cpu(),
        |it| it.nice(5),
        |it| it.cpu_intensive(),
        |it| it.ordered(),
        |it| it.max_active(1),
    ]
}

#[test]
fn an_item_runs_although_all_workers_sleep_and_no_more_can_be_had() {
    for kind in kinds() {
        ends(move || {
            let registry = registry("1 core");
            let two = [queue("sleeps"), queue("waits")];
            let [sleeps, waits] = two.map(|it| kind(it).help(false).build_in(&registry).unwrap());
            let (plug, hole) = stopper();
            let (stopped, other) = stopper();
            sleeps.spawn_detached(move || hole.sit()).unwrap();
            plug.wait_until_stuck();
            registry.refuse_threads(true);
            for i in 0..3 {
                assert_eq!(waits.spawn(move || i).join().unwrap(), i);
            }
            assert_eq!(registry.pool_stats()[0].created, 1);
            plug.release();
            sleeps.drain().unwrap();
            // This item reports to the pool that it blocks.
            sleeps
                .spawn_detached(move || workqueue::blocking(|| other.sit()))
                .unwrap();
            stopped.wait_until_stuck();
            assert_eq!(waits.spawn(|| 7).join().unwrap(), 7);
            stopped.release();
        });
    }
}

#[test]
fn an_item_runs_although_the_only_worker_hogs_the_cpu_and_no_more_can_be_had() {
    ends(|| {
        let registry = registry("1 core");
        let queue = queue("hogs").help(false).build_in(&registry).unwrap();
        let go_on = Arc::new(AtomicBool::new(true));
        let spins = go_on.clone();
        queue.spawn(|| ()).join().unwrap();
        registry.refuse_threads(true);
        queue
            .spawn_detached(move || {
                while spins.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
            .unwrap();
        let ends = queue.spawn(move || go_on.store(false, Ordering::Relaxed));
        ends.join().unwrap();
    });
}

/// Returns an item that queues itself on `cpu` until the flag is set.
fn restless(queue: &workqueue::Workqueue, cpu: CpuId) -> (Work, Arc<AtomicBool>) {
    let stop = Arc::new(AtomicBool::new(false));
    let (again, stopped) = (queue.clone(), stop.clone());
    let work = Work::with_handle(move |this| {
        if !stopped.load(Ordering::Relaxed) {
            again.task().on_cpu(cpu).enqueue(this);
        }
    });
    queue.task().on_cpu(cpu).enqueue(&work);
    (work, stop)
}

#[test]
fn pools_without_workers_take_turns_with_the_thread_that_is_for_all() {
    ends(|| {
        let registry = registry("1 core");
        registry.refuse_threads(true);
        let first = queue("first").help(false).build_in(&registry).unwrap();
        let second = queue("second").nice(5).help(false);
        let second = second.build_in(&registry).unwrap();
        let (work, stop) = restless(&first, CpuId::new(0));
        assert_eq!(second.spawn(|| 7).join().unwrap(), 7);
        stop.store(true, Ordering::Relaxed);
        first.drain().unwrap();
        assert!(!work.is_busy());
        assert_eq!(
            registry
                .pool_stats()
                .iter()
                .map(|it| it.created)
                .sum::<u64>(),
            0
        );
    });
}

#[test]
fn pools_of_a_queue_take_turns_with_its_rescuer() {
    ends(|| {
        let registry = registry("2 core");
        registry.refuse_threads(true);
        // Keeps the registry's rescuer busy.
        let plain = queue("plain").help(false).build_in(&registry).unwrap();
        let plug = plug_into(&plain);
        let queue = queue("reclaim").with_rescuer().affinity(AffinityScope::Cpu);
        let queue = queue.help(false).build_in(&registry).unwrap();
        let (work, stop) = restless(&queue, CpuId::new(0));
        eventually("its rescuer is there", || queue.stats().rescued > 0);
        assert_eq!(
            queue
                .task()
                .on_cpu(CpuId::new(1))
                .spawn(|| 7)
                .join()
                .unwrap(),
            7
        );
        stop.store(true, Ordering::Relaxed);
        queue.drain().unwrap();
        assert!(!work.is_busy());
        plug.release();
    });
}

#[test]
fn queues_of_every_kind_do_without_threads_that_the_system_refuses() {
    let test = "refused::queues_of_every_kind_do_without_threads_that_the_system_refuses";
    in_own_process(test, || {
        // SAFETY: the call takes no arguments.
        if unsafe { libc::geteuid() } == 0 {
            // The limit does not apply to root.
            // SAFETY: the call takes numbers. It changes the user of all threads.
            assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
        }
        let registry = Registry::new(Topology::detect().unwrap(), Params::default()).unwrap();
        let mut kinds = kinds();
        kinds.extend([Builder::bh as fn(Builder) -> Builder, Builder::highpri]);
        let rescued = queue("rescued").with_rescuer().build_in(&registry).unwrap();
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: `none` outlives the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &none) }, 0);
        assert!(std::thread::Builder::new().spawn(|| ()).is_err());
        for kind in kinds {
            // A queue with a priority that the process may not set is rejected with an error.
            let Ok(queue) = kind(queue("kind").help(false)).build_in(&registry) else {
                continue;
            };
            assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
            queue.spawn_detached(|| ()).unwrap();
            queue.flush().unwrap();
            queue.drain().unwrap();
        }
        assert!(queue("late").with_rescuer().build_in(&registry).is_err());
        assert_eq!(rescued.spawn(|| 7).join().unwrap(), 7);
        drop(rescued);
        shut_down(registry);
    });
}
