//! The thread that writes the file when somebody asks.
//!
//! # Asking
//!
//! ```text
//! reader:    note round;  asked = another number;  wake who waits on asked;  look until a later round is there
//! publisher: read asked;  write a round;  wait while asked is what was read
//! ```
//!
//! A reader's number comes before the publisher's wait, which compares it under the kernel's lock of the futex: either
//! the wait does not begin, or the wake-up ends it. Whether two readers ask at once, or with the same number, is all the
//! same: what counts is that a round *begins* after the asking, so a reader waits for the second end of a round that it
//! sees, if one is under way.
//!
//! # What others may do to the file
//!
//! It belongs to the user of the process, who may do with it as they like. The process reads nothing from it but the
//! number, and does nothing with that but compare it. It never touches the file through memory, so one that is cut short
//! costs it no signal: it writes the file anew. One that is removed is gone until [`publish`] is called after an
//! [`unpublish`].
//!
//! # Who has a name
//!
//! Containers may share the directory and not their numbers, so a file that is called as ours is to be may be that of a
//! process that lives. Whoever shows itself has its file locked. Whoever wants a name opens what is there:
//!
//! ```text
//! locked              somebody lives there: the next name
//! not locked          left behind: lock it;  still of that name?  remove it, while it is locked, and make ours
//! nothing             make ours;  lock it;  still of that name?  it is ours, else somebody took it for left behind: again
//! ```
//!
//! So a file is removed only by who has it locked and sees it under its name, which nobody else then changes.
//!
//! What processes left behind that were killed, or ended by `_exit`, the next one that shows itself removes in the same way: each
//! file of its user's whose process is not to be seen here and that is not locked. One of another container's, whose process
//! is not to be seen either, is locked as long as that lives.

use std::{
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU32, Ordering},
    fork::{self, Handler},
    process,
    shared_file::{self, Rung, SharedFile, is_shortage},
    thread, time,
    unmodelled::Arc,
};

use super::{
    DIRECTORY, MAX_NAMES,
    image::{Image, Origin},
    layout::{ASKED_AT, HEAD_BYTES},
    name_of, pid_of,
    sources::describe_all,
};

/// How long the thread rests after a round, so that no reader can make a process busy with itself: at most a thousand
/// rounds a second. A guess.
const REST: Duration = Duration::from_millis(1);
/// How long it sleeps when the file cannot be waited on.
const NO_BELL_REST: Duration = Duration::from_secs(1);

/// How often a name is tried that others want at the same moment. A guess.
const NR_TRIES: u32 = 8;

/// The round of a file that has a head alone. Later ones are even, too.
const FIRST_ROUND: u64 = 2;

static PUBLISHED: Mutex<Option<Published>> = Mutex::new(None);
/// The process whose file it is, 0 for none: a forked child leaves it alone.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Which of its names the file has.
static NTH_NAME: AtomicU32 = AtomicU32::new(0);
static AT_EXIT_SET: AtomicBool = AtomicBool::new(false);

