//! Tests of the report pages. The pages are created as a user would create them, and opened in a
//! browser if there is one.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use support::{assert_fails, text};
use tempfile::TempDir;

#[path = "../../top/tests/support/mod.rs"]
mod support;

const TINY: &str = "bench workqueue --producers 2 --items 64 --repeat 2";

fn command(root: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_afterwork-lab"));
    command.current_dir(root).args(line.split(' '));
    command
}

/// Returns the output of a command line that succeeds.
fn good(root: &Path, line: &str) -> Output {
    let output = command(root, line).output().expect("the command starts");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    output
}

/// Creates a folder with a tiny run in `run.jsonl` and its page in `run.html`.
fn run() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let output = good(root.path(), &format!("{TINY} --json --report run.html"));
    fs::write(root.path().join("run.jsonl"), output.stdout).unwrap();
    root
}

#[test]
fn page_of_a_run_equals_the_page_of_its_records() {
    let root = run();
    good(root.path(), "report run.jsonl -o again.html");
    let [one, again] =
        ["run.html", "again.html"].map(|name| fs::read_to_string(root.path().join(name)).unwrap());
    assert_eq!(one, again);
    assert!(one.starts_with("<!DOCTYPE html>"));
    assert!(!one.contains("http://") && !one.contains("https://"));
    for word in [
        "Verdict",
        "All claims",
        "Download afterwork-run.jsonl",
        "afterwork-lab bench workqueue --producers 2",
        "n\u{a0}=\u{a0}2",
        " UTC, ",
    ] {
        assert!(one.contains(word), "{word}");
    }
    let verdict = one.find("Verdict").unwrap();
    let chart = one.find("<figure").unwrap();
    assert!(verdict < chart && one.find("All claims</h2>").unwrap() > chart);
    for link in one.split("href=\"#").skip(1) {
        let name = link.split('"').next().unwrap();
        assert!(one.contains(&format!("id=\"{name}\"")), "{name} leads nowhere");
    }
    assert!(!one.contains("<script"));
}

#[test]
fn path_of_the_page_is_checked_before_measuring() {
    let root = tempfile::tempdir().unwrap();
    for (args, word) in [
        ("--report nosuch/run.html", "nosuch/run.html"),
        ("--report - --json", "both write to standard output"),
    ] {
        assert_fails(&mut command(root.path(), &format!("{TINY} {args}")), word);
    }
}

#[test]
fn page_on_standard_output_is_the_only_output() {
    let root = tempfile::tempdir().unwrap();
    let output = good(root.path(), &format!("{TINY} --cases batch-1000 --report -"));
    let page = text(&output.stdout);
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    assert!(text(&output.stderr).contains("in words: ours against"));
}

#[test]
fn file_without_a_run_is_rejected_in_one_line() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("text"), "hello\n").unwrap();
    fs::write(root.path().join("later"), "{\"schema\":999}\n").unwrap();
    for (file, word) in [
        ("nosuch", "nosuch"),
        ("text", "afterwork-lab bench --json"),
        ("/bin/true", "/bin/true: not the run of a bench"),
        ("later", "version 999, this command reads version 4: create the page with"),
    ] {
        assert_fails(&mut command(root.path(), &format!("report {file}")), word);
    }
    assert!(!root.path().join("afterwork-report.html").exists());
}

/// A page that opens `run.html` in frames of several widths and reports their contents.
const PROBE: &str = include_str!("probe.html");

#[test]
fn browser_shows_every_plot_in_all_widths_and_themes() {
    is_shown_whole(run().path(), 4);
}

#[test]
fn a_browser_shows_the_run_of_all_benches_that_readme_quotes() {
    let root = tempfile::tempdir().unwrap();
    let record = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/figures/bench.jsonl");
    good(root.path(), &format!("report {record} -o run.html"));
    is_shown_whole(root.path(), 50);
}

/// Opens `run.html` of a folder with all sections unfolded. Checks for faults, and checks the
/// number of bars.
fn is_shown_whole(root: &Path, bars: usize) {
    fs::write(root.join("probe.html"), PROBE).unwrap();
    for scheme in SCHEMES {
        let Some(page) = browsed(root, scheme) else { return };
        for width in [360, 400, 1400] {
            let start = page.find(&format!("width {width}: {scheme}, "));
            let start = start.unwrap_or_else(|| panic!("{width} in {scheme}: {page}"));
            let said = page[start..].split(['\n', '<']).next().unwrap_or_default();
            let number = |word: &str| -> usize {
                let after = said.split(&format!("{word} ")).nth(1);
                let digits = after.and_then(|it| it.split(|c: char| !c.is_ascii_digit()).next());
                digits.and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("{word}: {said}"))
            };
            assert!(number("bars") >= bars, "{said}");
            for nothing in "pale squeezed empty overflow small bare lost below".split(' ') {
                assert_eq!(number(nothing), 0, "{nothing}: {said}");
            }
        }
        assert!(!page.contains("error "), "{page}");
    }
}

const SCHEMES: [&str; 2] = ["dark", "light"];

const HEADLESS: &str = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync \
    --allow-file-access-from-files --virtual-time-budget=20000 --dump-dom";

/// Opens `probe.html` of a folder and returns its report, or `None` if there is no browser.
fn browsed(root: &Path, scheme: &str) -> Option<String> {
    let number = u8::from(scheme == "light");
    let shown = Command::new("chromium")
        .args(HEADLESS.split(' '))
        .arg(format!("--blink-settings=preferredColorScheme={number}"))
        .arg(format!("--user-data-dir={}", root.join("profile").display()))
        .arg(format!("file://{}/probe.html", root.display()))
        .output();
    let missing = |_: &_| top::talk::say("not opened in a browser: chromium is missing");
    shown.inspect_err(missing).ok().map(|shown| text(&shown.stdout).to_owned())
}

/// Opens each diagram on a narrow screen. Reports any text that is cut off, too small, covered or
/// too pale.
const DIAGRAMS: &str = include_str!("diagrams.html");

#[test]
fn a_browser_shows_the_diagrams_of_the_book_in_light_and_dark() {
    let root = tempfile::tempdir().unwrap();
    let pictures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(pictures).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if name.ends_with(".svg") {
            fs::copy(entry.path(), root.path().join(&name)).unwrap();
            names.push(name);
        }
    }
    assert!(names.len() >= 4, "{names:?}");
    let probe = DIAGRAMS.replace("NAMES", &serde_json::to_string(&names).unwrap());
    fs::write(root.path().join("probe.html"), probe).unwrap();
    for scheme in SCHEMES {
        let Some(page) = browsed(root.path(), scheme) else { return };
        for name in &names {
            assert!(page.contains(&format!("{name}: {scheme}, good")), "{page}");
        }
    }
}
