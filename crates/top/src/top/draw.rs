//! Draws the full screen: the head, the problems, the tabs, the table with its header, and the
//! foot.

use std::iter;
use std::ops::Range;

use afterwork::page::{Kind, Measure};
use ratatui::Frame;
use ratatui::layout::Constraint::{Length, Min};
use ratatui::layout::{Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};
use unicode_truncate::UnicodeTruncateStr;

use super::processes::Found;
use super::rows::{
    DETAIL, Table, dropped_first, duration_text, has_groups, main_counter, main_rate, rate,
    scope_and_group, span_s, stalled_s,
};
use super::text::{self, headline, padded, says, wide};
use super::view::{Over, REMEMBERED, View};

const FOOT: &str = " q quit  ? help  / filter  Tab next table  s sort  Enter details  p pause ";
const FOOT_OF_LIST: &str = " q quit  ↑ ↓ select  Enter show it ";

const HELP: &[&str] = &[
    "q, Ctrl-C     quit                Esc      back to the list",
    "Tab, 1 … 8    another table       Enter    all figures of a row",
    "↑ ↓ PgUp PgDn Home End            select a row",
    "← →           columns to the left and right",
    "In a box over the table, ↑ ↓ scroll, and ← → select the row.",
    "/             only names that contain the typed text; Esc clears it",
    "s, r          sort by the next column; reverse the order",
    "p, Space      pause",
    "",
    "Red marks a problem. The line below the head names it.",
    "The plot shows the counts of the table over the last minute.",
    "Free lines below the table show the tables that follow it.",
];

/// The minimum widths of the columns of names and details, even on a narrow screen.
const NAMES: [usize; 2] = [12, 10];
const PLOT: usize = 12;
const GAP: usize = text::GAP.len();

pub fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let lines = [Length(1), Length(1), Length(1), Min(1), Length(1)];
    let [head, problems, tabs, body, foot] = Layout::vertical(lines).areas(frame.area());
    let mut line = headline(&view.now);
    if let Some(ended) = &view.ended {
        line = format!("{}: {line}", ended.reason());
    }
    let width = usize::from(head.width);
    frame.render_widget(Paragraph::new(cut(&line, width)), head);
    frame.render_widget(problem_line(view, width), problems);
    frame.render_widget(tab_line(view, width), tabs);
    draw_table(frame, view, body);
    let foot_text = match (view.over, view.paused, view.filter.is_empty()) {
        (Over::Filter, ..) => {
            format!(" filter: {}█  Enter applies it, Esc clears it ", view.filter)
        }
        (_, true, _) => format!(" PAUSED {FOOT}"),
        (_, _, false) => format!(" filter: {}  Esc clears it {FOOT}", view.filter),
        _ => FOOT.to_owned(),
    };
    frame.render_widget(foot_bar(&foot_text, width), foot);
    let (title, lines) = match view.over {
        Over::Help => ("keys".to_owned(), HELP.iter().map(|line| (*line).to_owned()).collect()),
        Over::Detail => detail(view),
        Over::Table | Over::Filter => return,
    };
    over(frame, &title, &lines, &mut view.over_top);
}

pub fn draw_list(frame: &mut Frame<'_>, found: &[Found], selected: usize) {
    let lines = Layout::vertical([Length(1), Min(1), Length(1)]);
    let [head, body, foot] = lines.areas(frame.area());
    let width = usize::from(head.width);
    let text = match found.len() {
        0 => "no process publishes a page: start one with AFTERWORK=observe.publish=on, or `afterwork demo`".to_owned(),
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    };
    frame.render_widget(Paragraph::new(cut(&text, width)), head);
    let height = usize::from(body.height);
    let top = (selected + 1).saturating_sub(height);
    let lines = found.iter().enumerate().skip(top).take(height);
    let lines = lines.map(|(at, found)| {
        let (says, is_alarm) = says(found);
        let text = cut(&format!("{:>8}  {says}", found.pid), width);
        let style = if is_alarm { alarm(true) } else { Style::new() };
        let is_reversed = if at == selected { Modifier::REVERSED } else { Modifier::empty() };
        Line::styled(text, style.add_modifier(is_reversed))
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), body);
    frame.render_widget(foot_bar(FOOT_OF_LIST, width), foot);
}

