//! Checks that the library's Prometheus and JSON output follows the rules of these formats.

#![cfg(not(any(loom, shuttle, sim)))]

#[path = "support/prometheus.rs"]
mod prometheus;

use afterwork::mailbox::Mailbox;
use afterwork::observe::{Exposition, snapshot_of};
use afterwork::percpu::PerCpu;
use afterwork::rcu;
use afterwork::workqueue::{Histogram, QueueReport, Registry, Workqueue};
use prometheus::{Sample, metrics};
use topology::Topology;

/// The names of the queues, sorted.
const NAMES: [&str; 4] = ["a \"b\" \\ {c=\"d\"}", "plain", "plain", "two\nlines\t"];

fn busy() -> (Registry, Vec<Workqueue>) {
    let machine = Topology::synthetic("2 core").unwrap();
    let registry = Registry::new(machine, Default::default()).unwrap();
    let build = |name| Workqueue::builder(name).help(false).build_in(&registry);
    let queues: Vec<_> = NAMES.map(|name| build(name).unwrap()).into();
    for queue in &queues {
        let items: Vec<_> = (0..10).map(|_| queue.spawn(|| drop(rcu::read()))).collect();
        items.into_iter().for_each(|it| it.join().unwrap());
    }
    (registry, queues)
}

#[test]
fn a_snapshot_is_written_by_the_rules_of_prometheus() {
    let (registry, queues) = busy();
    let mut letters = Mailbox::builder().name("letters").build();
    letters.poster().post(1).unwrap();
    letters.drain(1).for_each(drop);
    let counts = PerCpu::builder().name("counts").build(|_| 0).unwrap();
    counts.drain_all(|_, count| *count += 1);
    let now = snapshot_of(&registry);
    let text = now.to_prometheus();
    let metrics = metrics(&text).unwrap_or_else(|why| panic!("{why} in\n{text}"));
    let (measure, samples) = &metrics["afterwork_queue_started_total"];
    assert_eq!(measure, "counter");
    let mut names: Vec<_> = samples.iter().map(|it| it.1["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, NAMES);
    assert!(samples.iter().all(|it| it.2 == 10.0), "{samples:?}");
    let nr_indexed = samples.iter().filter(|it| it.1.contains_key("index"));
    assert_eq!(nr_indexed.count(), 1, "two have one name");
    let has = |name: &str| assert!(metrics.contains_key(name), "{name} in\n{text}");
    has("afterwork_queue_cpu_time_seconds_total");
    has("afterwork_queue_oldest_seconds");
    has("afterwork_pool_stalled_seconds");
    has("afterwork_rcu_grace_periods_total");
    for (kind, figure) in [("mailbox_received", "letters"), ("percpu_drains", "counts")] {
        let samples = &metrics[&format!("afterwork_{kind}_total")].1;
        let is_it = |it: &&Sample| it.1["name"] == figure;
        assert_eq!(samples.iter().find(is_it).unwrap().2, 1.0, "{text}");
    }
    for times in ["wait", "run"] {
        let (measure, samples) = &metrics[&format!("afterwork_queue_{times}_seconds")];
        assert_eq!(measure, "histogram");
        let sums = samples.iter().filter(|it| it.0.ends_with("_sum"));
        assert_eq!(sums.count(), NAMES.len());
    }
    assert!(!text.contains("nanoseconds"), "figures are in seconds");
    drop(queues);
}

#[test]
fn a_snapshot_without_queues_is_written_as_well() {
    let machine = Topology::synthetic("1 core").unwrap();
    let registry = Registry::new(machine, Default::default()).unwrap();
    let mut now = snapshot_of(&registry);
    now.others.clear();
    assert_eq!(now.to_prometheus(), "");
    let json = r#"{"queues":[],"groups":[],"pools":[],"rcu":[],"mailboxes":[],"percpu":[]}"#;
    assert_eq!(now.to_json(), json);
}

#[test]
fn user_labels_come_first_and_two_processes_can_be_exported() {
    let (registry, _queues) = busy();
    let now = snapshot_of(&registry);
    let mut all = Exposition::new();
    for instance in ["one", "t\"wo"] {
        let labels = [("instance", instance)];
        all.gauge("app_ready", "1 if requests\nare served", &labels, 0.5);
        all.counter("app_requests_total", "Requests", &labels, 7.0);
        all.add_snapshot(&labels, &now);
    }
    let text = all.to_string();
    let metrics = metrics(&text).unwrap_or_else(|why| panic!("{why} in\n{text}"));
    assert!(text.contains("# HELP app_ready 1 if requests\\nare served\n"));
    assert_eq!(metrics["app_requests_total"].0, "counter");
    for name in ["app_ready", "afterwork_queue_started_total"] {
        let of = |instance| {
            let samples = metrics[name].1.iter();
            samples.filter(|it| it.1["instance"] == instance).count()
        };
        assert!(of("one") > 0 && of("one") == of("t\"wo"), "{name}");
    }
}

#[test]
fn histogram_contains_all_samples_and_their_sum() {
    let (registry, queues) = busy();
    let now = snapshot_of(&registry);
    let metrics = metrics(&now.to_prometheus()).unwrap();
    let of = |metric: &str, suffix: &str| -> Vec<f64> {
        let samples = metrics[metric].1.iter();
        let samples = samples.filter(|it| it.0.ends_with(suffix));
        samples.map(|it| it.2).collect()
    };
    let times_of = |of: fn(&QueueReport) -> &Histogram| now.queues.iter().map(of).collect();
    let times: [(&str, Vec<_>); 2] = [
        ("afterwork_queue_wait_seconds", times_of(|it| &it.wait)),
        ("afterwork_queue_run_seconds", times_of(|it| &it.run)),
    ];
    for (metric, times) in times {
        let counts: Vec<_> = times.iter().map(|it| it.count as f64).collect();
        assert_eq!(of(metric, "_count"), counts);
        let sums: Vec<_> = times.iter().map(|it| it.total_ns as f64 / 1e9).collect();
        assert_eq!(of(metric, "_sum"), sums);
        // One bucket ends at 2^20 ns.
        let below = |it: &&Histogram| it.buckets.iter().take(20).sum::<u64>() as f64;
        let samples = metrics[metric].1.iter();
        let ends = samples.filter(|it| it.1.get("le").is_some_and(|le| le == "0.001048576"));
        let counts: Vec<_> = ends.map(|it| it.2).collect();
        assert_eq!(counts, times.iter().map(below).collect::<Vec<_>>());
    }
    drop(queues);
}

#[test]
fn the_rules_are_checked() {
    let head = "# HELP a_total x\n# TYPE a_total counter\n";
    let hist = "# HELP h x\n# TYPE h histogram\n";
    let [one, inf] = ["h_bucket{le=\"1\"}", "h_bucket{le=\"+Inf\"}"];
    for (text, why) in [
        ("a_total 1\n", "a metric begins without a help text"),
        ("# HELP a x\na 1\n", "a metric without a type"),
        ("# HELP a x\n# TYPE a counter\na 1\n", "only counters end in _total"),
        ("# HELP a_ns x\n# TYPE a_ns gauge\na_ns 1\n", "not a base unit"),
        (head, "a metric without samples"),
        (&format!("{head}a_total 1"), "the last line does not end"),
        (&format!("{head}b_total 1\n"), "a sample of another metric"),
        (&format!("{head}a_total one\n"), "a value is not a number"),
        (&format!("{head}a_total 1\na_total 2\n"), "a series twice"),
        (&format!("{head}a_total{{b=\"\\x\"}} 1\n"), "an unknown escape"),
        (&format!("{head}a_total{{b=\"c\"d\"}} 1\n"), "labels do not end"),
        (&format!("{hist}{one} 2\n{inf} 1\n"), "buckets decrease"),
        (&format!("{hist}{one} 2\nh_sum 1\nh_count 2\n"), "the last bucket omits samples"),
        (&format!("{hist}{inf} 2\nh_sum 1\n"), "a histogram without its count or sum"),
    ] {
        assert_eq!(metrics(text), Err(why), "{text}");
    }
}

#[test]
fn a_snapshot_is_written_as_json_is() {
    let (registry, queues) = busy();
    let json = snapshot_of(&registry).to_json();
    let now: serde_json::Value = serde_json::from_str(&json).expect(&json);
    let shown = now["queues"].as_array().unwrap();
    let mut names: Vec<_> = shown.iter().map(|queue| queue["queue"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, NAMES);
    assert!(shown.iter().all(|queue| queue["wait"]["count"].is_u64()), "{json}");
    assert_eq!(now["rcu"][0]["rcu"], "rcu", "{json}");
    drop(queues);
}
