//! `cargo xtask sim`: builds the program in crates/sim for the simulated machine, and runs it.
//!
//! With a nightly compiler, the machine can also see plain accesses. The compiler instruments them
//! as for ThreadSanitizer, and the machine provides the runtime (`plain.rs`).

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::report::{Failure, talk};
use crate::sanitize::host_that_has;
use crate::test::with_cfg;
use crate::workspace::{Workspace, output, status};

/// The crates that run on the machine: the part of each name after `afterwork`. The accesses of the
/// machine itself are not instrumented.
const SHOWN: [&str; 10] =
    ["", "-base", "-item", "-limit", "-mailbox", "-mpscq", "-percpu", "-rcu", "-sim", "-workqueue"];
pub const PLAIN: &str = "sim-plain";

/// Returns the flags for the simulated machine. A fixed address makes runs reproducible.
pub fn flags(variable: &impl Fn(&str) -> Option<String>) -> (String, String) {
    let (name, flags) = with_cfg("sim", variable);
    let separator = if name == "RUSTFLAGS" { ' ' } else { '\x1f' };
    (name, format!("{flags}{separator}-Crelocation-model=static"))
}

/// Returns the arguments that make nightly's Cargo instrument plain accesses in a release build.
pub fn shows_plain() -> impl Iterator<Item = String> {
    const FLAGS: &str = r#"["-Zsanitizer=thread","-Zexternal-clangrt","-Cunsafe-allow-abi-mismatch=sanitizer","-Cllvm-args=-tsan-instrument-func-entry-exit=0"]"#;
    let of = |name| format!("--config=profile.release.package.afterwork{name}.rustflags={FLAGS}");
    ["-Zprofile-rustflags".into()].into_iter().chain(SHOWN.map(of))
}

pub fn can_show_plain(workspace: &Workspace) -> bool {
    host_that_has(workspace, false).is_some()
}

/// Builds the program, and returns its path. If `env` is `None`, this is a native build.
fn build(
    workspace: &Workspace,
    target: &Path,
    env: Option<(String, String)>,
    is_plain_shown: bool,
) -> Result<PathBuf, Failure> {
    let mut build = match is_plain_shown {
        true => workspace.nightly("cargo"),
        false => workspace.command("cargo"),
    };
    build.args(["build", "--quiet", "--release", "-p", "afterwork-sim"]);
    build.args(is_plain_shown.then(shows_plain).into_iter().flatten());
    build.arg("--target-dir").arg(target).envs(env);
    if !status(&mut build)?.success() {
        return Err(Failure::new("cannot build afterwork-sim"));
    }
    Ok(target.join("release/afterwork-sim"))
}

/// Measures this machine with a native build of the program. Returns the path of the results.
fn measure(workspace: &Workspace, target: &Path) -> Result<PathBuf, Failure> {
    let program = build(workspace, target, None, false)?;
    let measured = output(workspace.command(&program.to_string_lossy()).arg("measure"))?;
    let file = target.join("measured.json");
    std::fs::write(&file, measured).map_err(Failure::because(file.display()))?;
    Ok(file)
}

/// Runs the program. `--calibrate FILE` measures this machine, or uses `--measured FILE`.
pub fn main(workspace: &Workspace, args: &[String]) -> Result<ExitCode, Failure> {
    let target = workspace.metadata()?.target_directory;
    let env = flags(&|name| std::env::var(name).ok());
    let no_file = || Failure::new("--measured needs a file");
    let calibrates = args.iter().any(|arg| arg == "--calibrate");
    let (mut is_wanted, mut measured, mut forwarded) = (true, None, Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--no-plain" => is_wanted = false,
            "--measured" if calibrates => measured = Some(args.next().ok_or_else(no_file)?.clone()),
            _ => forwarded.push(arg.clone()),
        }
    }
    let is_plain_shown = is_wanted && can_show_plain(workspace);
    if is_wanted && !is_plain_shown {
        talk("sim: no nightly toolchain: plain accesses are not charged\n");
    }
    let folder = target.join(if is_plain_shown { PLAIN } else { "sim" });
    let simulator = build(workspace, &folder, Some(env), is_plain_shown)?;
    if let Some(at) = forwarded.iter().position(|arg| arg == "--calibrate") {
        let measured = match measured {
            Some(file) => file,
            None => measure(workspace, &target)?.display().to_string(),
        };
        forwarded.insert(at + 1, measured);
    }
    let status = status(workspace.command(&simulator.to_string_lossy()).args(&forwarded))?;
    Ok(ExitCode::from(status.code().map_or(2, |code| code as u8)))
}
