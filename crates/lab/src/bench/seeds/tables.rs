//! The tables: rows, columns, and the figures that the sources published.

use super::sources::{Block, Column, Row, Show, Source};

pub const SOURCES: [Source; 5] = [
    Source {
        title: "000: the kernel's workqueue wakes workers after it has released the pool lock",
        blocks: &[LOCK],
        differs: "here 8 producers share the CPUs with the workers, so that an item costs context switches and seldom a \
                  wait for the lock; a wake-up is a system call. Scopes with the same pods differ only by noise.",
    },
    Source {
        title: "001: a grace period of the kernel's RCU needs fewer waits",
        blocks: &[RUNS, BUSY, BRIDGE],
        differs: "ours has only the kernel's fixed waits (3 ms before each scan of the readers) and its way to wake a \
                  waiter, in one process; the kernel's grace periods serve all its CPUs.",
    },
    Source {
        title: "002: a limit for the system instead of a limit for each CPU",
        blocks: &[JOINS],
        differs: "our joins share the lock of a pool that has memory for 32 of them, so that 16 do not thrash; btrfs \
                  contends for its own locks with 16 workers already, on 6 SSDs.",
    },
    Source {
        title: "003: a wait-free FIFO instead of a list that is reversed, for task work of io_uring",
        blocks: &[SERVICE],
        differs: "our clients share the CPUs with the service, which passes each message to a worker and back, so that \
                  it carries less; our shares are of the owner's CPU time, the source's of all samples.",
    },
    Source {
        title: "004: per-CPU data that other CPUs can drain (QPW)",
        blocks: &[ALLOC, ISOLATION],
        differs: "the source allocates with kmalloc, which costs far more than its lock; ours takes an object from a \
                  list in the first-level cache, so that the guard is most of the cost.",
    },
];

const HOLD: (&str, &str) = ("workqueue", "lock-hold");
const LOCK: Block = Block {
    source: "8 producers of 200000 items, one at a time; v2 and v5 of the patches on 72 arm64 cores (Grace)",
    head: "scope",
    each_run: false,
    rows: &[
        row("cpu", HOLD, ["cpu under_lock, producers: 8", "cpu deferred, producers: 8"]),
        row("smt", HOLD, ["smt under_lock, producers: 8", "smt deferred, producers: 8"]),
        row(
            "cache_shard",
            HOLD,
            ["cache_shard under_lock, producers: 8", "cache_shard deferred, producers: 8"],
        ),
        row("cache", HOLD, ["cache under_lock, producers: 8", "cache deferred, producers: 8"]),
        row("numa", HOLD, ["numa under_lock, producers: 8", "numa deferred, producers: 8"]),
        row("system", HOLD, ["system under_lock, producers: 8", "system deferred, producers: 8"]),
    ],
    columns: &[
        value("items/s", "old", 0, "items_per_s", 1.0),
        value("items/s", "new", 1, "items_per_s", 1.0),
        column("gain %", "ours", Show::Change("items_per_s")),
        published("gain %", "v2", "+17.9|+17.7|+39.4|+34.7|+24.5|+17.2"),
        published("gain %", "v5", "-2.6|-0.9|+7.5|+10.8|+10.3|+10.7"),
        value("p95 us", "old", 0, "enqueue_p95", 1e3),
        value("p95 us", "new", 1, "enqueue_p95", 1e3),
        column("p95 %", "ours", Show::Change("enqueue_p95")),
        published("p95 %", "v2", "-13.6|-14.0|-37.1|-30.1|-20.5|-21.1"),
        value("lock wait %", "old", 0, "lock_wait_share", 0.01),
        value("lock wait %", "new", 1, "lock_wait_share", 0.01),
        value("wakes/item", "old", 0, "wakeups_per_item", 1.0),
        value("wakes/item", "new", 1, "wakeups_per_item", 1.0),
    ],
    absent: "no run woke a worker, so the row is void",
};

/// The source's figures for its ten runs, followed by the figure for all runs.
const OLD_MEAN: &str = "10.088|10.064|10.051|10.125|8.695|10.157|10.102|8.050|10.059|10.077|9.75";
const OLD_MIN: &str = "9.989|9.982|9.988|9.929|5.996|9.977|9.990|5.985|9.978|9.984|5.985";
const OLD_MAX: &str =
    "18.848|16.470|15.113|22.411|15.471|25.723|20.224|10.007|15.934|17.703|25.723";
