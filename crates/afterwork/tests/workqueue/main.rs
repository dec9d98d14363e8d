//! Functional tests of the workqueue on the real machine. Each test checks one documented promise.
//!
//! No test relies on timing: each waits for the event itself. A wait that fails after
//! [`support::PATIENCE`] reports a hang. A test that lasts three times as long ends the process.
#![cfg(not(any(loom, shuttle)))]

#[path = "../children/mod.rs"]
mod children;
mod support;

mod active;
mod admission;
mod attrs;
mod blocked;
mod blocking;
mod builder;
mod cancel;
mod cancel_all;
mod cancellation;
mod deadline;
mod deferred;
mod delayed;
mod dependency;
mod disable;
mod drain;
mod ends;
mod flush;
mod flush_queue;
mod foreign;
mod future;
mod group;
mod handles;
mod in_turn;
mod items;
mod kinds;
mod lifecycle;
mod names;
mod nested;
mod order;
mod own_queue;
mod panics;
mod periodic;
mod place;
mod pools;
mod quota;
mod rcu_work;
mod reapers;
mod refused;
mod scope;
mod shares;
mod shutdown;
mod shutdown_timeout;
mod sleep;
mod spawn;
mod spawn_async;
mod spawn_async_ends;
mod statistics;
mod storms;
mod strand;
mod task;
mod task_set;
mod threads;
mod urgent;
mod watchdog;
