//! The tables of `bench seeds`: the old way next to the new way, and the figures of the sources.
//!
//! A table is a list of blocks. The cells of a block are medians of records, quotients of two such
//! medians, or figures that a source published. A missing record is never replaced. Its cell is a
//! dash, and a line below the block states the reason.

use std::fmt::Write;

use super::outcome::three_digits;
use super::record::{CaseHead, Line, Record, Run};
use super::table::{Align, Table};

/// The measurements of one source, in blocks.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The number and the subject.
    pub title: &'static str,
    /// The blocks.
    pub blocks: &'static [Block],
    /// The reason why our figures differ from those of the source.
    pub differs: &'static str,
}

/// Rows with the same columns.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// The machine and the workload of the source.
    pub source: &'static str,
    /// The head of the first column.
    pub head: &'static str,
    /// Set if the block shows a row for each run of its only row, and one for all runs.
    pub each_run: bool,
    /// The rows.
    pub rows: &'static [Row],
    /// The columns after the first.
    pub columns: &'static [Column],
    /// The reason why a cell may be missing.
    pub absent: &'static str,
}

/// A row, which shows variants of a case. The old way comes first.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The first cell.
    pub label: &'static str,
    /// The bench and the case.
    pub case: (&'static str, &'static str),
    /// The variants.
    pub variants: &'static [&'static str],
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The head of adjacent columns.
    pub group: &'static str,
    /// The head of the column.
    pub head: &'static str,
    /// The content.
    pub show: Show,
}

