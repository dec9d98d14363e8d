//! Workqueues: queueing, the registry of pools, timers, destruction.
//!
//! `queue.rs` contains the queue, with its urgent lane and CPU shares, and its weak handles.
//! `builder.rs` contains its builder, and `system.rs` the kernel's queues. `enqueue.rs` claims an
//! item and pushes it. `spawn.rs` queues closures and futures, if the queue admits them.
//! `future.rs` contains the items of futures, and handles that can only cancel. `task.rs` queues
//! work with options, such as a capacity (`admission.rs`) or a deadline (`expiry.rs`). `strand.rs`
//! runs closures one after the other, with a state. `group.rs` contains groups of queues.
//!
//! `reroute.rs` changes the routes of a queue in use. `registry.rs` owns the shared pools and the
//! timers (`timers.rs`), which queue items later and wake tasks (`sleeps.rs`). The timers are in a
//! wheel (`wheel.rs`), and follow the registry's clock (`clock.rs`). `end.rs` describes the
//! protocol that destroys a queue. `describe.rs` collects statistics.

// The pages of `Workqueue` and `TaskOptions` list their methods in the order of these lines.

pub(crate) mod builder;

pub(crate) mod spawn;

pub(crate) mod task;

pub(crate) mod enqueue;

pub(crate) mod admission;
pub(crate) mod clock;
pub(crate) mod describe;
pub(crate) mod end;
pub(crate) mod expiry;
pub(crate) mod future;
pub(crate) mod group;
pub(crate) mod queue;
pub(crate) mod registry;
pub(crate) mod reroute;
pub(crate) mod sleeps;
pub(crate) mod strand;
pub(crate) mod system;
pub(crate) mod timers;
pub(crate) mod wheel;
