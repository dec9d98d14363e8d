//! Claims about limits, which are checked on the user's machine.

use super::cases::{OURS, PER_CPU_MANY, SHARING, SYSTEM_8};
use super::metrics::{ITEMS, LATENCY_P99, MEMORY, THREADS};
use crate::harness::claim::{Against, Claim};

/// Returns claims about a pool of blocks that is large enough only for a low limit.
#[must_use]
pub fn joins() -> Vec<Claim> {
    vec![
        // With system-wide limits the kernel became faster by this factor, rounded down.
        Claim::at_least(SYSTEM_8, ITEMS, PER_CPU_MANY, 1.9),
        Claim::at_most(SYSTEM_8, MEMORY, PER_CPU_MANY, 0.5),
    ]
}

/// Returns claims about queues with limits, compared with thread pools: a quarter of the threads,
/// half of the tail latency, and at least the same throughput.
#[must_use]
pub fn subsystems() -> Vec<Claim> {
    vec![
        Claim::at_most(OURS, THREADS, Against::BestPeer, 0.25),
        Claim::at_most(OURS, LATENCY_P99, Against::BestPeer, 0.5),
        Claim::at_least(OURS, ITEMS, Against::BestPeer, 1.0),
    ]
}

/// Returns claims about queues with shares while another queue floods their pool.
#[must_use]
pub fn shares() -> Vec<Claim> {
    vec![
        Claim::at_most(SHARING, LATENCY_P99, OURS, 0.5),
        Claim::at_most(SHARING, THREADS, Against::BestPeer, 0.25),
    ]
}
