//! `afterwork-lab bench max-active`: the worth of a limit on running items, and its cost.
//!
//! | case | what is done |
//! |---|---|
//! | `joins` | items that go over their blocks several times, all through one pool of blocks in memory |
//! | `subsystems` | eight parts of a program, each with its limit, compute and now and then wait for a device |
//! | `shares` | one of eight parts floods the pool that they share, and the items of the others are timed |
//!
//! Items go to a [crew], ours or a peer's; [drive] keeps so many of them on their way and times them; [gauge] reads
//! what the process grew to meanwhile. `docs/bench-method.md` tells what is timed.

mod cases;
mod claims;
pub mod crew;
pub mod drive;
pub mod gauge;
pub mod joins;
pub mod metrics;

pub use cases::{MENU, MaxActiveArgs, cases};
