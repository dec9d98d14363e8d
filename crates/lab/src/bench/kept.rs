//! Saved programs and their results, for later comparison.
//!
//! They are stored per user, in `$XDG_DATA_HOME/afterwork/kept` or otherwise in
//! `~/.local/share/afterwork/kept`, with one folder per name. The old results alone are not enough,
//! because the speed of a machine drifts by more than three percent within a day. The program is
//! therefore saved too.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use top::exit::Stop;

use crate::output::record::{Line, line};

/// The names of the files in the folder of a saved program.
const PROGRAM: &str = "afterwork";
const RECORDS: &str = "run.jsonl";
/// The names of the files while they are written.
const NEW: &str = "afterwork.new";
const NEW_RECORDS: &str = "run.jsonl.new";

const LONGEST_NAME: usize = 64;

/// Parses the name of a saved program: a plain file name that cannot refer to another folder.
pub fn name(word: &str) -> Result<String, String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let is_name = (1..=LONGEST_NAME).contains(&word.len())
        && word.chars().all(is_plain)
        && !word.starts_with(['.', '-']);
    if is_name {
        Ok(word.into())
    } else {
        Err("a name consists of letters, digits, - _ . and begins with a letter or digit".into())
    }
}

/// The folder of all saved programs.
#[derive(Clone, Debug)]
pub struct Shelf(PathBuf);

impl Shelf {
    /// Returns the folder of the current user.
    ///
    /// # Errors
    ///
    /// Returns an error if neither `XDG_DATA_HOME` nor `HOME` is set.
    pub fn find() -> Result<Self, Stop> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        Self::of(set("XDG_DATA_HOME"), set("HOME"))
    }

    /// Does the same as [`find`](Self::find), with the given values of the two variables.
    fn of(data: Option<OsString>, home: Option<OsString>) -> Result<Self, Stop> {
        // The XDG standard requires relative paths to be ignored.
        let data = data.map(PathBuf::from).filter(|it| it.is_absolute());
        let home = || Some(PathBuf::from(home?).join(".local/share"));
        let data = data.or_else(home).ok_or_else(|| {
            Stop::CouldNotRun("no directory to save to: set XDG_DATA_HOME or HOME".into())
        })?;
        Ok(Self(data.join("afterwork/kept")))
    }

    /// Checks that the folder `name` in the folder of the current user is writable, and returns the
    /// latter.
    ///
    /// # Errors
    ///
    /// Returns an error if [`find`](Self::find) fails or the folder is not writable.
    pub fn for_keeping(name: &str) -> Result<Self, Stop> {
        let shelf = Self::find()?;
        shelf.may_keep(name)?;
        Ok(shelf)
    }

    fn may_keep(&self, name: &str) -> Result<(), Stop> {
        let folder = self.0.join(name);
        let is_new = !folder.exists();
        let probe = || {
            fs::create_dir_all(&folder)?;
            let new = folder.join(NEW);
            File::create(&new)?;
            fs::remove_file(new)
        };
        let probed: std::io::Result<()> = probe();
        if is_new {
            // The folder is removed, so that a run that saves nothing leaves no folder behind.
            let _ = fs::remove_dir(&folder);
        }
        probed.map_err(|error| Stop::because(&format!("cannot save {}", folder.display()), error))
    }

    /// Saves `program` and its results under `name`, replacing earlier ones. Returns the folder.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written.
    pub fn keep(&self, name: &str, program: &Path, lines: &[Line]) -> Result<PathBuf, Stop> {
        let folder = self.0.join(name);
        let keep = || {
            fs::create_dir_all(&folder)?;
            // New files are written first, because the old program may be running and must stay
            // intact if the disk is full.
            let [new, new_records] = [NEW, NEW_RECORDS].map(|name| folder.join(name));
            fs::copy(program, &new)?;
            let mut out = BufWriter::new(File::create(&new_records)?);
            for record in lines {
                writeln!(out, "{}", line(record))?;
            }
            out.flush()?;
            fs::rename(new, folder.join(PROGRAM))?;
            fs::rename(new_records, folder.join(RECORDS))
        };
        let kept: std::io::Result<()> = keep();
        if kept.is_err() {
            // Partial files are removed, because the disk may be full.
            for name in [NEW, NEW_RECORDS] {
                let _ = fs::remove_file(folder.join(name));
            }
            let _ = fs::remove_dir(&folder);
        }
        kept.map_err(|error| Stop::because(&format!("cannot save {}", folder.display()), error))?;
        Ok(folder)
    }

    /// Returns the path of the program that was saved under `name`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such program. The message lists the existing names.
    pub fn program(&self, name: &str) -> Result<PathBuf, Stop> {
        let program = self.0.join(name).join(PROGRAM);
        if program.is_file() {
            return Ok(program);
        }
        let names = self.names();
        let there_are = if names.is_empty() {
            "no program is saved yet: `afterwork-lab bench --save NAME` saves one".into()
        } else {
            format!("saved programs: {}", names.join(", "))
        };
        Err(Stop::CouldNotRun(format!(
            "--against {name}: no program of this name is saved in {}; {there_are}",
            self.0.display()
        )))
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let kept = entries.filter(|entry| entry.path().join(PROGRAM).is_file());
        let mut names: Vec<String> =
            kept.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_lead_elsewhere() {
        for good in ["before", "v1.2", "a_b-c"] {
            assert_eq!(name(good).unwrap(), good);
        }
        for bad in ["", ".", "..", ".x", "-x", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn unknown_saved_name_is_reported_with_the_known_ones() {
        let root = tempfile::tempdir().unwrap();
        let shelf = Shelf(root.path().join("kept"));
        let reason = |name| match shelf.program(name) {
            Err(Stop::CouldNotRun(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert!(reason("old").contains("no program is saved yet"));
        let program = root.path().join("program");
        for text in ["one", "two"] {
            fs::write(&program, text).unwrap();
            shelf.keep("old", &program, &[]).unwrap();
        }
        // A failed save replaces nothing.
        fs::create_dir(root.path().join("kept/old").join(NEW_RECORDS)).unwrap();
        fs::write(&program, "three").unwrap();
        assert!(shelf.keep("old", &program, &[]).is_err());
        assert!(!root.path().join("kept/old").join(NEW).exists());
        assert_eq!(fs::read_to_string(shelf.program("old").unwrap()).unwrap(), "two");
        assert!(reason("new").ends_with("saved programs: old"));
    }

    #[test]
    fn relative_data_folder_is_ignored() {
        let of = |data: &str| {
            let shelf = Shelf::of(Some(data.into()), Some("/home/a".into()));
            shelf.unwrap().0
        };
        assert_eq!(of("/data"), Path::new("/data/afterwork/kept"));
        assert_eq!(of("rel"), Path::new("/home/a/.local/share/afterwork/kept"));
        assert!(Shelf::of(Some("rel".into()), None).is_err());
    }

    #[test]
    fn unusable_names_are_rejected_before_anything_is_saved() {
        let root = tempfile::tempdir().unwrap();
        let shelf = Shelf(root.path().join("kept"));
        shelf.may_keep("new").unwrap();
        assert!(!root.path().join("kept/new").exists());
        fs::write(root.path().join("kept/taken"), "").unwrap();
        let refused = shelf.may_keep("taken");
        assert!(
            matches!(refused, Err(Stop::CouldNotRun(reason)) if reason.contains("cannot save"))
        );
    }
}
