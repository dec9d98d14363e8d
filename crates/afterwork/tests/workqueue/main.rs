//! Functional tests of the workqueue on the real machine. Each test checks one documented promise.
//!
//! No test relies on timing: each waits for the event itself. A wait that fails after
//! [`support::PATIENCE`] reports a hang. A test that lasts three times as long ends the process.
#![cfg(not(any(loom, shuttle)))]

#[path = "../children/mod.rs"]
mod children;
#[path = "../support/dice.rs"]
mod dice;
mod support;

mod active;
mod admission;
mod attrs;
mod blocking;
mod cancel;
mod cancel_all;
mod cancellation;
mod deferred;
mod delayed;
mod drain;
mod ends;
mod flush;
mod foreign;
mod group;
mod items;
mod kinds;
mod lifecycle;
mod nested;
mod order;
mod pools;
mod rcu_work;
mod reports;
mod scope;
mod shares;
mod shutdown;
mod sleep;
mod spawn;
mod spawn_async;
mod statistics;
mod strand;
mod task;
mod task_set;
mod threads;
mod urgent;
