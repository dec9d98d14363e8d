//! What each case does, in the words of somebody who has not read the lab's code.

/// A bench, a case, and what is done there.
const WORDS: &[(&str, &str, &str)] = &[
    ("workqueue", "one-at-a-time", "queue one item and wait"),
    (
        "workqueue",
        "equal-parks",
        "queue one item and wait, all waiters asleep at once",
    ),
    (
        "workqueue",
        "equal-yields",
        "queue one item and wait, all waiters yield once",
    ),
    (
        "workqueue",
        "equal-looks",
        "queue one item and wait, all waiters look around first",
    ),
    ("workqueue", "batch-1000", "queue batches of 1000 items"),
    (
        "workqueue",
        "fan-out",
        "queue a million items from one thread",
    ),
    ("workqueue", "lock-hold", "hold a pool's lock"),
    (
        "workqueue",
        "watched",
        "queue batches while somebody looks on",
    ),
    ("blocking", "detect", "run the next item when one sleeps"),
    ("blocking", "mixed", "run items that compute and sleep"),
    (
        "mpscq",
        "push-pop",
        "hand items to one consumer, scattered in memory",
    ),
    (
        "mpscq",
        "push-pop-contiguous",
        "hand items to one consumer, side by side in memory",
    ),
    ("mpscq", "chains", "hand over 32 items at once"),
    ("mpscq", "owned", "send small messages to an owner"),
    ("task-work", "wake", "wake an owner for single items"),
    ("task-work", "wake-burst", "wake an owner for bursts of 32"),
    (
        "task-work",
        "service-8",
        "serve 8 TCP clients from one thread",
    ),
    (
        "task-work",
        "service-1024",
        "serve 1024 TCP clients from one thread",
    ),
    ("rcu", "read", "read a protected value"),
    ("rcu", "replace-idle", "replace a value that nobody reads"),
    (
        "rcu",
        "replace-32-idle",
        "replace a value beside 32 sleeping readers",
    ),
    (
        "rcu",
        "replace-1-busy",
        "replace a value beside one busy reader",
    ),
    (
        "rcu",
        "replace-2-busy",
        "replace a value beside two busy readers",
    ),
    (
        "rcu",
        "replace-8-busy",
        "replace a value beside 8 busy readers",
    ),
    ("rcu", "updaters-8", "replace values from 8 threads"),
    ("rcu", "updaters-64", "replace values from 64 threads"),
    ("rcu", "call", "free by callback after the readers"),
    (
        "rcu",
        "bridge",
        "change a routing table that is being looked up",
    ),
    (
        "percpu",
        "alloc-warm",
        "take from a CPU's own list, in cache",
    ),
    (
        "percpu",
        "alloc-cold",
        "take from a CPU's own list, out of cache",
    ),
    (
        "percpu",
        "isolation",
        "drain a CPU that is not to be disturbed",
    ),
    ("sum", "tree", "hash a tree of cached files"),
    ("sum", "tree-cold", "hash a tree of files on disk"),
    (
        "max-active",
        "writes",
        "compress and append 1024 blocks at a time",
    ),
    (
        "max-active",
        "contended",
        "run items of which half want one lock",
    ),
    (
        "max-active",
        "joins",
        "join blocks through a small buffer pool",
    ),
    (
        "max-active",
        "subsystems",
        "serve eight subsystems with limits",
    ),
    (
        "max-active",
        "shares",
        "serve seven subsystems beside one that floods",
    ),
    ("everyday", "admission", "queue into a full queue"),
    (
        "everyday",
        "scope-sum",
        "sum 64 Mi numbers on borrowed memory",
    ),
    (
        "everyday",
        "scope-empty",
        "spawn a million empty items that borrow",
    ),
    ("everyday", "idle-1ms", "stay idle but for an item every ms"),
    (
        "everyday",
        "idle-10ms",
        "stay idle but for an item every 10 ms",
    ),
    ("everyday", "sleeps", "let a million tasks sleep"),
    ("scale", "producers", "queue from 1 to 64 threads"),
    ("scale", "queues", "queue to 1 to 1,000 queues"),
    ("scale", "pending", "have up to a million items pending"),
    ("scale", "length", "run items of 0 to 1 ms"),
    (
        "scale",
        "readers",
        "replace a value beside up to 10,000 readers",
    ),
    ("scale", "mailboxes", "post to up to 100,000 mailboxes"),
    ("scale", "timers", "keep up to ten million timers"),
];

/// Tells what a case does; one that this program does not know goes by its name.
#[must_use]
pub fn of_case<'a>(bench: &str, case: &'a str) -> &'a str {
    let found = WORDS.iter().find(|(b, c, _)| (*b, *c) == (bench, case));
    found.map_or(case, |(_, _, words)| words)
}

/// Spells a metric as tables do: `items_per_s` is `items/s`.
#[must_use]
pub fn caption(metric: &str) -> String {
    metric.replace("_per_", "/").replace('_', " ")
}

/// Names the programs behind variants: `tokio+yield` is tokio, too.
#[must_use]
pub fn programs<'a>(variants: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut programs: Vec<&str> = Vec::new();
    for variant in variants {
        let program = variant.split(['+', ',']).next().unwrap_or(variant).trim();
        if !programs.contains(&program) {
            programs.push(program);
        }
    }
    programs
}

/// Every case that has words.
#[cfg(test)]
pub(crate) fn known() -> impl Iterator<Item = (&'static str, &'static str)> {
    WORDS.iter().map(|&(bench, case, _)| (bench, case))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_once_whatever_it_is_asked_to_do() {
        let variants = ["tokio", "rayon", "tokio+yield", "rayon+look", "threadpool"];
        assert_eq!(programs(variants), ["tokio", "rayon", "threadpool"]);
        assert_eq!(
            of_case("workqueue", "one-at-a-time"),
            "queue one item and wait"
        );
        assert_eq!(of_case("workqueue", "nosuch"), "nosuch");
        assert_eq!(caption("owner_cpu_per_item"), "owner cpu/item");
    }
}
