//! `afterwork-lab bench blocking`: items that sleep, on pools with one worker per CPU.
//!
//! The case `mixed` measures time and threads for 64 items that burn 1 ms, sleep 5 ms and burn
//! 1 ms. `guard` sleeps in `workqueue::blocking`; in `sampler`, the manager must detect the sleep.

mod cases;
mod mixed;

pub use cases::{MENU, cases};