fn foot_bar(text: &str, width: usize) -> Paragraph<'static> {
    Paragraph::new(cut(text, width)).style(Style::new().add_modifier(Modifier::REVERSED))
}

fn alarm(color: bool) -> Style {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    if color { bold.fg(Color::Red) } else { bold }
}

/// Returns the line of problems, with the worst one first. If the line is too narrow for all of
/// them, it also contains their number.
fn problem_line(view: &View, width: usize) -> Paragraph<'static> {
    let found = problems(view);
    if found.is_empty() {
        return Paragraph::new(cut("no problem seen", width))
            .style(Style::new().add_modifier(Modifier::DIM));
    }
    let mut line = format!("! {}", found.join("; "));
    if wide(&line) > width && found.len() > 1 {
        line.replace_range(..1, &format!("! {} problems:", found.len()));
    }
    Paragraph::new(cut(&line, width)).style(alarm(view.color))
}

fn problems(view: &View) -> Vec<String> {
    let page = &view.now.page;
    let mut found = Vec::new();
    for record in &page.records {
        let figure = |name| record.figure(name).unwrap_or(0);
        let mut who = format!("{} {}", record.kind.name(), record.name);
        if let Some((_, group)) = scope_and_group(record) {
            who += &format!(" of group {group}");
        }
        if let Some(stalled_s) = stalled_s(record) {
            found.push((0, format!("{who} stalled for {stalled_s} s")));
        }
        for (name, verb) in [
            ("panicked", "panics"),
            ("spawn_failed", "threads not created"),
            ("refused", "rejected"),
            ("stalls", "grace periods did not end in time"),
        ] {
            if figure(name) > 0 && (name != "stalls" || record.kind == Kind::Rcu) {
                found.push((1, format!("{who}: {} {verb}", figure(name))));
            }
        }
        let (limit, wait) = (figure("max_active"), figure("nr_inactive"));
        let is_full = wait > 0 && figure("nr_active") >= limit;
        // A group delays all its queues. It may have no limit.
        let rank = match record.kind {
            Kind::Group if is_full && limit > 0 && figure("nr_waiting") > 0 => Some(2),
            Kind::Queue if is_full => Some(3),
            _ => None,
        };
        if let Some(rank) = rank {
            found.push((rank, format!("{who} at its limit of {limit}, {wait} wait")));
        }
    }
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, text)| text).collect()
}

/// Returns the tabs, each with its number of rows if there is space for all of them.
fn tab_line(view: &View, width: usize) -> Line<'static> {
    let line = |counts: bool| {
        let tabs = view.tabs().into_iter().enumerate();
        Line::from_iter(tabs.map(|(at, (kind, count))| {
            // There is only one record of RCU.
            let has_count = counts && kind != Kind::Rcu;
            let count = if has_count { format!("{count} ") } else { String::new() };
            let text = format!(" {} {} {count}", at + 1, kind.name());
            let style = match kind == view.tab {
                true => Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD),
                false => Style::new(),
            };
            Span::styled(text, style)
        }))
    };
    let full = line(true);
    if full.width() <= width { full } else { line(false) }
}

