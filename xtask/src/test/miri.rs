//! The layer that interprets the code and checks every access of it.
//!
//! Miri needs a nightly toolchain. Where there is none, or it cannot be had, the layer is skipped and says
//! so: the rest of the workspace is built by the stable toolchain alone.

use super::plan::Step;
use crate::report::Failure;
use crate::workspace::{NIGHTLY, OF_OUR_TOOLCHAIN, Workspace, output};

/// A package to interpret.
struct Row {
    package: &'static str,
    /// Names of unit tests (or parts of them) to run; all when empty. What makes a system call that Miri
    /// does not know, or starts hundreds of threads, stays out.
    tests: &'static [&'static str],
    /// For the interpreter.
    flags: &'static str,
}

/// To interpret more, add a row.
const ROWS: &[Row] = &[
    Row {
        package: "afterwork-mpscq",
        tests: &[],
        flags: "",
    },
    Row {
        package: "afterwork",
        tests: &["::policy::", "::active::"],
        flags: "",
    },
    // Blocks go between threads by raw pointers; the clock is asked for.
    Row {
        package: "afterwork",
        tests: &[
            "task_work::tests::items_",
            "task_work::tests::posters_that_",
            "task_work::tests::no_more_blocks_",
        ],
        flags: "-Zmiri-disable-isolation",
    },
];

/// Returns one command a row; `variable` reads the environment.
pub fn steps(variable: &impl Fn(&str) -> Option<String>) -> Vec<Step> {
    let step = |row: &Row| {
        let own = variable("MIRIFLAGS").unwrap_or_default();
        let flags = format!("{own} {}", row.flags).trim().to_string();
        let words = format!(
            "rustup run {NIGHTLY} cargo miri test --no-fail-fast --lib -p {} --",
            row.package
        );
        Step {
            env: if flags.is_empty() {
                Vec::new()
            } else {
                vec![("MIRIFLAGS".into(), flags)]
            },
            without: OF_OUR_TOOLCHAIN,
            ..Step::new(&words, row.tests.iter().map(|test| test.to_string()))
        }
    };
    ROWS.iter().map(step).collect()
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
    fn flags_of_the_user_come_first() {
        for step in steps(&|_| Some("-Zmiri-seed=1".into())) {
            assert!(step.env[0].1.starts_with("-Zmiri-seed=1"));
        }
    }
}
