//! Descriptions of cases and metrics, for readers who do not know the code of the lab.
//!
//! The chore that writes docs/figures.md also compiles this file.

/// The operation that each case measures. A line contains the bench, the case and the operation.
/// `{n}` is replaced with the size that ran, which is the first number in the description of the
/// case.
const WORDS: &str = "\
workqueue one-at-a-time: queue one item and wait
workqueue batch-1000: queue batches of 1000 items
workqueue fan-out: queue {n} items from one thread
workqueue lock-hold: hold a pool's lock
blocking detect: run the next item when one sleeps
blocking mixed: run items that compute and sleep
mpscq push-pop: pass items to one consumer, scattered in memory
mpscq push-pop-contiguous: pass items to one consumer, contiguous in memory
mpscq owned: send small messages to an owner
task-work wake: wake an owner for single items
task-work wake-burst: wake an owner for bursts of 32
task-work service-8: serve 8 TCP clients from one thread
task-work service-1024: serve 1024 TCP clients from one thread
rcu read: read a protected value
rcu replace-idle: replace a value that no thread reads
rcu replace-32-idle: replace a value while 32 readers sleep
rcu replace-1-busy: replace a value while one reader is busy
rcu replace-2-busy: replace a value while two readers are busy
rcu replace-8-busy: replace a value while 8 readers are busy
rcu updaters-8: replace values from 8 threads
rcu updaters-64: replace values from 64 threads
rcu call: free by callback after the readers
rcu bridge: change a routing table while threads read it
percpu alloc-warm: take from a CPU's own list, in cache
percpu isolation: drain a CPU that must not be disturbed
percpu busy-owner: call a slot whose owner is busy
percpu busy-owner-loaded: call a slot whose owner is busy, under load
percpu busy-owner-fifo: call a slot whose owner is busy, in real time
max-active joins: join blocks through a small buffer pool
max-active subsystems: serve eight subsystems with limits
max-active shares: serve seven subsystems while another one floods
everyday admission: queue into a full queue
everyday scope-sum: sum {n} Mi numbers on borrowed memory
everyday scope-empty: spawn {n} empty items with borrowed data
everyday range-empty: run an empty call for each of {n} numbers
everyday idle-1ms: stay idle except for an item every ms
everyday idle-10ms: stay idle except for an item every 10 ms
everyday sleeps: let {n} tasks sleep
everyday timeouts: arm and cancel timeouts that never fire
everyday strands: keep {n} states, each with one user at a time
everyday locked: hold a lock while waiting for own work
everyday save-soon: save soon after the last of {n} changes
groups parts: divide a machine between tenants
groups flood: serve seven tenants while another one floods
groups one-at-a-time-grouped: queue one item in a group and wait
groups batch-1000-grouped: queue batches of 1000 items in a group
scale queues: queue to many queues
scale domains: use many SRCU domains for the first time
";

