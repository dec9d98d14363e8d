//! Tests of per-CPU data on the real machine: owners, remote callers and drains.
#![cfg(not(any(loom, shuttle)))]

mod absent;
mod inside;
mod modes;
mod starved;
mod support;
mod users;
