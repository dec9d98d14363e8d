//! The layer that interprets the code and checks every access of it.
//!
//! Miri needs a nightly toolchain. Where there is none, or it cannot be had, the layer is skipped and says
//! so: the rest of the workspace is built by the stable toolchain alone.

use super::plan::Step;
use crate::report::{Failure, talk};
use crate::workspace::{NIGHTLY, OF_OUR_TOOLCHAIN, Workspace, output};

/// A program of tests to interpret.
struct Row {
    package: &'static str,
    target: &'static str,
    /// Tests, or parts of their names, that stay out, each with the reason.
    without: &'static [(&'static str, &'static str)],
    /// How many orders of events it is run in. One, unless threads meet in it.
    nr_seeds: u32,
    /// For the interpreter.
    flags: &'static str,
}

/// Where the system is not asked for what Miri does not emulate: an open of procfs is refused, and time passes as code
/// is interpreted. Two CPUs, as the machines of the tests have.
const COMMON: &str = "-Zmiri-isolation-error=hide -Zmiri-num-cpus=2";

/// The two sets of rules about what a reference claims; code is to keep both.
const MODELS: [&str; 2] = ["", "-Zmiri-tree-borrows"];

/// RCU's threads live as long as the process, so Miri cannot tell what they hold from a leak.
const THREADS_STAY: &str = "-Zmiri-ignore-leaks";

/// Ten times as often as is usual: what goes wrong between two threads does so between two lines.
const OFTEN: &str = "-Zmiri-ignore-leaks -Zmiri-preemption-rate=0.1";

/// Texts, large machines and properties that are tried hundreds of times: minutes, and safe code.
const WITHOUT_POINTERS: &str = "long, in code without threads and pointers";

/// Many tests panic on purpose, and each backtrace takes the interpreter seconds.
const NO_BACKTRACES: (&str, &str) = ("RUST_BACKTRACE", "0");

/// To interpret more, add a row.
const ROWS: &[Row] = &[
    Row {
        package: "afterwork-mpscq",
        target: "--lib",
        without: &[],
        nr_seeds: 1,
        flags: "",
    },
    Row {
        package: "afterwork-sync",
        target: "--lib",
        without: &[
            ("fork::", "Miri does not fork"),
            ("process::", "reads procfs"),
            ("shared_file::", "maps a file"),
            (
                "start::",
                "signals and threads of the C library, of which Miri knows none",
            ),
        ],
        nr_seeds: 1,
        flags: "",
    },
    Row {
        package: "afterwork-base",
        target: "--lib",
        without: &[
            ("numbered::", WITHOUT_POINTERS),
            ("page::", "files, mappings and procfs"),
            ("params::", WITHOUT_POINTERS),
        ],
        nr_seeds: 1,
        flags: THREADS_STAY,
    },
    Row {
        package: "afterwork-rcu",
        target: "--lib",
        without: &[
            ("node::", WITHOUT_POINTERS),
            (
                "srcu::slots::tests::every_seat_has_a_place_of_its_own",
                WITHOUT_POINTERS,
            ),
        ],
        nr_seeds: 1,
        flags: THREADS_STAY,
    },
    Row {
        package: "afterwork-percpu",
        target: "--lib",
        without: &[],
        nr_seeds: 1,
        flags: THREADS_STAY,
    },
    Row {
        package: "afterwork-mailbox",
        target: "--lib",
        without: &[(
            "worker_tests::",
            "safe code on a mailbox; a mailbox's own tests are in",
        )],
        nr_seeds: 1,
        flags: THREADS_STAY,
    },
    Row {
        package: "afterwork-workqueue",
        target: "--lib",
        without: &[
            ("item::list::tests::", WITHOUT_POINTERS),
            ("limit::account::", WITHOUT_POINTERS),
            (
                "limit::active::tests::seats_are_given_as_by_a_list_of_who_has_them",
                WITHOUT_POINTERS,
            ),
            ("observe::tally::histogram_tests::", WITHOUT_POINTERS),
            ("pools::kick_and_cull::", WITHOUT_POINTERS),
            ("flushing::rounds::", WITHOUT_POINTERS),
            ("item::head::tests::", WITHOUT_POINTERS),
            ("time::interval::", WITHOUT_POINTERS),
        ],
        nr_seeds: 1,
        flags: THREADS_STAY,
    },
    Row {
        package: "afterwork-raw",
        target: "--lib",
        without: &[],
        nr_seeds: 1,
        flags: THREADS_STAY,
    },
    Row {
        package: "afterwork",
        target: "--test miri",
        without: &[],
        nr_seeds: 1,
        flags: OFTEN,
    },
];

