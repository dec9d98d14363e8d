//! Sums one file by plain calls: where there is no io_uring, and to compare with.

use std::fs::File;
use std::io::{self, Read, Stdin};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::line::Digest;

/// Sums one file, or standard input for `-`, by way of `buffer`.
///
/// # Errors
///
/// What the system says to opening or reading it.
pub fn sum_of(path: &Path, buffer: &mut [u8]) -> io::Result<Digest> {
    enum Source {
        File(File),
        Input(Stdin),
    }
    let mut source = match path {
        path if path.as_os_str() == "-" => Source::Input(io::stdin()),
        path => Source::File(File::open(path)?),
    };
    let mut hasher = Sha256::new();
    loop {
        let read = match &mut source {
            Source::File(file) => file.read(buffer),
            Source::Input(input) => input.read(buffer),
        };
        match read {
            Ok(0) => return Ok(hasher.finalize().into()),
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
