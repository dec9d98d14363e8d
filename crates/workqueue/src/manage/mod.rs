//! The manager thread of a registry (`manager_loop.rs`), and the creation of a registry, which
//! starts that thread (`start.rs`), also for tests of programs (`for_tests.rs`).

#[cfg(not(any(loom, shuttle)))]
pub(crate) mod for_tests;
pub(crate) mod manager_loop;
pub(crate) mod start;