/// Returns a command for each row and model; `variable` reads the environment.
pub fn steps(variable: &impl Fn(&str) -> Option<String>) -> Vec<Step> {
    let own = variable("MIRIFLAGS").unwrap_or_default();
    let step = |row: &Row, model: &str| {
        let seeds = match row.nr_seeds {
            // The user's own seeds come last, and count.
            1 => String::new(),
            nr => format!("-Zmiri-many-seeds=0..{nr}"),
        };
        let flags = [COMMON, row.flags, model, &seeds, &own];
        let flags: Vec<_> = flags.into_iter().filter(|part| !part.is_empty()).collect();
        let words = format!(
            "rustup run {NIGHTLY} cargo miri test --no-fail-fast -p {} {} --",
            row.package, row.target
        );
        let without = row.without.iter();
        let without = without.flat_map(|(test, _)| ["--skip".to_string(), test.to_string()]);
        Step {
            env: vec![
                ("MIRIFLAGS".into(), flags.join(" ")),
                (NO_BACKTRACES.0.into(), NO_BACKTRACES.1.into()),
            ],
            without: OF_OUR_TOOLCHAIN,
            ..Step::new(&words, without)
        }
    };
    let rows = ROWS.iter();
    rows.flat_map(|row| MODELS.map(|model| step(row, model)))
        .collect()
}

/// Sees to it that Miri can run, installing it once where rustup can.
///
/// # Errors
///
/// Why it cannot, in one line.
pub fn make_ready(workspace: &Workspace) -> Result<(), Failure> {
    let run = |words: &str| {
        let mut words = words.split_whitespace();
        let mut command = workspace.command(words.next().unwrap_or_default());
        command.args(words);
        for name in OF_OUR_TOOLCHAIN {
            command.env_remove(name);
        }
        output(&mut command)
    };
    let version = format!("rustup run {NIGHTLY} cargo miri --version");
    if run(&version).is_err() {
        talk(&format!(
            "installs miri and rust-src for {NIGHTLY}, if it is there\n"
        ));
        run(&format!(
            "rustup component add --toolchain {NIGHTLY} miri rust-src"
        ))?;
        run(&version)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_toolchain_does_not_see_ours() {
        for step in steps(&|_| None) {
            assert!(step.without.contains(&"RUSTUP_TOOLCHAIN"));
            assert!(
                step.shown().contains("rustup run nightly cargo miri test"),
                "{}",
                step.shown()
            );
        }
    }

    #[test]
    fn flags_of_the_user_come_last() {
        for step in steps(&|_| Some("-Zmiri-seed=1".into())) {
            assert!(step.env[0].1.ends_with("-Zmiri-seed=1"));
        }
    }

    #[test]
    fn every_row_is_interpreted_under_both_models() {
        let steps = steps(&|_| None);
        let is_tree = |step: &&Step| step.env[0].1.contains("tree-borrows");
        assert_eq!(steps.iter().filter(is_tree).count() * 2, steps.len());
    }

    #[test]
    fn what_stays_out_is_there_and_has_a_reason() {
        for row in ROWS {
            let folder = row
                .package
                .strip_prefix("afterwork-")
                .unwrap_or(row.package);
            let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates");
            for (test, why) in row.without {
                let (module, name) = test.split_once("::tests::").unwrap_or((test, ""));
                let module = module.trim_end_matches("::").replace("::", "/");
                let path = format!("{crates}/{folder}/src/{module}");
                let is_there = if name.is_empty() {
                    std::fs::exists(format!("{path}.rs")).unwrap() || std::fs::exists(path).unwrap()
                } else {
                    [format!("{path}.rs"), format!("{path}/tests.rs")]
                        .iter()
                        .filter_map(|path| std::fs::read_to_string(path).ok())
                        .any(|text| text.contains(&format!("fn {name}(")))
                };
                assert!(is_there && !why.is_empty(), "{test}");
            }
        }
    }
}
