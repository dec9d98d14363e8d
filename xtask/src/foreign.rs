//! Checks the list of foreign code: each place that may run a user's closure, destructor, waker,
//! handler or source must have a tag.
//!
//! Such a place is a call to `contain`, `guarded` or `Foreign::new` of `panics.rs`. The tag
//! `FOREIGN(tag)` is on the line of the call or in the four lines above it. The table in FOREIGN.md
//! has a row for each tag, and no other rows. In debug builds, `panics.rs` asserts that no lock is
//! held during these calls.

use std::collections::{BTreeMap, BTreeSet};

use crate::report::{Failure, Finding, Findings};
use crate::workspace::Workspace;
use crate::{layers, source};

const LEDGER: &str = "FOREIGN.md";
const HOME: &str = "/panics.rs";
const CALLS: &[&str] = &["contain(", "guarded(", "Foreign::new("];
/// The maximum distance of a tag from the call below it, in lines.
const NEAR: usize = 4;

pub fn check(workspace: &Workspace) -> Result<Findings, Failure> {
    let ledger = workspace.page(LEDGER)?;
    let rows = rows(&ledger);
    let mut found = Vec::new();
    let mut used = BTreeSet::new();
    let is_library = |file: &str| layers::is_above_sync(file) && !file.ends_with(HOME);
    for (file, text) in workspace.texts(is_library)? {
        found.extend(in_source(&file, &text, &rows, &mut used));
    }
    for (tag, line) in &rows {
        if !used.contains(tag) {
            let what = format!("no code has the tag FOREIGN({tag}): delete the row");
            found.push(Finding::new(LEDGER, *line, what));
        }
    }
    Ok(Findings { looked_at: format!("{} kinds of foreign code", rows.len()), broken: found })
}

fn rows(text: &str) -> BTreeMap<String, u32> {
    let tag = |row: &str| Some(row.strip_prefix("| `")?.split_once('`')?.0.to_string());
    let lines = (1..).zip(text.lines());
    lines.filter_map(|(line, row)| Some((tag(row)?, line))).collect()
}

fn in_source(
    file: &str,
    text: &str,
    rows: &BTreeMap<String, u32>,
    used: &mut BTreeSet<String>,
) -> Vec<Finding> {
    let mut found = Vec::new();
    // The number of lines since the last tag.
    let mut since_tag = usize::MAX;
    let code = source::code(text);
    for ((number, line), code) in (1..).zip(text.lines()).zip(code.lines()) {
        since_tag = since_tag.saturating_add(1);
        for tag in tags(line) {
            since_tag = 0;
            if !rows.contains_key(tag) {
                let what = format!("FOREIGN({tag}) has no row in the table of {LEDGER}");
                found.push(Finding::new(file, number, what));
            }
            used.insert(tag.to_string());
        }
        if CALLS.iter().any(|call| is_called(code, call)) && since_tag > NEAR {
            let what = "foreign code may run here: write FOREIGN(tag) above, see panics.rs";
            found.push(Finding::new(file, number, what));
        }
    }
    found
}

fn tags(line: &str) -> impl Iterator<Item = &str> {
    let after = line.split("FOREIGN(").skip(1);
    after.filter_map(|rest| rest.split_once(')').map(|(tag, _)| tag))
}

/// Returns `true` if `code` calls the function. Definitions, imports and longer names are not
/// calls.
fn is_called(code: &str, call: &str) -> bool {
    code.match_indices(call).any(|(at, _)| {
        let before = &code[..at];
        !before.ends_with("fn ") && !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
| tag | what |
|---|---|
| `a` | x |
| `b` | y |
";

    fn lines(text: &str) -> Vec<u32> {
        let found = in_source("x.rs", text, &rows(TABLE), &mut BTreeSet::new());
        found.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn rows_begin_with_their_tags() {
        assert_eq!(rows(TABLE).into_keys().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_call_without_a_tag_near_it_is_found() {
        assert_eq!(lines("contain(|| x);"), [1]);
        assert!(lines("// FOREIGN(a): x\nif panics::contain(|| x) {}").is_empty());
        assert_eq!(lines("// FOREIGN(a)\n\n\n\n\nguarded(f)"), [6]);
        assert_eq!(lines("// FOREIGN(a)\nx\n// contain(y)\nfn contain(y)\n"), [0; 0]);
        assert!(lines("free_guarded(item); s.contains(x)").is_empty());
        assert!(lines("#[cfg(test)]\nmod tests {\n contain(|| ());").is_empty());
    }

    #[test]
    fn a_tag_without_a_row_and_a_row_without_a_tag_are_found() {
        assert_eq!(lines("x\n// FOREIGN(c): y"), [2]);
        let mut used = BTreeSet::new();
        in_source("x.rs", "// FOREIGN(b)", &rows(TABLE), &mut used);
        assert_eq!(used.into_iter().collect::<Vec<_>>(), ["b"]);
    }
}
