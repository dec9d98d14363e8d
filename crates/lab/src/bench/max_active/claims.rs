//! What we say of limits, to be judged on the reader's own machine.

use super::cases::{OURS, PER_CPU_MANY, SYSTEM_8, SYSTEM_16};
use super::crew::{THREADS_8, THREADS_768};
use super::metrics::{ITEMS, LATENCY_P99, MEMORY, SWITCHES, THREADS};
use crate::measure::claim::{Against, Bound, Claim, Source};

/// What system-wide limits brought a contended write load in the kernel.
const NEARLY_TWICE: Bound = Bound::AtLeast(1.9);

/// A quarter of the threads, half of the tail, no less done.
const QUARTER: Bound = Bound::AtMost(0.25);
const HALF: Bound = Bound::AtMost(0.5);
const NO_LESS: Bound = Bound::AtLeast(1.0);

fn claim(
    variant: &str,
    metric: &'static str,
    what: &str,
    against: Against,
    bound: Option<Bound>,
) -> Claim {
    Claim {
        what: format!("{variant}, {what}"),
        variant: variant.into(),
        metric,
        against,
        bound,
        source: None,
    }
}

/// What the kernel's patches for this measured; there a limit is how many workers run.
const fn kernel(figure: &'static str) -> Source {
    Source {
        figure,
        from: "the kernel's system-wide max_active: btrfs on 6 SSDs, 8, 16 and 768",
    }
}

fn variant(name: &str) -> Against {
    Against::Variant(name.into())
}

/// One limit for the system against one for each CPU, and both against threads.
#[must_use]
pub fn writes() -> Vec<Claim> {
    vec![
        claim(SYSTEM_8, ITEMS, "items/s", variant(PER_CPU_MANY), None).beside(kernel("1.96")),
        claim(SYSTEM_8, MEMORY, "memory", variant(PER_CPU_MANY), None),
        claim(SYSTEM_8, LATENCY_P99, "p99", variant(PER_CPU_MANY), None),
        claim(SYSTEM_16, ITEMS, "items/s", variant(SYSTEM_8), None).beside(kernel("0.70")),
        claim(SYSTEM_8, ITEMS, "items/s", variant(THREADS_8), None),
        claim(SYSTEM_8, ITEMS, "items/s", variant(THREADS_768), None),
        claim(SYSTEM_8, MEMORY, "memory", variant(THREADS_768), None),
    ]
}

/// A lock whose holder loses the CPU to those who wait for it.
#[must_use]
pub fn contended() -> Vec<Claim> {
    vec![
        claim(SYSTEM_8, ITEMS, "items/s", variant(PER_CPU_MANY), None),
        claim(SYSTEM_8, ITEMS, "items/s", variant(THREADS_8), None),
        claim(
            SYSTEM_8,
            ITEMS,
            "items/s",
            variant(THREADS_768),
            Some(NEARLY_TWICE),
        )
        .beside(kernel("1.96")),
    ]
}

/// A pool of blocks that is large enough for few.
#[must_use]
pub fn joins() -> Vec<Claim> {
    let many = || variant(PER_CPU_MANY);
    vec![
        claim(SYSTEM_8, ITEMS, "items/s", many(), Some(NEARLY_TWICE)).beside(kernel("1.96")),
        claim(SYSTEM_8, MEMORY, "memory", many(), Some(HALF)),
        claim(SYSTEM_8, THREADS, "threads", many(), None),
        claim(SYSTEM_8, LATENCY_P99, "p99", many(), None),
        claim(SYSTEM_16, ITEMS, "items/s", variant(SYSTEM_8), None).beside(kernel("0.70")),
        claim(SYSTEM_8, ITEMS, "items/s", variant(THREADS_8), None),
        claim(SYSTEM_8, ITEMS, "items/s", variant(THREADS_768), None),
    ]
}

/// Queues with limits against pools with threads.
#[must_use]
pub fn subsystems() -> Vec<Claim> {
    let best = || Against::BestPeer;
    vec![
        claim(OURS, THREADS, "threads", best(), Some(QUARTER)),
        claim(OURS, LATENCY_P99, "p99", best(), Some(HALF)),
        claim(OURS, ITEMS, "items/s", best(), Some(NO_LESS)),
        claim(OURS, MEMORY, "memory", best(), None),
        claim(OURS, SWITCHES, "switches", best(), None),
    ]
}
