//! Every interleaving of small cases, including weak memory, and the twins that must fail.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p afterwork-mpscq --release --test loom`
//!
//! "Exhaustive" means without a bound on preemptions; otherwise the bound is stated.
#![cfg(loom)]

mod consumer;
mod empty;
mod orders;
mod shared;
mod stack;
mod support;
mod transfer;
