//! The lines of a run, grouped by case.

use std::io::{BufRead, ErrorKind};

use top::exit::Stop;

use crate::output::record::{CaseHead, Claimed, End, Head, Line, MACHINE, Record, SCHEMA};

#[derive(Clone, Debug)]
pub struct Run {
    pub head: Head,
    pub cases: Vec<CaseRun>,
    /// The end of the run, or `None` if the file is truncated.
    pub end: Option<End>,
    pub lines: Vec<Line>,
}

#[derive(Clone, Debug)]
pub struct CaseRun {
    pub head: CaseHead,
    pub records: Vec<Record>,
    pub machine: Vec<Record>,
    pub claims: Vec<Claimed>,
}

impl Run {
    pub fn read(name: &str, source: impl BufRead) -> Result<Self, Stop> {
        let mut lines = Vec::new();
        let mut source = source.lines().enumerate().peekable();
        while let Some((index, text)) = source.next() {
            let wrong = |error: &dyn std::fmt::Display| {
                Stop::CouldNotRun(format!("{name}, line {}: {error}", index + 1))
            };
            let text = text.map_err(|error| match error.kind() {
                ErrorKind::InvalidData if index == 0 => no_run(name),
                // The output may end within a multi-byte character.
                ErrorKind::InvalidData if source.peek().is_none() => wrong(&CUT_OFF),
                ErrorKind::InvalidData => wrong(&NOT_A_LINE),
                _ => wrong(&error),
            })?;
            if text.trim().is_empty() {
                continue;
            }
            if index == 0 {
                check_schema(name, &text)?;
            }
            let what = match source.peek() {
                // Every complete line is an object.
                None if text.starts_with('{') && !text.trim_end().ends_with('}') => CUT_OFF,
                _ => NOT_A_LINE,
            };
            lines.push(serde_json::from_str(&text).map_err(|_| wrong(&what))?);
        }
        lines.retain(|line| !matches!(line, Line::Older(_)));
        Self::of(lines).ok_or_else(|| no_run(name))
    }

    /// Groups lines. Returns `None` if no [`Head`] comes first, or if results precede all cases.
    pub fn of(lines: Vec<Line>) -> Option<Self> {
        let Some((Line::Head(head), rest)) = lines.split_first() else { return None };
        let head = Head::clone(head);
        let mut cases: Vec<CaseRun> = Vec::new();
        let mut end = None;
        for line in rest {
            match line.clone() {
                Line::Head(_) => return None,
                Line::Case(head) => cases.push(CaseRun::new(head)),
                Line::Claimed(claimed) => cases.last_mut()?.claims.push(claimed),
                // The page shows the medians of all variants instead.
                Line::Run(_) | Line::Answer(_) | Line::Older(_) => {}
                Line::Record(record) if record.variant == MACHINE => {
                    cases.last_mut()?.machine.push(record);
                }
                Line::Record(record) => cases.last_mut()?.records.push(record),
                Line::End(line) => end = Some(line),
            }
        }
        Some(Self { head, cases, end, lines })
    }
}

fn no_run(name: &str) -> Stop {
    Stop::CouldNotRun(format!(
        "{name}: not the run of a bench; `afterwork-lab bench --json` prints one"
    ))
}

const NOT_A_LINE: &str = "not the output of a bench";
const CUT_OFF: &str = "the record is truncated here: delete this line or run the benchmark again";

/// Checks the version before any other content, because other versions may have other shapes.
fn check_schema(name: &str, text: &str) -> Result<(), Stop> {
    #[derive(serde::Deserialize)]
    struct Version {
        schema: u32,
    }
    match serde_json::from_str::<Version>(text) {
        Ok(Version { schema: SCHEMA }) => Ok(()),
        Ok(Version { schema }) => Err(Stop::CouldNotRun(format!(
            "{name}: records of version {schema}, this command reads version {SCHEMA}: create the page with the program that \
             measured them, or run the benchmark again"
        ))),
        Err(_) => Err(no_run(name)),
    }
}

impl CaseRun {
    fn new(head: CaseHead) -> Self {
        Self { head, records: Vec::new(), machine: Vec::new(), claims: Vec::new() }
    }

    pub fn of_metric<'a>(&'a self, metric: &str) -> impl Iterator<Item = &'a Record> {
        self.records.iter().filter(move |record| record.metric == metric)
    }

    pub fn record(&self, variant: &str, metric: &str) -> Option<&Record> {
        let mut records = self.records.iter();
        records.find(|record| record.variant == variant && record.metric == metric)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(text: &str) -> String {
        match Run::read("it", text.as_bytes()) {
            Err(Stop::CouldNotRun(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn file_without_a_run_is_rejected() {
        assert!(reason("").contains("not the run of a bench"));
        assert!(reason("hello\n").contains("not the run of a bench"));
        assert!(reason("{\"schema\":1}\n").contains("version 1"));
        assert!(reason("{\"schema\":4}\n").contains("line 1"));
    }

    #[test]
    fn truncated_record_is_reported() {
        let head = serde_json::to_string(&Head::of_tests()).unwrap();
        let cut = reason(&format!("{head}\n{{\"bench\":\"b\",\"ca"));
        assert!(cut.starts_with("it, line 2: the record is truncated here"), "{cut}");
        let other = reason(&format!("{head}\n{{\"be\n{head}\n"));
        assert!(other.starts_with("it, line 2: not the output of a bench"), "{other}");
    }
}
