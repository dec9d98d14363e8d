//! The manager thread of a registry (`manager_loop.rs`), and the creation of registries, which
//! starts that thread: for programs (`start.rs`) and for their tests (`for_tests.rs`).

#[cfg(not(any(loom, shuttle)))]
pub(crate) mod for_tests;
pub(crate) mod manager_loop;
pub(crate) mod start;
