//! Slots that their owners and others work on, in every mode.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use afterwork::{
    params::Params,
    percpu::{Builder, PageBatches, PerCpu, Qpw, SloppyCounter},
    workqueue::{AffinityScope, Registry, Workqueue},
};
use topology::{CpuId, Topology};

fn machine() -> Topology {
    Topology::synthetic("2 core").unwrap()
}

fn builder(qpw: Qpw) -> Builder {
    PerCpu::builder().topology(machine()).qpw(qpw)
}

#[test]
fn an_owner_and_others_reach_a_slot_in_turns() {
    for qpw in Qpw::ALL {
        let slots = builder(qpw).build(|_| vec![0_u64]).unwrap();
        let is_over = AtomicBool::new(false);
        let cpu = CpuId::new(1);
        thread::scope(|scope| {
            let owner = scope.spawn(|| {
                let mut owner = slots.attach(cpu).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    owner.with(|values| values.push(1));
                    owner.poll();
                    thread::yield_now();
                }
                drop(owner.park());
            });
            for _ in 0..2 {
                slots.queue_percpu_work(cpu, |values| values.push(2));
                let nr = slots.run_on(cpu, |values| {
                    values.push(3);
                    values.len()
                });
                assert!(nr > 1);
            }
            slots.flush(cpu);
            is_over.store(true, Ordering::Relaxed);
            owner.join().unwrap();
        });
        let data: Vec<_> = slots.into_data().collect();
        assert_eq!(data[1].1.iter().filter(|&&value| value > 1).count(), 4);
    }
}

#[test]
fn workers_own_slots_and_others_drain_them() {
    let registry = Registry::new(machine(), Params::default()).unwrap();
    let queue = Workqueue::builder("owned")
        .scope(AffinityScope::Cpu)
        .build_in(&registry)
        .unwrap();
    let counter = Arc::new(SloppyCounter::new(builder(Qpw::OnDemand), 4).unwrap());
    let owned = counter.let_workers_own();
    let handles: Vec<_> = (0..4)
        .map(|_| {
            let counter = counter.clone();
            queue.spawn(move || counter.add(1))
        })
        .collect();
    handles
        .into_iter()
        .for_each(|handle| handle.join().unwrap());
    assert_eq!(counter.sum(), 4);
    drop(owned);
}

#[test]
fn pages_are_kept_and_given_back() {
    let pages = PageBatches::new(builder(Qpw::OnDemand), 4096, 2).unwrap();
    let held = [(); 3].map(|()| pages.alloc());
    held.into_iter().for_each(|page| pages.free(page));
    pages.shrink();
}