/// The content of a column.
#[derive(Clone, Copy, Debug)]
pub enum Show {
    /// A metric of the variant at this index, divided by a scale.
    Value(usize, &'static str, f64),
    /// The change of a metric from the first variant to the last one, in percent of the first.
    Change(&'static str),
    /// The increase of a metric from the first variant to the last one.
    Increase(&'static str),
    /// The quotient of a metric of the last variant and of the first one.
    Ratio(&'static str),
    /// The number of runs of the last variant that measured a metric.
    Runs(&'static str),
    /// The figures of the source, one for each row. If rows are runs, the last figure is for all
    /// runs.
    Published(&'static [&'static str]),
}

impl Show {
    /// Returns the metric, or `None` if the column shows figures of the source.
    #[must_use]
    pub fn metric(self) -> Option<&'static str> {
        match self {
            Self::Value(_, metric, _)
            | Self::Change(metric)
            | Self::Increase(metric)
            | Self::Ratio(metric)
            | Self::Runs(metric) => Some(metric),
            Self::Published(_) => None,
        }
    }
}

impl Source {
    /// Returns `true` if one of the rows shows the case.
    #[must_use]
    pub fn has(&self, case: (&str, &str)) -> bool {
        self.rows().any(|row| row.case == case)
    }

    /// Returns `true` if one of the rows of the case shows the variant.
    #[must_use]
    pub fn needs(&self, case: (&str, &str), variant: &str) -> bool {
        let mut rows = self.rows().filter(|row| row.case == case);
        rows.any(|row| row.variants.contains(&variant))
    }

    fn rows(&self) -> impl Iterator<Item = &'static Row> {
        self.blocks.iter().flat_map(|block| block.rows)
    }

    /// Returns the table of the records in `lines`. If `some` is `true`, omits blocks without
    /// records, because their cases were not selected.
    #[must_use]
    pub fn table(&self, lines: &[Line], some: bool) -> String {
        let blocks = self.blocks.iter();
        let blocks = blocks.filter(|block| !some || block.has_records(lines));
        let blocks = blocks.map(|block| block.table(lines));
        format!(
            "\n{}\n{}\nWhy ours differs: {}\n",
            self.title,
            blocks.collect::<String>(),
            self.differs
        )
    }
}

impl Block {
    fn has_records(&self, lines: &[Line]) -> bool {
        let mut records = lines.iter().filter_map(record);
        records.any(|it| self.rows.iter().any(|row| is_of(it, row)))
    }

    fn table(&self, lines: &[Line]) -> String {
        let mut text = String::from("\n");
        let is_shown = |head: &&CaseHead| {
            let case = (head.bench.as_str(), head.case.as_str());
            self.rows.iter().any(|row| row.case == case)
        };
        for head in lines.iter().filter_map(head).filter(is_shown) {
            let _ = writeln!(text, "ours:   {} {}: {}", head.bench, head.case, head.about);
        }
        let _ = writeln!(text, "source: {}", self.source);
        let mut table = Table::new().column("", self.head, Align::Left);
        for column in self.columns {
            table = table.column(column.group, column.head, Align::Right);
        }
        let rows =
            if self.each_run { self.rows_of_runs(lines) } else { self.rows_of_medians(lines) };
        let lacks_any = rows.iter().flatten().any(|cell| cell == ABSENT);
        rows.into_iter().for_each(|row| table.row(row));
        text.push_str(&table.head());
        text.push_str(&table.body());
        if lacks_any {
            let _ = writeln!(text, "{ABSENT} not measured: {}", self.absent);
        }
        let of_rows = |it: &&Record| self.rows.iter().any(|row| is_of(it, row));
        let shown = lines.iter().filter_map(record).filter(of_rows);
        if let Some(fewest) = shown.map(|it| it.n).min().filter(|_| !self.each_run) {
            let _ = writeln!(text, "medians of {fewest} or more runs");
        }
        text
    }

    fn rows_of_medians(&self, lines: &[Line]) -> Vec<Vec<String>> {
        let cells = |(index, row): (usize, &Row)| {
            let get = |variant: usize, metric: &str| {
                let variant = row.variants.get(variant)?;
                let mut found = lines.iter().filter_map(record);
                found.find(|it| is_of(it, row) && it.variant == *variant && it.metric == metric)
            };
            let last = row.variants.len() - 1;
            let median = |variant, metric| get(variant, metric).map(|it| it.median);
            let pair = |metric| Some((median(0, metric)?, median(last, metric)?));
            // A row with a single way is the reference for the other rows.
            let is_base = row.variants[0] == row.variants[last];
            let cell = |column: &Column| match column.show {
                Show::Change(_) | Show::Increase(_) if is_base => Some(String::new()),
                Show::Value(variant, metric, scale) => {
                    median(variant, metric).map(|it| three_digits(it / scale))
                }
                Show::Change(metric) => pair(metric)
                    .filter(|(old, _)| *old != 0.0)
                    .map(|(old, new)| format!("{:+.1}", (new / old - 1.0) * 100.0)),
                Show::Increase(metric) => {
                    pair(metric).map(|(old, new)| format!("{:+.1}", new - old))
                }
                Show::Ratio(metric) => pair(metric)
                    .filter(|(old, _)| *old != 0.0)
                    .map(|(old, new)| three_digits(new / old)),
                Show::Runs(metric) => get(last, metric).map(|it| it.n.to_string()),
                Show::Published(figures) => figures.get(index).map(|it| (*it).to_owned()),
            };
            self.cells(row.label.into(), cell)
        };
        self.rows.iter().enumerate().map(cells).collect()
    }

    /// Returns a row for each run of the first row's variants, and one for all runs. The latter has
    /// the mean of the means, the minimum of the minimums, and the maximum of the maximums.
    fn rows_of_runs(&self, lines: &[Line]) -> Vec<Vec<String>> {
        let row = &self.rows[0];
        let get = |run: usize, variant: usize, metric: &str| {
            let mut runs = lines.iter().filter_map(of_run);
            let found = runs.find(|it| {
                it.run == run
                    && (it.bench.as_str(), it.case.as_str()) == row.case
                    && it.variant == row.variants[variant]
            });
            let (_, value) = found?.values.iter().find(|(name, _)| name == metric)?;
            Some(*value)
        };
        let of_case = lines.iter().filter_map(of_run);
        let of_case = of_case.filter(|it| (it.bench.as_str(), it.case.as_str()) == row.case);
        let nr_runs = of_case.map(|it| it.run).max().unwrap_or(0);
        let cells = |run: Option<usize>| {
            let cell = |column: &Column| match column.show {
                Show::Value(variant, metric, scale) => match run {
                    Some(run) => get(run, variant, metric),
                    None => {
                        of_all(metric, (1..=nr_runs).filter_map(|run| get(run, variant, metric)))
                    }
                }
                .map(|it| three_digits(it / scale)),
                Show::Published(figures) => match run {
                    // The last figure is that of all runs.
                    Some(run) if run >= figures.len() => Some(String::new()),
                    Some(run) => Some(figures[run - 1].into()),
                    None => figures.last().map(|it| (*it).to_owned()),
                },
                _ => None,
            };
            let label = run.map_or_else(|| "all".into(), |run| run.to_string());
            self.cells(label, cell)
        };
        (1..=nr_runs).map(Some).chain([None]).map(cells).collect()
    }

    fn cells(&self, label: String, cell: impl Fn(&Column) -> Option<String>) -> Vec<String> {
        let cells = self.columns.iter().map(|it| cell(it).unwrap_or_else(|| ABSENT.into()));
        std::iter::once(label).chain(cells).collect()
    }
}

const ABSENT: &str = "-";

fn is_of(record: &Record, row: &Row) -> bool {
    (record.bench.as_str(), record.case.as_str()) == row.case
        && row.variants.contains(&record.variant.as_str())
}

fn of_all(metric: &str, values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    match metric {
        _ if values.is_empty() => None,
        _ if metric.ends_with("_min") => values.into_iter().reduce(f64::min),
        _ if metric.ends_with("_max") => values.into_iter().reduce(f64::max),
        _ => Some(values.iter().sum::<f64>() / values.len() as f64),
    }
}

fn record(line: &Line) -> Option<&Record> {
    match line {
        Line::Record(record) => Some(record),
        _ => None,
    }
}

fn of_run(line: &Line) -> Option<&Run> {
    match line {
        Line::Run(run) => Some(run),
        _ => None,
    }
}

fn head(line: &Line) -> Option<&CaseHead> {
    match line {
        Line::Case(head) => Some(head),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASE: (&str, &str) = ("b", "c");
    const BLOCK: Block = Block {
        source: "their machine",
        head: "way",
        each_run: false,
        rows: &[
            Row { label: "first", case: CASE, variants: &["old", "new"] },
            Row { label: "second", case: CASE, variants: &["old", "absent"] },
        ],
        columns: &[
            column("ours", "old", Show::Value(0, "t_mean", 1e3)),
            column("ours", "new", Show::Value(1, "t_mean", 1e3)),
            column("", "%", Show::Change("t_mean")),
            column("", "more", Show::Increase("t_mean")),
            column("", "ratio", Show::Ratio("t_mean")),
            column("", "n", Show::Runs("t_mean")),
            column("theirs", "%", Show::Published(&["-20", "7"])),
        ],
        absent: "a reason",
    };

    const fn column(group: &'static str, head: &'static str, show: Show) -> Column {
        Column { group, head, show }
    }

    fn of(variant: &str, median: f64) -> Line {
        Line::Record(Record {
            bench: "b".into(),
            case: "c".into(),
            variant: variant.into(),
            metric: "t_mean".into(),
            unit: "ns".into(),
            median,
            mad: 0.0,
            n: 5,
            peer: false,
        })
    }

    fn run(variant: &str, run: usize, values: [f64; 3]) -> Line {
        let names = ["t_mean", "t_min", "t_max"].map(String::from);
        Line::Run(Run {
            bench: "b".into(),
            case: "c".into(),
            variant: variant.into(),
            run,
            values: names.into_iter().zip(values).collect(),
        })
    }

    /// Returns the words of the line that begins with `label`.
    fn words<'t>(text: &'t str, label: &str) -> Vec<&'t str> {
        let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|line| line.first() == Some(&label));
        line.unwrap_or_else(|| panic!("{label} in {text}"))
    }

