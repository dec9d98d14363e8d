//! Follows docs/tutorial.md in an empty folder next to this workspace: runs its commands and
//! programs, and compares their output.

use std::fs;
use std::path::{Path, PathBuf};

use crate::report::{Failure, Finding, Findings};
use crate::workspace::Workspace;

const PAGE: &str = "docs/tutorial.md";
const PROGRAM: &str = "src/main.rs";
/// The name that the page uses for a clone of this workspace.
const CLONE: &str = "afterwork";

/// A block of the page, with the number of its first line.
#[derive(Debug, PartialEq)]
enum Step<'a> {
    Write(u32, String),
    /// Run a command, which must print this output.
    Run(u32, &'a str, String),
}

pub fn check(workspace: &Workspace) -> Result<Findings, Failure> {
    let page = workspace.page(PAGE)?;
    let steps = steps(&page);
    let target = workspace.metadata()?.target_directory.join("tutorial");
    let root = std::env::temp_dir().join(format!("afterwork-tutorial-{}", std::process::id()));
    let failed = Failure::because(format!("cannot create {}", root.display()));
    fs::create_dir(&root).map_err(&failed)?;
    let done = std::os::unix::fs::symlink(workspace.root(), root.join(CLONE))
        .map_err(&failed)
        .and_then(|()| follow(workspace, &steps, &root, &target));
    // The folder is no longer needed: the page contains the sources, and the build is in the target
    // directory.
    let _ = fs::remove_dir_all(&root);
    let wrong = done?.map(|(line, wrong)| Finding::new(PAGE, line, wrong));
    let looked_at = format!("{} steps", steps.len());
    Ok(Findings { broken: wrong.into_iter().collect(), looked_at })
}

fn follow(
    workspace: &Workspace,
    steps: &[Step<'_>],
    root: &Path,
    target: &Path,
) -> Result<Option<(u32, String)>, Failure> {
    let mut here: PathBuf = root.to_owned();
    for step in steps {
        match step {
            Step::Write(line, text) => {
                if let Err(error) = fs::write(here.join(PROGRAM), text) {
                    return Ok(Some((*line, format!("cannot write {PROGRAM}: {error}"))));
                }
            }
            Step::Run(line, command, prints) => {
                if let Some(folder) = command.strip_prefix("cd ") {
                    here.push(folder);
                    continue;
                }
                let mut words = command.split_whitespace();
                let program = words.next().unwrap_or_default();
                // Removes the caller's flags, because readers of the page do not have them.
                let output = workspace
                    .command(program)
                    .env_remove("RUSTFLAGS")
                    .args(words)
                    .current_dir(&here)
                    .env("CARGO_TARGET_DIR", target)
                    .output()
                    .map_err(Failure::because(format!("cannot run {program}")))?;
                let output_text = String::from_utf8_lossy(&output.stdout);
                if !output.status.success() {
                    let why = String::from_utf8_lossy(&output.stderr);
                    return Ok(Some((*line, format!("`{command}` failed: {why}"))));
                }
                if output_text != *prints {
                    let wrong = format!("printed {output_text:?} instead of {prints:?}");
                    return Ok(Some((*line, format!("`{command}` {wrong}"))));
                }
            }
        }
    }
    Ok(None)
}

fn steps(page: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    let mut lines = (1..).zip(page.lines());
    while let Some((line, text)) = lines.next() {
        let Some(info) = text.strip_prefix("```") else { continue };
        let block: Vec<&str> =
            lines.by_ref().map(|(_, text)| text).take_while(|text| *text != "```").collect();
        match info {
            "rust" => steps.push(Step::Write(line, block.join("\n") + "\n")),
            "console" => {
                for (below, text) in (line + 1..).zip(block) {
                    match (text.strip_prefix("$ "), steps.last_mut()) {
                        (Some(command), _) => steps.push(Step::Run(below, command, String::new())),
                        (None, Some(Step::Run(_, _, prints))) => *prints += &format!("{text}\n"),
                        (None, _) => {}
                    }
                }
            }
            _ => {}
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_commands_and_outputs_are_distinguished() {
        let page = "# A\n```console\n$ cd b\n$ run\none\ntwo\n```\ntext\n```rust\nfn main() {}\n```\n```text\nno step\n```\n";
        let run = |line, command, prints: &str| Step::Run(line, command, prints.into());
        let program = Step::Write(9, "fn main() {}\n".into());
        let expected = [run(3, "cd b", ""), run(4, "run", "one\ntwo\n"), program];
        assert_eq!(steps(page), expected);
    }
}