const NEW_MEAN: &str = "6.027|6.032|6.010|6.076|6.084|6.034|6.051|6.057|6.016|6.036|6.04";
const NEW_MIN: &str = "5.915|5.984|5.986|5.993|5.893|5.908|5.993|5.941|5.927|5.993|5.893";
const NEW_MAX: &str = "8.589|9.241|7.004|10.001|10.250|9.456|10.000|10.001|7.540|9.579|10.250";
const RUNS: Block = Block {
    source: "10 runs of 100 calls of synchronize_rcu() on 32 idle CPUs; old: without early_qs, new: with it",
    head: "run",
    each_run: true,
    rows: &[row("run", ("rcu", "replace-idle"), ["waits", "waits early_qs"])],
    columns: &[
        value("ours, old ms", "mean", 0, "replace_mean", 1e6),
        value("ours, old ms", "min", 0, "replace_min", 1e6),
        value("ours, old ms", "max", 0, "replace_max", 1e6),
        value("ours, new ms", "mean", 1, "replace_mean", 1e6),
        value("ours, new ms", "min", 1, "replace_min", 1e6),
        value("ours, new ms", "max", 1, "replace_max", 1e6),
        published("source, old ms", "mean", OLD_MEAN),
        published("source, old ms", "min", OLD_MIN),
        published("source, old ms", "max", OLD_MAX),
        published("source, new ms", "mean", NEW_MEAN),
        published("source, new ms", "min", NEW_MIN),
        published("source, new ms", "max", NEW_MAX),
    ],
    absent: "the run was interrupted",
};

const BUSY: Block = Block {
    source: "no figures for more readers than CPUs",
    head: "way",
    each_run: false,
    rows: &[
        row("neither", ("rcu", "replace-8-busy"), ["waits", "waits"]),
        row("early_qs", ("rcu", "replace-8-busy"), ["waits", "waits early_qs"]),
        row("wake_from_gp", ("rcu", "replace-8-busy"), ["waits", "waits wake_from_gp"]),
        row("both", ("rcu", "replace-8-busy"), ["waits", "waits both"]),
        row("no wait", ("rcu", "replace-8-busy"), ["waits", "rcu"]),
    ],
    columns: &[
        value("replace ms", "mean", 1, "replace_mean", 1e6),
        value("replace ms", "min", 1, "replace_min", 1e6),
        value("replace ms", "max", 1, "replace_max", 1e6),
        column("", "mean %", Show::Change("replace_mean")),
        column("", "n", Show::Runs("replace_mean")),
    ],
    absent: "readers were absent in each run, because more threads than CPUs run",
};

const BRIDGE: Block = Block {
    source: "100 bridges added, configured and deleted on 64 CPUs; a call is one synchronize_rcu()",
    head: "way",
    each_run: false,
    rows: &[
        row("neither", ("rcu", "bridge"), ["waits", "waits"]),
        row("early_qs", ("rcu", "bridge"), ["waits", "waits early_qs"]),
        row("both", ("rcu", "bridge"), ["waits", "waits both"]),
        row("wake_from_gp", ("rcu", "bridge"), ["waits", "waits wake_from_gp"]),
        row("no wait", ("rcu", "bridge"), ["waits", "rcu"]),
    ],
    columns: &[
        value("100 bridges, s", "ours", 1, "bridge_mean", 1e7),
        published("100 bridges, s", "source", "24.2|20.8|15.9|18.9|"),
        column("time %", "ours", Show::Change("bridge_mean")),
        published("time %", "source", "|-14|-34|-22|"),
        value("call, median ms", "ours", 1, "replace_p50", 1e6),
        published("call, median ms", "source", "37.2|31.5|15.8|22.5|"),
        value("min ms", "ours", 1, "replace_min", 1e6),
        published("min ms", "source", "7.88|7.92|9.80|7.86|"),
        value("max ms", "ours", 1, "replace_max", 1e6),
        published("max ms", "source", "63.7|55.6|31.9|32.0|"),
    ],
    absent: "readers were absent in each run",
};

const JOINS: Block = Block {
    source: "fio writes 64 KiB blocks to btrfs on 6 SSDs, 96 CPUs; the limit is max_active of its workqueues",
    head: "limit",
    each_run: false,
    rows: &[
        row("8", ("max-active", "joins"), ["system-8", "system-8"]),
        row("16", ("max-active", "joins"), ["system-8", "system-16"]),
        row("768", ("max-active", "joins"), ["system-8", "per-cpu (768)"]),
    ],
    columns: &[
        // A join reads 2 MiB of blocks.
        value("MiB/s", "ours", 1, "items_per_s", 0.5),
        published("MiB/s", "source", "2495|1736|1276"),
        column("to 8", "ours", Show::Ratio("items_per_s")),
        published("to 8", "source", "1|0.70|0.51"),
        value("", "threads", 1, "threads", 1.0),
        value("", "switches/item", 1, "switches_per_item", 1.0),
        value("item ms", "p50", 1, "latency_p50", 1e6),
        value("item ms", "p99", 1, "latency_p99", 1e6),
        column("", "n", Show::Runs("items_per_s")),
    ],
    absent: "the run was interrupted",
};

