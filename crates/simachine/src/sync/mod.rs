//! Atomics, a mutex and a cell that is written once, with the interface of `std::sync`.

pub mod atomic;
mod lock;
mod once;

pub use lock::{Mutex, MutexGuard};
pub use once::OnceLock;
