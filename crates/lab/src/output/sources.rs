//! The tables of `bench seeds`: medians of records, quotients of two such medians, and figures that
//! a source published. The cell of a missing record is a dash, and a line below the block states
//! the reason. The lines of a run are JSON values, because xtask includes this file.

use serde_json::Value;

use super::outcome::three_digits;

#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub title: &'static str,
    pub blocks: &'static [Block],
    /// The reason why our figures differ from those of the source.
    pub differs: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub source: &'static str,
    pub head: &'static str,
    /// `true` if the block shows a row for each run of its only row, and one for all runs.
    pub each_run: bool,
    pub rows: &'static [Row],
    pub columns: &'static [Column],
    /// The reason why a cell may be missing.
    pub absent: &'static str,
}

/// A row, which compares two variants of a case. The variant of the old way comes first.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub label: &'static str,
    pub case: (&'static str, &'static str),
    pub variants: [&'static str; 2],
}

#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub group: &'static str,
    pub head: &'static str,
    pub show: Show,
}

impl Column {
    /// Returns the head of the column in a table without groups.
    #[allow(dead_code, reason = "xtask draws tables without groups")]
    pub fn name(&self) -> String {
        let is_from_source = matches!(self.show, Show::Published(_));
        let is_named = [self.group, self.head].iter().any(|it| it.contains("source"));
        let source = if is_from_source && !is_named { "source" } else { "" };
        let parts = [self.group.trim(), self.head, source].into_iter();
        parts.filter(|it| !it.is_empty()).collect::<Vec<_>>().join(", ")
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Show {
    /// A metric of the variant at this index, divided by a scale.
    Value(usize, &'static str, f64),
    /// The change of a metric from the first variant to the last one, as a percentage of the first.
    Change(&'static str),
    /// The increase of a metric from the first variant to the last one.
    Increase(&'static str),
    /// The quotient of a metric of the last variant and of the first one.
    Ratio(&'static str),
    /// The number of runs of the last variant that measured a metric.
    Runs(&'static str),
    /// The figures of the source, one for each row, separated by `|`. If the rows are runs, the
    /// last figure is for all runs.
    Published(&'static str),
}

impl Source {
    pub fn has(&self, case: (&str, &str)) -> bool {
        self.rows().any(|row| row.case == case)
    }

    pub fn needs(&self, case: (&str, &str), variant: &str) -> bool {
        let mut rows = self.rows().filter(|row| row.case == case);
        rows.any(|row| row.variants.contains(&variant))
    }

    fn rows(&self) -> impl Iterator<Item = &'static Row> {
        self.blocks.iter().flat_map(|block| block.rows)
    }

    /// Returns the blocks of the records in `lines`. If `some` is `true`, omits blocks without
    /// records, because their cases were not selected.
    pub fn filled(&self, lines: &[Value], some: bool) -> impl Iterator<Item = Filled> {
        let blocks = self.blocks.iter().map(|block| block.filled(lines));
        blocks.filter(move |it| !some || it.has_records)
    }
}

pub struct Filled {
    pub block: &'static Block,
    /// The lines above the block: the workload here, and the workload of the source.
    pub above: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// The lines below the block: the reasons for dashes, and the number of runs.
    pub below: Vec<String>,
    has_records: bool,
}

impl Block {
    fn filled(&'static self, lines: &[Value]) -> Filled {
        let is_shown = |it: &&Value| self.rows.iter().any(|row| is_of_case(it, row));
        let heads = lines.iter().filter(|it| it["about"].is_string()).filter(is_shown);
        let ours = heads.map(|it| {
            let [bench, case, about] = ["bench", "case", "about"].map(|name| word(it, name));
            format!("ours:   {bench} {case}: {about}")
        });
        let rows =
            if self.each_run { self.rows_of_runs(lines) } else { self.rows_of_medians(lines) };
        let mut below = Vec::new();
        if rows.iter().flatten().any(|cell| cell == ABSENT) {
            below.push(format!("{ABSENT} not measured: {}", self.absent));
        }
        let of_rows = |it: &&Value| self.rows.iter().any(|row| is_of(it, row));
        let fewest = lines.iter().filter(of_rows).filter_map(|it| it["n"].as_u64()).min();
        if let Some(fewest) = fewest.filter(|_| !self.each_run) {
            below.push(format!("medians of {fewest} or more runs"));
        }
        Filled {
            block: self,
            above: ours.chain([format!("source: {}", self.source)]).collect(),
            rows,
            below,
            has_records: fewest.is_some(),
        }
    }

    fn rows_of_medians(&self, lines: &[Value]) -> Vec<Vec<String>> {
        let cells = |(index, row): (usize, &Row)| {
            let get = |variant: usize, metric: &str| {
                let variant = row.variants[variant];
                let is_it = |it: &&Value| it["variant"] == variant && it["metric"] == metric;
                lines.iter().filter(|it| is_of(it, row)).find(is_it)
            };
            let median = |variant, metric| get(variant, metric)?["median"].as_f64();
            let pair = |metric| Some((median(0, metric)?, median(1, metric)?));
            let quotient =
                |metric| pair(metric).filter(|(old, _)| *old != 0.0).map(|(old, new)| new / old);
            // A row with a single way is the reference for the other rows.
            let is_base = row.variants[0] == row.variants[1];
            let cell = |column: &Column| match column.show {
                Show::Change(_) | Show::Increase(_) if is_base => Some(String::new()),
                Show::Value(variant, metric, scale) => {
                    median(variant, metric).map(|it| three_digits(it / scale))
                }
                Show::Change(metric) => {
                    quotient(metric).map(|it| format!("{:+.1}", (it - 1.0) * 100.0))
                }
                Show::Increase(metric) => {
                    pair(metric).map(|(old, new)| format!("{:+.1}", new - old))
                }
                Show::Ratio(metric) => quotient(metric).map(three_digits),
                Show::Runs(metric) => get(1, metric).map(|it| it["n"].to_string()),
                Show::Published(figures) => figures.split('|').nth(index).map(str::to_owned),
            };
            self.cells(row.label.into(), cell)
        };
        self.rows.iter().enumerate().map(cells).collect()
    }

    /// Returns a row for each run of the first row's variants, and one for all runs. The latter has
    /// the mean of the means, the minimum of the minimums, and the maximum of the maximums.
    fn rows_of_runs(&self, lines: &[Value]) -> Vec<Vec<String>> {
        let row = &self.rows[0];
        let runs = || lines.iter().filter(|it| is_of_case(it, row) && it["run"].is_u64());
        let get = |run: u64, variant: usize, metric: &str| {
            let found =
                runs().find(|it| it["run"] == run && it["variant"] == row.variants[variant]);
            let value = found?["values"].as_array()?.iter().find(|it| it[0] == metric)?;
            value[1].as_f64()
        };
        let nr_runs = runs().filter_map(|it| it["run"].as_u64()).max().unwrap_or(0);
        let cells = |run: Option<u64>| {
            let cell = |column: &Column| match column.show {
                Show::Value(variant, metric, scale) => match run {
                    Some(run) => get(run, variant, metric),
                    None => {
                        of_all(metric, (1..=nr_runs).filter_map(|run| get(run, variant, metric)))
                    }
                }
                .map(|it| three_digits(it / scale)),
                Show::Published(figures) => {
                    let (runs, all) = figures.rsplit_once('|')?;
                    let of = |run| runs.split('|').nth(run as usize - 1).unwrap_or_default();
                    Some(run.map_or(all, of).into())
                }
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

fn is_of_case(line: &Value, row: &Row) -> bool {
    (word(line, "bench"), word(line, "case")) == row.case
}

fn is_of(line: &Value, row: &Row) -> bool {
    line["median"].is_f64()
        && is_of_case(line, row)
        && row.variants.contains(&word(line, "variant"))
}

fn word<'a>(line: &'a Value, name: &str) -> &'a str {
    line[name].as_str().unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CASE: (&str, &str) = ("b", "c");
    const BLOCK: Block = Block {
        source: "their machine",
        head: "way",
        each_run: false,
        rows: &[
            Row { label: "first", case: CASE, variants: ["old", "new"] },
            Row { label: "second", case: CASE, variants: ["old", "absent"] },
        ],
        columns: &[
            column("ours", "old", Show::Value(0, "t_mean", 1e3)),
            column("ours", "new", Show::Value(1, "t_mean", 1e3)),
            column("", "%", Show::Change("t_mean")),
            column("", "more", Show::Increase("t_mean")),
            column("", "ratio", Show::Ratio("t_mean")),
            column("", "n", Show::Runs("t_mean")),
            column("theirs", "%", Show::Published("-20|7")),
        ],
        absent: "a reason",
    };

    const fn column(group: &'static str, head: &'static str, show: Show) -> Column {
        Column { group, head, show }
    }

    fn of(variant: &str, median: f64) -> Value {
        json!({"bench": "b", "case": "c", "variant": variant, "metric": "t_mean", "median": median, "n": 5})
    }

    fn run(variant: &str, run: usize, [mean, min, max]: [f64; 3]) -> Value {
        let values = json!([["t_mean", mean], ["t_min", min], ["t_max", max]]);
        json!({"bench": "b", "case": "c", "variant": variant, "run": run, "values": values})
    }

    #[test]
    fn a_row_shows_both_ways_and_the_source() {
        let filled = BLOCK.filled(&[of("old", 2000.0), of("new", 1000.0)]);
        let first = ["first", "2.00", "1.00", "-50.0", "-1000.0", "0.500", "5", "-20"];
        assert_eq!(filled.rows[0], first);
        assert!(filled.has_records);
        assert_eq!(filled.below[1], "medians of 5 or more runs");
    }

    #[test]
    fn a_missing_figure_is_a_dash_with_a_reason() {
        let filled = BLOCK.filled(&[of("old", 2000.0), of("new", 1000.0)]);
        assert_eq!(filled.rows[1], ["second", "2.00", "-", "-", "-", "-", "-", "7"]);
        assert_eq!(filled.below[0], "- not measured: a reason");
        let empty = BLOCK.filled(&[]);
        assert!(!empty.has_records && empty.below.len() == 1);
        let zero = BLOCK.filled(&[of("old", 0.0), of("new", 1000.0)]);
        assert_eq!(zero.rows[0][3..6], ["-", "+1000.0", "-"]);
    }

    #[test]
    fn each_run_has_a_row_and_the_last_row_has_all() {
        const BLOCK_OF_RUNS: Block = Block {
            each_run: true,
            columns: &[
                column("old", "mean", Show::Value(0, "t_mean", 1.0)),
                column("old", "min", Show::Value(0, "t_min", 1.0)),
                column("old", "max", Show::Value(0, "t_max", 1.0)),
                column("new", "mean", Show::Value(1, "t_mean", 1.0)),
                column("theirs", "mean", Show::Published("7|8")),
            ],
            ..BLOCK
        };
        let lines = [
            run("old", 1, [2.0, 1.0, 4.0]),
            run("old", 2, [3.0, 0.5, 5.0]),
            run("new", 1, [1.0, 1.0, 1.0]),
        ];
        let rows = BLOCK_OF_RUNS.filled(&lines).rows;
        assert_eq!(rows[0], ["1", "2.00", "1.00", "4.00", "1.00", "7"]);
        // The source has a figure for one run, and a figure for all runs.
        assert_eq!(rows[1], ["2", "3.00", "0.500", "5.00", "-", ""]);
        assert_eq!(rows[2], ["all", "2.50", "0.500", "5.00", "1.00", "8"]);
    }
}
