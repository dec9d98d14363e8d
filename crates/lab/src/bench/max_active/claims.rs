//! Claims about limits, which are checked on the reader's machine.

use super::cases::{OURS, PER_CPU_MANY, POOL_EACH, SHARING, SYSTEM_8, SYSTEM_16};
use super::crew::{THREADS_8, THREADS_768};
use super::metrics::{ITEMS, LATENCY_P99, MEMORY, SWITCHES, THREADS};
use crate::harness::claim::{Against, Bound, Claim};

/// The factor by which the kernel improved with system-wide limits, rounded down.
const NEARLY_TWICE: Bound = Bound::AtLeast(1.9);

/// The bounds: a quarter of the threads, half of the tail latency, and at least the same
/// throughput.
const QUARTER: Bound = Bound::AtMost(0.25);
const HALF: Bound = Bound::AtMost(0.5);
const NO_LESS: Bound = Bound::AtLeast(1.0);

/// Returns claims about a pool of blocks that is large enough only for a low limit.
#[must_use]
pub fn joins() -> Vec<Claim> {
    vec![
        Claim::of(SYSTEM_8, "items/s", ITEMS, PER_CPU_MANY).keeps(NEARLY_TWICE),
        Claim::of(SYSTEM_8, "memory", MEMORY, PER_CPU_MANY).keeps(HALF),
        Claim::of(SYSTEM_8, "threads", THREADS, PER_CPU_MANY),
        Claim::of(SYSTEM_8, "p99", LATENCY_P99, PER_CPU_MANY),
        Claim::of(SYSTEM_16, "items/s", ITEMS, SYSTEM_8),
        Claim::of(SYSTEM_8, "items/s", ITEMS, THREADS_8),
        Claim::of(SYSTEM_8, "items/s", ITEMS, THREADS_768),
    ]
}

/// Returns claims about queues with limits, compared with thread pools.
#[must_use]
pub fn subsystems() -> Vec<Claim> {
    vec![
        Claim::of(OURS, "threads", THREADS, Against::BestPeer).keeps(QUARTER),
        Claim::of(OURS, "p99", LATENCY_P99, Against::BestPeer).keeps(HALF),
        Claim::of(OURS, "items/s", ITEMS, Against::BestPeer).keeps(NO_LESS),
        Claim::of(OURS, "memory", MEMORY, Against::BestPeer),
        Claim::of(OURS, "switches", SWITCHES, Against::BestPeer),
    ]
}

/// Returns claims about queues with shares while another queue floods their pool.
#[must_use]
pub fn shares() -> Vec<Claim> {
    vec![
        Claim::of(SHARING, "p99", LATENCY_P99, OURS).keeps(HALF),
        Claim::of(SHARING, "p99", LATENCY_P99, POOL_EACH),
        Claim::of(SHARING, "p99", LATENCY_P99, Against::BestPeer),
        Claim::of(SHARING, "items/s", ITEMS, OURS),
        Claim::of(SHARING, "items/s", ITEMS, Against::BestPeer),
        Claim::of(SHARING, "threads", THREADS, Against::BestPeer).keeps(QUARTER),
    ]
}
