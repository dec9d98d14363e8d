//! Checks the rules in docs/conformance.md: each rule must have a test of its own, and the test
//! must exist.
//!
//! A rule is a row of a table whose last column is called `test`. This column names at least one
//! test in backticks. Each test is named only once, so that its failure identifies the rule. Rust
//! tests are functions. C tests are rows in a table of the suite, or kinds of misuse in it. Each
//! case of `rules.c` must be named.

use std::collections::BTreeSet;

use crate::report::{Failure, Finding, Findings};
use crate::workspace::Workspace;
use crate::{order, source};

const TABLE: &str = "docs/conformance.md";
const SUITE: &str = "crates/capi/tests/c/";

/// Finds rules without a test, missing tests, and tests that two rules name.
pub fn check(workspace: &Workspace) -> Result<Findings, Failure> {
    let text = workspace.page(TABLE)?;
    let rules = rules(&text);
    let mut known = order::tests(&workspace.texts(source::is_rust)?);
    let mut broken = Vec::new();
    let is_of_suite = |file: &str| file.starts_with(SUITE) && file.ends_with(".c");
    for (file, text) in workspace.texts(is_of_suite)? {
        let cases = cases(&text);
        if file.ends_with("/rules.c") {
            broken = unnamed(&file, &cases, &rules);
        }
        known.extend(cases.into_iter().map(|(_, case)| case.to_string()));
    }
    broken.extend(self::broken(&rules, &known));
    Ok(Findings { broken, looked_at: format!("{} rules", rules.len()) })
}

/// Returns the cases in the table of a C file, with their lines.
fn cases(text: &str) -> Vec<(u32, &str)> {
    let rows = (1..).zip(text.lines()).filter_map(|(line, row)| {
        let row = row.strip_prefix('\t')?;
        if let Some(case) = row.strip_prefix("T(") {
            return Some((line, case.strip_suffix("),")?));
        }
        // This row is a misuse, with its name and the expected message.
        let misuse = row.strip_prefix("M(").or_else(|| row.strip_prefix("E("))?;
        Some((line, misuse.split_once(", \"")?.0))
    });
    rows.collect()
}

fn unnamed(file: &str, cases: &[(u32, &str)], rules: &[Rule<'_>]) -> Vec<Finding> {
    let is_named = |case: &str| rules.iter().any(|rule| rule.tests.contains(&case));
    let unnamed = cases.iter().filter(|(_, case)| !is_named(case));
    let say = |&(line, case): &(u32, &str)| {
        Finding::new(file, line, format!("no rule of {TABLE} names `{case}`"))
    };
    unnamed.map(say).collect()
}

#[derive(Debug, PartialEq)]
struct Rule<'a> {
    line: u32,
    tests: Vec<&'a str>,
}

fn rules(text: &str) -> Vec<Rule<'_>> {
    let mut rules = Vec::new();
    let mut in_table = false;
    for (line, row) in (1..).zip(text.lines()) {
        let Some(cells) = row.strip_prefix('|').and_then(|row| row.strip_suffix('|')) else {
            in_table = false;
            continue;
        };
        let last = cells.rsplit('|').next().unwrap_or_default().trim();
        if last == "test" {
            in_table = true;
        } else if in_table && !last.starts_with("--") {
            // Every second part is between backticks.
            let tests = last.split('`').skip(1).step_by(2).collect();
            rules.push(Rule { line, tests });
        }
    }
    rules
}

fn broken(rules: &[Rule<'_>], known: &BTreeSet<String>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut named = BTreeSet::new();
    for rule in rules {
        let mut say = |what| found.push(Finding::new(TABLE, rule.line, what));
        if rule.tests.is_empty() {
            say("the rule has no test: name one, or state that the rule does not hold".into());
        }
        for test in &rule.tests {
            if !known.contains(*test) {
                say(format!("there is no test `{test}`"));
            }
            if !named.insert(*test) {
                say(format!("`{test}` is named twice: each rule needs its own test"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
| rule | test |
|---|---|
| one | `a` |
| two | `b`, `c` |
| three | |

| not | rules |
|---|---|
| at all | `z` |
";

    #[test]
    fn rows_of_tables_of_tests_are_rules() {
        let tests: Vec<_> = rules(TEXT).into_iter().map(|rule| rule.tests).collect();
        assert_eq!(tests, [vec!["a"], vec!["b", "c"], vec![]]);
    }

    #[test]
    fn each_case_of_the_rules_in_c_is_named() {
        let cases = cases("static void a(void)\n\tT(a),\n\tT(q),\n");
        assert_eq!(cases, [(2, "a"), (3, "q")]);
        let found = unnamed("rules.c", &cases, &rules(TEXT));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 3);
        let misuses = "#define M(name, line) {}\n\tM(a, \"said\"),\n\tE(b, \"\"),\n";
        assert_eq!(super::cases(misuses), [(2, "a"), (3, "b")]);
    }

    #[test]
    fn a_rule_needs_a_test_that_exists_and_is_its_own() {
        let known = ["a", "b"].map(String::from).into();
        let lines = |text| -> Vec<u32> {
            let broken = broken(&rules(text), &known);
            broken.into_iter().map(|it| it.line).collect()
        };
        assert_eq!(lines(TEXT), [4, 5]);
        assert_eq!(lines("| rule | test |\n|--|--|\n| 1 | `a` |\n| 2 | `a` |"), [4]);
        assert!(lines("| rule | test |\n|--|--|\n| 1 | `a` |").is_empty());
    }
}
