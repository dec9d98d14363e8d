//! Checks the table of rules in docs/conformance.md: each rule has a test of its own, and the test exists.
//!
//! A rule is a row of a table whose last column is headed `test`. That column names at least one test function, in
//! backticks. A test is named once: one that serves two rules would not tell which of them broke.

use std::collections::BTreeSet;

use crate::order;
use crate::report::{Failure, Finding, Findings};
use crate::workspace::Workspace;

const TABLE: &str = "docs/conformance.md";

/// Finds rules without a test, tests that are not there, and tests that serve two rules.
pub fn check(workspace: &Workspace) -> Result<Findings, Failure> {
    let text = workspace
        .text(TABLE)?
        .ok_or_else(|| Failure::new(format!("{TABLE} is no text")))?;
    let rules = rules(&text);
    Ok(Findings {
        broken: broken(&rules, &order::tests(workspace)?),
        looked_at: format!("{} rules", rules.len()),
    })
}

/// A row of the table.
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
            // What stands between backticks is every second part.
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
            say("a rule without a test: name one, or say in the text that it does not hold".into());
        }
        for test in &rule.tests {
            if !known.contains(*test) {
                say(format!("there is no test `{test}`"));
            }
            if !named.insert(*test) {
                say(format!(
                    "`{test}` is named twice: each rule has a test of its own"
                ));
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
    fn a_rule_needs_a_test_that_exists_and_is_its_own() {
        let known = ["a", "b"].map(String::from).into();
        let lines = |text| -> Vec<u32> {
            let broken = broken(&rules(text), &known);
            broken.into_iter().map(|it| it.line).collect()
        };
        assert_eq!(lines(TEXT), [4, 5]);
        assert_eq!(
            lines("| rule | test |\n|--|--|\n| 1 | `a` |\n| 2 | `a` |"),
            [4]
        );
        assert!(lines("| rule | test |\n|--|--|\n| 1 | `a` |").is_empty());
    }
}
