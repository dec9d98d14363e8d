//! The C interface of afterwork: the kernel's names, for programs in C and C++.
//!
//! Programs include `afterwork/workqueue.h`, `rcupdate.h`, `srcu.h`, `percpu.h` and `task_work.h`,
//! which map the kernel's names to the symbols that this crate exports as `aw_…`, or
//! `afterwork/urcu.h`, which maps liburcu's names. The symbols therefore do not conflict with names
//! of a program or of liburcu. The headers are written by hand. Tests compare them with this crate.
//!
//! # Rules of the boundary
//!
//! The caller provides the memory of an object. An object has a fixed size and needs no
//! destruction. No panic crosses the boundary: an unrecoverable error ends the process with one
//! line (`boundary.rs`). Misuse that can be detected is reported with the name of the function. A
//! debug build of the library then ends the process. A release build continues as the function's
//! comment describes.
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
