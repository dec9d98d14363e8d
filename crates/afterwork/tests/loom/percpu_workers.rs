//! Workers that own slots of their CPU, a remote caller, and the twins that must go red.
//!
//! Loom checks the data itself: an operation that overlaps another one, or that is not ordered after it, is a race. A
//! caller who waits for a worker that sleeps with its slot waits for ever, which loom notices by the length of the run.

use std::sync::{Arc, OnceLock};

use afterwork::percpu::{PerCpu, Qpw};
use afterwork::workqueue::{self, Work};
use sync::twin::must_fail;
use topology::{CpuId, Topology};

use crate::support::{Barred, bounded, machine, plain, wind_up};

const CPU: CpuId = CpuId::new(0);

fn slots(qpw: Qpw) -> Arc<PerCpu<u32>> {
    static MACHINE: OnceLock<Topology> = OnceLock::new();
    let machine = MACHINE.get_or_init(|| Topology::synthetic("1 core").unwrap());
    let builder = PerCpu::builder().topology(machine.clone()).qpw(qpw);
    Arc::new(builder.build(|_| 0).unwrap())
}

/// An item adds one by way of the slot that its worker owns, a remote caller too; then the worker is idle.
fn item_and_remote(qpw: Qpw) {
    let machine = machine(1, 1);
    let slots = slots(qpw);
    let owned = slots.let_workers_own();
    let queue = plain().build_in(machine.registry()).unwrap();
    machine.start_workers(1);
    let theirs = slots.clone();
    let work = Work::new(move || theirs.with_current(|data| *data += 1));
    queue.enqueue(&work);
    slots.run_on(CPU, |data| *data += 1);
    work.flush().unwrap();
    assert_eq!(slots.run_on(CPU, |data| *data), 2);
    drop(owned);
    wind_up(queue);
}

/// An item blocks until a remote call is through; `inside` an operation of its own it only says that it blocks.
fn blocking_item_and_remote(inside: bool) {
    let machine = machine(1, 1);
    let slots = slots(Qpw::Queue);
    let owned = slots.let_workers_own();
    let queue = plain().build_in(machine.registry()).unwrap();
    machine.start_workers(1);
    let gate = Arc::new(Barred::default());
    let (theirs, bar) = (slots.clone(), gate.clone());
    let work = Work::new(move || {
        if inside {
            theirs.with_current(|data| {
                *data += 1;
                workqueue::blocking(|| ());
                *data += 1;
            });
        } else {
            workqueue::blocking(|| bar.pass());
        }
    });
    queue.enqueue(&work);
    slots.run_on(CPU, |data| *data += 1);
    gate.open();
    work.flush().unwrap();
    drop(owned);
    wind_up(queue);
}

#[test]
fn an_item_and_a_remote_caller_never_overlap() {
    for qpw in Qpw::ALL {
        println!("{qpw}");
        bounded(2, move || item_and_remote(qpw));
    }
}

#[test]
fn a_worker_that_sleeps_owns_nothing() {
    bounded(2, || blocking_item_and_remote(false));
}

#[test]
fn a_worker_that_blocks_inside_an_operation_keeps_its_slot() {
    bounded(2, || blocking_item_and_remote(true));
}

#[test]
fn lying_down_needs_giving_slots_up() {
    must_fail("station: lies down with its slots", || {
        bounded(2, || item_and_remote(Qpw::Queue))
    });
}

#[test]
fn blocking_needs_giving_slots_up() {
    must_fail("station: blocks with its slots", || {
        bounded(2, || blocking_item_and_remote(false))
    });
}

#[test]
fn leaving_needs_a_look_whether_one_is_inside() {
    must_fail("percpu: leaves from inside", || {
        bounded(2, || blocking_item_and_remote(true))
    });
}
