//! The thread that writes the file when a reader asks.
//!
//! # Asking
//!
//! ```text
//! reader:    record round;  asked = another number;  wake the waiter on asked;
//!            read until there is a later round
//! publisher: read asked;  write a round;  wait while asked is unchanged
//! ```
//!
//! The kernel compares the number while it holds its lock for the futex. If the reader's store
//! comes first, the publisher's wait does not begin. If the wait comes first, the wake-up ends it.
//! It is sufficient that a round begins after the request, so a reader that finds a round in
//! progress waits for the next one.
//!
//! # Changes to the file by other processes
//!
//! Any program of the same user may change the file. The process reads only the number from it, for
//! a comparison, and never maps it, so a truncated file causes no signal and is written again. A
//! file that was removed is created again only when [`publish`] is called after an [`unpublish`].
//!
//! # Names
//!
//! Containers may share the directory, and processes in them may have the same PID. Each process
//! therefore keeps its file locked. A process that needs a name opens the file with that name:
//!
//! ```text
//! locked              a living process has it: try the next name
//! not locked          stale: lock it;  does it still have that name?
//!                     remove it while it is locked, and create ours
//! no such file        create ours;  lock it;  does it still have that name?  it is ours.
//!                     Otherwise another process treated it as stale: try again
//! ```
//!
//! A process that was killed, or that exited through `_exit`, leaves its file behind. The next
//! process that publishes removes, in the same way, each file of its user that is not locked and
//! whose process does not exist.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{io, ptr};

use sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sync::fork::{self, Handler};
use sync::shared_file::{self, Notified, SharedFile, is_shortage};
use sync::unmodelled::Arc;
use sync::{Mutex, process, thread, time};

use super::image::{Image, Origin};
use super::layout::{ASKED_AT, HEAD_BYTES};
use super::sources::describe_all;
use super::{DIRECTORY, MAX_NAMES, name_of, pid_of};

/// The length of the sleep after a round, which limits rounds to a thousand per second. A guess.
const REST: Duration = Duration::from_millis(1);
/// The length of the sleep after a failed wait on the file.
const NO_REQUEST_REST: Duration = Duration::from_secs(1);

/// The number of attempts to get a name that other processes also request. A guess.
const NR_TRIES: u32 = 8;

/// The round of a file that contains only a head.
const FIRST_ROUND: u64 = 2;

static PUBLISHED: Mutex<Option<Published>> = Mutex::new(None);
/// The process that owns the file, or 0. A forked child does not access its parent's file.
static OWNER: AtomicU32 = AtomicU32::new(0);
static NTH_NAME: AtomicU32 = AtomicU32::new(0);
static AT_EXIT_SET: AtomicBool = AtomicBool::new(false);

/// Forgets the parent's page and thread in a child of `fork`, which may publish its own page.
static HANDLER: Handler = Handler {
    before: |held| held.lock(&PUBLISHED),
    child: || {
        if let Some(published) = PUBLISHED.lock().take() {
            // SAFETY: (1): the thread that uses the file does not exist in the child.
            unsafe { published.file.file.close_in_child() };
            std::mem::forget(published);
        }
    },
    ..Handler::IDLE
};

struct Published {
    path: PathBuf,
    file: Arc<Shared>,
    thread: thread::JoinHandle,
}

struct Shared {
    file: SharedFile,
    quit: AtomicBool,
}

/// Creates the file and starts the thread, unless the process is already publishing.
pub fn publish() -> io::Result<PathBuf> {
    fork::register(&HANDLER);
    let mut published = PUBLISHED.lock();
    if let Some(published) = &*published {
        return Ok(published.path.clone());
    }
    let pid = std::process::id();
    if !AT_EXIT_SET.load(Ordering::Relaxed) {
        process::at_exit(remove_at_exit)?;
        AT_EXIT_SET.store(true, Ordering::Relaxed);
    }
    let (nth, file) = create(pid)?;
    remove_stale_page();
    let path = path_of(pid, nth);
    let shared = Arc::new(Shared { file, quit: AtomicBool::new(false) });
    let origin = Origin {
        pid,
        start_time: process::start_time(pid).unwrap_or(0),
        name: process::name(pid).unwrap_or_default(),
        written_ns: time::now_ns(),
        took_ns: 0,
    };
    // The caller may hold any lock, so the thread gathers the records.
    let written = write(&shared.file, &origin, &Image::new(FIRST_ROUND));
    let body = shared.clone();
    let started = written
        .and_then(|()| thread::spawn("aw/observe", move || serve(&body, &origin)))
        .inspect_err(|_| remove(&path))?;
    NTH_NAME.store(nth, Ordering::Relaxed);
    OWNER.store(pid, Ordering::Relaxed);
    *published = Some(Published { path: path.clone(), file: shared, thread: started });
    Ok(path)
}

/// Removes the file and ends the thread. Returns `true` if the process was publishing.
pub fn unpublish() -> bool {
    fork::register(&HANDLER);
    let Some(published) = PUBLISHED.lock().take() else {
        return false;
    };
    OWNER.store(0, Ordering::Relaxed);
    remove(&published.path);
    // Other end in `serve`. If our store comes first, the thread's load after the wait reads it.
    // Otherwise the thread waits again, and the wake-up below ends that wait.
    published.file.quit.store(true, Ordering::Release);
    let file = &published.file.file;
    // A truncated file has no futex.
    let has_request_word = file.len().is_ok_and(|len| len >= HEAD_BYTES as u64);
    let may_request = has_request_word || file.set_len(HEAD_BYTES as u64).is_ok();
    if may_request && file.notify(ASKED_AT, asked(file).wrapping_add(1)).is_ok() {
        published.thread.join().ok();
    }
    true
}

