//! `afterwork-lab bench percpu`: a CPU's cache of objects, its owner, and drains from other CPUs.
//!
//! | case | scenario |
//! |---|---|
//! | `alloc-warm` | objects of 64 bytes are taken from a list that fits in the first-level cache |
//! | `isolation` | a real-time thread uses its CPU's cache in a loop, and another CPU drains it |
//! | `busy-owner`, `-loaded`, `-fifo` | a thread calls a slot whose owner is always busy |
//!
//! The lists are shuffled within slabs of 4 KiB, so that no prefetcher predicts the next object.
//! The loop is the same for all variants and is inlined, so the variants differ only in the guard.
//! The guards take turns on one list (`turns.rs`), so a repetition is one run of all guards.

mod busy;
mod cache;
mod cases;
mod interrupts;
pub mod isolation;
mod list;
pub mod metrics;
mod turns;

pub use cases::{MENU, PercpuArgs, cases};
