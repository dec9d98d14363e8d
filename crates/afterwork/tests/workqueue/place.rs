//! Items that run on a given CPU or node.

use crate::support::*;

/// Returns the name of the worker that runs the item, which names its pool.
fn pool_of(enqueue: impl FnOnce(&Work)) -> String {
    let (send, receive) = mpsc::channel();
    let work = Work::new(move || send.send(thread_name()).unwrap());
    enqueue(&work);
    receive.recv_timeout(PATIENCE).unwrap()
}

fn spread(scope: AffinityScope) -> Workqueue {
    let queue = queue("place").help(false).affinity(scope);
    queue.on(&registry("2 numa x 2 llc x 2 core"))
}

#[test]
fn an_item_queued_on_a_cpu_runs_in_the_pool_of_its_pod() {
    for (scope, cpus_per_pod) in [(Cpu, 1), (Cache, 2)] {
        let queue = spread(scope);
        for cpu in 0..8 {
            let pool = pool_of(|work| assert!(on_cpu(&queue, cpu).enqueue(work)));
            assert_eq!(pool, format!("aw/u{}", cpu / cpus_per_pod));
        }
    }
}

#[test]
fn a_closure_spawned_on_a_cpu_runs_in_the_pool_of_its_pod() {
    let queue = spread(Cpu);
    for cpu in 0..8 {
        assert_eq!(on_cpu(&queue, cpu).spawn(thread_name).join().unwrap(), format!("aw/u{cpu}"));
    }
    let queue = spread(Numa);
    for node in 0..2 {
        let pool = queue.task().on_node(node).spawn(thread_name);
        assert_eq!(pool.join().unwrap(), format!("aw/u{node}"));
    }
}

#[test]
fn an_item_armed_for_a_cpu_runs_in_the_pool_of_its_pod() {
    let (queue, (send, receive)) = (spread(Cpu), mpsc::channel());
    let work = DelayedWork::new(move || send.send(thread_name()).unwrap());
    let pool = || receive.recv_timeout(PATIENCE).unwrap();
    for cpu in 0..8 {
        for delay in [Duration::ZERO, Duration::from_micros(10)] {
            assert!(on_cpu(&queue, cpu).enqueue_after(&work, delay));
            assert_eq!(pool(), format!("aw/u{cpu}"));
            // The run may still be ending.
            let other = (cpu + 1) % 8;
            on_cpu(&queue, cpu).enqueue_after(&work, HOUR);
            assert_eq!(on_cpu(&queue, other).reschedule(&work, delay), Ok(false));
            assert_eq!(pool(), format!("aw/u{other}"));
            work.flush().unwrap();
        }
    }
}

#[test]
fn work_on_cpu_runs_on_that_cpu_or_reports_an_error() {
    let topology = Topology::detect().unwrap();
    for cpu in topology.allowed().iter() {
        assert_eq!(work_on_cpu(cpu, cpu_here).unwrap(), cpu);
    }
    let log = Log::default();
    schedule_on_each_cpu(move |cpu| log.push((cpu, cpu_here()))).unwrap();
    let mut log = log.take();
    log.sort();
    assert!(log.into_iter().eq(topology.allowed().iter().map(|cpu| (cpu, cpu))));
    let none = work_on_cpu(CpuId::new(100_000), || ()).unwrap_err();
    let none = none.downcast().unwrap();
    assert!(matches!(none, BuildError::NoCpus), "{none:?}");
    let allowed = Topology::detect().unwrap().allowed().clone();
    let first = allowed.iter().next().unwrap();
    let panicked = work_on_cpu(first, || panic!("there"));
    let panicked = panicked.map(|never: ()| never).unwrap_err().downcast();
    assert!(matches!(panicked, Ok(JoinError::Panicked(_))), "{panicked:?}");
    let count = Count::default();
    let on_all = schedule_on_each_cpu(move |_| {
        count.add();
        panic!("everywhere");
    });
    let on_all = on_all.unwrap_err().downcast();
    assert!(matches!(on_all, Ok(JoinError::Panicked(_))));
    assert_eq!(count.get(), allowed.len(), "all have ended");
    // The first panic of all CPUs is returned, with its payload.
    let panics = |_| panic_any(at_drop(|| panic!("a payload's drop")));
    let first = schedule_on_each_cpu(panics).unwrap_err().downcast();
    assert!(matches!(first, Ok(JoinError::Panicked(_))));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(first))).is_err());
}

#[test]
fn an_item_queued_on_a_node_runs_in_a_pool_of_that_node() {
    let queue = spread(Cache);
    pin(0);
    // This thread is on CPU 0 of node 0.
    assert_eq!(pool_of(|work| assert!(queue.task().on_node(0).enqueue(work))), "aw/u0");
    assert_eq!(pool_of(|work| assert!(queue.task().on_node(1).enqueue(work))), "aw/u2");
}

#[test]
fn missing_cpu_or_node_selects_the_first_pod() {
    let queue = spread(Cpu);
    assert_eq!(pool_of(|work| assert!(on_cpu(&queue, 1000).enqueue(work))), "aw/u0");
    assert_eq!(pool_of(|work| assert!(queue.task().on_node(77).enqueue(work))), "aw/u0");
}

#[test]
fn a_pending_item_stays_where_it_was_queued_first() {
    let queue = spread(Cpu);
    queue.set_max_active(1).unwrap();
    let plug = plug_into(&queue);
    let pool = pool_of(|work| {
        assert!(on_cpu(&queue, 3).enqueue(work));
        assert!(!on_cpu(&queue, 5).enqueue(work));
        plug.release();
    });
    assert_eq!(pool, "aw/u3");
}
