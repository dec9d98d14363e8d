//! Checks the comments that explain memory orderings.
//!
//! A memory ordering is one end of an argument. Its comment is a block of `//` lines that begins
//! with `ORDER(tag):`. All ends of an argument have the same tag. Each tag must have
//!
//! - at least two ends, unless the only end contains `both ends on this line` (a read-modify-write
//!   that pairs with itself on another thread) or `other end in crate NAME` (where NAME is a
//!   dependency of the workspace or a folder of `crates/`);
//! - at least one `Test:` line. Each such line must name an existing test function. The list of
//!   names ends at the first full stop. Text in parentheses is ignored. A word with an underscore
//!   that is not a test is an error, because it may be the name of a deleted test.

use std::collections::{BTreeMap, BTreeSet};

use crate::report::{Failure, Finding, Findings};
use crate::source::{self, comments};
use crate::workspace::Workspace;

#[derive(Debug, PartialEq)]
struct End {
    file: String,
    line: u32,
    tag: String,
    /// The text after the tag, joined into one line.
    text: String,
}

/// Finds tags that have only one end, that have no test, or whose test does not exist.
pub fn check(workspace: &Workspace) -> Result<Findings, Failure> {
    let mut ends = Vec::new();
    let sources = workspace.texts(source::is_rust)?;
    // This crate describes the format and does not use it.
    for (file, text) in sources.iter().filter(|(file, _)| !file.starts_with("xtask/")) {
        ends.extend(ends_in(file, text));
    }
    let tests = tests(&sources);
    let metadata = workspace.metadata()?;
    let packages = metadata.packages.iter();
    let dependencies = packages.clone().flat_map(|package| &package.dependencies);
    let mut crates: BTreeSet<String> = dependencies.map(|it| it.name.clone()).collect();
    crates.extend(packages.filter_map(|package| {
        let folder = package.manifest_path.parent()?.file_name()?;
        Some(folder.to_string_lossy().into_owned())
    }));
    let broken = broken(&ends, &tests, &crates);
    let tags: BTreeSet<_> = ends.iter().map(|end| &end.tag).collect();
    Ok(Findings { broken, looked_at: format!("{} tags, {} ends", tags.len(), ends.len()) })
}

pub fn tests(sources: &[(String, String)]) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for (file, text) in sources {
        // In tests/, a macro may turn a function into a test, or several tests may share a
        // function.
        let is_test_tree = file.starts_with("tests/") || file.contains("/tests/");
        let names = source::functions(text, !is_test_tree);
        tests.extend(names.into_iter().map(str::to_string));
    }
    tests
}

/// Joins adjacent line comments, and returns the blocks that begin with a tag.
fn ends_in(file: &str, text: &str) -> Vec<End> {
    let mut ends: Vec<End> = Vec::new();
    let mut last_line = 0;
    for (line, text) in comments(text) {
        let text = text.trim();
        let follows = line == last_line + 1;
        if let Some((tag, rest)) = text.strip_prefix("ORDER(").and_then(|rest| rest.split_once(')'))
        {
            let text = rest.trim_start_matches(':').trim().to_string();
            ends.push(End { file: file.into(), line, tag: tag.trim().into(), text });
            last_line = line;
        } else if follows && let Some(end) = ends.last_mut() {
            // An empty line ends a sentence, like a full stop.
            end.text += if text.is_empty() { ". " } else { " " };
            end.text += text;
            last_line = line;
        }
    }
    ends
}

fn broken(ends: &[End], tests: &BTreeSet<String>, crates: &BTreeSet<String>) -> Vec<Finding> {
    let mut by_tag: BTreeMap<&str, Vec<&End>> = BTreeMap::new();
    for end in ends {
        by_tag.entry(&end.tag).or_default().push(end);
    }
    let mut found = Vec::new();
    for (tag, ends) in by_tag {
        let first = ends[0];
        let mut say = |end: &End, rule: String| found.push(Finding::new(&end.file, end.line, rule));
        if tag.is_empty() || !tag.chars().all(|c| c.is_alphanumeric() || "_-.:".contains(c)) {
            let remedy = "write one word, so that both ends can be searched for";
            say(first, format!("`{tag}` is not a tag: {remedy}"));
        }
        if ends.len() < 2 && !first.text.contains("both ends on this line") {
            match other_crate(&first.text) {
                Some(name) if crates.contains(name) => {}
                Some(name) => {
                    let place = format!("`{name}`, which is not a crate of this workspace");
                    say(first, format!("ORDER({tag}): its other end is in {place}"));
                }
                None => {
                    let remedy = "tag the other (xtask/src/order.rs documents when one suffices)";
                    say(first, format!("ORDER({tag}) has one end: {remedy}"));
                }
            }
        }
        let mut has_test = false;
        for end in &ends {
            let Some(named) = test_names(&end.text) else { continue };
            has_test = true;
            let is_test = |name: &&String| tests.contains(*name);
            if let Some(gone) = named.iter().find(|name| name.contains('_') && !is_test(name)) {
                say(end, format!("ORDER({tag}): there is no test `{gone}`"));
            } else if !named.iter().any(|name| is_test(&name)) {
                say(end, format!("ORDER({tag}): its `Test:` line names no test function"));
            }
        }
        if !has_test {
            let question = "which test fails without it?";
            say(first, format!("ORDER({tag}) has no `Test:` line at any end: {question}"));
        }
    }
    found
}

