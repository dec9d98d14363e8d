//! Prints the SHA-256 checksums of all files below directories, as `sha256sum` does.
//!
//! The program is [`sums`]; `afterwork-lab bench sum` measures that very file.
//! `cargo run --release -p afterwork-lab --example sum -- DIR…`

mod sums;

use std::error::Error;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sums::{Summed, sum};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let roots: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let mut out = BufWriter::new(io::stdout().lock());
    let mut exit = ExitCode::SUCCESS;
    sum(&roots, |Summed { path, sum }| {
        match sum {
            Ok(digest) => line(&mut out, &digest, &path)?,
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                exit = ExitCode::FAILURE;
            }
        }
        Ok(())
    })?;
    out.flush()?;
    Ok(exit)
}

fn line(out: &mut impl Write, digest: &sums::Digest, path: &Path) -> io::Result<()> {
    for byte in digest {
        write!(out, "{byte:02x}")?;
    }
    writeln!(out, "  {}", path.display())
}
