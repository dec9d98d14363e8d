//! `afterwork-lab bench blocking`: items that sleep, on pools with one worker per CPU.
//!
//! | case | what is measured |
//! |---|---|
//! | `detect` | time until an item runs while another item of its pool sleeps on the only CPU |
//! | `mixed` | time and threads for 64 items that burn 1 ms, sleep 5 ms and burn 1 ms |
//!
//! In `guard`, items sleep in `workqueue::blocking`. In `sampler`, the manager must detect the
//! sleep.

mod cases;
mod detect;
mod mixed;

pub use cases::{MENU, cases};