fn other_crate(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("other end in crate ")?;
    let end =
        rest.find(|c: char| !(c.is_alphanumeric() || "_-`".contains(c))).unwrap_or(rest.len());
    Some(rest[..end].trim_matches('`'))
}

/// Returns the words of the `Test:` line that may be names, or `None` if there is no such line.
fn test_names(text: &str) -> Option<Vec<String>> {
    let (_, rest) = text.split_once("Test:").or_else(|| text.split_once("Tests:"))?;
    let mut depth = 0;
    let mut sentence = String::new();
    let mut ahead = rest.chars().peekable();
    while let Some(c) = ahead.next() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            '.' if depth == 0 && ahead.peek().is_none_or(|next| next.is_whitespace()) => break,
            _ if depth == 0 => sentence.push(c),
            _ => {}
        }
    }
    let words = sentence.split(|c: char| c.is_whitespace() || ",;".contains(c));
    // A path to a file is not a name. In `module::name`, the last part is the name.
    let names = words.filter(|word| !word.contains('/')).map(|word| {
        let last = word.rsplit("::").next().unwrap_or(word);
        last.trim_matches(|c: char| !(c.is_alphanumeric() || c == '_')).to_string()
    });
    Some(names.filter(|name| !name.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    /// Returns the findings for a file with `text`, in a workspace with the test `park_vs_post`.
    fn found(text: &str) -> Vec<String> {
        let ends = ends_in("a.rs", text);
        let broken = broken(&ends, &set(&["park_vs_post", "handover"]), &set(&["tokio"]));
        broken.iter().map(Finding::to_string).collect()
    }

    const GOOD: &str = "
        // ORDER(park): store buffering, other end in `post`.
        //   here: state = PARKED;  fence;  read mail
        // Test: loom park_vs_post (fails with either fence_removed).
        state.store(PARKED, Relaxed);
        fn post() {
            // ORDER(park): the other end.
            mail.store(1);
        }";

    #[test]
    fn two_ends_or_one_paired_with_itself_are_good_with_a_test() {
        for good in [GOOD, "// ORDER(a): both ends on this line. Test: handover."] {
            assert_eq!(found(good), Vec::<String>::new());
        }
    }

    #[test]
    fn a_block_ends_where_code_begins() {
        let ends = ends_in("a.rs", GOOD);
        assert_eq!(ends.len(), 2);
        assert_eq!((ends[0].line, ends[1].line), (2, 7));
        assert!(ends[0].text.ends_with("fence_removed)."), "{}", ends[0].text);
        let apart = ends_in("a.rs", "// ORDER(a): b\ncode();\n// Test: park_vs_post");
        assert_eq!(apart[0].text, "b");
    }

    #[test]
    fn one_end_is_named_with_its_line() {
        let found = found("\n// ORDER(lone): x.\n// Test: park_vs_post.");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a.rs:2: ORDER(lone) has one end"), "{}", found[0]);
    }

    #[test]
    fn end_in_another_crate_counts_if_the_crate_exists() {
        let at = |name: &str| {
            found(&format!("// ORDER(a): other end in crate `{name}`. Test: handover."))
        };
        assert!(at("tokio").is_empty());
        assert!(at("nosuch")[0].contains("not a crate of this workspace"));
    }

    #[test]
    fn a_missing_or_vanished_test_is_named() {
        let two =
            |line: &str| found(&format!("// ORDER(a): x.\n// {line}\ncode();\n// ORDER(a): y."));
        assert!(two("no more to say.")[0].contains("no `Test:` line"));
        assert!(two("Test: loom park_vs_mail.")[0].contains("no test `park_vs_mail`"));
        assert!(two("Test: park_vs_post, loom gone_by_now.")[0].contains("gone_by_now"));
        assert!(two("Test: loom.")[0].contains("names no test"));
        assert!(two("Test: loom handover").is_empty());
        let path = "Test: tests/loom/the_file.rs, wake::park_vs_post. Uses nr_running.";
        assert!(two(path).is_empty());
    }

    #[test]
    fn test_name_may_be_on_the_next_line() {
        let names = test_names("x. Test: loom  a_b (c\n d_e), f_g. h_i");
        assert_eq!(names.unwrap(), ["loom", "a_b", "f_g"]);
        assert_eq!(test_names("no such line"), None);
    }
}
