//! The metrics of this bench.

use crate::harness::metric::{Metric, NS_PER_MS, NS_PER_US, higher, lower};

pub const CYCLES: Metric = lower("cycles_per_alloc", "cycles", ("", "cycles"), 1.0);
pub const DRAIN_P50: Metric = lower("drain_p50", "ns", (DRAIN, "p50"), NS_PER_US);
pub const DRAIN_P99: Metric = lower("drain_p99", "ns", (DRAIN, "p99"), NS_PER_US);
pub const DRAIN_MAX: Metric = lower("drain_max", "ns", (DRAIN, "max"), NS_PER_US);
pub const GAP: Metric = lower("victim_gap_max", "ns", (VICTIM, "gap us"), NS_PER_US);
pub const SWITCHES: Metric = lower("victim_switches", "1", (VICTIM, "switches"), 1.0);
pub const INVOLUNTARY: Metric = lower("victim_involuntary", "1", (VICTIM, "involuntary"), 1.0);
pub const WAITED: Metric = lower("victim_waited", "ns", (VICTIM, "waited us"), NS_PER_US);
pub const INTERRUPTS: Metric = lower("victim_interrupts", "1", (VICTIM, "interrupts"), 1.0);
pub const TIMER: Metric = lower("victim_interrupts_timer", "1", (OF_THESE, "timer"), 1.0);
pub const RESCHED: Metric = lower("victim_interrupts_resched", "1", (OF_THESE, "resched"), 1.0);
pub const CALL: Metric = lower("victim_interrupts_call", "1", (OF_THESE, "call"), 1.0);

pub const ALLOC: &[Metric] = &[CYCLES];

const DRAIN: &str = "drain us";
const VICTIM: &str = "victim";
const OF_THESE: &str = "of these";

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

pub const CALLS: Metric = higher("calls_per_s", "1/s", ("", "calls/s"), 1.0);
pub const CALL_P50: Metric = lower("call_p50", "ns", ("call ms", "p50"), NS_PER_MS);
pub const CALL_MAX: Metric = lower("call_max", "ns", ("call ms", "max"), NS_PER_MS);
pub const CALLER_CPU: Metric = lower("caller_cpu", "ns", ("caller", "CPU us/call"), NS_PER_US);
pub const OPERATIONS: Metric = higher("operations_per_s", "1/s", ("owner", "ops/s"), 1.0);

pub const BUSY: &[Metric] = &[CALLS, CALL_P50, CALL_MAX, CALLER_CPU, OPERATIONS];
