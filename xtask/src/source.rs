//! A line-based parser for Rust source, which is sufficient for the checks of this crate.
//!
//! It relies on the format of `cargo fmt`: attributes, comments and function heads each begin on a
//! new line, and unit tests are at the end of a file.

/// Returns the line comments of `text` that begin at the start of a line, with their line numbers.
pub fn comments(text: &str) -> impl Iterator<Item = (u32, &str)> {
    let lines = (1..).zip(text.lines());
    lines.filter_map(|(line, text)| {
        let text = text.trim_start().strip_prefix("//")?;
        (!text.starts_with(['/', '!'])).then_some((line, text))
    })
}

/// Returns the code of `text` without comments and tests, which become empty lines.
pub fn code(text: &str) -> String {
    let mut code = String::new();
    // The indentation of the test-only item that is being skipped.
    let mut test_item = None;
    for line in text.lines() {
        let item = line.trim_start();
        let indentation = line.len() - item.len();
        if item.starts_with("#[cfg(test)]") || item.starts_with("#[cfg(all(test,") {
            test_item = Some(indentation);
        } else if test_item.is_none() {
            code += line.split("//").next().unwrap_or_default();
        } else if test_item == Some(indentation) && item.ends_with([';', ',', '}']) {
            test_item = None;
        }
        code.push('\n');
    }
    code
}

pub fn is_rust(file: &str) -> bool {
    file.ends_with(".rs")
}

pub fn is_test(file: &str) -> bool {
    file.ends_with("tests.rs") || file.starts_with("tests/") || file.contains("/tests/")
}

/// Returns the names of all functions in `text`, or only of those with `#[test]`.
pub fn functions(text: &str, only_tests: bool) -> Vec<&str> {
    let mut is_test = false;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim_start) {
        is_test |= line.starts_with("#[test]");
        let Some(name) = function(line) else { continue };
        if std::mem::take(&mut is_test) || !only_tests {
            found.push(name);
        }
    }
    found
}

fn function(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let is_head = before.is_empty() || before.ends_with(' ') && !before.contains("//");
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    (is_head && end > 0).then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_keep_text_and_line() {
        let found = comments("x\n// one\n/// no\n//! no\n    //   two\nfn f() {} // no");
        assert!(found.eq([(2, " one"), (5, "   two")]));
    }

    #[test]
    fn code_is_without_its_tests() {
        let text = "a // b\n#[cfg(test)]\nuse c;\nd\n#[cfg(all(test, not(loom)))]\nmod tests {\n    e;\n}\nf";
        assert_eq!(code(text), "a \n\n\nd\n\n\n\n\nf\n");
    }

    #[test]
    fn test_functions_differ_from_helpers() {
        let text = "#[test]\n#[should_panic]\nfn a() {}\n    pub fn b<T>() {}\n// fn c()\n#[test]\npub fn d() {}\nfn(e)";
        assert_eq!(functions(text, true), ["a", "d"]);
        assert_eq!(functions(text, false), ["a", "b", "d"]);
    }
}