/// The name of each metric in words. A line contains the scope (a bench with a case, a bench, or
/// `*`), the metric and the words. The narrowest scope takes precedence. `#` matches any number,
/// and the first matching line is used.
const METRICS: &str = "\
* items_per_s: items/s
* enqueue_p#: p# of the call that queues
* completion_p#: p# from queueing to the end
* switches_per_item: context switches per item
* wakeups_per_item: wake-ups per item
* cpu_per_item: CPU time per item
* threads: threads
workqueue lock_hold_mean: mean time that the pool lock is held
workqueue lock_hold_p999: p99.9 of the time that the pool lock is held
workqueue lock_hold_p#: p# of the time that the pool lock is held
workqueue lock_holds_per_item: locks of the pool per item
workqueue lock_wait_share: share of the CPU time that waits for the pool lock
blocking to_run_p#: p# from the sleep of one item to the run of the next
blocking to_run_max: longest time from the sleep of one item to the run of the next
blocking makespan: time until all are done
blocking manager_share: share of a CPU that the manager uses to find sleeping workers
mpscq ns_paused_1: time per item from 1 producer to a consumer that pauses
mpscq ns_paused_#: time per item from # producers to a consumer that pauses
mpscq ns_tight_1: time per item from 1 producer to a consumer that polls without pause
mpscq ns_tight_#: time per item from # producers to a consumer that polls without pause
task-work wakeups_per_1000: wake-ups per 1000 items
task-work owner_cpu_per_item: CPU time of the owner per item
task-work latency_p#: p# from posting to running
task-work post_mean: mean time of a post
task-work requests_per_s: requests/s
task-work gbit_per_s: Gbit/s
task-work task_work_share: share of the owner's CPU time that is task work
task-work post_share: time of posts, relative to the owner's CPU time
task-work task_work_per_item: CPU time of task work per item
task-work items_per_drain: items per drain
task-work sections_lost: samples left out because the owner lost its CPU
rcu read_ns: time of a read
rcu read_cycles: cycles of a read
rcu replace_mean: mean time until the old value is freed
rcu replace_p#: p# of the time until the old value is freed
rcu replace_min: shortest time until the old value is freed
rcu replace_max: longest time until the old value is freed
rcu replaces_per_s: replacements/s
rcu reads_per_s: reads/s
rcu calls_per_s: callbacks/s
rcu call_to_run_p50: p50 from the call to the run of its callback
rcu idle_barrier_p50: p50 of a barrier when no callback waits
rcu bridge_mean: mean time to add, configure and delete a bridge
percpu cycles_per_alloc: cycles per object
percpu calls_per_s: calls/s
percpu call_p50: p50 of a call
percpu call_max: longest call
percpu caller_cpu: CPU time of the caller per call
percpu operations_per_s: operations of the owner/s
percpu drain_p#: p# of a drain
percpu drain_max: longest drain
percpu victim_gap_max: longest pause of the owner
percpu victim_switches: context switches of the owner
percpu victim_involuntary: involuntary context switches of the owner
percpu victim_waited: time that the owner waited for its CPU
percpu victim_interrupts: interrupts of the owner's CPU
percpu victim_interrupts_timer: timer interrupts of the owner's CPU
percpu victim_interrupts_resched: reschedule interrupts of the owner's CPU
percpu victim_interrupts_call: function call interrupts of the owner's CPU
max-active latency_p#: p# from queueing to the end
max-active memory_growth: growth of memory
everyday resident: resident memory
everyday numbers_per_s: numbers/s
everyday cpu_per_number: CPU time per number
everyday cpu_share: share of a CPU
everyday to_run_p#: p# from queueing to running
everyday scope-empty numbers_per_s: items/s
everyday scope-empty cpu_per_number: CPU time per item
everyday sleeps cpu_per_item: CPU time per sleep
everyday sleeps hand_over: time to start a sleep
everyday sleeps late_p#: p# of how late sleepers wake
everyday sleeps bytes_per_item: bytes per sleep
everyday timeouts_per_s: timeouts/s
everyday timeouts cpu_per_item: CPU time per timeout
everyday make: time to make a state
everyday drop: time to drop a state
everyday bytes_made: bytes per state
everyday bytes_used: bytes per state that was used
everyday ended: runs that ended
everyday until_end: time until all requests ended
everyday saves: saves
everyday per_change: time of a change
groups worst: distance from the due
groups of_due_1: part of the due of the tenant with 1 share
groups of_due_#: part of the due of the tenant with # shares
groups alone_p99: p99 without a flood
groups flooded_p#: p# during a flood
scale growth: growth for each doubling
scale queues ns@#: time of one at # queues
scale queues bytes@#: bytes of each at # queues
scale domains ns@#: time of one at # domains
scale domains bytes@#: bytes of each at # domains
";

/// The cases whose default variant is not our first variant.
const DEFAULTS: [(&str, &str); 5] = [
    ("one-at-a-time", "cache_shard+spawn"),
    ("batch-1000", "cache_shard+spawn"),
    ("fan-out", "cache_shard+spawn"),
    ("wake", "wait-32"),
    // The first variant is a run without drains.
    ("isolation", "on_demand"),
];

const OTHERS: &[(&str, &str)] = &[
    ("others_cpu", "CPUs used by other programs"),
    ("steal", "CPUs taken by the host"),
    ("handover_before", "a cache line from CPU to CPU and back, before"),
    ("handover_after", "after"),
];

/// Returns our default variant of a case, which is compared with the peers. If it was not measured,
/// returns our first variant.
pub fn ours<'a, I: Iterator<Item = &'a str>>(
    case: &str,
    variants: impl Fn() -> I,
) -> Option<&'a str> {
    let default = variants().find(|it| DEFAULTS.contains(&(case, it)));
    default.or_else(|| variants().next())
}

