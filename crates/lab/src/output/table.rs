//! Aligned plain-text tables.

use std::fmt::Write;
use std::ops::Range;

use super::outcome::three_digits;
use crate::harness::stats::Spread;

/// The number of spaces between two columns, and between two columns of one group.
const GAP: usize = 2;
const GAP_IN_GROUP: usize = 1;

const BLANKS_AROUND_GROUP: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

#[derive(Clone, Debug)]
struct Column {
    group: String,
    name: String,
    align: Align,
}

impl Column {
    fn joins(&self, next: &Self) -> bool {
        !next.group.is_empty() && self.group == next.group
    }
}

/// A table: one or two header lines, followed by rows of text.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Adds a column. Adjacent columns with the same `group` share a head, unless it is "".
    pub fn column(mut self, group: &str, name: &str, align: Align) -> Self {
        self.columns.push(Column { group: group.into(), name: name.into(), align });
        self
    }

    /// Adds a row. Missing cells are empty, and excess cells are dropped.
    pub fn row(&mut self, mut cells: Vec<String>) {
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    pub fn head(&self) -> String {
        let mut head = String::new();
        if self.columns.iter().any(|column| !column.group.is_empty()) {
            push_line(&mut head, &self.group_line());
        }
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        push_line(&mut head, &self.line(&names));
        head
    }

    pub fn body(&self) -> String {
        let mut body = String::new();
        for row in &self.rows {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            push_line(&mut body, &self.line(&cells));
        }
        body
    }

    fn line(&self, cells: &[&str]) -> String {
        let mut line = String::new();
        for (index, (width, cell)) in self.widths().into_iter().zip(cells).enumerate() {
            let column = &self.columns[index];
            line.push_str(&" ".repeat(self.gap_before(index)));
            line.push_str(&match column.align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            });
        }
        line
    }

    /// Returns the names of the groups, each centered between dashes above its columns.
    fn group_line(&self) -> String {
        let mut line = String::new();
        let widths = self.widths();
        for group in self.groups() {
            line.push_str(&" ".repeat(self.gap_before(group.start)));
            let width = self.span(&widths, &group);
            let name = &self.columns[group.start].group;
            line.push_str(&match name.as_str() {
                "" => " ".repeat(width),
                name => format!("{:-^width$}", format!(" {name} ")),
            });
        }
        line
    }

    /// Returns the ranges of adjacent columns with the same group, if they have one.
    fn groups(&self) -> Vec<Range<usize>> {
        let mut end = 0;
        let groups = self.columns.chunk_by(Column::joins).map(|columns| {
            end += columns.len();
            end - columns.len()..end
        });
        groups.collect()
    }

    fn gap_before(&self, index: usize) -> usize {
        let Some(before) = index.checked_sub(1) else { return 0 };
        if self.columns[before].joins(&self.columns[index]) { GAP_IN_GROUP } else { GAP }
    }

    fn span(&self, widths: &[usize], columns: &Range<usize>) -> usize {
        let gaps: usize =
            (columns.start + 1..columns.end).map(|index| self.gap_before(index)).sum();
        widths[columns.clone()].iter().sum::<usize>() + gaps
    }

    fn widths(&self) -> Vec<usize> {
        let widest = |(index, column): (usize, &Column)| {
            let cells = self.rows.iter().map(|row| &row[index]).chain([&column.name]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = self.columns.iter().enumerate().map(widest).collect();
        // A group with a long name widens its columns, beginning with the last one.
        for group in self.groups() {
            let name = self.columns[group.start].group.chars().count();
            if name > 0 {
                let wanted = name + BLANKS_AROUND_GROUP;
                let missing = wanted.saturating_sub(self.span(&widths, &group));
                for turn in 0..missing {
                    widths[group.end - 1 - turn % group.len()] += 1;
                }
            }
        }
        widths
    }
}

fn push_line(text: &mut String, line: &str) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "{}", line.trim_end());
}

/// Formats a ratio with its spread. A single repetition has no spread.
pub fn ratio(spread: Spread) -> String {
    let decimals = |value: f64| {
        if value.abs() < 9.995 { format!("{value:.2}") } else { three_digits(value) }
    };
    // Small ratios get three significant digits, because two decimals would hide them.
    let median =
        if spread.median < 0.0995 { three_digits(spread.median) } else { decimals(spread.median) };
    if spread.n == 1 {
        return format!("{median} (one run)");
    }
    let mad = match spread.mad {
        0.0 => "0".into(),
        mad if spread.median >= 0.0995 => decimals(mad),
        // Two decimals would show zero.
        mad if mad < 0.0005 => format!("{mad:.0e}"),
        mad if mad < 0.005 => format!("{mad:.0$}", (-mad.log10()).ceil() as usize),
        mad => decimals(mad),
    };
    format!("{median} ±{mad}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The maximum width of tables, which fits in a narrow terminal and in an email.
    pub(crate) const MAX_WIDTH: usize = 100;

    #[test]
    fn columns_line_up_and_groups_span_their_columns() {
        let mut table = Table::default()
            .column("", "variant", Align::Left)
            .column("latency µs", "p50", Align::Right)
            .column("latency µs", "p99", Align::Right)
            .column("", "n", Align::Right);
        table.row(vec!["a".into(), "1".into(), "22".into(), "3".into()]);
        table.row(vec!["longer name".into(), "100".into()]);
        let lines = [
            "              latency µs",
            "variant        p50    p99  n",
            "a                1     22  3",
            "longer name    100",
        ];
        let text = format!("{}{}", table.head(), table.body());
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn a_group_narrower_than_its_columns_is_drawn_out() {
        let mut table =
            Table::default().column("us", "p50", Align::Right).column("us", "p99", Align::Right);
        table.row(vec!["1.00".into(), "2.00".into()]);
        assert_eq!(table.head(), "-- us ---\n p50  p99\n");
    }

    #[test]
    fn a_table_without_groups_has_one_head_line() {
        let table = Table::default().column("", "a", Align::Left);
        assert_eq!(table.head(), "a\n");
    }

    #[test]
    fn ratios_have_two_decimals_while_they_matter() {
        for (median, mad, n, shown) in [
            (1.234, 0.056, 5, "1.23 ±0.06"),
            (0.0123, 0.001, 5, "0.012 ±0.001"),
            (23.45, 1.2, 5, "23.4 ±1.20"),
            (123.4, 10.0, 5, "123 ±10.0"),
            (2.5, 0.0, 1, "2.50 (one run)"),
            (0.000_31, 0.000_02, 5, "3e-4 ±2e-5"),
            (0.000_31, 0.0, 5, "3e-4 ±0"),
        ] {
            assert_eq!(ratio(Spread { median, mad, n }), shown);
        }
    }

    #[test]
    fn three_digits_keeps_values_distinct() {
        let shown: Vec<String> =
            [0.0, 0.02345, 0.9996, 1.0, 9.996, 12.34, 99.96, 12345.6, 2e7].map(three_digits).into();
        assert_eq!(shown, ["0", "0.023", "1.00", "1.00", "10.0", "12.3", "100", "12.3k", "20.0M"]);
    }
}
