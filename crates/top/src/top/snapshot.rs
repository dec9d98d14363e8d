//! Reads one process: opens its page, verifies its owner, asks for an update, and reads the page.
//!
//! The page is not trusted. If it is rejected, the reason is one line for the user.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use afterwork::page::{ASKED_AT, MAX_BYTES, Page, pid_of};
use sync::shared_file::SharedFile;
use sync::{process, time};

use super::plain::plain;

/// The time within which a process must answer. A running process takes tens of microseconds. A
/// process that must wait for a CPU takes a few time slices. The value is an estimate.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(250);
/// The first pause between two checks for an answer, and the longest pause.
const PAUSE: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(5);
/// The maximum number of reads of a page that is being written.
const NR_TRIES: u32 = 20;

/// A process whose page is open.
#[derive(Debug)]
pub struct Watched {
    path: PathBuf,
    file: SharedFile,
    /// The PID in the name of the file, if it has one.
    pid: Option<u32>,
    buffer: Vec<u8>,
}

/// A request that was sent to a process.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The round that answers the request, or `None` if the process cannot be asked.
    wanted: Option<u64>,
    until: Instant,
}

/// The result of reading a process.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The page of the process.
    pub page: Page,
    /// `true` if the page was written for this request. If it is `false`, the process did not
    /// answer or cannot be asked.
    pub answered: bool,
    /// The age of the page.
    pub age: Duration,
}

/// The reason why there is no snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoSnapshot {
    /// The process has exited and left this page behind.
    Stale(String),
    /// The page is rejected.
    Refused(String),
}

impl NoSnapshot {
    /// Returns the reason in one line.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Stale(reason) | Self::Refused(reason) => reason,
        }
    }
}

fn refused(reason: impl ToString) -> NoSnapshot {
    NoSnapshot::Refused(reason.to_string())
}

impl Watched {
    /// Opens the page at `path`.
    ///
    /// # Errors
    ///
    /// Returns the reason why the page is rejected: it is a link, is not a file, belongs to another
    /// user, or is accessible to other users.
    pub fn open(path: &Path) -> Result<Self, NoSnapshot> {
        let file = SharedFile::open(path).map_err(refused)?;
        let (owner, mode) = file.owner_and_mode().map_err(refused)?;
        let me = process::user();
        if owner != me && me != 0 {
            return Err(refused(format!("it belongs to user {owner}")));
        }
        if mode & 0o077 != 0 {
            return Err(refused(format!("other users can access it: mode {mode:o}")));
        }
        let name = path.file_name().and_then(|name| name.to_str());
        Ok(Self {
            path: path.to_owned(),
            file,
            pid: name.and_then(pid_of),
            // The buffer has one byte more than the largest page, so that a longer file is
            // detected.
            buffer: vec![0; MAX_BYTES + 1],
        })
    }

    /// Returns `true` if the page belongs to a process that exists here under its PID.
    pub fn is_live(mut self) -> bool {
        self.read().is_ok_and(|page| self.check(&page).is_ok())
    }

    /// Asks the process to write its page, and returns the new page. If the process does not answer
    /// in time, returns the existing page.
    ///
    /// # Errors
    ///
    /// Returns the reason why the page is rejected, or reports that its process has exited.
    pub fn snapshot(&mut self) -> Result<Snapshot, NoSnapshot> {
        let asked = self.ask()?;
        self.answer(&asked)
    }

    /// Asks for a round that begins after this call. Does not wait for it.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`snapshot`](Self::snapshot).
    pub fn ask(&mut self) -> Result<Asked, NoSnapshot> {
        let before = self.read()?;
        self.check(&before)?;
        // This is the end of the next round. If a round is in progress, it is the end of the round
        // after that.
        let wanted = before.round.wrapping_add(3) & !1;
        let is_asked =
            self.file.is_writable() && self.file.notify(ASKED_AT, fastrand::u32(..)).is_ok();
        Ok(Asked { wanted: is_asked.then_some(wanted), until: Instant::now() + ANSWER_TIMEOUT })
    }

    /// Returns the page that the process wrote for the request. If the process has not answered in
    /// time, returns the existing page.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`snapshot`](Self::snapshot).
    pub fn answer(&mut self, asked: &Asked) -> Result<Snapshot, NoSnapshot> {
        let (page, answered) = match self.wait(asked) {
            Some(page) => (page, true),
            None => (self.read()?, false),
        };
        self.check(&page)?;
        Ok(Snapshot {
            age: Duration::from_nanos(time::now_ns().saturating_sub(page.written_ns)),
            page,
            answered,
        })
    }

    /// Waits for the requested round. Returns `None` if the round is not written in time.
    fn wait(&mut self, asked: &Asked) -> Option<Page> {
        let wanted = asked.wanted?;
        let mut pause = PAUSE;
        // Even if reading other processes used up the time, the page is still checked once.
        loop {
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
            match self.read_once() {
                Ok(page) if page.is_whole() && page.round >= wanted => return Some(page),
                _ if Instant::now() >= asked.until => return None,
                _ => {}
            }
        }
    }

    /// Reads the page. While the page is being written, reads it again, at most `NR_TRIES` times.
    fn read(&mut self) -> Result<Page, NoSnapshot> {
        let mut seen = self.read_once();
        for _ in 1..NR_TRIES {
            if seen.as_ref().is_ok_and(Page::is_whole) {
                break;
            }
            thread::sleep(PAUSE);
            seen = self.read_once();
        }
        seen
    }

    fn read_once(&mut self) -> Result<Page, NoSnapshot> {
        let nr_read = self.file.read_at(&mut self.buffer, 0).map_err(refused)?;
        let mut page = Page::read(&self.buffer[..nr_read]).map_err(refused)?;
        // Names are made plain here, so that callers do not have to consider the contents of a
        // name.
        let texts = page.records.iter_mut().flat_map(|it| [&mut it.name, &mut it.detail]);
        for text in texts.chain([&mut page.name]) {
            if let Cow::Owned(escaped) = plain(text) {
                *text = escaped;
            }
        }
        Ok(page)
    }

    fn check(&self, page: &Page) -> Result<(), NoSnapshot> {
        let pid = page.pid;
        if self.pid.is_some_and(|named| named != pid) {
            return Err(refused(format!("it claims to be of process {pid}")));
        }
        let left = self.path.display().to_string();
        let left = plain(&left);
        let start = process::start_time(pid);
        if start != Some(page.start_time) {
            if self.file.is_locked().map_err(refused)? {
                let place = format!("in another container, with the number {pid} there");
                return Err(refused(format!("its process lives {place}")));
            }
            let other = if start.is_some() { "; another process has its number now" } else { "" };
            let exited = format!("process {pid} has exited and left {left}{other}");
            return Err(NoSnapshot::Stale(exited));
        }
        let (owner, _) = self.file.owner_and_mode().map_err(refused)?;
        if process::owner(pid).is_some_and(|runs_as| runs_as != owner) {
            let stranger = format!("does not belong to the owner of the page, user {owner}");
            return Err(refused(format!("process {pid} {stranger}")));
        }
        Ok(())
    }
}

/// Returns a snapshot of a process with one queue, and a pool whose work makes no progress.
#[cfg(test)]
pub(super) fn stalled_sample() -> Snapshot {
    let page = Page::read(include_bytes!("stalled.page")).expect("the saved page is one");
    Snapshot { page, answered: true, age: Duration::ZERO }
}
