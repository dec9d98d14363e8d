//! The state of the full screen, and the effect of each key on it. This module does not access the
//! terminal.

use std::collections::{HashMap, VecDeque};

use afterwork::page::{Kind, Record};
pub use ratatui::crossterm::event::KeyCode as Key;

use super::rows::{Cell, Table, kinds, main_counter, pairs, rate, span_s, tables};
use super::snapshot::{NoSnapshot, Snapshot};

/// The number of snapshots in a small plot. At one snapshot per second, this is a minute.
pub(super) const REMEMBERED: usize = 60;

const PAGE: isize = 10;

/// Ctrl-C, which ends the command.
pub const INTERRUPT: Key = Key::Char('\x03');
/// An event that only requires redrawing.
pub const REDRAW: Key = Key::Null;

/// The way in which the user left the screen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    Quit,
    /// The user returns to the list of processes.
    Back,
}

/// The box over the table, or the view that replaces the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    Table,
    Filter,
    Help,
    Detail,
}

#[derive(Debug)]
pub struct View {
    pub now: Snapshot,
    pub before: Option<Snapshot>,
    /// The reason why there is no newer snapshot.
    pub ended: Option<NoSnapshot>,
    pub tab: Kind,
    /// The index of the selected row, below the header.
    pub selected: usize,
    /// The first row on the screen.
    pub top: usize,
    /// The number of columns of figures that are omitted from the left.
    pub shift: usize,
    /// The column by which rows are sorted, and `true` if the greatest value is first.
    pub sort: Option<(usize, bool)>,
    /// The text that names must contain.
    pub filter: String,
    pub over: Over,
    /// The first visible line of the box.
    pub over_top: usize,
    pub paused: bool,
    /// `true` if alarms are red.
    pub color: bool,
    /// The rates of each record. The key is the kind, the name, the detail, and the number of
    /// earlier records with the same name and detail.
    rates: HashMap<(Kind, String, String, usize), VecDeque<f64>>,
}

impl View {
    /// Creates a view that shows the first table that has rows.
    pub fn new(now: Snapshot, color: bool) -> Self {
        let tab = tables(&now, None).first().map_or(Kind::Queue, |table| table.kind);
        Self {
            now,
            before: None,
            ended: None,
            tab,
            selected: 0,
            top: 0,
            shift: 0,
            sort: None,
            filter: String::new(),
            over: Over::Table,
            over_top: 0,
            paused: false,
            color,
            rates: HashMap::new(),
        }
    }

    pub fn seen(&mut self, snapshot: Result<Snapshot, NoSnapshot>) {
        self.ended = None;
        match snapshot {
            Ok(snapshot) => self.before = Some(std::mem::replace(&mut self.now, snapshot)),
            Err(no_look) => return self.ended = Some(no_look),
        }
        // The history of removed rows is dropped.
        let mut rates = HashMap::new();
        let span_s = span_s(&self.now, self.before.as_ref());
        for kind in kinds() {
            for (record, past) in pairs(kind, &self.now, self.before.as_ref()) {
                let mut key = (kind, record.name.clone(), record.detail.clone(), 0);
                while rates.contains_key(&key) {
                    key.3 += 1;
                }
                let mut known = self.rates.remove(&key).unwrap_or_default();
                let risen = rate(record, past, main_counter(kind), span_s);
                known.push_back(risen.unwrap_or(0.0));
                if known.len() > REMEMBERED {
                    known.pop_front();
                }
                rates.insert(key, known);
            }
        }
        self.rates = rates;
    }

    /// Returns the rates of a row of the table of `kind`. The newest rate is last.
    pub fn rates(&self, kind: Kind, row: &[Cell]) -> Vec<f64> {
        let of = |at| {
            let Record { name, detail, .. } = self.now.page.of(kind).nth(at)?;
            let before = self.now.page.of(kind).take(at);
            let nr_twins = before.filter(|it| it.name == *name && it.detail == *detail).count();
            self.rates.get(&(kind, name.clone(), detail.clone(), nr_twins))
        };
        record_of(row).and_then(of).into_iter().flatten().copied().collect()
    }

    /// Returns the kinds that have rows, in order, each with its number of rows.
    pub fn tabs(&self) -> Vec<(Kind, usize)> {
        let tables = tables(&self.now, None).into_iter();
        tables.map(|table| (table.kind, table.rows.len() - 1)).collect()
    }

    /// Returns the table of the current tab, filtered and sorted, with the header first; see
    /// [`tables`](Self::tables).
    pub fn table(&self) -> Option<Table> {
        self.tables().map(|(table, _)| table)
    }

