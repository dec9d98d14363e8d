//! Descriptions of cases and metrics, for readers who do not know the code of the lab.
//!
//! The chore that writes docs/figures.md also compiles this file.

/// The operation that each case measures. A line contains the bench, the case and the operation.
/// `{n}` is replaced with the size that ran, which is the first number in the description of the
/// case.
const WORDS: &str = include_str!("words/cases.txt");

/// The name of each metric in words. A line contains the scope (a bench with a case, a bench, or
/// `*`), the metric and the words. The narrowest scope takes precedence. `#` matches any number,
/// and the first matching line is used.
const METRICS: &str = include_str!("words/metrics.txt");

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

/// Returns our default variant of a case, or our first one if it was not measured.
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

/// Returns the description of a metric, or its name without underscores.
pub fn of_metric(bench: &str, case: &str, metric: &str) -> String {
    let narrow = format!("{bench} {case}");
    let mut places = [narrow.as_str(), bench, "*"].into_iter();
    let found = places.find_map(|place| found(METRICS, place, metric));
    found.map_or_else(|| of_other(metric), |(_, words)| words)
}

/// Returns the description of a figure of the machine. If the name is unknown, formats it as tables
/// do: `items_per_s` becomes `items/s`.
pub fn of_other(name: &str) -> String {
    let found = OTHERS.iter().find(|(known, _)| *known == name);
    let spelled = || name.replace("_per_", "/").replace('_', " ");
    found.map_or_else(spelled, |(_, words)| (*words).to_owned())
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

/// Returns the programs of the variants: `tokio+yield` belongs to tokio.
pub fn programs<'a>(variants: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let program = |variant: &'a str| variant.split(['+', ',']).next().unwrap_or(variant).trim();
    distinct(variants.into_iter().map(program))
}

/// Returns each name once, in the order in which they first appear.
pub fn distinct<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct: Vec<&str> = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
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
        let found_words = "
            everyday sleeps cpu_per_item: CPU time per sleep
            everyday admission cpu_per_item: CPU time per item
            scale queues bytes@1000: bytes of each at 1,000 queues
            scale domains ns@1200: time of one at 1,200 domains
            workqueue lock-hold lock_hold_p99: p99 of the time that the pool lock is held
            workqueue lock-hold lock_hold_p999: p99.9 of the time that the pool lock is held
            groups parts of_due_1: part of the due of the tenant with 1 share
            groups parts of_due_2: part of the due of the tenant with 2 shares
            rcu read steal: CPUs taken by the host
            rcu read new_things_per_s: new things/s";
        for line in found_words.lines().skip(1) {
            let (key, words) = line.trim().split_once(": ").unwrap();
            let mut key = key.split(' ');
            let [bench, case, metric] = [(); 3].map(|()| key.next().expect(line));
            assert_eq!(of_metric(bench, case, metric), words, "{line}");
        }
    }
}
