//! The parts that need an operating system: locks, threads, futexes, clocks, CPUs and processes.

pub mod asym;
mod backoff;
mod copies;
pub mod cpu;
pub mod env;
pub mod eventfd;
pub mod fork;
pub mod futex;
pub mod identity;
pub mod lock;
#[cfg(not(any(loom, shuttle, sim)))]
mod newborn;
pub mod pages;
pub mod process;
#[cfg(not(any(loom, shuttle, sim)))]
mod punctual;
pub(crate) mod rseq;
pub(crate) mod set_once;
#[cfg(all(feature = "processes", not(any(loom, shuttle))))]
pub mod shared_file;
mod stack;
#[cfg(not(any(loom, shuttle, sim)))]
mod start;
pub mod thread;
pub mod time;
pub mod usage;

/// A cell written once, for process-wide state that no model touches.
#[cfg(not(sim))]
pub use std::sync::OnceLock;

pub use backoff::Backoff;
pub use lock::{Mutex, MutexGuard};
#[cfg(sim)]
pub use simachine::sync::OnceLock;

/// Returns the system's error if a call has returned a negative number.
fn checked(result: libc::c_int) -> std::io::Result<()> {
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
