//! An intrusive, wait-free multi-producer single-consumer FIFO queue.
#![cfg_attr(not(any(loom, shuttle)), no_std)]
