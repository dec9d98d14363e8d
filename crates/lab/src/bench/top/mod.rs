//! `afterwork bench top`: what it costs a busy process to be looked at.
//!
//! | variant | what is done in every other stretch |
//! |---|---|
//! | `hidden` | nothing: how far two stretches of the same differ |
//! | `published` | the page is there, nobody looks |
//! | `watched` | somebody looks ten times a second |

mod args;
mod cases;
mod load;

pub use args::TopBenchArgs;
pub use cases::{CASES, PEERS, cases};
