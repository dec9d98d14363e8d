//! Tests of RCU's guarantees on the real machine.

mod callbacks;
mod ends;
mod env;
mod executor;
mod flood;
mod gp;
mod leaked;
mod qsbr;
mod refused;
mod runners;
#[cfg(target_arch = "x86_64")]
mod signal;
mod stall;
