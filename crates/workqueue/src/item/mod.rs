//! A work item by itself: its state, its list link and its memory. This module names neither pools
//! nor queues.
//!
//! `head.rs` contains the first part of every item and describes the protocol: all transitions of
//! an item, as functions of one state word. It also counts handles and decides which thread frees
//! the item. `memory.rs` allocates the memory of items. Except in models, it uses each thread's
//! slabs (`slab.rs`), which `chunks.rs` allocates and scans. `list.rs` contains the intrusive lists
//! of items, with a color by which a flush recognizes the items that it waits for.
//! `deferred_drops.rs` collects the deferred work of a bulk cancel. `token.rs` contains the tokens
//! through which running code detects a cancel. The lane of an item
//! (`crates/base/src/wake/lane.rs`) decides whether it runs before others.

pub(crate) mod chunks;
pub(crate) mod deferred_drops;
pub(crate) mod head;
pub(crate) mod list;
pub(crate) mod memory;
pub(crate) mod panicked;
pub(crate) mod revival;
pub(crate) mod slab;
pub(crate) mod token;

pub(crate) use base::internal::wake::lane;
