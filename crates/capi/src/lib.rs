//! The C interface of afterwork: the kernel's names, for programs in C and C++.
//!
//! Users include `afterwork/workqueue.h`, `rcupdate.h`, `srcu.h`, `percpu.h` and `task_work.h`, which give the kernel's names to
//! what is exported here as `aw_…`, or `afterwork/urcu.h`, which gives liburcu's: so nothing of a program's own, or of
//! liburcu's, is in the way. The headers are written
//! by hand; tests hold sizes, alignments and the list of symbols against them from both sides.
//!
//! # What crosses the boundary
//!
//! Memory is the caller's, fixed in size, with nothing to destroy. No panic crosses: what cannot go on ends the process with
//! one line (`boundary.rs`). What a caller does that he must not, as far as it can be seen, is told by name: a debug build
//! of the library ends the process, another one goes on as the function's comment says.
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod boundary;
pub mod inline;
mod machine;
mod percpu;
pub mod qsbr;
pub mod rcupdate;
mod srcu;
mod task_work;
pub mod urcu;
mod workqueue;