fn path_of(pid: u32, nth: u32) -> PathBuf {
    Path::new(DIRECTORY).join(name_of(pid, nth))
}

/// Creates the file under the first name that no living process uses, and returns the name's index.
fn create(pid: u32) -> io::Result<(u32, SharedFile)> {
    for nth in 0..MAX_NAMES {
        if let Some(file) = create_at(&path_of(pid, nth))? {
            return Ok((nth, file));
        }
    }
    let all_taken = "other processes use all names that the page of this process may have";
    Err(io::Error::new(io::ErrorKind::AlreadyExists, all_taken))
}

/// Creates the file, or replaces a stale one. Returns `None` if another process uses the name.
fn create_at(path: &Path) -> io::Result<Option<SharedFile>> {
    for _ in 0..NR_TRIES {
        match SharedFile::create(path) {
            Ok(file) => {
                let is_locked = file.lock().inspect_err(|_| remove(path))?;
                if is_locked && file.is_at(path) {
                    return Ok(Some(file));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let left = SharedFile::open(path);
                if left.as_ref().is_err_and(is_shortage) {
                    // A file that exists may be the page of a living process.
                    return left.map(Some);
                }
                if let Ok(left) = &left {
                    if !left.lock()? {
                        return Ok(None);
                    }
                    if !left.is_at(path) {
                        continue;
                    }
                }
                // We may not open the file, and in a sticky directory not remove it.
                match SharedFile::remove(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Ok(None),
                    _ => {}
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Removes the pages of this user's processes that have exited.
fn remove_stale_page() {
    for there in shared_file::files_in(Path::new(DIRECTORY)) {
        let name = there.file_name().and_then(OsStr::to_str);
        // A process that exists may not have locked its file yet.
        if name.and_then(pid_of).is_some_and(|pid| process::start_time(pid).is_none()) {
            remove_if_left(&there);
        }
    }
}

fn remove_if_left(path: &Path) {
    if let Ok(left) = SharedFile::open(path)
        && matches!(left.owner_and_mode(), Ok((owner, _)) if owner == process::user())
        && matches!(left.lock(), Ok(true))
        && left.is_at(path)
    {
        remove(path);
    }
}

fn remove(path: &Path) {
    SharedFile::remove(path).ok();
}

extern "C" fn remove_at_exit() {
    let pid = std::process::id();
    if OWNER.load(Ordering::Relaxed) == pid {
        remove(&path_of(pid, NTH_NAME.load(Ordering::Relaxed)));
    }
}

fn serve(shared: &Shared, origin: &Origin) {
    let mut round = FIRST_ROUND;
    let mut seen = 0;
    loop {
        let notified = shared.file.wait(ASKED_AT, seen, None);
        // Other end in `unpublish`.
        if shared.quit.load(Ordering::Acquire) {
            return;
        }
        if shared.file.is_lost() {
            return give_up(shared);
        }
        let now = asked(&shared.file);
        if now == seen && notified == Notified::Yes {
            continue;
        }
        seen = now;
        round += 2;
        // A write that failed because memory was scarce may succeed at the next request.
        let written = write_round(&shared.file, origin, round);
        let rest =
            if written.is_err() && notified == Notified::Gone { NO_REQUEST_REST } else { REST };
        thread::sleep(rest);
    }
}

/// Removes the page, because the program has closed its descriptor. It may publish another one.
#[cold]
fn give_up(shared: &Shared) {
    let mut published = PUBLISHED.lock();
    let is_it = |it: &mut Published| ptr::eq(&*it.file, shared);
    let Some(lost) = published.take_if(is_it) else {
        // `unpublish` has already removed the page.
        return;
    };
    OWNER.store(0, Ordering::Relaxed);
    remove(&lost.path);
    drop(published);
    process::write_line(
        "the program has closed the descriptor of its page; the page is no longer published",
    );
}

fn asked(file: &SharedFile) -> u32 {
    let mut bytes = [0; 4];
    file.read_at(&mut bytes, ASKED_AT as u64).ok();
    u32::from_le_bytes(bytes)
}

fn write_round(file: &SharedFile, origin: &Origin, round: u64) -> io::Result<()> {
    let began_ns = time::now_ns();
    let mut image = Image::new(round);
    describe_all(&mut image);
    image.sort();
    let mut origin = origin.clone();
    origin.written_ns = time::now_ns();
    origin.took_ns = origin.written_ns - began_ns;
    write(file, &origin, &image)
}

fn write(file: &SharedFile, origin: &Origin, image: &Image) -> io::Result<()> {
    // The length comes first: no reader sees a head with more records than the file contains.
    let len = image.file_bytes() as u64;
    if file.len()? < len {
        file.set_len(len)?;
    }
    file.write_at(&image.head(origin, false), 0)?;
    file.write_at(&image.bytes(), HEAD_BYTES as u64)?;
    file.write_at(&image.head(origin, true), 0)?;
    if file.len()? > len {
        file.set_len(len)?;
    }
    Ok(())
}
