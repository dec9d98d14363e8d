//! The manager thread of a registry (`manager_loop.rs`). Creating a registry starts this thread:
//! `start.rs` creates registries for programs, and `for_tests.rs` for their tests.

#[cfg(not(any(loom, shuttle)))]
pub(crate) mod for_tests;
pub(crate) mod manager_loop;
pub(crate) mod start;
