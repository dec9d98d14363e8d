//! Checks that every layer names only what lies below it.
//!
//! Four rules, over Cargo.toml files and over the code (comments and strings do not count):
//!
//! 1. A crate names only crates of a lower rank.
//! 2. Inside `crates/afterwork/src` and `crates/lab/src` a folder names only the folders that its row allows, and names them
//!    through the folder, not through what `lib.rs` re-exports.
//! 3. What stands above `sync` reaches atomics, locks, threads, clocks and system calls through it alone:
//!    one direct use, and a model no longer sees what the program does.
//! 4. No more than five files of a crate name each other in a circle ([`cycles`]); what breaks that today has a row that may
//!    only fall.
//!
//! The tables are in [`rules`]. Exempt:
//!
//! - `tests/`, `benches/` and `examples/`: they drive the models and the real machine (their dependencies
//!   are still held to rule 1);
//! - code that only a test build has (`#[cfg(test)]`, inline or in a file of its own), from the part of
//!   rule 3 about `std::thread` and `std::sync`: a unit test may start threads and share things with them.
//!   Clocks and system calls stay forbidden there, a unit test has no use for either;
//! - doc examples, which are comments: users write `std::thread` too.

mod check;
mod cycles;
mod manifests;
mod rules;

use crate::report::{Failure, Findings};
use crate::source::outline;
use crate::workspace::Workspace;

/// Finds every place that names what it must not.
pub fn check(workspace: &Workspace) -> Result<Findings, Failure> {
    let metadata = workspace.metadata(false)?;
    let mut broken = manifests::check(&metadata.packages, |path| workspace.relative(path));
    let mut files = Vec::new();
    for name in workspace.rust_files()? {
        let Some(place) = check::Place::of(&name) else {
            continue;
        };
        let outline = workspace.read(&name, outline)?;
        files.push(check::File {
            name,
            place,
            outline,
        });
    }
    broken.extend(check::check(&files));
    broken.extend(cycles::check(&files));
    let looked_at = format!(
        "{} manifests, {} source files",
        metadata.packages.len(),
        files.len()
    );
    Ok(Findings { broken, looked_at })
}
