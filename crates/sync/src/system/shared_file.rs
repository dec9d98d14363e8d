//! A file that one process writes and others read, with a futex on which readers wake the writer.
//!
//! The file is written with `pwrite` and read with `pread`, never through a mapping: another
//! process may truncate the file, and an access beyond its end would raise SIGBUS. The page with
//! the futex is mapped, but only its address is used, to identify the futex. If the file was
//! truncated, the kernel returns an error.
//!
//! A program that becomes a daemon may close all descriptors that it did not open itself, and reuse
//! their numbers. The writer therefore compares the inode before it uses or closes the descriptor.
//!
//! The writer keeps the file locked, so that other processes detect a stale file.

use std::fs::{File, OpenOptions};
use std::mem::{self, ManuallyDrop};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{io, ptr};

use crate::fault;

/// The futex is in the first page. This is the kernel's smallest page size.
const MAPPED_BYTES: usize = 4096;

/// A file shared with other processes of the same user.
///
/// # Errors
///
/// Unless a method states more, its error is the system's. The methods that use the descriptor also
/// fail if the program has closed it.
#[derive(Debug)]
pub struct SharedFile {
    file: ManuallyDrop<File>,
    /// The device and the inode, which show whether the program has closed the descriptor and
    /// reused its number.
    id: (u64, u64),
    /// The address of the mapped page. It only identifies the page to the kernel.
    map: usize,
    is_writable: bool,
}

/// The result of a wait on the futex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notified {
    /// The futex was notified, the wait timed out, or it ended early.
    Yes,
    /// The futex no longer exists, because the file was truncated.
    Gone,
}

