//! Items that run on a given CPU or node.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use afterwork::workqueue::{
    self, AffinityScope, BuildError, CpuId, DelayedWork, JoinError, Topology, Work, Workqueue,
};

use crate::support::*;

fn thread_name() -> String {
    std::thread::current()
        .name()
        .unwrap_or_default()
        .to_string()
}

/// Returns the name of the worker, and so of the pool, that runs the item.
fn pool_of(enqueue: impl FnOnce(&Work)) -> String {
    let (send, receive) = std::sync::mpsc::channel();
    let work = Work::new(move || send.send(thread_name()).unwrap());
    enqueue(&work);
    receive.recv_timeout(PATIENCE).unwrap()
}

fn spread(scope: AffinityScope) -> Workqueue {
    let registry = registry("2 numa x 2 llc x 2 core");
    queue("place")
        .help(false)
        .affinity(scope)
        .build_in(&registry)
        .unwrap()
}

#[test]
fn an_item_queued_on_a_cpu_runs_in_the_pool_of_its_pod() {
    let queue = spread(AffinityScope::Cpu);
    for cpu in 0..8 {
        let pool = pool_of(|work| assert!(queue.task().on_cpu(CpuId::new(cpu)).enqueue(work)));
        assert_eq!(pool, format!("aw/u{cpu}"));
    }
    let queue = spread(AffinityScope::Cache);
    for cpu in 0..8 {
        let pool = pool_of(|work| assert!(queue.task().on_cpu(CpuId::new(cpu)).enqueue(work)));
        assert_eq!(pool, format!("aw/u{}", cpu / 2));
    }
}

#[test]
fn a_closure_spawned_on_a_cpu_runs_in_the_pool_of_its_pod() {
    let queue = spread(AffinityScope::Cpu);
    for cpu in 0..8 {
        let pool = queue.task().on_cpu(CpuId::new(cpu)).spawn(thread_name);
        let pool = pool.join().unwrap();
        assert_eq!(pool, format!("aw/u{cpu}"));
    }
}

#[test]
fn an_item_armed_for_a_cpu_runs_in_the_pool_of_its_pod() {
    let queue = spread(AffinityScope::Cpu);
    for cpu in 0..8 {
        for delay in [Duration::ZERO, Duration::from_micros(10)] {
            let (send, receive) = mpsc::channel();
            let work = DelayedWork::new(move || send.send(thread_name()).unwrap());
            assert!(
                queue
                    .task()
                    .on_cpu(CpuId::new(cpu))
                    .enqueue_after(&work, delay)
            );
            assert_eq!(
                receive.recv_timeout(PATIENCE).unwrap(),
                format!("aw/u{cpu}")
            );
            let other = CpuId::new((cpu + 1) % 8);
            queue
                .task()
                .on_cpu(CpuId::new(cpu))
                .enqueue_after(&work, 1000 * PATIENCE);
            assert!(queue.task().on_cpu(other).reschedule(&work, delay));
            let pool = receive.recv_timeout(PATIENCE).unwrap();
            assert_eq!(pool, format!("aw/u{}", other.as_u32()));
        }
    }
}

#[test]
fn a_closure_spawned_on_a_node_runs_in_a_pool_of_that_node() {
    let queue = spread(AffinityScope::Numa);
    for node in 0..2 {
        let pool = queue
            .task()
            .on_node(node)
            .spawn(thread_name)
            .join()
            .unwrap();
        assert_eq!(pool, format!("aw/u{node}"));
    }
}

#[test]
fn what_is_to_run_on_a_cpu_runs_there() {
    let topology = Topology::detect().unwrap();
    // SAFETY: the call has no preconditions.
    let here = || CpuId::new(unsafe { libc::sched_getcpu() } as u32);
    for cpu in topology.allowed().iter() {
        assert_eq!(workqueue::work_on_cpu(cpu, here).unwrap(), cpu);
    }
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let sees = seen.clone();
    let visit = move |cpu| assert!(sees.lock().unwrap().insert((cpu, here())));
    workqueue::schedule_on_each_cpu(visit).unwrap();
    let expected: BTreeSet<_> = topology.allowed().iter().map(|cpu| (cpu, cpu)).collect();
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[test]
fn what_fails_on_a_cpu_or_for_want_of_it_says_so() {
    let none = workqueue::work_on_cpu(CpuId::new(100_000), || ());
    let none = none.unwrap_err().downcast().unwrap();
    assert!(matches!(none, BuildError::NoCpus), "{none:?}");
    let first = Topology::detect().unwrap().allowed().iter().next().unwrap();
    let panicked = workqueue::work_on_cpu(first, || panic!("there"));
    let panicked = panicked.map(|never: ()| never).unwrap_err().downcast();
    assert!(matches!(panicked, Ok(JoinError::Panicked(_))));
    let count = Count::default();
    let counts = count.clone();
    let on_all = workqueue::schedule_on_each_cpu(move |_| {
        counts.add();
        panic!("everywhere");
    });
    let on_all = on_all.unwrap_err().downcast();
    assert!(matches!(on_all, Ok(JoinError::Panicked(_))));
    let nr_cpus = Topology::detect().unwrap().allowed().len();
    assert_eq!(count.get(), nr_cpus, "all have ended");
}

#[test]
fn an_item_queued_on_a_node_runs_in_a_pool_of_that_node() {
    let queue = spread(AffinityScope::Cache);
    pin(0);
    // This thread is on CPU 0 of node 0.
    let pool = pool_of(|work| assert!(queue.task().on_node(0).enqueue(work)));
    assert_eq!(pool, "aw/u0");
    let pool = pool_of(|work| assert!(queue.task().on_node(1).enqueue(work)));
    assert_eq!(pool, "aw/u2");
}

#[test]
fn a_cpu_or_node_that_is_not_there_stands_for_the_first_pod() {
    let queue = spread(AffinityScope::Cpu);
    let pool = pool_of(|work| assert!(queue.task().on_cpu(CpuId::new(1000)).enqueue(work)));
    assert_eq!(pool, "aw/u0");
    let pool = pool_of(|work| assert!(queue.task().on_node(77).enqueue(work)));
    assert_eq!(pool, "aw/u0");
}

#[test]
fn a_pending_item_stays_where_it_was_queued_first() {
    let queue = spread(AffinityScope::Cpu);
    queue.set_max_active(1).unwrap();
    let plug = plug_into(&queue);
    let pool = pool_of(|work| {
        assert!(queue.task().on_cpu(CpuId::new(3)).enqueue(work));
        assert!(!queue.task().on_cpu(CpuId::new(5)).enqueue(work));
        plug.release();
    });
    assert_eq!(pool, "aw/u3");
}
