//! Per-CPU data on the real machine: what owners, remote callers and drains may rely on.
#![cfg(not(any(loom, shuttle)))]

mod absent;
mod inside;
mod modes;
mod starved;
mod support;
mod users;
