//! Tests of RCU's guarantees on the real machine.

/// Runs the test in its own process with these tunables. Evaluates to `None` there.
macro_rules! alone {
    ($tunables:expr) => {{
        fn inside() {}
        crate::env::alone(std::any::type_name_of_val(&inside), $tunables)
    }};
}

/// Continues the test in its own process with these tunables, and returns in this one, after an
/// optional check that the other process has printed a text a number of times.
macro_rules! run_alone {
    ($tunables:expr) => {
        if alone!($tunables).is_some() {
            return;
        }
    };
    ($tunables:expr, $text:expr, $nr_times:expr) => {
        if let Some(stderr) = alone!($tunables) {
            assert_eq!(stderr.matches($text).count(), $nr_times, "{stderr}");
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

use std::any::Any;
use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Command;
use std::sync::atomic::*;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Wake};
use std::time::{Duration, Instant};
use std::{fs, mem, thread};

use afterwork::mailbox::{Mailbox, Worker};
use afterwork::rcu::qsbr::Reader;
use afterwork::rcu::srcu::{Domain, OwnedGuard};
use afterwork::rcu::{self, Batch, Full, Head, Rcu, Stall, Tunables};
use afterwork::wake::Parker;
use afterwork::workqueue::Workqueue;
use children::{message_of, number_in, until};

/// A guard against hangs. No test waits this long.
const PATIENCE: Duration = Duration::from_secs(60);

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

struct Counted(Run);

sync::on_drop!(Counted, this => this.0.callback()());

type Callback = Box<dyn FnOnce() + Send>;

/// Queues a callback by a head in its own memory.
fn call_head(callback: Callback) {
    #[repr(C)]
    struct Node(Head, Callback);
    let node = Box::into_raw(Box::new(Node(Head::new(), callback)));
    unsafe extern "C-unwind" fn run(head: *mut Head) {
        // SAFETY: the node was leaked for this callback.
        unsafe { Box::from_raw(head.cast::<Node>()).1() };
    }
    // SAFETY: the head is the node's first field, and nothing else uses the node.
    unsafe { rcu::raw::call_c(node.cast(), run) };
}

/// Keeps this thread on one CPU, so that it adds to one list.
fn stay_on_one_cpu() {
    let one = sync::cpu::affinity().unwrap().iter().take(1).collect();
    sync::cpu::set_affinity(None, &one).unwrap();
}
