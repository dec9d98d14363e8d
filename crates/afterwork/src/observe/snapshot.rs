//! A snapshot of the counters of a process.

use std::fmt::{self, Write};

#[cfg(not(any(loom, shuttle)))]
use base::internal::page;

use super::Exposition;
use crate::page::{Kind, Record};
use crate::workqueue::{Histogram, PoolStats, QueueReport, Registry, RegistryError};

/// The counters of a registry's queues and pools, and of the other subsystems of the process.
///
/// Counters are read one after another while items run, so they may not add up.
///
/// # Examples
///
/// ```
/// use afterwork::{observe, mailbox::Mailbox, workqueue};
///
/// let letters = Mailbox::<u32>::builder().name("letters").build();
/// workqueue::system()?.spawn(|| ()).join()?;
/// let now = observe::snapshot()?;
/// assert!(now.others.iter().any(|record| record.name == "letters"));
/// let metrics = now.to_prometheus();
/// assert!(metrics.contains("# TYPE afterwork_queue_wait_seconds histogram"));
/// assert!(metrics.contains("afterwork_mailbox_received_total{name=\"letters\",detail=\"\"} 0"));
/// # drop(letters);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// The queues, in the order in which they were built.
    pub queues: Vec<QueueReport>,
    /// The pools.
    pub pools: Vec<PoolStats>,
    /// The records of the registry's groups, and the process's records of RCU, named mailboxes and
    /// per-CPU data, if it has used them.
    pub others: Vec<Record>,
}

/// Takes a snapshot of the process-wide registry.
///
/// # Blocking
///
/// Takes the configuration lock of each queue and the lock of each pool for a short time.
///
/// # Errors
///
/// If that registry cannot be created.
///
/// # Examples
///
/// ```
/// use afterwork::{observe, workqueue};
///
/// workqueue::system()?.spawn(|| ()).join()?;
/// let now = observe::snapshot()?;
/// assert!(now.queues.iter().any(|queue| queue.name == "events"));
/// println!("{now}");
/// println!("{}", now.to_json());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("show_all_workqueues", "print_worker_info", "set_worker_desc"))]
pub fn snapshot() -> Result<Snapshot, RegistryError> {
    Registry::global().map(snapshot_of)
}

/// Takes a snapshot of `registry`.
///
/// # Blocking
///
/// The same as for [`snapshot`].
pub fn snapshot_of(registry: &Registry) -> Snapshot {
    let mut others = others();
    others.extend(registry.group_records());
    Snapshot { queues: registry.queue_reports(), pools: registry.pool_stats(), others }
}

fn others() -> Vec<Record> {
    #[cfg(any(loom, shuttle))]
    return Vec::new();
    #[cfg(not(any(loom, shuttle)))]
    {
        let mut image = page::Image::of_others();
        page::describe_all(&mut image);
        image.records
    }
}

/// The value of a row, as written to a table and to JSON.
enum Value {
    Text(String),
    Number(u64),
    Flag(bool),
    Times(Histogram),
}