fn draw_table(frame: &mut Frame<'_>, view: &mut View, area: Rect) {
    let Some((table, others)) = view.tables() else {
        return frame.render_widget(Paragraph::new("nothing of this kind"), area);
    };
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    view.selected = view.selected.min(table.rows.len().saturating_sub(2));
    // The header occupies one line.
    let shown = height.saturating_sub(1).max(1);
    // This scrolls back if the screen has grown, so that no line stays empty.
    view.top = view
        .top
        .min((table.rows.len() - 1).saturating_sub(shown))
        .min(view.selected)
        .max((view.selected + 1).saturating_sub(shown));
    let last = (view.top + shown).min(table.rows.len() - 1);
    let mut lines = table_lines(view, &table, view.top..last, width);
    // The remaining space shows the next tables, as far as they fit.
    for table in others {
        // Each table needs an empty line, its header, and at least one row.
        let left = height.saturating_sub(lines.len() + 2);
        let nr_shown = left.min(table.rows.len() - 1);
        if nr_shown > 0 {
            lines.push(Line::default());
            lines.extend(table_lines(view, &table, 0..nr_shown, width));
        }
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// Returns the header of `table` and its rows in `shown`. Only the table of the current tab is
/// shifted and has a selected row.
fn table_lines(
    view: &View,
    table: &Table,
    shown: Range<usize>,
    width: usize,
) -> Vec<Line<'static>> {
    let is_current = table.kind == view.tab;
    let columns = fitting(table, if is_current { view.shift } else { 0 }, width);
    let used = columns.iter().map(|(_, width)| width + GAP).sum::<usize>() - GAP;
    // The plot shows the whole minute if there is enough room.
    let plot = width.saturating_sub(used + GAP).min(REMEMBERED);
    let has_plot = plot >= PLOT && !main_counter(table.kind).is_empty();
    let mut lines = Vec::new();
    for at in iter::once(0).chain(shown.map(|row| row + 1)) {
        let row = &table.rows[at];
        let is_selected = is_current && at == view.selected + 1;
        let base = match at {
            0 => Style::new().add_modifier(Modifier::BOLD),
            _ if is_selected => Style::new().add_modifier(Modifier::REVERSED),
            _ => Style::new(),
        };
        let mut spans = Vec::new();
        for (nth, &(column, width)) in columns.iter().enumerate() {
            let cell = &row[column];
            let mut text = cell.text.clone();
            if let (0, true, Some((sorted, down))) = (at, is_current, view.sort)
                && sorted + 2 == column
            {
                text.insert(0, if down { '▼' } else { '▲' });
            }
            let text = padded(nth, column >= 2, &cut(&text, width), width);
            let style = if at > 0 && cell.is_alarm { base.patch(alarm(view.color)) } else { base };
            spans.push(Span::styled(text, style));
        }
        if has_plot {
            let text = match at {
                0 => main_rate(table.kind).into(),
                _ => sparks(&view.rates(table.kind, row), plot),
            };
            spans.push(Span::styled(format!("{}{}", text::GAP, cut(&text, plot)), base));
        }
        lines.push(Line::from(spans));
    }
    lines
}

/// Chooses the columns that fit, with their widths: names first, then figures from the `shift`th
/// on. Less important columns are omitted first.
fn fitting(table: &Table, shift: usize, room: usize) -> Vec<(usize, usize)> {
    let nr_columns = table.rows[0].len();
    // This reserves one cell for the arrow of a sorted column.
    let widest = |column: usize| {
        table.rows.iter().map(|row| wide(&row[column].text)).max().unwrap_or(0)
            + usize::from(column >= 2)
    };
    let shown = (0..nr_columns).filter(|&column| column < 2 || column >= 2 + shift);
    let mut columns: Vec<_> = shown.map(|column| (column, widest(column))).collect();
    columns.retain(|&(column, width)| column != 1 || width > 0);
    let total = |columns: &[(usize, usize)]| {
        columns.iter().map(|(_, width)| width + GAP).sum::<usize>().saturating_sub(GAP)
    };
    // Names and details are shortened first, the longer ones before the others, down to a width at
    // which they can still be distinguished.
    let shrink = |columns: &mut Vec<(usize, usize)>| {
        while total(columns) > room {
            let texts =
                columns.iter_mut().filter(|it| NAMES.get(it.0).is_some_and(|&min| it.1 > min));
            let Some((_, width)) = texts.max_by_key(|it| it.1) else { return };
            *width -= 1;
        }
    };
    // A group is more important than most figures.
    let keeps = has_groups(table);
    let droppable = dropped_first(table.kind).iter().filter(|head| !keeps || **head != DETAIL);
    let mut droppable = droppable.chain(keeps.then_some(&DETAIL));
    loop {
        shrink(&mut columns);
        if total(&columns) <= room {
            return columns;
        }
        let next = droppable.next().and_then(|head| {
            columns.iter().position(|&(column, _)| table.rows[0][column].text == *head)
        });
        match next {
            Some(at) => drop(columns.remove(at)),
            // Columns without a rank are removed from the right. Details are removed before the
            // last figure.
            None if droppable.clone().next().is_some() => {}
            None if columns.len() > 2 => drop(columns.pop()),
            None => {
                if let Some((_, width)) = columns.first_mut() {
                    *width = room.min(*width);
                }
                columns.truncate(1);
                return columns;
            }
        }
    }
}

/// Returns the title of the details and their lines. The title names their row, so that the name
/// stays visible when the lines scroll.
fn detail(view: &View) -> (String, Vec<String>) {
    let row = view.row().unwrap_or_default();
    let Some((record, past)) = view.record(&row) else {
        return ("all figures".to_owned(), vec!["the row no longer exists".to_owned()]);
    };
    let title = format!("all figures of {} {}", record.kind.name(), record.name);
    let mut lines = vec![format!("{} {} {}", record.kind.name(), record.name, record.detail)];
    let rates = view.rates(view.tab, &row);
    if !rates.is_empty() && !main_counter(view.tab).is_empty() {
        lines.push(format!("{}/s  {}", main_counter(view.tab), sparks(&rates, REMEMBERED)));
    }
    for (field, figure) in record.figures() {
        let risen = rate(record, past, field.name, span_s(&view.now, view.before.as_ref()));
        let per_s = match risen {
            Some(rate) if rate > 0.0 && field.measure != Measure::Gauge => {
                format!(" ({rate:.1}/s)")
            }
            _ => String::new(),
        };
        let figure = match field.name.ends_with("_ns") {
            true => duration_text(figure),
            false => figure.to_string(),
        };
        lines.push(format!("{:<16} {figure:>12}{per_s}  {}", field.name, field.about));
    }
    (title, lines)
}

/// Draws lines in a box over the table, starting at line `top`. If the box would not be full,
/// starts at the last line from which it is full.
fn over(frame: &mut Frame<'_>, title: &str, lines: &[String], top: &mut usize) {
    let area = frame.area();
    let room = usize::from(area.height).saturating_sub(2);
    let lines = wrapped(lines, usize::from(area.width).saturating_sub(4));
    *top = (*top).min(lines.len().saturating_sub(room));
    let below = lines.len().saturating_sub(*top + room);
    let widest = lines.iter().map(|line| wide(line)).max().unwrap_or(0) + 4;
    let width = u16::try_from(widest).unwrap_or(u16::MAX).min(area.width);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let place = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    let inside = usize::from(width).saturating_sub(4);
    let seen = lines.iter().skip(*top).take(room).map(|line| format!(" {}", cut(line, inside)));
    let rest = match (*top, below) {
        (0, 0) => String::new(),
        (above, 0) => format!(" ↑ {above} more "),
        (0, below) => format!(" ↓ {below} more "),
        (above, below) => format!(" ↑ {above} ↓ {below} more "),
    };
    let block = Block::bordered().title(format!(" {title} ")).title_bottom(rest);
    frame.render_widget(Clear, place);
    let seen = Paragraph::new(seen.map(Line::from).collect::<Vec<_>>());
    frame.render_widget(seen.block(block), place);
}

/// Wraps lines that are too wide between words.
fn wrapped(lines: &[String], width: usize) -> Vec<String> {
    let mut broken = Vec::new();
    for line in lines {
        let mut rest = line.as_str();
        while wide(rest) > width {
            let fits = rest.char_indices().map(|(at, _)| at);
            let fits = fits.take_while(|&at| wide(&rest[..at]) <= width);
            // This does not break a line within the indentation and the figures at its start.
            let at = fits.filter(|&at| rest[at..].starts_with(' ')).last();
            let Some(at) = at.filter(|&at| !rest[..at].trim().is_empty()) else { break };
            broken.push(rest[..at].to_owned());
            rest = rest[at..].trim_start();
        }
        broken.push(rest.to_owned());
    }
    broken
}

/// Returns a bar for each of the last `most` values. The bars are scaled to the greatest of these
/// values.
fn sparks(values: &[f64], most: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let last = &values[values.len().saturating_sub(most)..];
    let greatest = last.iter().copied().fold(0.0, f64::max);
    let bar = |value: f64| match (value / greatest * 7.0).round() {
        height if height.is_finite() => BARS[(height as usize).min(7)],
        _ => BARS[0],
    };
    last.iter().copied().map(bar).collect()
}

/// Truncates text that is too wide. The last character is then an ellipsis.
fn cut(text: &str, width: usize) -> String {
    if wide(text) <= width {
        return text.to_owned();
    }
    let (kept, _) = text.unicode_truncate(width.saturating_sub(1));
    format!("{kept}{}", if width > 0 { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use afterwork::page::Record;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::plain::plain;
    use super::super::snapshot::NoSnapshot;
    use super::super::view::Key;
    use super::super::view::tests::view;
    use super::*;

    fn screen(view: &mut View, size: (u16, u16)) -> (String, String) {
        drawn(size, |frame| draw(frame, view))
    }

    fn drawn((width, height): (u16, u16), draw: impl FnOnce(&mut Frame<'_>)) -> (String, String) {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(draw).unwrap();
        let buffer = terminal.backend().buffer();
        let lines = buffer.content().chunks(usize::from(width));
        let lines = lines.map(|line| {
            let mut text = String::new();
            let mut cells = line.iter();
            while let Some(cell) = cells.next() {
                text.push_str(cell.symbol());
                // A wide letter also covers the next cell.
                cells.by_ref().take(wide(cell.symbol()).saturating_sub(1)).for_each(drop);
            }
            text.trim_end().to_owned() + "\n"
        });
        let red = buffer.content().iter().filter(|cell| cell.fg == Color::Red);
        (lines.collect(), red.map(|cell| cell.symbol()).collect())
    }

    #[test]
    fn screens_are_as_captured_and_tiny_ones_do_not_panic() {
        for size in SIZES {
            is_as_captured("", size, &screen(&mut seen_again(3), size).0);
        }
        for size in [(1, 1), (3, 2), (10, 5), (12, 6)] {
            screen(&mut view(), size);
        }
    }

    const SIZES: [(u16, u16); 3] = [(80, 24), (40, 10), (200, 50)];

    /// Returns a view after `nr` more snapshots, each a second after the last one.
    fn seen_again(nr: u64) -> View {
        let mut view = view();
        for count in 0..nr {
            let mut snapshot = view.now.clone();
            snapshot.page.written_ns += 1_000_000_000 + count;
            view.seen(Ok(snapshot));
        }
        view
    }

    fn is_as_captured(what: &str, (width, height): (u16, u16), shown: &str) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/top/screens");
        let path = format!("{folder}/{what}{width}x{height}.txt");
        if std::env::var_os("AFTERWORK_CAPTURE").is_some() {
            std::fs::write(&path, shown).unwrap();
        }
        let captured =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(shown, captured, "{path}");
    }

    #[test]
    fn lines_that_are_left_show_the_next_tables() {
        let mut view = view();
        let pools = "\n\npool   workers";
        // The head and the foot take four lines, and the queues take five. An empty line, the
        // header of the pools, and one pool follow.
        for (height, fits) in [(11, false), (12, true), (40, true)] {
            let (shown, _) = screen(&mut view, (80, height));
            assert_eq!(shown.contains(pools), fits, "{shown}");
            assert_eq!(shown.contains("\n0-1 "), fits, "{shown}");
        }
        // After the table of the last tab comes that of the first. The filter applies to all
        // tables.
        view.press(Key::BackTab);
        let (shown, _) = screen(&mut view, (80, 40));
        let at = |text| shown.find(text).unwrap_or_else(|| panic!("{text}: {shown}"));
        assert!(at("\npool ") < at("\n\nqueue ") && at("\nqueue ") < at("\nwal "));
        view.filter = "0-".into();
        let (shown, _) = screen(&mut view, (80, 40));
        assert!(shown.contains("\n0-1 ") && !shown.contains("\nqueue "), "{shown}");
    }

    #[test]
    fn a_wide_screen_shows_the_whole_minute() {
        let mut view = seen_again(80);
        for (width, bars) in [(250, REMEMBERED), (191, PLOT)] {
            let (shown, _) = screen(&mut view, (width, 10));
            let longest = shown.lines().map(|line| line.matches('▁').count()).max();
            assert_eq!(longest, Some(bars), "{shown}");
        }
    }

    /// The list contains three processes: one with a long name, one whose hostile name was
    /// sanitized by `plain`, and one that has exited.
    #[test]
    fn lists_of_processes_with_hostile_names_match_the_captures() {
        let named = |pid, name: &str| {
            let mut snapshot = view().now.clone();
            snapshot.page.name = plain(name).into_owned();
            snapshot.page.records.last_mut().unwrap().name = plain(name).into_owned();
            Found { pid, path: format!("/dev/shm/afterwork-{pid}").into(), snapshot: Ok(snapshot) }
        };
        let ended = NoSnapshot::Stale("it has exited, and left its page".into());
        let long = "a-server-of-thumbnails-with-a-name-longer-than-most-screens-of-phones-are-wide";
        let found = [
            named(7, long),
            named(4_194_303, "\x1b[31m\u{202e}redrum\u{200b}\r\n日本語"),
            Found { snapshot: Err(ended), ..named(11, "") },
        ];
        for size in SIZES {
            let (shown, red) = drawn(size, |frame| draw_list(frame, &found, 1));
            is_as_captured("list-", size, &shown);
            assert!(shown.lines().all(|line| wide(line) <= size.0.into()), "{shown}");
            assert!(red.contains("4194303"), "{red}");
            // This is the screen of one process, scrolled to its last queue.
            let mut view = View::new(found[1].snapshot.clone().unwrap(), true);
            view.press(Key::End);
            is_as_captured("hostile-", size, &screen(&mut view, size).0);
        }
    }

    /// Returns a view of three queues, two of which are in a group that is at its limit.
    fn grouped() -> View {
        let mut snapshot = view().now.clone();
        let records = &mut snapshot.page.records;
        let queue = records.iter().find(|it| it.kind == Kind::Queue).unwrap().clone();
        records.clear();
        for (name, detail) in
            [("index", "cache, tenants"), ("save", "cache, others"), ("log", "cache")]
        {
            let mut queue = queue.clone();
            (queue.name, queue.detail) = (name.into(), detail.into());
            records.push(queue);
        }
        let figures = |waiting, max| vec![2, 0, waiting, max, 0, 1, 9, 0, 0, 0, 0];
        for (name, waiting, max) in [("tenants", 1, 2), ("others", 0, 2), ("endless", 1, 0)] {
            let figures = figures(waiting, max);
            records.push(Record::new(Kind::Group, name.into(), String::new(), figures));
        }
        View::new(snapshot, true)
    }

    #[test]
    fn problems_name_groups_and_include_groups_at_their_limit() {
        let expected = [
            "group tenants at its limit of 2, 9 wait",
            "queue index of group tenants at its limit of 1, 40 wait",
            "queue save of group others at its limit of 1, 40 wait",
            "queue log at its limit of 1, 40 wait",
        ];
        assert_eq!(problems(&grouped()), expected);
    }

    #[test]
    fn the_group_of_a_queue_is_shown_whole_on_80_columns() {
        let (shown, _) = screen(&mut grouped(), (80, 24));
        let line = |name: &str| shown.lines().find(|it| it.starts_with(name)).unwrap().to_owned();
        assert!(line("index").contains("  tenants, "), "{shown}");
        assert!(line("log").contains("  cache  "), "{shown}");
        let mut long = grouped();
        for (at, record) in long.now.page.records[..2].iter_mut().enumerate() {
            record.name = "checkpoint-writer-of-a-shard".into();
            record.detail = format!("cache_shard, {}-shards", ["third", "fourth"][at]);
        }
        let (shown, _) = screen(&mut long, (80, 24));
        for group in ["third-sha", "fourth-sh"] {
            assert!(shown.contains(group), "{shown}");
        }
    }

    #[test]
    fn tabs_lose_their_counts_if_the_screen_is_narrow() {
        let view = view();
        assert_eq!(tab_line(&view, 80).to_string(), " 1 queue 4  2 pool 1 ");
        assert_eq!(tab_line(&view, 20).to_string(), " 1 queue  2 pool ");
    }

    #[test]
    fn a_stall_is_red_and_names_are_not() {
        let mut view = view();
        view.press(Key::Tab);
        let (shown, red) = screen(&mut view, (140, 30));
        assert!(shown.contains("stalled ms"), "{shown}");
        let is_red = |word| red.contains(word);
        assert!(is_red("31000") && is_red("stalled for") && !is_red("idle"), "{red}");
    }

    #[test]
    fn help_and_details_are_drawn_over_the_table() {
        let mut view = view();
        view.press(Key::Char('?'));
        assert!(screen(&mut view, (80, 24)).0.contains("sort by the next column"));
        view.press(Key::Esc);
        view.press(Key::Enter);
        let (shown, _) = screen(&mut view, (120, 40));
        assert!(shown.contains("all figures") && shown.contains("max_active"), "{shown}");
        view.press(Key::Esc);
        view.press(Key::Char('/'));
        view.press(Key::Char('w'));
        assert!(screen(&mut view, (80, 24)).0.contains("filter: w"));
    }

    /// Returns the names of the figures on a screen, which are the words with an underscore.
    fn named(shown: &str) -> BTreeSet<String> {
        let words = shown.split_whitespace();
        let named = words.filter(|it| {
            it.contains('_') && it.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        });
        named.map(str::to_owned).collect()
    }

    #[test]
    fn all_details_and_rows_are_reachable_after_a_resize() {
        let mut view = view();
        view.press(Key::End);
        screen(&mut view, (80, 6));
        assert!(view.top > 0);
        assert!(screen(&mut view, (80, 24)).0.contains("mail-in"));
        view.press(Key::Enter);
        let (first, _) = screen(&mut view, (40, 10));
        assert!(first.contains("↓") && !first.contains("↑"), "{first}");
        let title = first.lines().next().unwrap_or_default().trim_end_matches(['─', '┐', ' ']);
        let title = title.to_owned();
        assert!(title.contains("all figures of queue "), "{title}");
        let mut seen = named(&first);
        let mut shown = first;
        while shown.contains("↓") {
            view.press(Key::Down);
            shown = screen(&mut view, (40, 10)).0;
            assert!(shown.contains(&title), "{shown}");
            seen.extend(named(&shown));
        }
        let (whole, _) = screen(&mut view, (120, 60));
        assert!(!whole.contains("more"), "{whole}");
        assert!(named(&whole).is_subset(&seen), "{whole}\n{seen:?}");
        // The view must not scroll past the end.
        view.press(Key::End);
        view.press(Key::Down);
        assert_eq!(screen(&mut view, (40, 10)).0, shown);
    }

    #[test]
    fn columns_move_out_to_the_left() {
        let mut view = view();
        assert!(screen(&mut view, (80, 24)).0.contains("inactive"));
        for _ in 0..4 {
            view.press(Key::Right);
        }
        let (shown, _) = screen(&mut view, (80, 24));
        let found = ["inactive", "wait p99", "mail-in"].map(|word| shown.contains(word));
        assert_eq!(found, [false, true, true], "{shown}");
    }

    #[test]
    fn plots_have_a_bar_per_value_and_long_texts_are_cut() {
        assert_eq!(sparks(&[0.0, 1.0, 2.0], 10), "▁▅█");
        assert_eq!(sparks(&[0.0, 0.0], 10), "▁▁");
        assert_eq!(sparks(&[1.0; 20], 4), "████");
        assert_eq!((cut("abcdef", 4), cut("abc", 3)), ("abc…".into(), "abc".into()));
        assert_eq!((cut("日本語", 4), cut("ab", 0)), ("日…".into(), String::new()));
    }
}
