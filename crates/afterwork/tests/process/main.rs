//! Processes with unusual settings, limits or files. Almost every test has its own process, because
//! the library records the settings of a process when it is first used.

#![cfg(not(any(loom, shuttle, sim)))]

#[path = "../children/mod.rs"]
mod children;
mod environment;
mod newborn;
mod sandbox;
mod settings;

use std::cell::RefCell;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{catch_unwind, resume_unwind};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::*;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{env, fs, io, ptr, thread};

use afterwork::mailbox::Worker;
use afterwork::params::Params;
use afterwork::percpu::{PerCpu, SloppyCounter};
use afterwork::rcu::srcu::Domain;
use afterwork::workqueue::{
    self, DelayedWork, Registry, Topology, Workqueue, block_on, interval, sleep, system, timeout,
};
use afterwork::{observe, rcu};
use children::*;

fn use_everything() {
    const SPAN: Duration = Duration::from_millis(1);
    let queue = Workqueue::builder("sandbox").build().unwrap();
    assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
    let queue = Workqueue::builder("per-cpu").per_cpu().build().unwrap();
    assert_eq!(queue.spawn(|| 2).join().unwrap(), 2);
    assert_eq!(system().unwrap().spawn(|| 3).join().unwrap(), 3);
    block_on(sleep(SPAN));
    assert!(block_on(timeout(SPAN, std::future::pending::<()>())).is_err());
    block_on(interval(SPAN).unwrap().tick());
    let worker = Worker::builder("sandbox").build().unwrap();
    let slept = worker.spawn_local(|| async {
        sleep(SPAN).await;
        4
    });
    assert_eq!(slept.join().unwrap(), 4);
    let slots = PerCpu::builder().build(|_| 5).unwrap();
    assert_eq!(slots.with_current(|slot| *slot), 5);
    let count = SloppyCounter::new(PerCpu::builder(), 4).unwrap();
    count.add(6);
    assert_eq!(count.sum(), 6);
    drop(rcu::read());
    rcu::synchronize();
    rcu::barrier();
    observe::snapshot().unwrap();
}
