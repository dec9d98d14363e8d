//! Chooses the columns, and computes how fast the figures change. These are plain functions of
//! pages.

use afterwork::page::{Field, Kind, Measure, Record};

use super::snapshot::Snapshot;

#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    pub text: String,
    /// `true` if the cell reports a problem.
    pub is_alarm: bool,
    /// The sort key. It is less than all numbers if the cell is not a number. For a name, it is the
    /// index of the row's record within its kind.
    pub value: f64,
}

impl Cell {
    /// Creates a cell of text.
    pub fn plain(text: &str, is_alarm: bool) -> Self {
        Self { text: text.to_owned(), is_alarm, value: f64::NEG_INFINITY }
    }
}

/// A table of all records of a kind. The first row is the header, and the first column contains the
/// names.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    pub kind: Kind,
    pub rows: Vec<Vec<Cell>>,
}

pub fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|it| !it.is_histogram())
}

/// Returns the columns of a kind: the header and the figure. A column whose header ends in `/s`
/// shows the increase of its figure per second.
fn columns(kind: Kind) -> impl Iterator<Item = (&'static str, &'static str)> {
    let columns = match kind {
        Kind::Queue => {
            "active nr_active, inactive nr_inactive, max max_active, done/s completed, \
             done completed, helped helped, panicked panicked, refused refused, \
             cpu ms cpu_time_us, wait p50 ms wait_p50_ns, wait p99 ms wait_p99_ns, \
             oldest ms oldest_ns, run p99 ms run_p99_ns"
        }
        Kind::Group => {
            "active nr_active, over nr_over, waiting nr_waiting, max max_active, shares shares, \
             queues nr_queues, inactive nr_inactive, done/s completed, done completed, \
             helped helped, cpu ms cpu_time_us"
        }
        Kind::Pool => {
            "workers nr_workers, idle nr_idle, running nr_running, blocked nr_blocked, \
             pending nr_pending, kicks/s kicks, created created, culled culled, maydays maydays, \
             refused spawn_failed, stalls stalls, stalled ms stalled_ms"
        }
        Kind::Rcu => {
            "gp/s grace_periods, gps grace_periods, readers nr_readers, callbacks/s callbacks, \
             callbacks callbacks, waiting callbacks_wait, panicked panicked, stalls stalls"
        }
        Kind::Mailbox => {
            "received/s received, received received, sleeps/s sleeps, wake-ups/s wake_ups, \
             wake-ups wake_ups"
        }
        Kind::PerCpu => {
            "slots nr_slots, drains/s drains, drains drains, drained drained, waited waited, \
             mailed mailed, panicked panicked"
        }
        Kind::Worker => "thread thread, sleeps sleeps",
        Kind::Function => "running nr_running, pending nr_pending",
        _ => "",
    };
    columns.split(", ").filter_map(|column| column.rsplit_once(' '))
}

fn is_rate(header: &str) -> bool {
    header.ends_with("/s")
}

/// The header of the detail column, which is empty. The column contains a queue's group and scope,
/// or a pool's properties.
pub const DETAIL: &str = "";

/// Returns the scope of a queue, and its group if it is in one. A scope contains no comma.
pub fn scope_and_group(record: &Record) -> Option<(&str, &str)> {
    record.detail.split_once(", ").filter(|_| record.kind == Kind::Queue)
}

/// Returns the text of the detail column. The group is first, because a narrow screen cuts the end.
fn detail(record: &Record) -> String {
    match scope_and_group(record) {
        Some((scope, group)) => format!("{group}, {scope}"),
        None => record.detail.clone(),
    }
}

pub fn has_groups(table: &Table) -> bool {
    table.kind == Kind::Queue && table.rows[1..].iter().any(|row| row[1].text.contains(", "))
}

/// Returns the headers of the columns that a narrow screen omits, with the least important one
/// first.
pub fn dropped_first(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Queue => &[
            "helped",
            "cpu ms",
            "refused",
            "done",
            "panicked",
            "wait p50 ms",
            "run p99 ms",
            DETAIL,
            "max",
            "done/s",
            "wait p99 ms",
        ],
        Kind::Group => &["helped", "done", "cpu ms", "queues", "over", "shares"],
        Kind::Pool => &["culled", "created", "maydays", "refused", "kicks/s", "stalls", "idle"],
        Kind::Rcu => &["gps", "callbacks", "readers", "panicked"],
        Kind::Mailbox => &["received", "wake-ups", "sleeps/s"],
        Kind::PerCpu => &["slots", "drains", "mailed", "panicked"],
        _ => &[],
    }
}

