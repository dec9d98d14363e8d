//! Tables for a terminal or a pipe.

use std::fmt::Write;

use afterwork::page::Kind;
use anstyle::{AnsiColor, Style};
use ratatui::text::Span;

use super::processes::Found;
use super::rows::{Cell, stalled_s, tables};
use super::snapshot::Snapshot;

pub(super) const GAP: &str = "  ";

/// Returns the text for a snapshot of a process, with alarms in red if `color` is set.
pub fn snapshot(now: &Snapshot, before: Option<&Snapshot>, color: bool) -> String {
    let mut text = headline(now) + "\n";
    for table in tables(now, before) {
        text.push('\n');
        text += &write_table(&table.rows, color);
    }
    text
}

/// Returns a line with the name of the process and the problems of its page.
pub fn headline(snapshot: &Snapshot) -> String {
    let page = &snapshot.page;
    let mut line = format!("process {} ({})", page.pid, page.name);
    if !snapshot.answered {
        let age_s = snapshot.age.as_secs_f64();
        let _ = write!(line, ", does not answer: as of {age_s:.1} s ago");
    }
    for (count, what) in [
        (page.nr_torn, "records torn"),
        (page.nr_left_out as usize, "records omitted because the page is full"),
        (page.nr_unknown, "records of unknown kinds"),
    ] {
        if count > 0 {
            let _ = write!(line, ", {count} {what}");
        }
    }
    if page.records.is_empty() && page.nr_torn == 0 {
        line += ": nothing to show now";
    }
    line
}

/// Returns the number of terminal cells that a text occupies.
pub(super) fn wide(text: &str) -> usize {
    Span::raw(text).width()
}

fn widths(rows: &[Vec<Cell>]) -> Vec<usize> {
    let nr_columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| wide(&row[column].text)).max().unwrap_or(0);
    (0..nr_columns).map(width).collect()
}

/// Pads the `nth` cell of a line: aligns names and details to the left, and figures to the right.
pub(super) fn padded(nth: usize, is_figure: bool, text: &str, width: usize) -> String {
    let gap = if nth == 0 { "" } else { GAP };
    let room = " ".repeat(width - wide(text).min(width));
    if is_figure { format!("{gap}{room}{text}") } else { format!("{gap}{text}{room}") }
}

fn write_table(rows: &[Vec<Cell>], color: bool) -> String {
    let red = Style::new().fg_color(Some(AnsiColor::Red.into())).bold();
    let widths = widths(rows);
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let padded = padded(i, i >= 2, &cell.text, *width);
            if cell.is_alarm && color {
                let _ = write!(line, "{red}{padded}{red:#}");
            } else {
                line += &padded;
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

pub fn processes(found: &[Found], color: bool) -> String {
    let cell = Cell::plain;
    let mut rows = vec![vec![cell("pid", false), cell("process", false)]];
    for found in found {
        let (says, is_alarm) = says(found);
        rows.push(vec![cell(&found.pid.to_string(), false), cell(&says, is_alarm)]);
    }
    write_table(&rows, color)
}

/// Returns a process in a line, and `true` if its work makes no progress.
pub(super) fn says(found: &Found) -> (String, bool) {
    match &found.snapshot {
        Ok(snapshot) => (summary(snapshot), is_stalled(snapshot)),
        Err(no_look) => (no_look.reason().to_owned(), false),
    }
}

pub fn summary(snapshot: &Snapshot) -> String {
    // Problems come first, because a name may be longer than a line of the screen.
    let mut line = String::new();
    if is_stalled(snapshot) {
        line += "STALLED, ";
    }
    if !snapshot.answered {
        line += "does not answer, ";
    }
    line += &snapshot.page.name;
    for table in tables(snapshot, None).iter().filter(|it| !it.kind.is_transient()) {
        let (nr, kind) = (table.rows.len() - 1, table.kind);
        let _ = write!(line, ", {nr} {}", kind.name());
        // The names of the other kinds have no plural.
        if nr > 1 && matches!(kind, Kind::Queue | Kind::Group | Kind::Pool | Kind::Mailbox) {
            line.push('s');
        }
    }
    line
}

pub fn is_stalled(snapshot: &Snapshot) -> bool {
    snapshot.page.records.iter().any(|it| stalled_s(it).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::snapshot::stalled_sample;

    #[test]
    fn columns_are_aligned_for_wide_names() {
        let mut snapshot = stalled_sample();
        let queue = snapshot.page.of(Kind::Queue).next().unwrap().clone();
        snapshot.page.records = ["日本語の待ち行列", "abc"]
            .map(|name| {
                let mut queue = queue.clone();
                queue.name = name.into();
                queue
            })
            .into();
        let shown = super::snapshot(&snapshot, None, false);
        let ends: Vec<_> = shown.lines().skip(2).map(wide).collect();
        assert_eq!(ends.len(), 3);
        assert!(ends.iter().all(|end| *end == ends[0]), "{shown}");
    }

    #[test]
    fn process_without_records_is_reported_as_empty() {
        let mut snapshot = stalled_sample();
        assert!(!headline(&snapshot).contains("nothing to show"));
        snapshot.page.records.clear();
        assert!(headline(&snapshot).ends_with("nothing to show now"));
    }
}