fn id_of(metadata: &std::fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Returns `true` if the cause of the error is a shortage of system resources rather than the file.
pub fn is_shortage(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [libc::ENOMEM, libc::EMFILE, libc::ENFILE, libc::EINTR].map(Some).contains(&code)
}

/// Returns the paths of the entries of `directory`, or none if it cannot be read.
pub fn files_in(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.flatten().map(|entry| entry.path())
}

impl SharedFile {
    /// Creates a file that only this user may read and write.
    ///
    /// # Errors
    ///
    /// Returns `AlreadyExists` if the path exists, even as a symbolic link.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)?;
        let id = id_of(&file.metadata()?);
        // Removes the new file, which has been neither written nor locked.
        Self::with(file, true).inspect_err(|_| {
            if std::fs::symlink_metadata(path).is_ok_and(|there| id_of(&there) == id) {
                std::fs::remove_file(path).ok();
            }
        })
    }

    /// Opens a file that another process may have created, to read it and to notify its writer.
    ///
    /// # Errors
    ///
    /// Returns an error if the path is a symbolic link or not a regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        // Without O_NONBLOCK, opening a pipe waits for its other end.
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK);
        let (file, is_writable) = match options.clone().write(true).open(path) {
            Ok(file) => (file, true),
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
                return Err(io::Error::other("it is a symbolic link"));
            }
            // The path is a directory or a read-only file.
            Err(_) => (options.open(path)?, false),
        };
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        Self::with(file, is_writable)
    }

    fn with(file: File, is_writable: bool) -> io::Result<Self> {
        fault::check(fault::Point::Map, libc::ENOMEM)?;
        let (access, flags, fd) = (libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd());
        // SAFETY: the call creates a new mapping of our file, and no page of it is accessed.
        let map = unsafe { libc::mmap(ptr::null_mut(), MAPPED_BYTES, access, flags, fd, 0) };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let id = id_of(&file.metadata()?);
        Ok(Self { file: ManuallyDrop::new(file), id, map: map.addr(), is_writable })
    }

    /// Locks the file until this value is dropped or the process ends. Returns `false` if another
    /// process has the lock. A child of `fork` shares it until it [closes](Self::close_in_child)
    /// the file.
    pub fn lock(&self) -> io::Result<bool> {
        self.flock(libc::LOCK_EX | libc::LOCK_NB)
    }

    /// Returns `true` if a living process holds the lock.
    pub fn is_locked(&self) -> io::Result<bool> {
        if !self.flock(libc::LOCK_SH | libc::LOCK_NB)? {
            return Ok(true);
        }
        self.flock(libc::LOCK_UN)?;
        Ok(false)
    }

    fn flock(&self, operation: libc::c_int) -> io::Result<bool> {
        self.metadata()?;
        // SAFETY: the descriptor is ours, and the call accesses no memory.
        if unsafe { libc::flock(self.file.as_raw_fd(), operation) } == 0 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        }
    }

    /// Returns `true` if the program has closed the descriptor. Makes one system call.
    pub fn is_lost(&self) -> bool {
        self.metadata().is_err()
    }

    fn metadata(&self) -> io::Result<std::fs::Metadata> {
        let there = self.file.metadata()?;
        if id_of(&there) != self.id {
            return Err(io::Error::other("the program has closed its descriptor"));
        }
        Ok(there)
    }

    /// Returns `true` if `path` names this file.
    pub fn is_at(&self, path: &Path) -> bool {
        let there = std::fs::symlink_metadata(path);
        !self.is_lost() && there.is_ok_and(|there| id_of(&there) == self.id)
    }

    /// Closes the file in a child of `fork`, so that only the parent holds the lock.
    ///
    /// # Safety
    ///
    /// 1. No thread uses or drops it afterwards.
    pub unsafe fn close_in_child(&self) {
        if !self.is_lost() {
            // SAFETY: the descriptor is ours, and no thread uses it afterwards (1).
            unsafe { libc::close(self.file.as_raw_fd()) };
        }
        // The mapping also keeps the file open.
        self.unmap();
    }

    /// Removes the file `path`. Processes that have opened it can still use it.
    pub fn remove(path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    /// Returns the current length of the file.
    #[expect(clippy::len_without_is_empty, reason = "no caller needs it")]
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    /// Returns the user that owns the file, and its permission bits.
    pub fn owner_and_mode(&self) -> io::Result<(u32, u32)> {
        let metadata = self.metadata()?;
        Ok((metadata.uid(), metadata.mode() & 0o7777))
    }

    /// Returns `true` if this process may write to the file, and therefore may notify its writer.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Reads from `offset` until `buffer` is full or the file ends. Returns the number of bytes.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut nr_read = 0;
        while nr_read < buffer.len() {
            match self.file.read_at(&mut buffer[nr_read..], offset + nr_read as u64) {
                Ok(0) => break,
                Ok(more) => nr_read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(nr_read)
    }

    /// Writes all of `bytes` at `offset`. The file grows if needed.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.metadata()?;
        without_signal(|| self.file.write_all_at(bytes, offset))
    }

    /// Sets the length of the file.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.metadata()?;
        without_signal(|| self.file.set_len(len))
    }

    /// Sleeps while the four bytes at `offset`, within the first 4096, equal `expected`.
    ///
    /// # Blocking
    ///
    /// Blocks until a process notifies the futex, for at most `timeout`. May return early.
    pub fn wait(&self, offset: usize, expected: u32, timeout: Option<Duration>) -> Notified {
        let result = crate::futex::sleep_on(self.word(offset), 0, expected, timeout);
        let gone = [libc::EFAULT, libc::EINVAL, libc::ENOSYS];
        match io::Error::last_os_error().raw_os_error() {
            Some(error) if result != 0 && gone.contains(&error) => Notified::Gone,
            _ => Notified::Yes,
        }
    }

    /// Writes `value` at `offset`, within the first 4096 bytes, and wakes processes waiting there.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is too short.
    pub fn notify(&self, offset: usize, value: u32) -> io::Result<()> {
        if self.len()? < offset as u64 + 4 {
            return Err(io::Error::other("it is too short"));
        }
        self.write_at(&value.to_le_bytes(), offset as u64)?;
        crate::futex::wake_at(self.word(offset), 0, u32::MAX);
        Ok(())
    }

    fn word(&self, offset: usize) -> *const u32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= MAPPED_BYTES);
        ptr::without_provenance(self.map + offset)
    }

    fn unmap(&self) {
        let map = ptr::without_provenance_mut(self.map);
        // SAFETY: `with` created the mapping, whose page is never accessed. Each process unmaps it
        // once: in `drop`, or in `close_in_child`, after which the value is not dropped.
        unsafe { libc::munmap(map, MAPPED_BYTES) };
    }
}

