//! Tests of RCU's guarantees on the real machine.

/// Runs the test in its own process with these tunables. Evaluates to `None` there.
macro_rules! alone {
    ($tunables:expr) => {{
        fn inside() {}
        crate::env::alone(std::any::type_name_of_val(&inside), $tunables)
    }};
}

/// Continues the test in its own process with these tunables, and returns in this one.
macro_rules! run_alone {
    ($tunables:expr) => {
        if alone!($tunables).is_some() {
            return;
        }
    };
}

#[path = "../children/mod.rs"]
mod children;

mod callbacks;
mod ends;
mod env;
mod executor;
mod flood;
mod gp;
mod leaked;
mod qsbr;
mod refused;
mod runners;
#[cfg(target_arch = "x86_64")]
mod signal;
mod stall;

use std::{
    cell::RefCell,
    fs, mem,
    os::fd::AsRawFd,
    panic::{self, AssertUnwindSafe, catch_unwind},
    pin::Pin,
    process::{Command, Output},
    sync::{
        Arc, Barrier, Mutex, MutexGuard, OnceLock,
        atomic::*,
        mpsc::{self, Sender},
    },
    task::{Context, Wake},
    thread,
    time::{Duration, Instant},
};

use afterwork::{
    mailbox::{Mailbox, Worker},
    rcu::{
        self, Batch, Full, Head, Rcu, Stall, Tunables,
        qsbr::Reader,
        srcu::{Domain, OwnedGuard},
    },
    wake::Parker,
    workqueue::Workqueue,
};

#[derive(Clone, Default)]
struct Run(Arc<AtomicUsize>);

impl Run {
    fn callback(&self) -> impl FnOnce() + Send + 'static {
        let run = self.0.clone();
        move || _ = run.fetch_add(1, Ordering::Relaxed)
    }

    fn nr(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts its drop.
struct Counted(Run);

sync::on_drop!(Counted, this => this.0.callback()());

fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::yield_now();
    }
}
