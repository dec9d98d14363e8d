//! A work item by itself: its state, its link in a list, its memory. Names no pool and no queue.
//!
//! `state.rs` has the protocol: every step that an item can take, as plain functions of one word. `head.rs` is what every
//! item begins with, and takes those steps; `handles.rs` counts who has one, and says who frees it, in `slab.rs` where
//! its memory comes from (`cache.rs` and `chunks.rs` on the real machine, on `biased.rs`). `list.rs` links items through
//! themselves, with a colour (`colour.rs`) that tells a flush which of them it waits for. `remains.rs` is what is left of those
//! that are cancelled many at a time. Whether an item goes before others says its lane, of `wake/lane.rs`.

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
