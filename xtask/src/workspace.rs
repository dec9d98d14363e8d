//! The workspace as Cargo and git see it: packages, targets, dependencies, files.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::report::Failure;

/// The toolchain for what the stable one cannot do; rustup's name for it.
pub const NIGHTLY: &str = "nightly";

/// Set for us by the toolchain that runs us; another toolchain must not see it.
pub const OF_OUR_TOOLCHAIN: &[&str] = &["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTDOC"];

/// Where the workspace is.
#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
}

/// What `cargo metadata` says, as far as a chore asks.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// The workspace's own packages.
    pub packages: Vec<Package>,
    /// Where builds go.
    pub target_directory: PathBuf,
}

/// A package.
#[derive(Clone, Debug, Deserialize)]
pub struct Package {
    /// Its name in the registry.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its Cargo.toml.
    pub manifest_path: PathBuf,
    /// What it depends on.
    pub dependencies: Vec<Dependency>,
    /// What can be built from it.
    pub targets: Vec<Target>,
}

/// A dependency as the manifest states it.
#[derive(Clone, Debug, Deserialize)]
pub struct Dependency {
    /// The package depended on.
    pub name: String,
}

/// A library, program or test.
#[derive(Clone, Debug, Deserialize)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// `lib`, `bin`, `test`, …
    pub kind: Vec<String>,
    /// Features without which it is not built.
    #[serde(default, rename = "required-features")]
    pub required_features: Vec<String>,
}

impl Target {
    /// Returns `true` if this is a test target, `tests/NAME.rs` or `tests/NAME/main.rs`.
    pub fn is_test(&self) -> bool {
        self.kind.iter().any(|kind| kind == "test")
    }
}

impl Workspace {
    /// Finds the workspace that this program belongs to.
    pub fn find() -> Result<Self, Failure> {
        // Cargo says where the package is now; the compiled-in place may be that of another clone.
        let package = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = package.parent().unwrap_or(&package).to_path_buf();
        if root.join("Cargo.toml").is_file() {
            Ok(Self { root })
        } else {
            Err(Failure::new(format!(
                "no workspace at {}; run this by `cargo xtask`",
                root.display()
            )))
        }
    }

    /// Returns the folder of the workspace.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Starts a command in the root, without input.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).stdin(Stdio::null());
        command
    }

    /// Asks Cargo about the packages of the workspace.
    pub fn metadata(&self) -> Result<Metadata, Failure> {
        let mut command = self.command("cargo");
        command.args(["metadata", "--format-version", "1", "--no-deps"]);
        let text = output(&mut command)?;
        serde_json::from_slice(&text).map_err(|error| {
            Failure::new(format!(
                "cargo metadata said what is not understood: {error}"
            ))
        })
    }

    /// Lists the files that git tracks or would track, as paths from the root, sorted.
    pub fn files(&self) -> Result<Vec<String>, Failure> {
        let list = output(self.command("git").args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]))?;
        let mut files: Vec<String> = String::from_utf8_lossy(&list)
            .split('\0')
            .filter(|name| !name.is_empty() && self.root.join(name).is_file())
            .map(str::to_string)
            .collect();
        files.sort();
        files.dedup();
        Ok(files)
    }

    /// Lists the Rust files among [`files`](Self::files).
    pub fn rust_files(&self) -> Result<Vec<String>, Failure> {
        let mut files = self.files()?;
        files.retain(|name| name.ends_with(".rs"));
        Ok(files)
    }

    /// Reads a file; nothing when it is not text.
    pub fn text(&self, file: &str) -> Result<Option<String>, Failure> {
        let bytes = std::fs::read(self.root.join(file))
            .map_err(|error| Failure::new(format!("cannot read {file}: {error}")))?;
        Ok(String::from_utf8(bytes).ok())
    }
}

/// Runs `command` to its end and returns what it wrote to stdout.
pub fn output(command: &mut Command) -> Result<Vec<u8>, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command
        .output()
        .map_err(|error| Failure::new(format!("cannot run {program}: {error}")))?;
    if done.status.success() {
        return Ok(done.stdout);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let first = said
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it said nothing");
    Err(Failure::new(format!(
        "{program} failed ({}): {first}",
        done.status
    )))
}
