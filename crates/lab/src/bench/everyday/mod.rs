//! `afterwork-lab bench everyday`: what programs ask of a pool besides speed.
//!
//! | case | what is done |
//! |---|---|
//! | `admission` | producers flood a pool that takes no more than a thousand items ahead |
//! | `scope-sum` | numbers in a borrowed slice are summed by all CPUs |
//! | `scope-empty` | a million empty items that borrow |
//! | `idle-1ms`, `idle-10ms` | an item now and then: what a program that does nothing else costs |
//! | `sleeps` | a million tasks sleep |

mod admission;
mod cases;
mod idle;
mod scopes;
mod sleeps;

pub use cases::{MENU, cases};