type Row = Vec<(&'static str, Value)>;

fn queue_row(queue: &QueueReport) -> Row {
    let named = [
        ("queue", Value::Text(queue.name.clone())),
        ("scope", Value::Text(queue.attrs.affinity.to_string())),
        ("nice", Value::Text(queue.attrs.nice.to_string())),
    ];
    let mut row = row(named, &queue.record());
    row.push(("wait", Value::Times(queue.wait.clone())));
    row.push(("run", Value::Times(queue.run.clone())));
    row
}

fn pool_row(pool: &PoolStats) -> Row {
    let named = [
        ("pool", Value::Text(pool.cpus.to_string())),
        ("strict", Value::Flag(pool.strict)),
        ("nice", Value::Text(pool.nice.to_string())),
    ];
    row(named, &pool.record())
}

fn other_row(record: &Record) -> Row {
    let named = [
        (record.kind.name(), Value::Text(record.name.clone())),
        ("detail", Value::Text(record.detail.clone())),
    ];
    row(named, record)
}

fn row<const N: usize>(named: [(&'static str, Value); N], record: &Record) -> Row {
    let figures = record.figures();
    let figures = figures.map(|(field, figure)| (field.name, Value::Number(figure)));
    named.into_iter().chain(figures).collect()
}

impl Snapshot {
    fn tables(&self) -> [(&'static str, Vec<Row>); 6] {
        let of = |kind| {
            let records = self.others.iter().filter(|it| it.kind == kind);
            records.map(other_row).collect()
        };
        [
            ("queues", self.queues.iter().map(queue_row).collect()),
            ("groups", of(Kind::Group)),
            ("pools", self.pools.iter().map(pool_row).collect()),
            ("rcu", of(Kind::Rcu)),
            ("mailboxes", of(Kind::Mailbox)),
            ("percpu", of(Kind::PerCpu)),
        ]
    }

    /// Writes the snapshot as JSON: the arrays `queues`, `groups`, `pools`, `rcu`,
    /// `mailboxes`, `percpu`.
    ///
    /// Figures are named after the fields of `QueueStats` and `PoolStats`, as in `afterwork top
    /// --fields`. The suffix of a name is the unit. `wait` and `run` of a queue are histograms with
    /// `count`, `total_ns` and `buckets`. A bucket is a pair: its upper end in nanoseconds, and the
    /// number of values from the previous bucket's end to this one.
    #[doc(alias("serialize", "serde"))]
    pub fn to_json(&self) -> String {
        let mut json = String::from("{");
        for (i, (name, rows)) in self.tables().iter().enumerate() {
            let rows: Vec<_> = rows.iter().map(json_of).collect();
            let comma = if i > 0 { "," } else { "" };
            json += &format!("{comma}\"{name}\":[{}]", rows.join(","));
        }
        json + "}"
    }

    /// Writes the snapshot as the body of a response to Prometheus: text of the exposition format,
    /// `text/plain; version=0.0.4`.
    ///
    /// Each figure is a metric `afterwork_KIND_FIGURE` with the labels `name` and `detail`, and
    /// also `index` if two subjects have the same labels. Times are in seconds.
    /// `afterwork_queue_wait_seconds` and `afterwork_queue_run_seconds` are histograms whose sum is
    /// measured, as [`Histogram::total_ns`] is, and not computed from the buckets. `afterwork top
    /// --prometheus` writes the same text from another process.
    #[doc(alias("metrics", "openmetrics"))]
    pub fn to_prometheus(&self) -> String {
        let mut metrics = Exposition::new();
        metrics.add_snapshot(&[], self);
        metrics.to_string()
    }
}

fn json_of(row: &Row) -> String {
    let pair = |(name, value): &(&str, Value)| match value {
        Value::Text(text) => format!("\"{name}\":\"{}\"", escaped(text)),
        Value::Number(number) => format!("\"{name}\":{number}"),
        Value::Flag(flag) => format!("\"{name}\":{flag}"),
        Value::Times(times) => format!("\"{name}\":{}", json_of_times(times)),
    };
    let pairs: Vec<_> = row.iter().map(pair).collect();
    format!("{{{}}}", pairs.join(","))
}

fn json_of_times(times: &Histogram) -> String {
    let buckets = times.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
    let buckets: Vec<_> = buckets.map(|(i, count)| format!("[{},{count}]", 2_u64 << i)).collect();
    let (count, total_ns, buckets) = (times.count, times.total_ns, buckets.join(","));
    format!("{{\"count\":{count},\"total_ns\":{total_ns},\"buckets\":[{buckets}]}}")
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '"' | '\\' => escaped.extend(['\\', letter]),
            letter if letter < ' ' => {
                let _ = write!(escaped, "\\u{:04x}", u32::from(letter));
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Writes a table for each kind that has records.
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (_, rows) in self.tables() {
            write_table(f, &rows)?;
        }
        Ok(())
    }
}

fn write_table(f: &mut fmt::Formatter<'_>, rows: &[Row]) -> fmt::Result {
    let Some(first) = rows.first() else {
        return Ok(());
    };
    let cell = |value: &Value| match value {
        Value::Text(text) => Some(text.escape_debug().to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Flag(flag) => Some(flag.to_string()),
        Value::Times(_) => None,
    };
    let shown = first.iter().filter(|(_, value)| cell(value).is_some());
    let mut lines: Vec<Vec<_>> = vec![shown.map(|(name, _)| (*name).to_owned()).collect()];
    let cells = |row: &Row| row.iter().filter_map(|(_, value)| cell(value)).collect();
    lines.extend(rows.iter().map(cells));
    let width = |column: usize| lines.iter().map(|line: &Vec<String>| line[column].len()).max();
    let widths: Vec<_> = (0..lines[0].len()).filter_map(width).collect();
    for line in &lines {
        for (i, (cell, width)) in line.iter().zip(&widths).enumerate() {
            if i == 0 {
                write!(f, "{cell:<width$}")?;
            } else {
                write!(f, "  {cell:>width$}")?;
            }
        }
        writeln!(f)?;
    }
    Ok(())
}