    #[test]
    fn a_row_shows_both_ways_and_the_source() {
        let text = BLOCK.table(&[of("old", 2000.0), of("new", 1000.0)]);
        let first = ["first", "2.00", "1.00", "-50.0", "-1000.0", "0.500", "5", "-20"];
        assert_eq!(words(&text, "first"), first);
        assert!(text.contains("medians of 5 or more runs"), "{text}");
    }

    #[test]
    fn a_missing_figure_is_a_dash_with_a_reason() {
        let text = BLOCK.table(&[of("old", 2000.0), of("new", 1000.0)]);
        let second = ["second", "2.00", "-", "-", "-", "-", "-", "7"];
        assert_eq!(words(&text, "second"), second);
        assert!(text.contains("- not measured: a reason"), "{text}");
        assert!(!BLOCK.table(&[]).contains("medians"));
        let zero = BLOCK.table(&[of("old", 0.0), of("new", 1000.0)]);
        assert_eq!(words(&zero, "first")[3..6], ["-", "+1000.0", "-"]);
    }

    #[test]
    fn each_run_has_a_row_and_the_last_row_has_all() {
        const COLUMNS: &[Column] = &[
            column("old", "mean", Show::Value(0, "t_mean", 1.0)),
            column("old", "min", Show::Value(0, "t_min", 1.0)),
            column("old", "max", Show::Value(0, "t_max", 1.0)),
            column("new", "mean", Show::Value(1, "t_mean", 1.0)),
            column("theirs", "mean", Show::Published(&["7", "8"])),
        ];
        let block = Block { each_run: true, columns: COLUMNS, ..BLOCK };
        let lines = [
            run("old", 1, [2.0, 1.0, 4.0]),
            run("old", 2, [3.0, 0.5, 5.0]),
            run("new", 1, [1.0, 1.0, 1.0]),
        ];
        let text = block.table(&lines);
        assert_eq!(words(&text, "1"), ["1", "2.00", "1.00", "4.00", "1.00", "7"]);
        // The source has a figure for one run, and a figure for all runs.
        assert_eq!(words(&text, "2"), ["2", "3.00", "0.500", "5.00", "-"]);
        assert_eq!(words(&text, "all"), ["all", "2.50", "0.500", "5.00", "1.00", "8"]);
    }
}
