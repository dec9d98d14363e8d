//! A snapshot of the counters of workqueues.

use std::fmt::{self, Write};

use crate::{
    page::Kind,
    workqueue::{PoolStats, QueueReport, Registry, RegistryError},
};

/// The counters of the queues and pools of a registry.
///
/// Each counter is read by itself while work goes on, so sums may not match.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// The queues, in the order in which they were built.
    pub queues: Vec<QueueReport>,
    /// The pools.
    pub pools: Vec<PoolStats>,
}

/// Takes a snapshot of the process-wide registry.
///
/// # Blocking
///
/// Takes the lock of each queue's plan and of each pool for a moment.
///
/// # Errors
///
/// If that registry cannot be made.
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
pub fn snapshot() -> Result<Snapshot, RegistryError> {
    Registry::global().map(snapshot_of)
}

/// Takes a snapshot of `registry`.
///
/// # Blocking
///
/// As of [`snapshot`].
pub fn snapshot_of(registry: &Registry) -> Snapshot {
    Snapshot {
        queues: registry.queue_reports(),
        pools: registry.pool_stats(),
    }
}

/// A value of a row, as a table and JSON need it.
enum Value {
    Text(String),
    Number(u64),
    Flag(bool),
}

type Row = Vec<(&'static str, Value)>;

fn queue_row(queue: &QueueReport) -> Row {
    let named = [
        ("queue", Value::Text(queue.name.clone())),
        ("scope", Value::Text(queue.attrs.scope.to_string())),
        ("nice", Value::Text(queue.attrs.nice.to_string())),
    ];
    row(named, Kind::Queue, queue.figures())
}

fn pool_row(pool: &PoolStats) -> Row {
    let named = [
        ("pool", Value::Text(pool.cpus.to_string())),
        ("strict", Value::Flag(pool.strict)),
        ("nice", Value::Text(pool.nice.to_string())),
    ];
    row(named, Kind::Pool, pool.figures())
}

fn row(named: [(&'static str, Value); 3], kind: Kind, figures: Vec<u64>) -> Row {
    let names = kind.fields().iter().map(|field| field.name);
    let figures = names.zip(figures.into_iter().map(Value::Number));
    named.into_iter().chain(figures).collect()
}

impl Snapshot {
    fn tables(&self) -> [(&'static str, Vec<Row>); 2] {
        [
            ("queues", self.queues.iter().map(queue_row).collect()),
            ("pools", self.pools.iter().map(pool_row).collect()),
        ]
    }

    /// Writes it as JSON: an object with the arrays `queues` and `pools`.
    pub fn to_json(&self) -> String {
        let mut json = String::from("{");
        for (i, (name, rows)) in self.tables().iter().enumerate() {
            let rows: Vec<_> = rows.iter().map(json_of).collect();
            let comma = if i > 0 { "," } else { "" };
            json += &format!("{comma}\"{name}\":[{}]", rows.join(","));
        }
        json + "}"
    }
}

fn json_of(row: &Row) -> String {
    let pairs: Vec<_> = row
        .iter()
        .map(|(name, value)| match value {
            Value::Text(text) => format!("\"{name}\":\"{}\"", escaped(text)),
            Value::Number(number) => format!("\"{name}\":{number}"),
            Value::Flag(flag) => format!("\"{name}\":{flag}"),
        })
        .collect();
    format!("{{{}}}", pairs.join(","))
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

/// Writes two tables, of queues and of pools.
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
        Value::Text(text) => text.escape_debug().to_string(),
        Value::Number(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
    };
    let mut lines = vec![first.iter().map(|(name, _)| (*name).to_owned()).collect()];
    let cells = |row: &Row| row.iter().map(|(_, value)| cell(value)).collect();
    lines.extend(rows.iter().map(cells));
    let width = |column: usize| {
        lines
            .iter()
            .map(|line: &Vec<String>| line[column].len())
            .max()
    };
    let widths: Vec<_> = (0..first.len()).filter_map(width).collect();
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
