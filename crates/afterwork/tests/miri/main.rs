//! User operations of all kinds, small enough for Miri to check their memory accesses.
//!
//! `xtask/src/test/miri.rs` documents how Miri runs them. They also pass on the real machine.

mod ends;
mod percpu;
mod rcu;
mod workqueue;

use std::cell::RefCell;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::*;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use afterwork::params::Params;
use afterwork::percpu::{PerCpu, Qpw};
use afterwork::rcu::srcu::Domain;
use afterwork::rcu::{Flavor, Rcu, qsbr};
use afterwork::workqueue::{DelayedWork, RcuWork, Registry, TaskSet, Work, Workqueue};
use topology::{CpuId, Topology};

fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        thread::yield_now();
    }
}
