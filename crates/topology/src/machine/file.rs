//! Reads the kernel's small files, each of which contains one fact. The functions return `None` if
//! the file does not exist.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str;

use crate::cpuset::CpuSet;
use crate::list;
use crate::machine::error::Error;
use crate::text::{Cursor, Mismatch};

/// The longest file that is read, in bytes, because a saved tree may come from an untrusted source.
/// The longest files that the kernel writes are well below this: the list of every second CPU of
/// the largest machine, and `mountinfo` of a host with many containers.
const MAX_FILE: u64 = 4 << 20;

pub(crate) fn text(path: &Path) -> Result<Option<String>, Error> {
    let mut bytes = Vec::new();
    let read = open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes));
    match read {
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(Error::unreadable(path, error)),
        Ok(_) => {}
    }
    let malformed = |bytes: &[u8], at, expected, found| {
        Error::malformed(path, bytes, Mismatch { at, expected, found })
    };
    if bytes.len() as u64 > MAX_FILE {
        let expected = format!("the end within {MAX_FILE} bytes");
        return Err(malformed(&bytes, MAX_FILE as usize, expected, "more".to_owned()));
    }
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let (at, bytes) = (error.utf8_error().valid_up_to(), error.as_bytes());
        malformed(bytes, at, "text in UTF-8".to_owned(), format!("byte 0x{:02x}", bytes[at]))
    })
}

/// Opens a regular file. Files that block or never end, such as pipes, are rejected.
fn open(path: &Path) -> io::Result<File> {
    // Without O_NONBLOCK, opening a pipe waits for its other end.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

pub(crate) fn list(path: &Path) -> Result<Option<CpuSet>, Error> {
    parsed(path, list::parse)
}

/// Reads a file with a CPU list. Returns the empty set if the file does not exist or contains
/// `(null)`, which the kernel prints for a mask that it never set up.
pub(crate) fn list_or_null(path: &Path) -> Result<CpuSet, Error> {
    let parse = |text: &str| {
        if text.trim() == "(null)" { Ok(CpuSet::new()) } else { list::parse(text) }
    };
    Ok(parsed(path, parse)?.unwrap_or_default())
}

pub(crate) fn number(path: &Path, what: &str, max: u32) -> Result<Option<u32>, Error> {
    lone(path, |cursor| cursor.number(what, 0, max))
}

/// Reads a number from a file. Also returns `None` if the number is negative (unknown).
pub(crate) fn number_or_unknown(path: &Path, what: &str) -> Result<Option<u32>, Error> {
    let number = lone(path, |cursor| {
        let is_unknown = cursor.eat(&['-']);
        let number = cursor.number(what, 0, i32::MAX as u32)?;
        Ok(Some(number).filter(|_| !is_unknown))
    })?;
    Ok(number.flatten())
}

/// Reads a size such as `32K` from a file, and returns it in bytes.
pub(crate) fn size(path: &Path) -> Result<Option<u64>, Error> {
    const UNITS: [(char, u32); 3] = [('K', 10), ('M', 20), ('G', 30)];
    lone(path, |cursor| {
        let number = cursor.number("a size", 0, u32::MAX)?;
        let unit = UNITS.iter().find(|(unit, _)| cursor.eat(&[*unit]));
        Ok(u64::from(number) << unit.map_or(0, |(_, shift)| *shift))
    })
}

pub(crate) fn one_of(path: &Path, words: &[&'static str]) -> Result<Option<&'static str>, Error> {
    lone(path, |cursor| {
        let start = cursor.at();
        let word = cursor.take_while(char::is_alphanumeric);
        let known = words.iter().find(|known| **known == word).copied();
        known.ok_or_else(|| cursor.mismatch_at(start, format!("one of {}", words.join(", "))))
    })
}

/// Returns the entries of a directory that are `prefix` and a number, ordered by the numbers.
pub(crate) fn numbered(dir: &Path, prefix: &str) -> Result<Option<Vec<(u32, PathBuf)>>, Error> {
    let entries = match fs::read_dir(dir) {
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(Error::unreadable(dir, error)),
        Ok(entries) => entries,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Error::unreadable(dir, error))?;
        let number = entry.file_name().to_str().and_then(|name| {
            let digits = name.strip_prefix(prefix)?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
        });
        if let Some(number) = number {
            let new = (number, entry.path());
            let at = found.partition_point(|other| *other < new);
            found.insert(at, new);
        }
    }
    Ok(Some(found))
}

pub(crate) fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

pub(crate) fn parsed<T>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, Mismatch>,
) -> Result<Option<T>, Error> {
    let Some(text) = text(path)? else {
        return Ok(None);
    };
    parse(&text).map(Some).map_err(|mismatch| Error::malformed(path, text.as_bytes(), mismatch))
}

/// Reads a file that must contain exactly one value.
pub(crate) fn lone<T>(
    path: &Path,
    read: impl FnOnce(&mut Cursor<'_>) -> Result<T, Mismatch>,
) -> Result<Option<T>, Error> {
    parsed(path, |text| {
        let mut cursor = Cursor::new(text);
        cursor.skip_whitespace();
        let value = read(&mut cursor)?;
        cursor.skip_whitespace();
        if cursor.is_at_end() { Ok(value) } else { Err(cursor.mismatch("the end")) }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    #[test]
    fn non_regular_file_is_rejected_without_blocking() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let made = Command::new("mkfifo").arg(path("pipe")).status();
        assert!(made.unwrap().success());
        symlink("/dev/zero", path("endless")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        for name in ["pipe", "endless", "directory"] {
            let error = text(&path(name)).unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
        // These are paths of a real tree.
        let cpu = path("devices/system/cpu");
        fs::create_dir_all(&cpu).unwrap();
        fs::rename(path("pipe"), cpu.join("online")).unwrap();
        let error = crate::Topology::from_sysfs(root.path()).unwrap_err();
        assert!(error.to_string().contains("online: cannot be read"), "{error}");
        assert_eq!(text(&path("absent")).unwrap(), None);
    }
}
