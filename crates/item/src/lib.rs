//! A work item by itself: its state, its list link, its memory and its cancellation token. This
//! crate names neither pools nor queues.
//!
//! This crate is for the other crates of afterwork. Programs use the crate `afterwork`.

// `head.rs` contains the first part of every item and describes the protocol: all transitions of
// an item, as functions of one state word. It also counts handles and decides which thread frees
// the item. `memory.rs` allocates the memory of items. Except in models, it uses each thread's
// slabs (`slab.rs`), which `chunks.rs` allocates and scans. `list.rs` contains the intrusive lists
// of items, with a color by which a flush recognizes the items that it waits for.
// `deferred_drops.rs` collects the deferred work of a bulk cancel. `token.rs` contains the tokens
// through which running code detects a cancel. `cleanups.rs` runs deferred cleanup, which may block
// or run user code.

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[doc(hidden)]
mod chunks;
#[doc(hidden)]
mod cleanups;
#[doc(hidden)]
mod deferred_drops;
#[doc(hidden)]
mod head;
#[doc(hidden)]
pub mod internal;
#[doc(hidden)]
mod list;
#[doc(hidden)]
mod memory;
#[doc(hidden)]
mod panicked;
#[doc(hidden)]
mod revival;
#[doc(hidden)]
mod slab;
#[doc(hidden)]
mod token;