/// Calls `write` with SIGXFSZ blocked: a write beyond RLIMIT_FSIZE then fails without a signal.
fn without_signal<R>(write: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    // SAFETY: a signal set is plain memory, which `sigemptyset` initializes.
    let (mut ours, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { mem::zeroed() };
    // SAFETY: the sets are on this stack.
    let was_blocked = unsafe {
        libc::sigemptyset(&mut ours);
        libc::sigaddset(&mut ours, libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, &ours, &mut before);
        libc::sigismember(&before, libc::SIGXFSZ) == 1
    };
    let result = write();
    if was_blocked {
        return result;
    }
    let is_too_long = |error: &io::Error| error.raw_os_error() == Some(libc::EFBIG);
    if result.as_ref().is_err_and(is_too_long) {
        let at_once = crate::time::timespec(Duration::ZERO);
        // SAFETY: as above; consumes the SIGXFSZ that the write raised for this thread, if any.
        unsafe { libc::sigtimedwait(&ours, ptr::null_mut(), &at_once) };
    }
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
    result
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        if !self.is_lost() {
            // SAFETY: the field is dropped only here, once.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
        self.unmap();
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::fork::in_child;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let place = std::env::temp_dir().join(format!("aw-{}-{name}", std::process::id()));
            std::fs::remove_file(&place).ok();
            Self(place)
        }

        fn with_file(name: &str) -> (Self, SharedFile) {
            let place = Self::new(name);
            let file = SharedFile::create(&place.0).unwrap();
            (place, file)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            std::fs::remove_file(&self.0).ok();
        }
    }

    #[test]
    fn a_file_with_the_number_of_a_lost_file_is_not_touched() {
        let ((_place, file), others) = (Place::with_file("lost"), Place::new("others"));
        file.set_len(64).unwrap();
        let theirs = File::create_new(&others.0).unwrap();
        let number = file.file.as_raw_fd();
        // SAFETY: the call takes two numbers. The shared file's number then refers to another file.
        assert!(unsafe { libc::dup2(theirs.as_raw_fd(), number) } >= 0);
        assert!(file.is_lost());
        assert!(file.write_at(&[1], 0).is_err() && file.set_len(8).is_err());
        assert!(file.lock().is_err() && file.notify(8, 1).is_err());
        assert_eq!(theirs.metadata().unwrap().len(), 0);
        drop(file);
        // SAFETY: the call takes a number. The file that replaced the shared one is closed once.
        unsafe {
            assert!(libc::fcntl(number, libc::F_GETFD) >= 0, "closed");
            libc::close(number);
        }
    }

    #[test]
    fn file_is_created_once_and_for_its_user_only() {
        let (place, file) = Place::with_file("made-once");
        let (owner, mode) = file.owner_and_mode().unwrap();
        assert_eq!((owner, mode & 0o077), (crate::process::user(), 0));
        let again = SharedFile::create(&place.0).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_file_that_cannot_be_mapped_is_not_left_behind() {
        let place = Place::new("not-mapped");
        let is_refused = || {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the call reads the limit.
            unsafe { libc::setrlimit(libc::RLIMIT_AS, &none) };
            SharedFile::create(&place.0).is_err_and(|error| is_shortage(&error)).into()
        };
        // SAFETY: the child acquires no lock that another thread may hold.
        assert_eq!(unsafe { in_child(is_refused) }, Some(1), "the file could be mapped");
        assert!(!place.0.exists());
    }

    #[test]
    fn symlinks_and_non_files_are_rejected() {
        let ((place, _file), link) = (Place::with_file("target"), Place::new("link"));
        std::os::unix::fs::symlink(&place.0, &link.0).unwrap();
        assert!(SharedFile::open(&link.0).is_err());
        assert!(SharedFile::create(&link.0).is_err());
        assert!(SharedFile::open(&std::env::temp_dir()).is_err());
    }

    #[test]
    fn waiter_is_woken_through_another_opening() {
        let (place, file) = Place::with_file("bell");
        file.set_len(4096).unwrap();
        let sleeper = std::thread::spawn(move || {
            let mut word = [0; 4];
            while u32::from_le_bytes(word) != 7 {
                assert_eq!(file.wait(8, u32::from_le_bytes(word), None), Notified::Yes);
                file.read_at(&mut word, 8).unwrap();
            }
        });
        SharedFile::open(&place.0).unwrap().notify(8, 7).unwrap();
        sleeper.join().unwrap();
    }

    #[test]
    fn truncated_eventfd_file_costs_the_wake_up_and_no_signal() {
        let (_place, file) = Place::with_file("cut");
        file.set_len(4096).unwrap();
        file.set_len(0).unwrap();
        assert_eq!(file.wait(8, 0, None), Notified::Gone);
        assert!(file.notify(8, 1).is_err());
        assert_eq!(file.read_at(&mut [0; 64], 0).unwrap(), 0);
    }

    #[test]
    fn file_is_locked_by_one_descriptor_until_it_is_closed() {
        let (place, file) = Place::with_file("locked");
        let other = SharedFile::open(&place.0).unwrap();
        assert!(!other.is_locked().unwrap() && file.lock().unwrap());
        assert!(other.is_locked().unwrap() && !other.lock().unwrap());
        drop(file);
        // A child that another test has forked may hold the lock for a moment.
        while other.is_locked().unwrap() {
            std::thread::yield_now();
        }
        assert!(other.lock().unwrap());
        assert!(other.is_at(&place.0));
        SharedFile::remove(&place.0).unwrap();
        assert!(!other.is_at(&place.0));
        let _new = SharedFile::create(&place.0).unwrap();
        assert!(!other.is_at(&place.0));
    }

    #[test]
    fn growth_beyond_the_file_limit_is_an_error_and_no_signal() {
        let (_place, file) = Place::with_file("limit");
        let is_refused = || {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: the call reads a limit on this stack.
            unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &none) };
            let too_long = |result: io::Result<()>| {
                result.is_err_and(|error| error.raw_os_error() == Some(libc::EFBIG))
            };
            // Do this twice, because a blocked signal must not arrive later.
            let both = || too_long(file.set_len(1)) && too_long(file.write_at(b"too long", 0));
            (both() && both()).into()
        };
        // SAFETY: the child only makes system calls.
        assert_eq!(unsafe { in_child(is_refused) }, Some(1));
    }
}
