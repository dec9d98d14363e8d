//! Text for Prometheus, in its exposition format, version 0.0.4.
//!
//! A metric is named `afterwork_KIND_FIGURE`. Counts end in `_total`. Times are in seconds,
//! regardless of the unit of the figure. All samples of a metric are in one block, below its `HELP`
//! and `TYPE`, and no two of them have the same labels.

use std::collections::HashMap;
use std::fmt::{self, Write};

use base::internal::page::{Field, Kind, Measure, Record, TIMES_LOG2};

/// The metrics of one or several processes, which `Display` writes as text for Prometheus.
///
/// [`Snapshot::to_prometheus`](super::Snapshot::to_prometheus) writes the metrics of this process.
/// Use this type for records of other processes, as `afterwork top` does, or for additional labels.
///
/// # Examples
///
/// ```
/// use afterwork::{observe::{self, Exposition}, workqueue};
///
/// workqueue::system()?.spawn(|| ()).join()?;
/// let mut metrics = Exposition::new();
/// metrics.add_snapshot(&[("instance", "west-3")], &observe::snapshot()?);
/// metrics.gauge("app_ready", "1 if requests are served", &[], 1.0);
/// metrics.counter("app_requests_total", "Requests", &[("kind", "get")], 7.0);
/// assert!(metrics.to_string().contains("instance=\"west-3\""));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Exposition {
    metrics: Vec<Metric>,
    places: HashMap<String, usize>,
}

#[derive(Debug)]
struct Metric {
    name: String,
    about: String,
    measure: &'static str,
    samples: String,
}

/// The name of a label, and its unescaped value.
type Label<'a> = (&'a str, &'a str);