/// Returns the key and the words of the first line for `name` at `place`. `#` matches a number.
fn found(table: &'static str, place: &str, name: &str) -> Option<(&'static str, String)> {
    table.lines().find_map(|line| {
        let (key, words) = line.strip_prefix(place)?.strip_prefix(' ')?.split_once(": ")?;
        let Some((start, end)) = key.split_once('#') else {
            return (key == name).then(|| (key, words.into()));
        };
        let number = name.strip_prefix(start)?.strip_suffix(end)?;
        let is_number = number.parse::<u32>().is_ok();
        is_number.then(|| (key, words.replace('#', &grouped(number))))
    })
}

/// Returns the operation of a case with this description. For an unknown case, returns its name.
pub fn of_case(bench: &str, case: &str, about: &str) -> String {
    let words = found(WORDS, bench, case).map_or_else(|| case.into(), |(_, words)| words);
    let mut numbers = about.split(|c: char| !c.is_ascii_digit());
    let size = numbers.find(|it| !it.is_empty()).map_or_else(|| "many".into(), grouped);
    words.replace("{n}", &size)
}

/// Returns the description of a metric. For an unknown metric, returns its name without
/// underscores.
pub fn of_metric(bench: &str, case: &str, metric: &str) -> String {
    let narrow = format!("{bench} {case}");
    let mut places = [narrow.as_str(), bench, "*"].into_iter();
    let found = places.find_map(|place| found(METRICS, place, metric));
    found.map_or_else(|| of_other(metric), |(_, words)| words)
}

pub fn of_other(name: &str) -> String {
    let found = OTHERS.iter().find(|(known, _)| *known == name);
    found.map_or_else(|| spelled(name), |(_, words)| (*words).to_owned())
}

fn grouped(number: &str) -> String {
    let mut text = String::new();
    for (index, digit) in number.chars().enumerate() {
        if index > 0 && (number.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a name as tables do: `items_per_s` becomes `items/s`.
fn spelled(name: &str) -> String {
    name.replace("_per_", "/").replace('_', " ")
}

/// Returns the programs of the variants: `tokio+yield` belongs to tokio.
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn known() -> impl Iterator<Item = (&'static str, &'static str)> {
        keys(WORDS)
    }

    pub(crate) fn known_metrics() -> impl Iterator<Item = (&'static str, &'static str)> {
        keys(METRICS)
    }

    pub(crate) fn key_of(scope: &str, metric: &str) -> Option<&'static str> {
        found(METRICS, scope, metric).map(|(key, _)| key)
    }

    fn keys(table: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
        let keys = table.lines().filter_map(|line| line.split(": ").next());
        keys.filter_map(|key| key.rsplit_once(' '))
    }

    #[test]
    fn program_is_named_once_for_all_its_variants() {
        let variants = ["tokio", "rayon", "tokio+yield", "rayon+look", "threadpool"];
        assert_eq!(programs(variants), ["tokio", "rayon", "threadpool"]);
        assert_eq!(of_case("workqueue", "nosuch", "8 threads"), "nosuch");
    }

    #[test]
    fn title_of_a_case_has_the_size_that_ran() {
        for (about, title) in [
            ("50000 tasks sleep 300 ms; 2 workers", "let 50,000 tasks sleep"),
            ("1000 tasks", "let 1,000 tasks sleep"),
            ("", "let many tasks sleep"),
        ] {
            assert_eq!(of_case("everyday", "sleeps", about), title);
        }
        assert_eq!(of_case("workqueue", "one-at-a-time", "8 producers"), "queue one item and wait");
    }

    #[test]
    fn metric_has_the_words_of_the_narrowest_scope_or_its_name() {
        let found_words = [
            ("everyday", "sleeps", "cpu_per_item", "CPU time per sleep"),
            ("everyday", "admission", "cpu_per_item", "CPU time per item"),
            ("scale", "queues", "bytes@1000", "bytes of each at 1,000 queues"),
            ("scale", "domains", "ns@1200", "time of one at 1,200 domains"),
            (
                "workqueue",
                "lock-hold",
                "lock_hold_p99",
                "p99 of the time that the pool lock is held",
            ),
            (
                "workqueue",
                "lock-hold",
                "lock_hold_p999",
                "p99.9 of the time that the pool lock is held",
            ),
            ("groups", "parts", "of_due_1", "part of the due of the tenant with 1 share"),
            ("groups", "parts", "of_due_2", "part of the due of the tenant with 2 shares"),
            ("rcu", "read", "steal", "CPUs taken by the host"),
            ("rcu", "read", "new_things_per_s", "new things/s"),
        ];
        for (bench, case, metric, words) in found_words {
            assert_eq!(of_metric(bench, case, metric), words);
        }
    }
}
