//! What looks after the pools of a registry: the manager's thread (`manager_loop.rs`), and the making of a registry, which
//! starts it (`start.rs`).

pub(crate) mod manager_loop;
pub(crate) mod start;