    /// Returns the table of the current tab, and the filtered tables of the other tabs in tab
    /// order, starting after the current tab. Returns `None` if the current tab has no table.
    pub fn tables(&self) -> Option<(Table, Vec<Table>)> {
        let mut tables = tables(&self.now, self.before.as_ref());
        let at = tables.iter().position(|table| table.kind == self.tab)?;
        tables.rotate_left(at);
        let wanted = self.filter.to_lowercase();
        let holds = |cell: &Cell| cell.text.to_lowercase().contains(&wanted);
        for table in &mut tables {
            let rows = table.rows.split_off(1).into_iter();
            table.rows.extend(rows.filter(|row| row.iter().take(2).any(holds)));
        }
        let others = tables.split_off(1);
        let mut table = tables.pop()?;
        if let Some((column, from_greatest)) = self.sort {
            let value = |row: &[Cell]| row.get(column + 2).map_or(f64::NEG_INFINITY, |it| it.value);
            table.rows[1..].sort_by(|a, b| {
                let order = value(a).total_cmp(&value(b));
                if from_greatest { order.reverse() } else { order }
            });
        }
        Some((table, others))
    }

    pub fn row(&self) -> Option<Vec<Cell>> {
        let mut rows = self.table()?.rows;
        (self.selected + 1 < rows.len()).then(|| rows.swap_remove(self.selected + 1))
    }

    /// Returns the record of a row as it is in the current page, and as it was in the earlier page.
    pub fn record(&self, row: &[Cell]) -> Option<(&Record, Option<&Record>)> {
        pairs(self.tab, &self.now, self.before.as_ref()).nth(record_of(row)?)
    }

    /// Handles a key. Returns `None` if the screen must be drawn again.
    pub fn press(&mut self, key: Key) -> Option<Left> {
        match self.over {
            _ if key == INTERRUPT => Some(Left::Quit),
            Over::Filter => self.press_in_filter(key),
            Over::Help | Over::Detail => self.press_over(key),
            Over::Table => self.press_in_table(key),
        }
    }

    /// Scrolls the box over the table. Drawing the box limits the position to its end.
    fn press_over(&mut self, key: Key) -> Option<Left> {
        if let Some(by) = steps(key) {
            self.over_top = self.over_top.saturating_add_signed(by);
            return None;
        }
        match key {
            Key::Char('q') => return Some(Left::Quit),
            Key::Right => self.select(1),
            Key::Left => self.select(-1),
            REDRAW => {}
            _ => (self.over, self.over_top) = (Over::Table, 0),
        }
        None
    }

    fn press_in_filter(&mut self, key: Key) -> Option<Left> {
        match key {
            Key::Char(c) => self.filter.push(c),
            Key::Backspace => drop(self.filter.pop()),
            Key::Esc => {
                self.filter.clear();
                self.over = Over::Table;
            }
            Key::Enter => self.over = Over::Table,
            _ => {}
        }
        (self.selected, self.top) = (0, 0);
        None
    }

    fn press_in_table(&mut self, key: Key) -> Option<Left> {
        if let Some(by) = steps(key) {
            self.select(by);
            return None;
        }
        match key {
            Key::Char('q') => return Some(Left::Quit),
            Key::Esc if !self.filter.is_empty() => self.filter.clear(),
            Key::Esc => return Some(Left::Back),
            Key::Char('p' | ' ') => self.paused = !self.paused,
            Key::Char('?' | 'h') => self.over = Over::Help,
            Key::Char('/') => self.over = Over::Filter,
            Key::Enter if self.row().is_some() => self.over = Over::Detail,
            Key::Tab => self.turn(1),
            Key::BackTab => self.turn(-1),
            Key::Char(c @ '1'..='9') => self.go(c as usize - '1' as usize),
            Key::Right => self.shift = (self.shift + 1).min(self.nr_columns().saturating_sub(1)),
            Key::Left => self.shift = self.shift.saturating_sub(1),
            Key::Char('s') => self.sort_by_next(),
            Key::Char('r') => self.sort = self.sort.map(|(column, greatest)| (column, !greatest)),
            _ => {}
        }
        None
    }

    /// Sorts by the next column. After the last column, ends the sorting.
    fn sort_by_next(&mut self) {
        let next = self.sort.map_or(0, |(column, _)| column + 1);
        self.sort = (next < self.nr_columns()).then_some((next, true));
    }

    fn nr_columns(&self) -> usize {
        let table = self.table();
        table.map_or(0, |table| table.rows[0].len().saturating_sub(2))
    }

    fn select(&mut self, by: isize) {
        let nr_rows = self.table().map_or(0, |table| table.rows.len() - 1);
        let last = nr_rows.saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
    }

    fn turn(&mut self, by: isize) {
        let tabs = self.tabs();
        let at = tabs.iter().position(|(kind, _)| *kind == self.tab);
        let at = at.unwrap_or(0) as isize + by;
        if !tabs.is_empty() {
            self.go(at.rem_euclid(tabs.len() as isize) as usize);
        }
    }

    fn go(&mut self, tab: usize) {
        if let Some((kind, _)) = self.tabs().get(tab) {
            self.tab = *kind;
            (self.selected, self.top, self.shift, self.sort) = (0, 0, 0, None);
        }
    }
}

