//! Writes the saved machines (`tests/fixtures`) from their descriptions in `tests/machines/mod.rs`.

#[path = "../tests/machines/mod.rs"]
mod machines;

use std::path::Path;
use std::{fs, io};

const README: &str = "\
# Saved machines

Each directory is laid out as `/sys` and contains the files that `Topology::from_sysfs` reads. They
are written by `cargo run -p afterwork-topology --example make_fixtures`. Do not edit them by hand: a
test compares them with `tests/machines/mod.rs`.

| machine | special features |
|---|---|
";

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut readme = README.to_owned();
    for machine in machines::all() {
        let dir = root.join(machine.name);
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        for (path, text) in &machine.files {
            let path = dir.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(path, text)?;
        }
        readme += &format!("| {} | {} |\n", machine.name, machine.about);
        println!("{}: {} files", machine.name, machine.files.len());
    }
    fs::write(root.join("README.md"), readme)
}
