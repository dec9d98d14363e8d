//! `afterwork-lab bench blocking`: items that sleep, on pools with one worker per CPU.
//!
//! In `guard`, items sleep in `workqueue::blocking`. In `sampler`, the manager must detect the
//! sleep. `docs/bench-method.md` defines the cases and figures.

mod cases;
mod detect;
mod mixed;

pub use cases::{MENU, cases};