/// A child has a page of its own, if it wants one, and its parent's thread is not there.
static HANDLER: Handler = Handler {
    before: |held| held.lock(&PUBLISHED),
    child: || {
        if let Some(published) = PUBLISHED.lock().take() {
            // SAFETY: 1: its thread is not there, and it is forgotten below.
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

/// Makes the file and starts the thread, if that has not been done.
pub(crate) fn publish() -> io::Result<PathBuf> {
    fork::register(&HANDLER);
    let mut published = PUBLISHED.lock();
    if let Some(published) = &*published {
        return Ok(published.path.clone());
    }
    let pid = process::id();
    if !AT_EXIT_SET.load(Ordering::Relaxed) {
        process::at_exit(remove_at_exit)?;
        AT_EXIT_SET.store(true, Ordering::Relaxed);
    }
    let (nth, file) = create(pid)?;
    remove_what_was_left();
    let path = path_of(pid, nth);
    let shared = Arc::new(Shared {
        file,
        quit: AtomicBool::new(false),
    });
    let origin = Origin {
        pid,
        start_time: process::start_time(pid).unwrap_or(0),
        name: process::name(pid).unwrap_or_default(),
        written_ns: time::now_ns(),
        took_ns: 0,
    };
    // A head alone: whoever uses something for the first time may hold any lock, so records are the thread's to gather.
    let written = write(&shared.file, &origin, &Image::new(FIRST_ROUND));
    let body = shared.clone();
    let started = written
        .and_then(|()| thread::spawn("aw/observe", move || serve(&body, &origin)))
        .inspect_err(|_| remove(&path))?;
    NTH_NAME.store(nth, Ordering::Relaxed);
    OWNER.store(pid, Ordering::Relaxed);
    *published = Some(Published {
        path: path.clone(),
        file: shared,
        thread: started,
    });
    Ok(path)
}

/// Removes the file and ends the thread; returns `true` if there was one.
pub(crate) fn unpublish() -> bool {
    fork::register(&HANDLER);
    let Some(published) = PUBLISHED.lock().take() else {
        return false;
    };
    OWNER.store(0, Ordering::Relaxed);
    remove(&published.path);
    published.file.quit.store(true, Ordering::Release);
    let file = &published.file.file;
    // Where somebody cut it short there is no bell to ring.
    let has_bell = file.len().is_ok_and(|len| len >= HEAD_BYTES as u64);
    let may_ring = has_bell || file.set_len(HEAD_BYTES as u64).is_ok();
    // A number that the thread has not seen.
    if may_ring && file.ring(ASKED_AT, asked(file).wrapping_add(1)).is_ok() {
        published.thread.join().ok();
    }
    true
}

fn path_of(pid: u32, nth: u32) -> PathBuf {
    Path::new(DIRECTORY).join(name_of(pid, nth))
}

/// Makes the file by the first name that no living process has; returns which.
fn create(pid: u32) -> io::Result<(u32, SharedFile)> {
    for nth in 0..MAX_NAMES {
        if let Some(file) = create_at(&path_of(pid, nth))? {
            return Ok((nth, file));
        }
    }
    let all_taken = "others have every name that this process may have";
    Err(io::Error::new(io::ErrorKind::AlreadyExists, all_taken))
}

/// Makes the file, in place of one that was left behind; nothing if the name is somebody else's.
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
                    // It may be the page of a living process.
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
                // What is no file, or not ours to open, is no page of ours. One of somebody else's cannot be removed in
                // a sticky directory.
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

/// Removes the pages of this user's processes that are not there any more.
fn remove_what_was_left() {
    for there in shared_file::files_in(Path::new(DIRECTORY)) {
        let name = there.file_name().and_then(OsStr::to_str);
        // One that starts is not disturbed between making its file and locking it.
        if name
            .and_then(pid_of)
            .is_some_and(|pid| process::start_time(pid).is_none())
        {
            remove_if_left(&there);
        }
    }
}

/// What cannot be opened or locked stays as it is.
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
    let pid = process::id();
    if OWNER.load(Ordering::Relaxed) == pid {
        remove(&path_of(pid, NTH_NAME.load(Ordering::Relaxed)));
    }
}

/// The thread. Woken by readers.
fn serve(shared: &Shared, origin: &Origin) {
    let mut round = FIRST_ROUND;
    let mut seen = 0;
    loop {
        let rung = shared.file.wait(ASKED_AT, seen, None);
        if shared.quit.load(Ordering::Acquire) {
            return;
        }
        let now = asked(&shared.file);
        if now == seen && rung == Rung::Yes {
            continue;
        }
        seen = now;
        round += 2;
        // What cannot be written now, for want of memory, may be when somebody asks again.
        let written = write_round(&shared.file, origin, round);
        let rest = if written.is_err() && rung == Rung::Gone {
            NO_BELL_REST
        } else {
            REST
        };
        thread::sleep(rest);
    }
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
    let mut origin = origin.clone();
    origin.written_ns = time::now_ns();
    origin.took_ns = origin.written_ns - began_ns;
    write(file, &origin, &image)
}

fn write(file: &SharedFile, origin: &Origin, image: &Image) -> io::Result<()> {
    // Longer first: a reader never sees a head that promises more than there is.
    let len = image.file_bytes() as u64;
    if file.len()? < len {
        file.set_len(len)?;
    }
    file.write_at(&image.head(origin, false), 0)?;
    file.write_at(image.records(), HEAD_BYTES as u64)?;
    file.write_at(&image.head(origin, true), 0)?;
    if file.len()? > len {
        file.set_len(len)?;
    }
    Ok(())
}
