//! The workspace as seen by Cargo and git: packages, targets, dependencies, files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use serde::Deserialize;

use crate::report::Failure;

pub const NIGHTLY: &str = "nightly";

/// The variables that the stable toolchain sets. Another toolchain must not see them.
pub const OF_OUR_TOOLCHAIN: &[&str] = &["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTDOC"];

#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
}

/// The part of the output of `cargo metadata` that the chores use.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    pub packages: Vec<Package>,
    pub target_directory: PathBuf,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub manifest_path: PathBuf,
    pub dependencies: Vec<Dependency>,
    pub targets: Vec<Target>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Dependency {
    pub name: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Target {
    pub name: String,
    /// `lib`, `bin`, `test`, …
    pub kind: Vec<String>,
    #[serde(default, rename = "required-features")]
    pub required_features: Vec<String>,
}

#[cfg(test)]
impl Package {
    pub fn with_tests(name: &str, tests: &[&str]) -> Self {
        let target = |name: &&str| serde_json::json!({"name": name, "kind": ["test"]});
        let targets: Vec<_> = tests.iter().map(target).collect();
        let package = serde_json::json!({
            "name": name, "version": "", "manifest_path": "", "dependencies": [], "targets": targets,
        });
        serde_json::from_value(package).expect("it has all fields")
    }
}

impl Target {
    /// Returns `true` if this is a test target, `tests/NAME.rs` or `tests/NAME/main.rs`.
    pub fn is_test(&self) -> bool {
        self.kind.iter().any(|kind| kind == "test")
    }
}

impl Workspace {
    pub fn find() -> Result<Self, Failure> {
        // This uses the location at run time, because the location at compile time may be that of
        // another clone.
        let package = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = package.parent().unwrap_or(&package).to_path_buf();
        if !root.join("Cargo.toml").is_file() {
            let root = root.display();
            return Err(Failure::new(format!("no workspace at {root}; run this as `cargo xtask`")));
        }
        Ok(Self { root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).stdin(Stdio::null());
        command
    }

    /// Creates a command of rustup, which does not see the variables of our toolchain.
    pub fn rustup(&self) -> Command {
        let mut command = self.command("rustup");
        OF_OUR_TOOLCHAIN.iter().for_each(|name| _ = command.env_remove(name));
        command
    }

    pub fn nightly(&self, program: &str) -> Command {
        let mut command = self.rustup();
        command.args(["run", NIGHTLY, program]);
        command
    }

    pub fn add_to_nightly(&self, components: &[&str]) -> Result<(), Failure> {
        let mut command = self.rustup();
        command.args(["component", "add", "--toolchain", NIGHTLY]).args(components);
        output(&mut command).map(drop)
    }

    pub fn metadata(&self) -> Result<Metadata, Failure> {
        let mut command = self.command("cargo");
        command.args(["metadata", "--format-version", "1", "--no-deps"]);
        let text = output(&mut command)?;
        serde_json::from_slice(&text)
            .map_err(Failure::because("cannot parse the output of cargo metadata"))
    }

    /// Returns the files that git tracks or would track. The result is sorted, and its paths are
    /// relative to the root.
    pub fn files(&self) -> Result<Vec<String>, Failure> {
        const LIST: &str = "ls-files -z --cached --others --exclude-standard";
        let list = output(self.command("git").args(LIST.split(' ')))?;
        let list = String::from_utf8_lossy(&list);
        let is_file = |name: &&str| !name.is_empty() && self.root.join(name).is_file();
        let files: BTreeSet<_> = list.split('\0').filter(is_file).map(str::to_string).collect();
        Ok(files.into_iter().collect())
    }

    /// Returns the files for which `is_wanted` is true and that are text, each with its text.
    pub fn texts(
        &self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<(String, String)>, Failure> {
        let mut texts = Vec::new();
        for file in self.files()?.into_iter().filter(|file| is_wanted(file)) {
            let text = self.text(&file)?;
            texts.extend(text.map(|text| (file, text)));
        }
        Ok(texts)
    }

    /// Reads a file. Returns `None` if it is not text.
    pub fn text(&self, file: &str) -> Result<Option<String>, Failure> {
        let bytes = std::fs::read(self.root.join(file))
            .map_err(Failure::because(format!("cannot read {file}")))?;
        Ok(String::from_utf8(bytes).ok())
    }

    /// Reads a file that must be text.
    pub fn page(&self, file: &str) -> Result<String, Failure> {
        let text = self.text(file)?;
        text.ok_or_else(|| Failure::new(format!("{file} is no text")))
    }
}

pub fn status(command: &mut Command) -> Result<ExitStatus, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.status().map_err(Failure::because(format!("cannot run {program}")))
}

pub fn output(command: &mut Command) -> Result<Vec<u8>, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(Failure::because(format!("cannot run {program}")))?;
    if done.status.success() {
        return Ok(done.stdout);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
    Err(Failure::new(format!("{program} failed ({}): {first}", done.status)))
}
