//! Where an item that names its place runs.

use afterwork::workqueue::{AffinityScope, CpuId, Work, Workqueue};

use crate::support::*;

/// Returns the pool in which `queue` runs what `enqueue` queues, by its worker's name.
fn pool_of(enqueue: impl FnOnce(&Work)) -> String {
    let (send, receive) = std::sync::mpsc::channel();
    let work = Work::new(move || {
        let name = std::thread::current()
            .name()
            .unwrap_or_default()
            .to_string();
        send.send(name).unwrap();
    });
    enqueue(&work);
    receive.recv_timeout(PATIENCE).unwrap()
}

fn spread(scope: AffinityScope) -> Workqueue {
    let registry = registry("2 numa x 2 llc x 2 core");
    queue("place")
        .help(false)
        .scope(scope)
        .build_in(&registry)
        .unwrap()
}

#[test]
fn an_item_queued_on_a_cpu_runs_in_the_pool_of_its_pod() {
    let queue = spread(AffinityScope::Cpu);
    for cpu in 0..8 {
        let pool = pool_of(|work| assert!(queue.enqueue_on(CpuId::new(cpu), work)));
        assert_eq!(pool, format!("aw/u{cpu}"));
    }
    let queue = spread(AffinityScope::Cache);
    for cpu in 0..8 {
        let pool = pool_of(|work| assert!(queue.enqueue_on(CpuId::new(cpu), work)));
        assert_eq!(pool, format!("aw/u{}", cpu / 2));
    }
}

#[test]
fn a_closure_spawned_on_a_cpu_runs_in_the_pool_of_its_pod() {
    let queue = spread(AffinityScope::Cpu);
    for cpu in 0..8 {
        let name = || {
            std::thread::current()
                .name()
                .unwrap_or_default()
                .to_string()
        };
        let pool = queue.spawn_on(CpuId::new(cpu), name).join().unwrap();
        assert_eq!(pool, format!("aw/u{cpu}"));
    }
}

#[test]
fn an_item_queued_on_a_node_runs_in_a_pool_of_that_node() {
    let queue = spread(AffinityScope::Cache);
    pin(0);
    // This thread is on CPU 0 of node 0.
    let pool = pool_of(|work| assert!(queue.enqueue_node(0, work)));
    assert_eq!(pool, "aw/u0");
    let pool = pool_of(|work| assert!(queue.enqueue_node(1, work)));
    assert_eq!(pool, "aw/u2");
}

#[test]
fn a_cpu_or_node_that_is_not_there_stands_for_the_first_pod() {
    let queue = spread(AffinityScope::Cpu);
    let pool = pool_of(|work| assert!(queue.enqueue_on(CpuId::new(1000), work)));
    assert_eq!(pool, "aw/u0");
    let pool = pool_of(|work| assert!(queue.enqueue_node(77, work)));
    assert_eq!(pool, "aw/u0");
}

#[test]
fn a_pending_item_stays_where_it_was_queued_first() {
    let queue = spread(AffinityScope::Cpu);
    queue.set_max_active(1).unwrap();
    let plug = plug_into(&queue);
    let pool = pool_of(|work| {
        assert!(queue.enqueue_on(CpuId::new(3), work));
        assert!(!queue.enqueue_on(CpuId::new(5), work));
        plug.release();
    });
    assert_eq!(pool, "aw/u3");
}
