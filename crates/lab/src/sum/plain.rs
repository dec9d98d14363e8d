//! Sums files where there is no io_uring: one work item a file, which opens, reads and hashes it.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Stdin};
use std::path::Path;

use afterwork::task_work::{Closed, Mailbox};
use afterwork::workqueue::Workqueue;
use sha2::{Digest as _, Sha256};

use super::line::Digest;
use super::order::InOrder;
use super::pipeline::{BUFFER_BYTES, Sink, Summed};
use super::walk::Found;
use crate::exit::Stop;

/// Files under way at once for each that is hashed: the next one is there when a worker comes for it.
const AHEAD: usize = 8;

/// Sums what `wanted` brings, `jobs` files at once, on workers of `queue`.
///
/// # Errors
///
/// What `sink` returns.
pub fn sum(
    jobs: usize,
    queue: &Workqueue,
    wanted: &mut dyn Iterator<Item = Found>,
    sink: &mut Sink<'_>,
) -> Result<(), Stop> {
    let mut home = Mailbox::new();
    let mut done = InOrder::new();
    let (mut nr_begun, mut nr_away) = (0, 0);
    let mut is_more = true;
    while is_more || nr_away > 0 {
        while is_more && nr_away < jobs * AHEAD {
            let Some(found) = wanted.next() else {
                is_more = false;
                break;
            };
            let (number, poster) = (nr_begun, home.poster());
            nr_begun += 1;
            nr_away += 1;
            queue.spawn_detached(move || {
                let sum = found.error.map_or_else(|| sum_here(&found.path), Err);
                let path = found.path;
                // Refused only when the owner has given up, and then nobody wants it.
                let _ = poster.post((number, Summed { path, sum }));
            });
        }
        if nr_away > 0 {
            home.wait(1).map_err(|Closed| gone())?;
        }
        for (number, summed) in home.drain(jobs * AHEAD) {
            nr_away -= 1;
            done.put(number, summed);
        }
        while let Some(summed) = done.take() {
            sink(summed)?;
        }
    }
    Ok(())
}

fn gone() -> Stop {
    Stop::CouldNotRun("the items that sum files ended without a result".into())
}

/// Sums one file by way of a buffer that this thread keeps.
fn sum_here(path: &Path) -> io::Result<Digest> {
    thread_local! {
        static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER_BYTES]);
    }
    BUFFER.with_borrow_mut(|buffer| sum_of(path, buffer))
}

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
