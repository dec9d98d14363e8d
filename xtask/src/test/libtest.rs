//! Parses the output of `cargo test` line by line.

use std::ops::AddAssign;

/// The reported reason if a program ended without a result, and its command reports no error.
const NO_RESULT: &str = "ended without a result";

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    pub passed: u64,
    /// The number of tests that failed or did not end.
    pub failed: u64,
    pub skipped: u64,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

#[derive(Debug, Default)]
pub struct Reader {
    pub count: Count,
    pub failures: Vec<String>,
    prefix: Option<String>,
    running: Option<Running>,
    is_disk_full: bool,
}

#[derive(Debug)]
struct Running {
    name: String,
    /// The results of single tests. They are used if a program does not print a sum.
    seen: Count,
    has_result: bool,
}

enum Line {
    Starts(String),
    Passes,
    Fails(String),
    Ends(Count),
}

impl Reader {
    pub fn new(prefix: Option<&str>) -> Self {
        Self { prefix: prefix.map(str::to_string), ..Self::default() }
    }

    /// Parses a line. When a program that contains tests ends, returns its summary.
    pub fn read(&mut self, line: &str) -> Option<String> {
        self.is_disk_full |= line.contains("No space left on device");
        match (parse(line)?, &mut self.running) {
            (Line::Starts(name), _) => {
                self.end_running(Some(NO_RESULT));
                self.is_disk_full = false;
                let name =
                    self.prefix.as_ref().map_or(name.clone(), |prefix| format!("{prefix} {name}"));
                self.running = Some(Running { name, seen: Count::default(), has_result: false });
            }
            (Line::Passes, Some(running)) => running.seen.passed += 1,
            (Line::Fails(name), Some(running)) => {
                running.seen.failed += 1;
                self.failures.push(format!("{}: {name}", running.name));
            }
            (Line::Ends(count), Some(running)) => {
                self.count += count;
                running.has_result = true;
                return (count != Count::default())
                    .then(|| format!("{}: {}", running.name, in_words(count)));
            }
            (_, None) => {}
        }
        None
    }

    /// Ends the parsing for an interrupted command. Results from before the interrupt count.
    pub fn interrupt(&mut self) {
        self.end_running(None);
    }

    /// Ends the parsing. `why` is the error of the command, if there is one.
    pub fn finish(&mut self, why: Option<&str>) {
        self.end_running(why.or(Some(NO_RESULT)));
        if let Some(why) = why
            && self.count.failed == 0
        {
            self.count.failed = 1;
            let hint = match self.is_disk_full {
                true => "the disk is full: No space left on device",
                false => "did it build?",
            };
            self.failures.push(format!("{why} before any test failed; {hint}"));
        }
    }

    /// If a program has no result, its finished tests count. If it crashed or was stopped, `why` is
    /// the reason, and it also counts as one failure without a name. If it was interrupted, `why`
    /// is `None`.
    fn end_running(&mut self, why: Option<&str>) {
        let Some(running) = self.running.take().filter(|it| !it.has_result) else { return };
        self.count += running.seen;
        if let Some(why) = why {
            self.count.failed += 1;
            self.failures.push(format!("{}: {why}", running.name));
        }
    }
}

/// Formats a count. Omits zeros, except for the number of passed tests.
pub fn in_words(count: Count) -> String {
    let mut text = format!("{} passed", count.passed);
    for (number, word) in [(count.failed, "failed"), (count.skipped, "skipped")] {
        if number > 0 {
            text += &format!(", {number} {word}");
        }
    }
    text
}

fn parse(line: &str) -> Option<Line> {
    if let Some(rest) = line.strip_prefix("test result: ") {
        return Some(Line::Ends(result(rest)));
    }
    if let Some(rest) = line.strip_prefix("test ") {
        return match rest.rsplit_once(" ... ")? {
            (_, "ok") => Some(Line::Passes),
            (name, "FAILED") => Some(Line::Fails(name.to_string())),
            _ => None,
        };
    }
    let cargo = line.trim_start();
    // Cargo indents its own lines. A test that prints the same words does not.
    if cargo.len() == line.len() {
        return None;
    }
    if let Some(rest) = cargo.strip_prefix("Running ") {
        return Some(Line::Starts(program(rest)?));
    }
    cargo.strip_prefix("Doc-tests ").map(|name| Line::Starts(name.to_string()))
}

/// Returns the program of `unittests src/lib.rs (target/debug/deps/sync-0123)`.
fn program(rest: &str) -> Option<String> {
    let (source, path) = rest.strip_suffix(')')?.split_once(" (")?;
    match source.strip_prefix("unittests ") {
        Some(_) => {
            let file = path.rsplit('/').next()?;
            Some(file.rsplit_once('-').map_or(file, |(name, _)| name).to_string())
        }
        None => Some(source.to_string()),
    }
}