const SERVICE: Block = Block {
    source: "multishot receives; post: io_req_local_work_add; run: the owner's three functions; old: llist, new: mpscq",
    head: "clients",
    each_run: false,
    rows: &[
        row("8 clients", ("task-work", "service-8"), ["mailbox+lifo stream", "mailbox stream"]),
        row(
            "1024 clients",
            ("task-work", "service-1024"),
            ["mailbox+lifo stream", "mailbox stream"],
        ),
    ],
    columns: &[
        value("post %", "old", 0, "post_share", 0.01),
        value("post %", "new", 1, "post_share", 0.01),
        published("source, post %", "old", "1.02|0.42"),
        published("source, post %", "new", "1.08|0.42"),
        value("run %", "old", 0, "task_work_share", 0.01),
        value("run %", "new", 1, "task_work_share", 0.01),
        published("source, run %", "old", "1.62|3.08"),
        published("source, run %", "new", "1.03|0.90"),
        value("Gbit/s", "old", 0, "gbit_per_s", 1.0),
        value("Gbit/s", "new", 1, "gbit_per_s", 1.0),
        published("source, Gbit/s", "old", "46|24"),
        published("source, Gbit/s", "new", "53|26"),
    ],
    absent: "io_uring is not available here, or clients got no CPU for a tenth of each run",
};

const ALLOC: Block = Block {
    source: "9 million kmalloc() on one CPU; no guard: the kernel without the patches",
    head: "guard",
    each_run: false,
    rows: &[
        row("no guard", ("percpu", "alloc-warm"), ["unprotected", "unprotected"]),
        row("compiled out", ("percpu", "alloc-warm"), ["unprotected", "compiled out"]),
        row("off", ("percpu", "alloc-warm"), ["unprotected", "queue (off)"]),
        row("off, by try", ("percpu", "alloc-warm"), ["unprotected", "queue by try"]),
        row("on", ("percpu", "alloc-warm"), ["unprotected", "every_op (on)"]),
        row("on demand", ("percpu", "alloc-warm"), ["unprotected", "on_demand"]),
    ],
    columns: &[
        value("cycles", "ours", 1, "cycles_per_alloc", 1.0),
        published("cycles", "source", "166|166|168||192|"),
        column("increase", "ours", Show::Increase("cycles_per_alloc")),
        published("increase", "source", "|0|+2||+26|"),
        column("", "n", Show::Runs("cycles_per_alloc")),
    ],
    absent: "the run was interrupted",
};

const ISOLATION: Block = Block {
    source: "a SCHED_FIFO loop on an isolated CPU while lru_add_drain_all() drains it; no figures",
    head: "way",
    each_run: false,
    rows: &[
        row("no drains", ("percpu", "isolation"), ["quiet", "quiet"]),
        row("old: queued to a worker", ("percpu", "isolation"), ["quiet", "queued to a worker"]),
        row("on", ("percpu", "isolation"), ["quiet", "every_op (on)"]),
        row("on demand", ("percpu", "isolation"), ["quiet", "on_demand"]),
        row("off, parked", ("percpu", "isolation"), ["quiet", "parked"]),
    ],
    columns: &[
        value("victim's switches", "all", 1, "victim_switches", 1.0),
        value("victim's switches", "invol.", 1, "victim_involuntary", 1.0),
        value("", "waited us", 1, "victim_waited", 1e3),
        value("interrupts", "all", 1, "victim_interrupts", 1.0),
        value("interrupts", "timer", 1, "victim_interrupts_timer", 1.0),
        value("interrupts", "resched", 1, "victim_interrupts_resched", 1.0),
        value("interrupts", "call", 1, "victim_interrupts_call", 1.0),
        value("", "gap us", 1, "victim_gap_max", 1e3),
        column("", "n", Show::Runs("victim_switches")),
    ],
    absent: "it needs two CPUs, and a victim that keeps one of them",
};

type Text = &'static str;

const fn row(label: Text, case: (Text, Text), variants: [Text; 2]) -> Row {
    Row { label, case, variants }
}

const fn column(group: Text, head: Text, show: Show) -> Column {
    Column { group, head, show }
}

const fn value(group: Text, head: Text, variant: usize, metric: Text, scale: f64) -> Column {
    column(group, head, Show::Value(variant, metric, scale))
}

const fn published(group: Text, head: Text, figures: Text) -> Column {
    column(group, head, Show::Published(figures))
}
