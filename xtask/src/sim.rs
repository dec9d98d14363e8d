//! `cargo xtask sim`: builds the program of crates/sim for the simulated machine, and runs it.

use std::process::ExitCode;

use crate::report::Failure;
use crate::test::with_cfg;
use crate::workspace::Workspace;

/// Returns the flags of a build for the simulated machine: linked at a fixed address, so that runs are the same each time.
pub fn flags(variable: &impl Fn(&str) -> Option<String>) -> (String, String) {
    let (name, flags) = with_cfg("sim", variable);
    let separator = if name == "RUSTFLAGS" { ' ' } else { '\x1f' };
    (name, format!("{flags}{separator}-Crelocation-model=static"))
}

pub fn main(workspace: &Workspace, args: &[String]) -> Result<ExitCode, Failure> {
    let target = workspace.metadata(false)?.target_directory.join("sim");
    let (name, flags) = flags(&|name| std::env::var(name).ok());
    let mut build = workspace.command("cargo");
    build.args([
        "build",
        "--quiet",
        "--release",
        "-p",
        "afterwork-sim",
        "--target-dir",
    ]);
    build.arg(&target).env(name, flags);
    let status = build
        .status()
        .map_err(|error| Failure::new(format!("cargo: {error}")))?;
    if !status.success() {
        return Err(Failure::new("the program does not build"));
    }
    let program = target.join("release/afterwork-sim").display().to_string();
    let status = workspace.command(&program).args(args).status();
    let status = status.map_err(|error| Failure::new(format!("{program}: {error}")))?;
    Ok(ExitCode::from(status.code().map_or(2, |code| code as u8)))
}
