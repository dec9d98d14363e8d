//! Looking at one process: opening its page, making sure whose it is, asking, reading.
//!
//! Nothing here trusts the page. A reason not to believe it is one line for the user.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use afterwork::page::{ASKED_AT, MAX_BYTES, Page, pid_of};
use sync::{process, shared_file::SharedFile, time};

use super::plain::plain;

/// How long a process has to answer. One that runs takes tens of microseconds; one that is short of CPU some time
/// slices. A guess.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(250);
/// The first pause between two looks whether it has answered, and the longest.
const PAUSE: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(5);
/// How often a page that is being written is read again.
const NR_TRIES: u32 = 20;

/// A process whose page is open.
#[derive(Debug)]
pub struct Watched {
    path: PathBuf,
    file: SharedFile,
    /// What the name of the file says, if it does.
    pid: Option<u32>,
    buffer: Vec<u8>,
}

/// A question that a process has been asked.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The round that answers it; nothing where the process cannot be asked.
    wanted: Option<u64>,
    until: Instant,
}

/// What was seen of a process.
#[derive(Clone, Debug)]
pub struct Look {
    /// What it shows.
    pub page: Page,
    /// Whether it was written for this look. If not, the process did not answer, or cannot be asked.
    pub answered: bool,
    /// How old it is.
    pub age: Duration,
}

/// Why there is nothing to see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoLook {
    /// The process has ended; this is what it left.
    Stale(String),
    /// The page is not believed.
    Refused(String),
}

impl NoLook {
    /// Returns the reason in a line.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Stale(reason) | Self::Refused(reason) => reason,
        }
    }
}

fn refused(reason: impl ToString) -> NoLook {
    NoLook::Refused(reason.to_string())
}

impl Watched {
    /// Opens the page at `path`.
    ///
    /// # Errors
    ///
    /// Why it is not believed: it is a link, no file, somebody else's, or open to others.
    pub fn open(path: &Path) -> Result<Self, NoLook> {
        let file = SharedFile::open(path).map_err(refused)?;
        let (owner, mode) = file.owner_and_mode().map_err(refused)?;
        let me = process::user();
        if owner != me && me != 0 {
            return Err(refused(format!("it belongs to user {owner}")));
        }
        if mode & 0o077 != 0 {
            return Err(refused(format!("others may use it: mode {mode:o}")));
        }
        let name = path.file_name().and_then(|name| name.to_str());
        Ok(Self {
            path: path.to_owned(),
            file,
            pid: name.and_then(pid_of),
            // One more than a page may have, so that too long is seen.
            buffer: vec![0; MAX_BYTES + 1],
        })
    }

    /// Returns `true` if it is the page of a process that lives, by the numbers that are known here.
    pub fn is_live(mut self) -> bool {
        self.read().is_ok_and(|page| self.check(&page).is_ok())
    }

    /// Asks the process to write, and returns what it wrote; or what is there, if it does not answer in time.
    ///
    /// # Errors
    ///
    /// Why the page is not believed, or that its process has ended.
    pub fn look(&mut self) -> Result<Look, NoLook> {
        let asked = self.ask()?;
        self.answer(&asked)
    }

    /// Asks for a round that begins from now on, and does not wait for it.
    ///
    /// # Errors
    ///
    /// As of [`look`](Self::look).
    pub fn ask(&mut self) -> Result<Asked, NoLook> {
        let before = self.read()?;
        self.check(&before)?;
        // The end of the next round, or, while one is under way, of the one after it.
        let wanted = before.round.wrapping_add(3) & !1;
        let is_asked =
            self.file.is_writable() && self.file.ring(ASKED_AT, fastrand::u32(..)).is_ok();
        Ok(Asked {
            wanted: is_asked.then_some(wanted),
            until: Instant::now() + ANSWER_TIMEOUT,
        })
    }

    /// Returns what the process wrote when it was asked, or what is there if it has not answered in time.
    ///
    /// # Errors
    ///
    /// As of [`look`](Self::look).
    pub fn answer(&mut self, asked: &Asked) -> Result<Look, NoLook> {
        let (page, answered) = match self.wait(asked) {
            Some(page) => (page, true),
            None => (self.read()?, false),
        };
        self.check(&page)?;
        Ok(Look {
            age: Duration::from_nanos(time::now_ns().saturating_sub(page.written_ns)),
            page,
            answered,
        })
    }

    /// Waits for the round that was asked for; nothing if none comes in time.
    fn wait(&mut self, asked: &Asked) -> Option<Page> {
        let wanted = asked.wanted?;
        let mut pause = PAUSE;
        // One that had its time while others were waited for is looked at once.
        let mut is_first = true;
        while is_first || Instant::now() < asked.until {
            is_first = false;
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
            match self.read_once() {
                Ok(page) if page.is_whole() && page.round >= wanted => return Some(page),
                _ => {}
            }
        }
        None
    }

    /// Reads until nothing was written meanwhile, but not for ever.
    fn read(&mut self) -> Result<Page, NoLook> {
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

    fn read_once(&mut self) -> Result<Page, NoLook> {
        let nr_read = self.file.read_at(&mut self.buffer, 0).map_err(refused)?;
        let mut page = Page::read(&self.buffer[..nr_read]).map_err(refused)?;
        // Nobody below here has to think of what a name may hold.
        let texts = page
            .records
            .iter_mut()
            .flat_map(|it| [&mut it.name, &mut it.detail]);
        for text in texts.chain([&mut page.name]) {
            if let Cow::Owned(told) = plain(text) {
                *text = told;
            }
        }
        Ok(page)
    }

    /// Makes sure that the page is that of a process which lives.
    fn check(&self, page: &Page) -> Result<(), NoLook> {
        let pid = page.pid;
        if self.pid.is_some_and(|named| named != pid) {
            return Err(refused(format!("it says that it is of process {pid}")));
        }
        let left = self.path.display().to_string();
        let left = plain(&left);
        let start = process::start_time(pid);
        if start != Some(page.start_time) && self.file.is_locked().map_err(refused)? {
            return Err(refused(format!(
                "it is of a process that lives in another container, as {pid} there"
            )));
        }
        match start {
            None => Err(NoLook::Stale(format!(
                "process {pid} has ended and left {left}"
            ))),
            Some(start) if start != page.start_time => Err(NoLook::Stale(format!(
                "process {pid} has ended and left {left}; its number is another's now"
            ))),
            Some(_) => {
                let (owner, _) = self.file.owner_and_mode().map_err(refused)?;
                if process::owner(pid).is_some_and(|runs_as| runs_as != owner) {
                    return Err(refused(format!(
                        "process {pid} is not of its owner, user {owner}"
                    )));
                }
                Ok(())
            }
        }
    }
}

/// Returns a look at a process with one queue and a pool whose work does not move.
#[cfg(test)]
pub(super) fn stalled_sample() -> Look {
    let page = Page::read(include_bytes!("stalled.page")).expect("the saved page is one");
    Look {
        page,
        answered: true,
        age: Duration::ZERO,
    }
}
