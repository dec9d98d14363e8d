//! Children of `fork`, and other objects that belong to one process: the published page.

#![cfg(not(any(loom, shuttle, sim)))]

#[path = "../children/mod.rs"]
mod children;
mod inside;
mod page;
mod parts;
mod worker;

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::pin::{Pin, pin};
use std::process::{self, Command};
use std::sync::atomic::*;
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use afterwork::mailbox::{self, Mailbox, Worker};
use afterwork::observe;
use afterwork::params::Params;
use afterwork::percpu::{CpuSet, PerCpu, Qpw, set_online_cpus};
use afterwork::rcu::srcu::Domain;
use afterwork::rcu::{self, Rcu, qsbr};
use afterwork::workqueue::{self, DelayedWork, Registry, Topology, Work, Workqueue};
use children::{LIMIT_S, alone, exit, mode, spawn, succeeds_in_child, this_test, until, wait_for};
