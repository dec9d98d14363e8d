//! `afterwork bench sum`: the command `afterwork sum` against the ways that people sum a tree today.
//!
//! A tree of files is made for it in the directory for temporary files, and read once before anything is timed: caches
//! are warm, and what is compared is how the work is shared out. All variants hash by the same code but for `xargs`,
//! which runs the sha256sum of the system.

mod args;
mod cases;
mod peers;
mod tree;

pub use args::SumBenchArgs;
pub use cases::{CASES, cases};
