//! The metrics of this bench.

use crate::measure::metric::{Metric, NS_PER_US, lower};

/// Cycles of the CPU's counter for one object.
pub const CYCLES: &str = "cycles_per_alloc";
/// From asking for a drain until it is done.
pub const DRAIN_P50: &str = "drain_p50";
/// See [`DRAIN_P50`].
pub const DRAIN_P99: &str = "drain_p99";
/// See [`DRAIN_P50`].
pub const DRAIN_MAX: &str = "drain_max";
/// The longest that the victim's loop stood still.
pub const GAP: &str = "victim_gap_max";
/// How often the victim lost its CPU.
pub const SWITCHES: &str = "victim_switches";
/// How often its CPU was taken away from it.
pub const INVOLUNTARY: &str = "victim_involuntary";
/// How long it waited for its CPU, as the scheduler counts that.
pub const WAITED: &str = "victim_waited";
/// Interrupts of the victim's CPU, the timer's too.
pub const INTERRUPTS: &str = "victim_interrupts";
/// Those of them that are the timer's.
pub const TIMER: &str = "victim_interrupts_timer";
/// Those by which another CPU asks for another thread to run.
pub const RESCHED: &str = "victim_interrupts_resched";
/// Those by which another CPU has a function called.
pub const CALL: &str = "victim_interrupts_call";

/// Of the cases that take objects.
pub const ALLOC: &[Metric] = &[lower(CYCLES, "cycles", ("", "cycles"), 1.0)];

const DRAIN: &str = "drain us";
const VICTIM: &str = "victim";
const OF_THESE: &str = "of these";

/// Of the case `isolation`.
pub const ISOLATION: &[Metric] = &[
    lower(DRAIN_P50, "ns", (DRAIN, "p50"), NS_PER_US),
    lower(DRAIN_P99, "ns", (DRAIN, "p99"), NS_PER_US),
    lower(DRAIN_MAX, "ns", (DRAIN, "max"), NS_PER_US),
    lower(SWITCHES, "1", (VICTIM, "switches"), 1.0),
    lower(INVOLUNTARY, "1", (VICTIM, "involuntary"), 1.0),
    lower(WAITED, "ns", (VICTIM, "waited us"), NS_PER_US),
    lower(INTERRUPTS, "1", (VICTIM, "interrupts"), 1.0),
    lower(TIMER, "1", (OF_THESE, "timer"), 1.0),
    lower(RESCHED, "1", (OF_THESE, "resched"), 1.0),
    lower(CALL, "1", (OF_THESE, "call"), 1.0),
    lower(GAP, "ns", (VICTIM, "gap us"), NS_PER_US),
];
