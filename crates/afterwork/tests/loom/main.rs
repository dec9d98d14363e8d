//! Explores every interleaving of small cases, including weak memory. The twins must fail.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p afterwork --release --test loom`
//!
//! The models run the shipped code with smaller constants: a worker takes two items at a time, and
//! no idle worker is kept. "Exhaustive" means that preemptions are unbounded.
#![cfg(loom)]

#[path = "../support/passed.rs"]
mod passed;
mod percpu;
mod rcu;
mod rcu_cell;
mod rcu_litmus;
mod rcu_qsbr;
mod srcu;
mod stacks;
mod support;
mod task_work;
mod task_work_block;
mod task_work_capacity;
mod task_work_lanes;
mod task_work_local;
mod wake;
mod workqueue_attrs;
mod workqueue_blocking;
mod workqueue_capacity;
mod workqueue_deadline;
mod workqueue_deferred;
mod workqueue_delayed;
mod workqueue_end;
mod workqueue_flush;
mod workqueue_future;
mod workqueue_group;
mod workqueue_item;
mod workqueue_legs;
mod workqueue_parts;
mod workqueue_pool;
mod workqueue_raw;
mod workqueue_rcu_work;
mod workqueue_rescuer;
mod workqueue_scope;
mod workqueue_shutdown;
mod workqueue_sleep;
mod workqueue_strand;
mod workqueue_task_set;
mod workqueue_token;
