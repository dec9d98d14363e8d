//! `cargo xtask asm NAME`: the code that the compiler made of functions of the lab, for proofs that rest on it.

use std::process::{Command, ExitCode, Stdio};

use crate::report::{Failure, data, talk};
use crate::workspace::{Workspace, output};

/// Prints each function of the released command whose name holds what is asked for.
pub fn main(workspace: &Workspace, args: &[String]) -> Result<ExitCode, Failure> {
    let [name] = args else {
        return Err(Failure::new(
            "`asm` takes a part of a function's name, such as `percpu::list::taken_by`".to_string(),
        ));
    };
    let built = workspace
        .command("cargo")
        .args(["build", "--quiet", "--release", "-p", "afterwork-lab"])
        .status()
        .map_err(|error| Failure::new(format!("cannot run cargo: {error}")))?;
    if !built.success() {
        return Ok(ExitCode::FAILURE);
    }
    let binary = workspace.metadata(false)?.target_directory;
    let mut objdump = Command::new("objdump");
    objdump
        .args(["--disassemble", "--demangle", "--no-show-raw-insn"])
        .arg(binary.join("release/afterwork"))
        .stderr(Stdio::null());
    let listing = String::from_utf8_lossy(&output(&mut objdump)?).into_owned();
    let found = functions(&listing, name);
    if found.is_empty() {
        talk(&format!(
            "asm: no function is called like `{name}`; an inlined one is found in its caller\n"
        ));
        return Ok(ExitCode::FAILURE);
    }
    found.iter().for_each(|text| data(&format!("{text}\n\n")));
    Ok(ExitCode::SUCCESS)
}

/// Returns the functions of a listing whose names hold `name`: they stand apart by empty lines, and begin with
/// `address <name>:`.
fn functions<'a>(listing: &'a str, name: &str) -> Vec<&'a str> {
    let is_wanted = |text: &&str| {
        let head = text.lines().next().unwrap_or_default();
        let named = head
            .split_once(" <")
            .and_then(|(_, rest)| rest.strip_suffix(">:"));
        named.is_some_and(|named| named.contains(name))
    };
    listing
        .split("\n\n")
        .map(str::trim)
        .filter(is_wanted)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\nfile:     file format elf64\n\nDisassembly of section .text:\n\n\
        0000000000001000 <lab::list::taken_by>:\n    1000:\tmov    0x4(%r12),%eax\n\n\
        0000000000002000 <lab::run>:\n    2000:\tcall   1000 <lab::list::taken_by>\n";

    #[test]
    fn a_function_is_found_by_its_own_name_and_not_by_whom_it_calls() {
        let found = functions(LISTING, "list::taken_by");
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with("mov    0x4(%r12),%eax"));
        assert!(functions(LISTING, "nosuch").is_empty());
    }
}
