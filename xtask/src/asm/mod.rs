//! `cargo xtask asm`: shows or checks the machine code of the functions of `crates/probes`.
//!
//! `asm NAME` shows the code, and `asm --check` checks the claims in the table of `claims.rs`. Both
//! read the output of `objdump` for the release build. The claims apply to x86-64.

mod claims;
mod listing;

use std::process::{Command, ExitCode, Stdio};

use claims::{CLAIMS, broken};
use listing::{Function, functions};

use crate::report::{Failure, data, exit_code, skipped, talk};
use crate::workspace::{Workspace, output, status};

const PACKAGE: &str = "afterwork-probes";

pub fn main(workspace: &Workspace, args: &[String]) -> Result<ExitCode, Failure> {
    let [arg] = args else {
        return Err(Failure::new(
            "`asm` takes a part of a function's name, such as `percpu::on_demand`, or `--check`",
        ));
    };
    let checks = arg == "--check";
    if checks && !cfg!(target_arch = "x86_64") {
        return Ok(skipped("asm", "the claims are about x86-64"));
    }
    if output(Command::new("objdump").arg("--version")).is_err() {
        return Ok(skipped("asm", "objdump is missing; install binutils"));
    }
    let mut build = workspace.command("cargo");
    build.args(["build", "--quiet", "--release", "-p", PACKAGE]);
    if !status(&mut build)?.success() {
        return Ok(ExitCode::FAILURE);
    }
    let program = workspace.metadata()?.target_directory;
    let mut objdump = Command::new("objdump");
    objdump
        // This lists all symbols, because functions that the compiler merged share one piece of
        // code.
        .args(["--disassemble", "--demangle", "--no-show-raw-insn"])
        .arg("--show-all-symbols")
        .arg(program.join("release").join(PACKAGE))
        .stderr(Stdio::null());
    let text = String::from_utf8_lossy(&output(&mut objdump)?).into_owned();
    let mut found = functions(&text, "afterwork_probes::");
    found.retain(Function::is_probe);
    Ok(if checks { check(&found) } else { show(&found, arg) })
}

fn show(found: &[Function], name: &str) -> ExitCode {
    let wanted = found.iter().filter(|function| function.is_called(name));
    let shown: Vec<String> = wanted.map(|function| format!("{function}\n")).collect();
    if shown.is_empty() {
        let names: Vec<&str> = found.iter().flat_map(|it| it.names.clone()).collect();
        talk(&format!(
            "asm: no function of crates/probes has `{name}` in its name; valid: {}\n",
            names.join(", ")
        ));
        return ExitCode::FAILURE;
    }
    shown.iter().for_each(|text| data(text));
    ExitCode::SUCCESS
}

fn check(found: &[Function]) -> ExitCode {
    let broken: Vec<String> = CLAIMS.iter().filter_map(|claim| broken(claim, found)).collect();
    broken.iter().for_each(|text| data(&format!("{text}\n")));
    match broken.len() {
        0 => data(&format!("asm: good ({} claims)\n", CLAIMS.len())),
        nr => talk(&format!("asm: {nr} claims are broken\n")),
    }
    exit_code(broken.is_empty())
}
