//! RCU on the real machine: what it promises to those who use it.

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
