//! `afterwork-lab bench everyday`: properties other than speed that programs need from a pool.
//!
//! | case | scenario |
//! |---|---|
//! | `admission` | producers flood a pool that holds at most a thousand waiting items |
//! | `scope-sum` | all CPUs sum the numbers of a borrowed slice |
//! | `scope-empty` | a million empty items are spawned in a scope |
//! | `range-empty` | an empty call runs for each number of a range |
//! | `idle-1ms`, `idle-10ms` | an occasional item in a program that does nothing else |
//! | `sleeps` | a million tasks sleep |
//! | `timeouts` | threads arm and cancel timeouts that never fire |
//! | `locked` | requests hold a lock while they wait for part of their own work |
//! | `save-soon` | a thousand changes, each with a save soon after the last one |
//! | `strands` | a hundred thousand states, each used by one closure at a time |

mod admission;
mod cases;
mod idle;
mod locked;
mod scopes;
mod sleeps;
mod soon;
mod strands;
mod timeouts;

pub use cases::{ENDED, MENU, cases};
pub use locked::PATIENCE;
