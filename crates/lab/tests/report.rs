//! Pages of runs, made as a user makes them and opened in a browser where there is one.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const TINY: [&str; 8] = [
    "bench",
    "workqueue",
    "--producers",
    "2",
    "--items",
    "64",
    "--repeat",
    "2",
];

fn afterwork(root: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_afterwork"))
        .current_dir(root)
        .args(args)
        .output()
        .expect("the command starts")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("the command speaks UTF-8")
}

/// A tiny run in `run.jsonl` with its page in `run.html`.
fn run() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let output = afterwork(
        root.path(),
        &[&TINY[..], &["--json", "--report", "run.html"]].concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(output.stderr));
    fs::write(root.path().join("run.jsonl"), output.stdout).unwrap();
    root
}

#[test]
fn a_page_made_at_once_is_the_page_made_from_the_records() {
    let root = run();
    let output = afterwork(root.path(), &["report", "run.jsonl", "-o", "again.html"]);
    assert_eq!(output.status.code(), Some(0));
    let [one, again] =
        ["run.html", "again.html"].map(|name| fs::read_to_string(root.path().join(name)).unwrap());
    assert_eq!(one, again);
    assert!(
        one.starts_with("<!DOCTYPE html>") && !one.contains("http://") && !one.contains("https://")
    );
    for word in [
        "Verdict",
        "All claims",
        "Download afterwork-run.jsonl",
        "afterwork bench workqueue --producers 2",
        "n = 2",
        " UTC, ",
    ] {
        assert!(one.contains(word), "{word}");
    }
    let verdict = one.find("Verdict").unwrap();
    let chart = one.find("<figure").unwrap();
    assert!(verdict < chart && one.find("All claims</h2>").unwrap() > chart);
    for link in one.split("href=\"#").skip(1) {
        let name = link.split('"').next().unwrap();
        assert!(
            one.contains(&format!("id=\"{name}\"")),
            "{name} leads nowhere"
        );
    }
    assert!(!one.contains("<script"));
}

#[test]
fn two_runs_are_compared_case_by_case() {
    let root = run();
    let output = afterwork(
        root.path(),
        &["report", "run.jsonl", "run.jsonl", "-o", "-"],
    );
    let page = text(output.stdout);
    for word in [
        "Two runs of the lab",
        "one-at-a-time",
        "times better",
        "too few repetitions",
        "0 are better in the second, 0 worse",
    ] {
        assert!(page.contains(word), "{word}");
    }
    assert!(!page.contains("different machines"));
}

#[test]
fn where_a_page_is_to_go_is_looked_at_before_anything_is_measured() {
    let root = tempfile::tempdir().unwrap();
    for (args, word) in [
        (
            ["--report", "nosuch/run.html"].as_slice(),
            "nosuch/run.html",
        ),
        (&["--report", "-", "--json"], "both want standard output"),
    ] {
        let output = afterwork(root.path(), &[&TINY[..], args].concat());
        let err = text(output.stderr);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(
            output.stdout.is_empty() && err.contains(word) && err.lines().count() == 1,
            "{err}"
        );
    }
}

#[test]
fn a_page_on_standard_output_is_alone_there() {
    let root = tempfile::tempdir().unwrap();
    let output = afterwork(
        root.path(),
        &[&TINY[..], &["--cases", "batch-1000", "--report", "-"]].concat(),
    );
    assert_eq!(output.status.code(), Some(0));
    let page = text(output.stdout);
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    assert!(text(output.stderr).contains("in words: our best"));
}

#[test]
fn what_is_no_run_is_refused_in_one_line() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("text"), "hello\n").unwrap();
    for (args, word) in [
        (["report", "nosuch"], "nosuch"),
        (["report", "text"], "afterwork bench --json"),
    ] {
        let output = afterwork(root.path(), &args);
        assert_eq!(output.status.code(), Some(2));
        let err = text(output.stderr);
        assert!(
            err.starts_with("error: ") && err.contains(word) && err.lines().count() == 1,
            "{err}"
        );
    }
    assert!(!root.path().join("afterwork-report.html").exists());
}

/// Opens the page in a frame of each width and says what is there; only this page has a script.
const PROBE: &str = r#"<!DOCTYPE html><meta charset="utf-8"><body><script>
const said = [];
addEventListener("error", event => said.push("error " + event.message));
async function look(width) {
  const frame = document.createElement("iframe");
  frame.width = width; frame.height = 3000; frame.src = "run.html";
  await new Promise(done => { frame.onload = done; document.body.append(frame); });
  const inside = frame.contentDocument;
  const bars = [...inside.querySelectorAll("figure.bars")];
  const empty = bars.filter(plot => ![...plot.querySelectorAll(".fill")].some(bar => bar.getBoundingClientRect().width > 1));
  const curves = [...inside.querySelectorAll("figure.curves")];
  const flat = curves.filter(plot => ![...plot.querySelectorAll("polyline")].some(line => line.points.numberOfItems > 2));
  const bare = bars.filter(plot => !plot.querySelector(".legend") || plot.querySelectorAll(".axis span").length < 2)
    .concat(curves.filter(plot => !plot.querySelector(".legend span") || plot.querySelectorAll(".axis span").length < 2
      || plot.querySelectorAll(".y span").length < 5));
  const lost = [...inside.querySelectorAll('a[href]')].filter(it => it.hash && !inside.getElementById(it.hash.slice(1)));
  const verdict = inside.querySelector(".verdict").getBoundingClientRect();
  const below = width > 1000 && verdict.top > 700 ? 1 : 0;
  const small = [...inside.querySelectorAll("main *")].filter(it => it.checkVisibility() && it.textContent
    && parseFloat(frame.contentWindow.getComputedStyle(it).fontSize) < 11);
  said.push(`width ${width}: bars ${bars.length} empty ${empty.length}, curves ${curves.length} flat ${flat.length}, `
    + `overflow ${Math.max(0, inside.documentElement.scrollWidth - width)}, small ${small.length}`
    + `, bare ${bare.length}, lost ${lost.length}, below ${below}`);
}
(async () => { await look(400); await look(1400); document.title = "done"; document.body.textContent = said.join("\n"); })();
</script>"#;

#[test]
fn a_browser_shows_every_plot_on_narrow_and_wide_screens() {
    let root = run();
    fs::write(root.path().join("probe.html"), PROBE).unwrap();
    let profile = root.path().join("profile");
    let shown = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .args([
            "--allow-file-access-from-files",
            "--virtual-time-budget=20000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}/probe.html", root.path().display()))
        .output();
    let Ok(shown) = shown else {
        return afterwork_lab::talk::say("not opened in a browser: there is no chromium");
    };
    let page = text(shown.stdout);
    for width in [400, 1400] {
        let start = page
            .find(&format!("width {width}: "))
            .unwrap_or_else(|| panic!("nothing said of {width}: {page}"));
        let said = page[start..].lines().next().unwrap_or_default();
        let said = said.split('<').next().unwrap_or_default();
        let number = |word: &str| -> usize {
            let after = said
                .split(&format!("{word} "))
                .nth(1)
                .unwrap_or_else(|| panic!("{word}: {said}"));
            let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap_or_else(|_| panic!("{word}: {said}"))
        };
        assert!(number("bars") >= 4 && number("curves") >= 2, "{said}");
        for nothing in [
            "empty", "flat", "overflow", "small", "bare", "lost", "below",
        ] {
            assert_eq!(number(nothing), 0, "{nothing}: {said}");
        }
    }
    assert!(!page.contains("error "), "{page}");
}
