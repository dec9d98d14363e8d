//! RCU on the real machine: what it promises to those who use it.

mod callbacks;
mod env;
mod gp;
mod qsbr;
mod stall;
