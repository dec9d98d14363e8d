//! `cargo xtask fuzz`: tests the parsers of untrusted bytes with random input.
//!
//! The targets are in `fuzz/`, which no other build includes. They need rustup's nightly toolchain
//! and cargo-fuzz. If either is not available, the chore reports this and succeeds.

use std::process::ExitCode;

use crate::report::{Failure, skipped, talk};
use crate::workspace::{Workspace, output, status};

/// The targets, each with a file as initial input.
const TARGETS: &[(&str, &str)] = &[("page", "crates/top/src/top/stalled.page")];
const DEFAULT_MINUTES: f64 = 1.0;

pub fn main(workspace: &Workspace, args: &[String]) -> Result<ExitCode, Failure> {
    let seconds = seconds(args)?;
    if output(workspace.nightly("cargo").arg("--version")).is_err() {
        let hint = "`rustup toolchain install nightly` installs it";
        return Ok(skipped("fuzz", format!("no nightly toolchain; {hint}")));
    }
    if !can_fuzz(workspace) {
        talk("fuzz: installing cargo-fuzz\n");
        let mut install = workspace.command("cargo");
        let installed = output(install.args(["install", "--quiet", "--locked", "cargo-fuzz"]));
        if installed.is_err() || !can_fuzz(workspace) {
            return Ok(skipped("fuzz", "cannot install cargo-fuzz"));
        }
    }
    let builds = workspace.metadata()?.target_directory.join("fuzz");
    for (target, seed) in TARGETS {
        let mut run = workspace.nightly("cargo");
        run.args(["fuzz", "run", target, "--target-dir"])
            .arg(&builds)
            .arg("--")
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-seed_inputs={seed}"));
        if !status(&mut run)?.success() {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn can_fuzz(workspace: &Workspace) -> bool {
    output(workspace.nightly("cargo").args(["fuzz", "--version"])).is_ok()
}

fn seconds(args: &[String]) -> Result<u64, Failure> {
    let minutes = match args {
        [] => Some(DEFAULT_MINUTES),
        [option, value] if option == "--minutes" => value.parse().ok(),
        _ => None,
    };
    let seconds = minutes.map(|minutes| (minutes * 60.0).ceil());
    match seconds {
        // Zero would mean no limit.
        Some(seconds) if (1.0..1e9).contains(&seconds) => Ok(seconds as u64),
        _ => Err(Failure::new("`fuzz` takes `--minutes M`, a number above zero".to_string())),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn minutes_are_a_number_above_zero() {
        let seconds = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_string()).collect();
            super::seconds(&args).ok()
        };
        assert_eq!(seconds(&[]), Some(60));
        assert_eq!(seconds(&["--minutes", "0.1"]), Some(6));
        for wrong in ["0", "-1", "NaN", "1e300", "x"] {
            assert_eq!(seconds(&["--minutes", wrong]), None, "{wrong}");
        }
        assert_eq!(seconds(&["--minutes"]), None);
    }
}
