//! `cargo xtask capi`: tests or installs the C interface.
//!
//! The tests in `crates/capi/tests` and `crates/preload/tests` are Rust programs that call the C
//! compiler. `cargo xtask test` runs them as well, but this chore also shows their output. It then
//! installs the library below `target`, and builds the examples with each available compiler, with
//! pkg-config and with CMake. `--install` and `--uninstall` accept any folder.

mod examples;
mod install;

use std::path::{Component, Path};
use std::process::ExitCode;

use self::install::Plan;
use crate::report::{Failure, exit_code};
use crate::workspace::{Workspace, status};

const PACKAGE: &str = "afterwork-capi";
const PRELOAD: &str = "afterwork-preload";

pub fn main(workspace: &Workspace, args: &[String]) -> Result<ExitCode, Failure> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] => {
            let tests = ["test", "-p", PACKAGE, "-p", PRELOAD, "--tests"];
            if !cargo(workspace, &[&tests[..], &["--", "--nocapture"]].concat())? {
                return Ok(ExitCode::FAILURE);
            }
            let prefix = workspace.metadata()?.target_directory.join("capi");
            if !install::into(workspace, &Plan::of(&prefix))? {
                return Ok(ExitCode::FAILURE);
            }
            examples::build(workspace, &prefix)
        }
        [what @ ("--install" | "--uninstall"), folder, ref options @ ..] => {
            let mut plan = Plan::of(Path::new(folder));
            let mut options = options.iter();
            while let Some(option) = options.next() {
                match *option {
                    "--libdir" => plan.libraries = below(options.next().ok_or_else(usage)?)?,
                    "--debug" if what == "--install" => plan.debug = true,
                    _ => return Err(usage()),
                }
            }
            if what == "--uninstall" {
                install::remove(plan.prefix, plan.libraries)?;
                return Ok(ExitCode::SUCCESS);
            }
            Ok(exit_code(install::into(workspace, &plan)?))
        }
        _ => Err(usage()),
    }
}

/// Returns `folder` if it is a relative path that stays below the prefix.
fn below(folder: &str) -> Result<&str, Failure> {
    let mut parts = Path::new(folder).components();
    if folder.is_empty() || !parts.all(|part| matches!(part, Component::Normal(_))) {
        return Err(Failure::new(format!(
            "`--libdir` takes a folder below DIR, such as `lib64`, not `{folder}`"
        )));
    }
    Ok(folder)
}

fn usage() -> Failure {
    Failure::new(
        "`capi` takes no argument, `--install DIR [--libdir DIR] [--debug]`, or `--uninstall DIR [--libdir DIR]`",
    )
}

fn cargo(workspace: &Workspace, args: &[&str]) -> Result<bool, Failure> {
    Ok(status(workspace.command("cargo").args(args))?.success())
}

#[cfg(test)]
mod tests {
    use super::below;

    #[test]
    fn a_folder_of_libraries_is_below_the_prefix() {
        assert_eq!(below("lib/x86_64-linux-gnu").ok(), Some("lib/x86_64-linux-gnu"));
        for wrong in ["", "/usr/lib", "..", "../lib", "lib/../..", "./lib"] {
            assert!(below(wrong).is_err(), "{wrong}");
        }
    }
}
