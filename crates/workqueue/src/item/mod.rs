//! A work item by itself: its state, its list link and its memory. Names no pool and no queue.
//!
//! `state.rs` has the protocol: all transitions of an item, as functions of one state word.
//! `head.rs` is the first part of every item and applies the transitions. `handles.rs` counts
//! handles and decides which thread frees the item. `slab.rs` allocates its memory (on the real
//! machine from `cache.rs` and `chunks.rs`, which use `biased.rs`). `list.rs` links items through
//! themselves, together with a colour (`colour.rs`) by which a flush recognizes the items that it
//! waits for. `remains.rs` collects the deferred work of a bulk cancel. The lane of an item
//! (`wake/lane.rs`) decides whether it is run before others.

#[cfg_attr(any(shuttle, miri), allow(dead_code))]
pub(crate) mod biased;
#[cfg(not(any(loom, shuttle)))]
#[cfg_attr(miri, allow(dead_code))]
mod cache;
#[cfg(not(any(loom, shuttle)))]
#[cfg_attr(miri, allow(dead_code))]
pub(crate) mod chunks;
pub(crate) mod colour;
pub(crate) mod handles;
pub(crate) mod head;
pub(crate) mod list;
pub(crate) mod panicked;
pub(crate) mod remains;
pub(crate) mod revival;
pub(crate) mod slab;
pub(crate) mod state;

pub(crate) use base::internal::wake::lane;
