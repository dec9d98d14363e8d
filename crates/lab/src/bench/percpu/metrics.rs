//! The metrics of this bench.

use crate::harness::metric::{Metric, NS_PER_US, lower};

/// Cycles of the CPU's counter for one object.
pub const CYCLES: Metric = lower("cycles_per_alloc", "cycles", ("", "cycles"), 1.0);
/// From asking for a drain until it is done.
pub const DRAIN_P50: Metric = lower("drain_p50", "ns", (DRAIN, "p50"), NS_PER_US);
/// See [`DRAIN_P50`].
pub const DRAIN_P99: Metric = lower("drain_p99", "ns", (DRAIN, "p99"), NS_PER_US);
/// See [`DRAIN_P50`].
pub const DRAIN_MAX: Metric = lower("drain_max", "ns", (DRAIN, "max"), NS_PER_US);
/// The longest that the victim's loop stood still.
pub const GAP: Metric = lower("victim_gap_max", "ns", (VICTIM, "gap us"), NS_PER_US);
/// How often the victim lost its CPU.
pub const SWITCHES: Metric = lower("victim_switches", "1", (VICTIM, "switches"), 1.0);
/// How often its CPU was taken away from it.
pub const INVOLUNTARY: Metric = lower("victim_involuntary", "1", (VICTIM, "involuntary"), 1.0);
/// How long it waited for its CPU, as the scheduler counts that.
pub const WAITED: Metric = lower("victim_waited", "ns", (VICTIM, "waited us"), NS_PER_US);
/// Interrupts of the victim's CPU, the timer's too.
pub const INTERRUPTS: Metric = lower("victim_interrupts", "1", (VICTIM, "interrupts"), 1.0);
/// Those of them that are the timer's.
pub const TIMER: Metric = lower("victim_interrupts_timer", "1", (OF_THESE, "timer"), 1.0);
/// Those by which another CPU asks for another thread to run.
pub const RESCHED: Metric = lower("victim_interrupts_resched", "1", (OF_THESE, "resched"), 1.0);
/// Those by which another CPU has a function called.
pub const CALL: Metric = lower("victim_interrupts_call", "1", (OF_THESE, "call"), 1.0);

/// Of the cases that take objects.
pub const ALLOC: &[Metric] = &[CYCLES];

const DRAIN: &str = "drain us";
const VICTIM: &str = "victim";
const OF_THESE: &str = "of these";

/// Of the case `isolation`.
pub const ISOLATION: &[Metric] = &[
    DRAIN_P50,
    DRAIN_P99,
    DRAIN_MAX,
    SWITCHES,
    INVOLUNTARY,
    WAITED,
    INTERRUPTS,
    TIMER,
    RESCHED,
    CALL,
    GAP,
];
