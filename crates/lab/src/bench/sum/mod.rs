//! `afterwork-lab bench sum`: the example `sum` against the ways that people sum a tree today.
//!
//! A tree of files is made for it in the directory for temporary files, and read once before anything is timed: caches
//! are warm, and what is compared is how the work is shared out. All variants hash by the same code but for `xargs`,
//! which runs the sha256sum of the system.

mod cases;
mod peers;
/// What is measured is the example's own file.
#[path = "../../../examples/sum/sums.rs"]
mod sums;
mod tree;

pub use cases::{MENU, SumBenchArgs, cases};