impl Exposition {
    /// Creates an exposition without metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a sample of a metric of your own whose value can rise and fall. The names of the metric
    /// and its labels must be valid in Prometheus.
    pub fn gauge(&mut self, name: &str, about: &str, labels: &[Label<'_>], value: f64) {
        self.add(name, about, "gauge", &line(name, &written(labels), value));
    }

    /// Adds a sample of a metric that only rises. Its name must end in `_total`.
    pub fn counter(&mut self, name: &str, about: &str, labels: &[Label<'_>], value: f64) {
        self.add(name, about, "counter", &line(name, &written(labels), value));
    }

    /// Adds all samples of a snapshot. Each sample gets `labels`, and the labels `name`, `detail`
    /// and `index`, which identify its subject. `labels` must not contain any of these three.
    #[cfg(feature = "workqueue")]
    pub fn add_snapshot(&mut self, labels: &[Label<'_>], snapshot: &super::Snapshot) {
        let queues: Vec<_> = snapshot.queues.iter().map(|it| it.record()).collect();
        let pools: Vec<_> = snapshot.pools.iter().map(|it| it.record()).collect();
        let all = queues.iter().chain(&pools).chain(&snapshot.others);
        let times: Vec<_> = snapshot.queues.iter().flat_map(|it| it.times()).collect();
        self.add_records(labels, all.chain(&times));
    }

    /// Adds the figures of records of one process, except
    /// [transient](crate::page::Kind::is_transient) ones. The figures of a kind that [is a
    /// histogram](crate::page::Kind::is_histogram) become one histogram.
    pub fn add_records<'r>(
        &mut self,
        labels: &[Label<'_>],
        records: impl IntoIterator<Item = &'r Record>,
    ) {
        let records: Vec<_> = records.into_iter().collect();
        for (labels, record) in labeled(labels, &records).iter().zip(&records) {
            if record.kind.is_histogram() {
                self.histogram(labels, record);
                continue;
            }
            if record.kind.is_transient() {
                continue;
            }
            for (field, figure) in record.figures() {
                let (name, about, value) = metric(record, field, figure);
                let measure = match field.measure {
                    Measure::Gauge => "gauge",
                    Measure::Counter | Measure::Fault => "counter",
                };
                self.add(&name, &about, measure, &line(&name, labels, value));
            }
        }
    }

    /// Adds a histogram, unless the record is incomplete. The result is a valid histogram
    /// regardless of the figures, because another process may have written them.
    fn histogram(&mut self, labels: &str, record: &Record) {
        let figures: Vec<_> = record.figures().map(|(_, figure)| figure).collect();
        let [count, total_ns, below @ ..] = &*figures else {
            return;
        };
        if below.len() < TIMES_LOG2.len() {
            return;
        }
        let about = match record.kind {
            Kind::QueueRun => "How long workers ran items",
            _ => "How long items waited for a worker",
        };
        let name = format!("afterwork_{}_seconds", record.kind.name());
        let comma = if labels.is_empty() { "" } else { "," };
        let (mut lines, mut nr_below) = (String::new(), 0);
        for (log2, below) in TIMES_LOG2.into_iter().zip(below) {
            nr_below = (*below).max(nr_below);
            let le = seconds(1 << log2, 1e9);
            let _ = writeln!(lines, "{name}_bucket{{{labels}{comma}le=\"{le}\"}} {nr_below}");
        }
        let (count, sum) = (nr_below.max(*count), seconds(*total_ns, 1e9));
        let _ = writeln!(lines, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
        lines += &line(&format!("{name}_sum"), labels, sum);
        lines += &line(&format!("{name}_count"), labels, count);
        self.add(&name, about, "histogram", &lines);
    }

    /// Adds lines to a metric. Other metrics may have been added since its last lines.
    fn add(&mut self, name: &str, about: &str, measure: &'static str, lines: &str) {
        let place = *self.places.entry(name.to_owned()).or_insert_with(|| {
            self.metrics.push(Metric {
                name: name.to_owned(),
                about: about.replace('\\', "\\\\").replace('\n', "\\n"),
                measure,
                samples: String::new(),
            });
            self.metrics.len() - 1
        });
        self.metrics[place].samples += lines;
    }
}

/// Units of figures: the suffix of the figure, the name in the metric, and the number of units per
/// second.
const UNITS: [(&str, &str, f64); 3] =
    [("_ns", ", nanoseconds", 1e9), ("_us", ", microseconds", 1e6), ("_ms", ", milliseconds", 1e3)];

/// Returns the name of a metric, its description, and the value of the figure in base units.
fn metric(record: &Record, field: &Field, figure: u64) -> (String, String, String) {
    let unit = UNITS.iter().find(|unit| field.name.ends_with(unit.0));
    let (name, about, value) = match unit {
        Some((suffix, word, per_s)) => (
            field.name.replace(suffix, "_seconds"),
            field.about.replace(word, ""),
            seconds(figure, *per_s),
        ),
        None => (field.name.to_owned(), field.about.to_owned(), figure.to_string()),
    };
    let total = match field.measure {
        Measure::Gauge => "",
        Measure::Counter | Measure::Fault => "_total",
    };
    let kind = record.kind.name();
    (format!("afterwork_{kind}_{name}{total}"), about, value)
}

fn seconds(figure: u64, per_s: f64) -> String {
    (figure as f64 / per_s).to_string()
}

/// Returns the labels of each record. No two records have the same labels.
fn labeled<'r>(labels: &[Label<'_>], records: &[&'r Record]) -> Vec<String> {
    let mut nr_seen = HashMap::new();
    let labels_of = |record: &'r Record| {
        let mut labels = labels.to_vec();
        labels.extend([("name", &*record.name), ("detail", &*record.detail)]);
        let nr_before = nr_seen.entry((record.kind, &*record.name, &*record.detail)).or_insert(0);
        *nr_before += 1;
        match *nr_before - 1 {
            0 => written(&labels),
            n => format!("{},index=\"{n}\"", written(&labels)),
        }
    };
    records.iter().copied().map(labels_of).collect()
}

fn written(labels: &[Label<'_>]) -> String {
    let labels = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    labels.collect::<Vec<_>>().join(",")
}

fn line(series: &str, labels: &str, value: impl fmt::Display) -> String {
    let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    format!("{series}{labels} {value}\n")
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Writes all metrics, each below its `HELP` and `TYPE`.
impl fmt::Display for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for metric in &self.metrics {
            let Metric { name, about, measure, samples } = metric;
            write!(f, "# HELP {name} {about}\n# TYPE {name} {measure}\n{samples}")?;
        }
        Ok(())
    }
}
