//! Tests of RCU's guarantees on the real machine.

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
        atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering},
        mpsc::{self, Sender},
    },
    task::{Context, Wake},
    thread,
    time::{Duration, Instant},
};

use afterwork::{
    mailbox::{Mailbox, Worker},
    rcu::{
        self, Batch, Full, Head, Rcu, Tunables,
        qsbr::Reader,
        srcu::{Domain, OwnedGuard},
    },
    wake::Parker,
    workqueue::Workqueue,
};
