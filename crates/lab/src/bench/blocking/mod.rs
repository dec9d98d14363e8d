//! `afterwork-lab bench blocking`: items that sleep, on pools of one worker for each CPU.
//!
//! | case | what is done |
//! |---|---|
//! | `detect` | an item sleeps on a pool of one CPU, and one behind it waits: how long until that runs |
//! | `mixed` | 64 items that burn 1 ms, sleep 5 ms and burn 1 ms: how long all take, with how many threads |
//!
//! `guard` says so by `workqueue::blocking`, `sampler` does not and is found out.

mod cases;
mod detect;
mod mixed;

pub use cases::{MENU, cases};
