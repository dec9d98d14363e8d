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
use afterwork::percpu::PerCpu;
use afterwork::rcu::srcu::Domain;
use afterwork::workqueue::{
    self, DelayedWork, Registry, Topology, Workqueue, block_on, sleep, system,
};
use afterwork::{observe, rcu};
use children::*;