/// Returns the counter that shows how busy a record of this kind is. The name is empty if there is
/// no such counter.
pub fn main_counter(kind: Kind) -> &'static str {
    match kind {
        Kind::Queue | Kind::Group => "completed",
        Kind::Pool => "kicks",
        Kind::Rcu => "grace_periods",
        Kind::Mailbox => "received",
        Kind::PerCpu => "drains",
        _ => "",
    }
}

/// Returns the header under which a table shows the rate of [`main_counter`].
pub fn main_rate(kind: Kind) -> &'static str {
    let mut columns = columns(kind);
    let found = columns.find(|&(header, name)| name == main_counter(kind) && is_rate(header));
    found.map_or("", |(header, _)| header)
}

/// Returns a table for each kind that has records. The rates are those since `before`.
pub fn tables(now: &Snapshot, before: Option<&Snapshot>) -> Vec<Table> {
    let tables = kinds().map(|kind| Table { kind, rows: rows(kind, now, before) });
    tables.filter(|table| table.rows.len() > 1).collect()
}

fn rows(kind: Kind, now: &Snapshot, before: Option<&Snapshot>) -> Vec<Vec<Cell>> {
    let plain = |text: &str| Cell::plain(text, false);
    let headers = columns(kind).map(|(header, _)| plain(header));
    let mut rows = vec![[plain(kind.name()), plain("")].into_iter().chain(headers).collect()];
    for (at, (record, past)) in pairs(kind, now, before).enumerate() {
        let mut row = vec![plain(&record.name), plain(&detail(record))];
        row[0].value = at as f64;
        row.extend(columns(kind).map(|(header, name)| {
            let shown = if is_rate(header) {
                rate(record, past, name, span_s(now, before)).map(|rate| (rate_text(rate), rate))
            } else {
                record.figure(name).map(|figure| (figure_text(name, figure), figure as f64))
            };
            let (text, value) = shown.unwrap_or_else(|| ("-".to_owned(), f64::NEG_INFINITY));
            Cell { text, is_alarm: is_alarm(record, name), value }
        }));
        rows.push(row);
    }
    rows
}

/// Pairs each record of a kind with its earlier state, which is the record with the same name and
/// detail. If several records have the same name and detail, they are paired in order.
pub fn pairs<'l>(
    kind: Kind,
    now: &'l Snapshot,
    before: Option<&'l Snapshot>,
) -> impl Iterator<Item = (&'l Record, Option<&'l Record>)> {
    let mut past: Vec<&Record> =
        before.map_or_else(Vec::new, |snapshot| snapshot.page.of(kind).collect());
    now.page.of(kind).map(move |record| {
        let same = past.iter().position(|it| it.name == record.name && it.detail == record.detail);
        (record, same.map(|at| past.remove(at)))
    })
}

/// Returns the seconds between two snapshots. The times are those at which their figures were
/// gathered.
pub fn span_s(now: &Snapshot, before: Option<&Snapshot>) -> f64 {
    let since_ns = before.map_or(0, |before| before.page.written_ns);
    now.page.written_ns.saturating_sub(since_ns) as f64 / 1e9
}

/// Returns the increase of a counter per second, or `None` if there is no earlier state, or if the
/// counter fell because another record took its name.
pub fn rate(record: &Record, past: Option<&Record>, name: &str, span_s: f64) -> Option<f64> {
    let risen = record.figure(name)?.checked_sub(past?.figure(name)?)?;
    (span_s > 0.0).then(|| risen as f64 / span_s)
}

/// The time without progress, in milliseconds, after which a pool counts as stalled. Before that,
/// the work may only be waiting for a CPU of a busy machine. This is an estimate. It lies between
/// the few milliseconds that a worker may wait for a CPU and the watchdog's 30 s.
const STALLED_MS: u64 = 1000;

/// Returns the seconds for which the work of a pool has made no progress, or `None` if it makes
/// progress.
pub fn stalled_s(record: &Record) -> Option<u64> {
    stall_s(record.figure("stalled_ms")?)
}

fn stall_s(stalled_ms: u64) -> Option<u64> {
    (stalled_ms >= STALLED_MS).then_some(stalled_ms / 1000)
}