/// Returns the number of lines by which a key moves down. If it is negative, the key moves up.
fn steps(key: Key) -> Option<isize> {
    match key {
        Key::Down | Key::Char('j') => Some(1),
        Key::Up | Key::Char('k') => Some(-1),
        Key::PageDown => Some(PAGE),
        Key::PageUp => Some(-PAGE),
        Key::Home | Key::Char('g') => Some(isize::MIN),
        Key::End | Key::Char('G') => Some(isize::MAX),
        _ => None,
    }
}

/// Returns the index of a row's record within its kind.
fn record_of(row: &[Cell]) -> Option<usize> {
    let at = row.first()?.value;
    (at >= 0.0).then_some(at as usize)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::top::snapshot::stalled_sample;

    pub(in crate::top) fn view() -> View {
        let mut snapshot = stalled_sample();
        let queue = snapshot.page.of(Kind::Queue).next().unwrap().clone();
        for name in ["checkpoint-writer-of-the-third-shard", "wal", "compaction"] {
            let mut queue = queue.clone();
            queue.name = name.into();
            snapshot.page.records.push(queue);
        }
        View::new(snapshot, true)
    }

    fn names(view: &View) -> Vec<String> {
        let table = view.table().unwrap();
        table.rows[1..].iter().map(|row| row[0].text.clone()).collect()
    }

    #[test]
    fn the_selection_ends_where_the_rows_do() {
        let mut view = view();
        let last = names(&view).len() - 1;
        for (key, row) in [(Key::Up, 0), (Key::End, last), (Key::PageDown, last), (Key::Home, 0)] {
            assert_eq!((view.press(key), view.selected), (None, row), "{key:?}");
        }
    }

    #[test]
    fn filter_is_typed_applied_and_cleared() {
        let mut view = view();
        for key in ['/', 'W', 'a', 'l', 'x'].map(Key::Char) {
            view.press(key);
        }
        assert!(names(&view).is_empty());
        view.press(Key::Backspace);
        view.press(Key::Enter);
        assert_eq!(names(&view), ["wal"]);
        assert_eq!(view.press(Key::Esc), None, "it takes the filter back");
        assert!(names(&view).len() > 1);
        assert_eq!(view.press(Key::Esc), Some(Left::Back));
        assert_eq!(view.press(Key::Char('q')), Some(Left::Quit));
    }

    #[test]
    fn tabs_wrap_around() {
        let mut view = view();
        let tabs = view.tabs();
        view.press(Key::Down);
        for (kind, _) in tabs.iter().skip(1).chain(&tabs[..1]) {
            view.press(Key::Tab);
            assert_eq!((view.tab, view.selected), (*kind, 0));
        }
        view.press(Key::BackTab);
        assert_eq!(view.tab, tabs.last().unwrap().0);
        view.press(Key::Char('1'));
        assert_eq!(view.tab, tabs[0].0);
    }

    #[test]
    fn rows_are_sorted_by_a_column_and_back() {
        let mut view = view();
        let plain = names(&view);
        view.press(Key::Char('s'));
        assert_eq!(view.sort, Some((0, true)));
        view.press(Key::Char('r'));
        assert_eq!(view.sort, Some((0, false)));
        for _ in 0..view.nr_columns() {
            view.press(Key::Char('s'));
        }
        assert_eq!((view.sort, names(&view)), (None, plain));
    }

    #[test]
    fn rows_of_one_name_have_their_own_figures_and_past() {
        let mut snapshot = stalled_sample();
        let queue = snapshot.page.of(Kind::Queue).next().unwrap().clone();
        // This copies a record of another kind, so that its figures differ.
        let mut twin = snapshot.page.of(Kind::Pool).next().unwrap().clone();
        (twin.kind, twin.name, twin.detail) =
            (Kind::Queue, queue.name.clone(), queue.detail.clone());
        assert_ne!(twin.figure("nr_active"), queue.figure("nr_active"));
        snapshot.page.records = vec![queue, twin];
        let mut view = View::new(snapshot.clone(), false);
        view.seen(Ok(snapshot.clone()));
        for record in &snapshot.page.records {
            let row = view.row().unwrap();
            assert_eq!(view.record(&row), Some((record, Some(record))));
            assert_eq!(view.rates(view.tab, &row).len(), 1);
            view.press(Key::Down);
        }
    }

    #[test]
    fn a_row_opens_and_closes_and_a_past_is_a_minute() {
        let mut view = view();
        view.press(Key::Enter);
        assert_eq!(view.over, Over::Detail);
        view.press(Key::Esc);
        assert_eq!(view.over, Over::Table);
        for _ in 0..REMEMBERED + 5 {
            view.seen(Ok(stalled_sample()));
        }
        let row = view.row().unwrap();
        assert_eq!(view.rates(view.tab, &row).len(), REMEMBERED);
        view.seen(Err(NoSnapshot::Stale("it has ended".into())));
        assert!(view.ended.is_some());
    }
}