/// Parses `ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; …`.
fn result(text: &str) -> Count {
    let mut count = Count::default();
    let numbers = text.split_once(". ").map_or(text, |(_, numbers)| numbers);
    for part in numbers.split(';') {
        let mut words = part.split_whitespace();
        let number = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        match words.next() {
            Some("passed") => count.passed = number,
            Some("failed") => count.failed = number,
            Some("ignored") => count.skipped = number,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, why: Option<&str>) -> (Reader, Vec<String>) {
        let mut reader = Reader::new(None);
        let shown = text.lines().filter_map(|line| reader.read(line)).collect();
        reader.finish(why);
        (reader, shown)
    }

    fn count(passed: u64, failed: u64, skipped: u64) -> Count {
        Count { passed, failed, skipped }
    }

    const FAILED: Option<&str> = Some("ended with exit status: 101");

    const GOOD: &str = "\
   Compiling afterwork-sync v0.1.0 (/home/u/crates/sync)
     Running unittests src/lib.rs (target/debug/deps/afterwork_sync-0f3a)

running 3 tests
test futex::tests::a ... ok
test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.00s

     Running tests/prop/main.rs (target/debug/deps/prop-77)
test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s
   Doc-tests afterwork_sync
test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn counts_are_added_up() {
        let (reader, shown) = read(GOOD, None);
        assert_eq!(reader.count, count(7, 0, 1));
        assert_eq!(shown, ["afterwork_sync: 2 passed, 1 skipped", "tests/prop/main.rs: 5 passed"]);
        assert!(reader.failures.is_empty());
    }

    #[test]
    fn failing_tests_are_named_with_their_program() {
        let text = "     Running unittests src/lib.rs (t/deps/a-1)\ntest x::y - should panic ... FAILED\n\
                    test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out";
        let (reader, _) = read(text, FAILED);
        assert_eq!(reader.count, count(1, 1, 0));
        assert_eq!(reader.failures, ["a: x::y - should panic"]);
    }

    #[test]
    fn a_program_that_crashes_is_a_failure() {
        let text = "     Running unittests src/lib.rs (t/deps/a-1)\n     Running tests/b.rs (t/deps/b-1)\n\
                    test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        let (reader, _) = read(text, FAILED);
        assert_eq!(reader.count, count(1, 1, 0));
        assert_eq!(reader.failures, ["a: ended without a result"]);
    }

    #[test]
    fn build_error_or_full_disk_is_a_failure_with_its_reason() {
        let full = "error: could not write a.rlib: No space left on device (os error 28)\nerror: could not compile";
        for (text, reason) in [
            ("error[E0425]: cannot find value", "did it build?"),
            (full, "the disk is full: No space left on device"),
        ] {
            let (reader, _) = read(text, FAILED);
            assert_eq!(reader.count.failed, 1);
            assert!(reader.failures[0].ends_with(reason), "{:?}", reader.failures);
        }
    }

    #[test]
    fn crash_keeps_earlier_output() {
        let tests = "test a ... ok\ntest b ... ok\ntest c ... FAILED";
        let text = format!("     Running tests/b.rs (t/deps/b-1)\n{tests}");
        let (reader, _) = read(&text, Some("ended with signal: 11"));
        assert_eq!(reader.count, count(2, 2, 0));
        assert_eq!(reader.failures, ["tests/b.rs: c", "tests/b.rs: ended with signal: 11"]);
    }

    #[test]
    fn interrupted_program_is_not_blamed_for_missing_tests() {
        let mut reader = Reader::new(None);
        for line in
            ["     Running unittests src/lib.rs (t/deps/a-1)", "test a ... ok", "test b ... FAILED"]
        {
            reader.read(line);
        }
        reader.interrupt();
        reader.finish(None);
        assert_eq!(reader.count, count(1, 1, 0));
        assert_eq!(reader.failures, ["a: b"]);
    }

    #[test]
    fn output_of_tests_is_not_parsed_as_cargos() {
        let (reader, shown) =
            read("Running late (very)\ntests passed: 3\n  test result: ok. 9 passed", None);
        assert_eq!((reader.count, shown.len()), (Count::default(), 0));
    }

    #[test]
    fn a_model_is_named_with_its_crate() {
        let mut reader = Reader::new(Some("afterwork"));
        reader.read("     Running tests/loom/main.rs (t/deps/loom-1)");
        let shown = reader
            .read("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        assert_eq!(shown.as_deref(), Some("afterwork tests/loom/main.rs: 1 passed"));
    }
}