fn is_alarm(record: &Record, name: &str) -> bool {
    if name == "stalled_ms" {
        return stalled_s(record).is_some();
    }
    let is_bad = |field: &Field| field.measure == Measure::Fault;
    record.figures().any(|(field, figure)| field.name == name && figure > 0 && is_bad(field))
}

fn figure_text(name: &str, figure: u64) -> String {
    match name {
        "cpu_time_us" => (figure / 1000).to_string(),
        name if name.ends_with("_ns") => ms_text(figure),
        _ => figure.to_string(),
    }
}

/// Returns a time in milliseconds with at least two digits, so that all times of a column have the
/// same unit.
fn ms_text(ns: u64) -> String {
    match ns {
        0 => "-".to_owned(),
        ns if ns < 1_000_000 => format!("{:.3}", ns as f64 / 1e6),
        ns if ns < 100_000_000 => format!("{:.1}", ns as f64 / 1e6),
        ns => (ns / 1_000_000).to_string(),
    }
}

pub fn duration_text(ns: u64) -> String {
    match ns {
        0 => "-".to_owned(),
        ns if ns < 10_000 => format!("{ns} ns"),
        ns if ns < 10_000_000 => format!("{} µs", ns / 1000),
        ns if ns < 10_000_000_000 => format!("{} ms", ns / 1_000_000),
        ns => format!("{} s", ns / 1_000_000_000),
    }
}

fn rate_text(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::snapshot::stalled_sample;

    #[test]
    fn rate_needs_an_earlier_snapshot_and_elapsed_time() {
        let snapshot = stalled_sample();
        let queue = snapshot.page.of(Kind::Queue).next().unwrap();
        assert_eq!(rate(queue, None, "completed", 1.0), None);
        assert_eq!(rate(queue, Some(queue), "completed", 0.0), None);
        assert_eq!(rate(queue, Some(queue), "completed", 2.0), Some(0.0));
        assert_eq!(rate(queue, Some(queue), "nosuch", 2.0), None);
    }

    #[test]
    fn faults_and_stalls_are_alarms_and_other_figures_are_none() {
        let tables = tables(&stalled_sample(), None);
        let alarms = |kind| {
            let table = tables.iter().find(|table| table.kind == kind).unwrap();
            let cells = table.rows.iter().flatten().filter(|cell| cell.is_alarm);
            cells.map(|cell| cell.text.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(alarms(Kind::Pool), ["2", "31000"]);
        assert!(alarms(Kind::Queue).is_empty());
    }

    #[test]
    fn work_that_waits_for_less_than_a_second_is_not_a_stall() {
        assert_eq!([0, 3, 999].map(stall_s), [None; 3]);
        assert_eq!([1000, 31_999].map(stall_s), [Some(1), Some(31)]);
    }

    #[test]
    fn every_column_has_an_existing_figure() {
        for kind in kinds() {
            assert!(columns(kind).next().is_some(), "{kind:?}");
            let is_head = |head: &&str| *head == DETAIL || columns(kind).any(|it| it.0 == *head);
            assert!(dropped_first(kind).iter().all(is_head), "{kind:?}");
            let counter = kind.fields().iter().find(|it| it.name == main_counter(kind));
            assert_eq!(counter.is_none(), kind.is_transient(), "{kind:?}");
            assert!(counter.is_none_or(|it| it.measure == Measure::Counter), "{kind:?}");
            for (header, name) in columns(kind) {
                let field = kind.fields().iter().find(|field| field.name == name);
                let measure = field.unwrap_or_else(|| panic!("{kind:?} has no {name}")).measure;
                assert!(!is_rate(header) || measure != Measure::Gauge, "{name} has no rate");
            }
        }
    }

    #[test]
    fn times_of_a_column_are_in_milliseconds() {
        assert_eq!(figure_text("wait_p50_ns", 0), "-");
        assert_eq!(figure_text("wait_p50_ns", 65_999), "0.066");
        assert_eq!(figure_text("wait_p50_ns", 20_000_000), "20.0");
        assert_eq!(figure_text("oldest_ns", 31_000_000_000), "31000");
        assert_eq!(figure_text("cpu_time_us", 5_999), "5");
    }

    #[test]
    fn times_of_details_keep_two_or_more_digits() {
        assert_eq!(duration_text(9_999), "9999 ns");
        assert_eq!(duration_text(10_000), "10 µs");
        assert_eq!(duration_text(20_000_000), "20 ms");
        assert_eq!(duration_text(31_000_000_000), "31 s");
    }
}
