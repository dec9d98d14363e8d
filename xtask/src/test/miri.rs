//! The layer that runs the code in an interpreter, which checks every memory access.
//!
//! Miri needs a nightly toolchain. If it is not available, the layer is skipped with a message,
//! because the rest of the workspace needs only the stable toolchain.

use super::plan::Step;
use crate::report::{Failure, talk};
use crate::workspace::{NIGHTLY, OF_OUR_TOOLCHAIN, Workspace, output};

struct Row {
    package: &'static str,
    target: &'static str,
    /// The skipped tests, or parts of their names, separated by blanks, each with the reason.
    without: &'static [(&'static str, &'static str)],
    flags: &'static str,
}

/// With isolation, Miri rejects system calls that it does not emulate, such as opening procfs, and
/// time advances with the interpreted code. The emulated machine has two CPUs.
const COMMON: &str = "-Zmiri-isolation-error=hide -Zmiri-num-cpus=2";

/// The two aliasing models. The code must satisfy both.
const MODELS: [&str; 2] = ["", "-Zmiri-tree-borrows"];

/// RCU's threads never exit, so Miri cannot distinguish their memory from leaked memory.
const THREADS_STAY: &str = "-Zmiri-ignore-leaks";

/// This is ten times the default preemption rate, so that threads may be preempted between any two
/// lines.
const OFTEN: &str = "-Zmiri-ignore-leaks -Zmiri-preemption-rate=0.1";

/// The reason for skipping tests of texts, of large machines and of properties of safe code. They
/// would take minutes.
const WITHOUT_POINTERS: &str = "long, in code without threads and pointers";

/// Disables backtraces. Many tests panic on purpose, and the interpreter needs seconds for each
/// backtrace.
const NO_BACKTRACES: (&str, &str) = ("RUST_BACKTRACE", "0");

/// Builds rows of a package, a target and flags, and the skipped tests, each with the reason.
macro_rules! rows {
    ($($package:literal $target:literal, $flags:expr $(, $tests:literal: $why:expr)*;)*) => {
        &[$(Row { package: $package, target: $target, flags: $flags, without: &[$(($tests, $why)),*] }),*]
    };
}

/// The test programs. To interpret another one, add a row.
const ROWS: &[Row] = rows! {
    "afterwork-mpscq" "--lib", "";
    "afterwork-sync" "--lib", "",
        "system::fork::": "Miri does not fork",
        "system::process::": "reads procfs",
        "system::shared_file::": "maps a file",
        "system::start::": "signals and threads of the C library, which Miri does not support";
    "afterwork-base" "--lib", THREADS_STAY,
        "numbered:: params::": WITHOUT_POINTERS,
        "page::": "files, mappings and procfs";
    "afterwork-rcu" "--lib", THREADS_STAY,
        "node:: srcu::slots::tests::every_thread_index_has_its_own_slot": WITHOUT_POINTERS;
    "afterwork-percpu" "--lib", THREADS_STAY;
    "afterwork-mailbox" "--lib", THREADS_STAY,
        "worker_tests::": "safe code on a mailbox; a mailbox's own tests are in";
    "afterwork-item" "--lib", THREADS_STAY,
        "list::tests:: head::tests::": WITHOUT_POINTERS;
    "afterwork-limit" "--lib", THREADS_STAY,
        "tree:: active::tests::seats_match_a_model_that_lists_the_holders": WITHOUT_POINTERS;
    "afterwork-workqueue" "--lib", THREADS_STAY,
        "observe::tally::histogram_tests:: pools::kick_and_cull:: flushing::drain:: time::interval::": WITHOUT_POINTERS;
    "afterwork-raw" "--lib", THREADS_STAY;
    "afterwork" "--test miri", OFTEN;
};

/// Returns a command for each row and model. `variable` reads the environment.
pub fn steps(variable: &impl Fn(&str) -> Option<String>) -> Vec<Step> {
    let own = variable("MIRIFLAGS").unwrap_or_default();
    let step = |row: &Row, model: &str| {
        // The user's own flags come last, so that they take precedence.
        let flags = [COMMON, row.flags, model, &own];
        let flags: Vec<_> = flags.into_iter().filter(|part| !part.is_empty()).collect();
        let words = format!(
            "rustup run {NIGHTLY} cargo miri test --no-fail-fast -p {} {} --",
            row.package, row.target
        );
        let without = row.without.iter().flat_map(|(tests, _)| tests.split(' '));
        let without = without.flat_map(|test| ["--skip".to_string(), test.to_string()]);
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
    rows.flat_map(|row| MODELS.map(|model| step(row, model))).collect()
}

/// Ensures that Miri can run, and installs it if it is missing. The error is the reason in one
/// line.
pub fn make_ready(workspace: &Workspace) -> Result<(), Failure> {
    let run = || output(workspace.nightly("cargo").args(["miri", "--version"])).map(drop);
    run().or_else(|_| {
        talk(&format!("installing miri and rust-src for {NIGHTLY}\n"));
        workspace.add_to_nightly(&["miri", "rust-src"])?;
        run()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_run_under_both_aliasing_models_with_the_nightly() {
        let steps = steps(&|_| None);
        let is_tree = |step: &&Step| step.env[0].1.contains("tree-borrows");
        assert_eq!(steps.iter().filter(is_tree).count() * 2, steps.len());
        for step in steps {
            assert!(step.without.contains(&"RUSTUP_TOOLCHAIN"));
            let shown = step.shown();
            let run = "rustup run nightly cargo miri test";
            assert!(shown.contains(run), "{shown}");
        }
    }

    #[test]
    fn flags_of_the_user_come_last() {
        for step in steps(&|_| Some("-Zmiri-seed=1".into())) {
            assert!(step.env[0].1.ends_with("-Zmiri-seed=1"));
        }
    }

    #[test]
    fn excluded_tests_exist_and_have_a_reason() {
        for row in ROWS {
            let folder = row.package.strip_prefix("afterwork-").unwrap_or(row.package);
            let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates");
            let rows = row.without.iter();
            for (test, why) in rows.flat_map(|row| row.0.split(' ').map(|test| (test, row.1))) {
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
