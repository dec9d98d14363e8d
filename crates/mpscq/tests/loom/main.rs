//! Every interleaving of small cases, weak memory included, and the twins that must go red.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p afterwork-mpscq --release --test loom`
//!
//! "Exhaustive" means without a bound on preemptions; else the bound is named.
#![cfg(loom)]

mod consumer;
mod empty;
mod orders;
mod shared;
mod stack;
mod support;
mod transfer;
