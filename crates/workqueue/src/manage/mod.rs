//! The manager thread of a registry (`manager_loop.rs`), and the creation of a registry, which
//! starts that thread (`start.rs`).

pub(crate) mod manager_loop;
pub(crate) mod start;
