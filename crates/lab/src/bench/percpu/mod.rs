//! `afterwork-lab bench percpu`: a CPU's cache of objects, its owner, and drains from other CPUs.
//!
//! | case | what is done |
//! |---|---|
//! | `alloc-warm` | objects of 64 bytes are taken from a list that fits the first cache |
//! | `isolation` | a real-time thread in a tight loop works on its CPU's cache while another CPU drains that |
//!
//! The lists are shuffled within slabs of 4 KiB, so that no prefetcher knows the next object. The loop itself is the
//! same for all, and inlined: what differs is what stands around the list. All guards have their turns on one list, a few
//! thousand objects at a time (`turns.rs`), so a repetition is one run of all of them.

mod cache;
mod cases;
mod claims;
mod interrupts;
pub mod isolation;
mod list;
pub mod metrics;
mod turns;

pub use cases::{MENU, PercpuArgs, cases};
