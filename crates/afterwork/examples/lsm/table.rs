//! Files of records: logs, and sorted tables.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

pub type Records = BTreeMap<u64, u64>;

/// The name of a file: the number of its newest in-memory table, and the number of compactions.
pub type Name = (u64, u64);

/// The size of a key and a value.
const RECORD: usize = 16;

/// A file of sorted records.
pub struct Table {
    pub name: Name,
    pub path: PathBuf,
    file: File,
    nr_records: u64,
    /// Set if dropping the table deletes the file.
    is_obsolete: AtomicBool,
}

impl Table {
    /// Writes `records` to a new file, which appears complete or not at all.
    pub fn write(dir: &Path, name: Name, records: &Records) -> io::Result<Self> {
        let bytes: Vec<u8> = records.iter().flat_map(|(key, value)| encode(*key, *value)).collect();
        let unfinished = path_of(dir, name, "unfinished");
        fs::write(&unfinished, bytes)?;
        File::open(&unfinished)?.sync_data()?;
        fs::rename(unfinished, path_of(dir, name, "table"))?;
        Self::open(dir, name)
    }

    pub fn open(dir: &Path, name: Name) -> io::Result<Self> {
        let path = path_of(dir, name, "table");
        let file = File::open(&path)?;
        Ok(Self {
            name,
            path,
            nr_records: file.metadata()?.len() / RECORD as u64,
            file,
            is_obsolete: AtomicBool::new(false),
        })
    }

    pub fn get(&self, key: u64) -> io::Result<Option<u64>> {
        let (mut low, mut high) = (0, self.nr_records);
        while low < high {
            let middle = (low + high) / 2;
            let mut record = [0; RECORD];
            let place = middle * RECORD as u64;
            self.file.read_exact_at(&mut record, place)?;
            let (found, value) = decode(&record);
            match found.cmp(&key) {
                std::cmp::Ordering::Equal => return Ok(Some(value)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    pub fn records(&self) -> io::Result<Records> {
        read(&self.path)
    }

    pub fn retire(&self) {
        self.is_obsolete.store(true, Relaxed);
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.is_obsolete.load(Relaxed) {
            fs::remove_file(&self.path).expect("no other thread deletes it");
        }
    }
}

/// Reads all complete records of a file. If a key has several records, the last one counts.
pub fn read(path: &Path) -> io::Result<Records> {
    let bytes = fs::read(path)?;
    Ok(bytes.as_chunks().0.iter().map(decode).collect())
}

pub fn encode(key: u64, value: u64) -> [u8; RECORD] {
    ((u128::from(key) << 64) | u128::from(value)).to_be_bytes()
}

fn decode(record: &[u8; RECORD]) -> (u64, u64) {
    let both = u128::from_be_bytes(*record);
    ((both >> 64) as u64, both as u64)
}

pub fn path_of(dir: &Path, name: Name, kind: &str) -> PathBuf {
    dir.join(format!("{:08}-{:08}.{kind}", name.0, name.1))
}

/// Returns the names of all files of the given kind, the oldest first.
pub fn list(dir: &Path, kind: &str) -> io::Result<Vec<Name>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let file = entry?.file_name().into_string();
        let name = file.ok().and_then(|file| {
            let (number, rest) = file.split_once('-')?;
            let (compacted, its_kind) = rest.split_once('.')?;
            let name = (number.parse().ok()?, compacted.parse().ok()?);
            (its_kind == kind).then_some(name)
        });
        names.extend(name);
    }
    names.sort_unstable();
    Ok(names)
}
