//! Atomics, a lock and a cell, with the interface of the standard library's module `sync`.

pub mod atomic;
mod lock;
mod once;

pub use lock::{Mutex, MutexGuard};
pub use once::OnceLock;
