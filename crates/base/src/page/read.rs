//! Reads the file.
//!
//! The file may contain any bytes. A number is used as a length, an offset or an index only after a
//! comparison with the actual length. Text must be UTF-8 without control characters.

use super::kinds::{Kind, Record};
use super::layout::{
    HEAD_BYTES, MAGIC, MAX_BYTES, MAX_FIGURES, RECORD_BYTES, VERSION, check, head, record, u16_at,
    u32_at, u64_at,
};

/// A page that a process has published.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Page {
    /// The PID of the process.
    pub pid: u32,
    /// The time at which the process started, in clock ticks since the machine started.
    pub start_time: u64,
    /// The process's name.
    pub name: String,
    /// The round, which increases by two with every write and is odd while the page is being
    /// written.
    pub round: u64,
    /// The time at which the page was written, by the machine's monotonic clock, in nanoseconds.
    pub written_ns: u64,
    /// The time that the process took to write it, in nanoseconds.
    pub took_ns: u64,
    /// The records.
    pub records: Vec<Record>,
    /// The number of records that did not fit.
    pub nr_left_out: u32,
    /// The number of records of a kind that this reader does not know.
    pub nr_unknown: usize,
    /// The number of records that were being written or belong to another round. If it is not 0,
    /// read the page again.
    pub nr_torn: usize,
}

/// The error of [`Page::read`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The file is too short for a head.
    TooShort(usize),
    /// The file is longer than any page.
    TooLong(usize),
    /// The file does not begin as a page does.
    NoPage,
    /// The page has a different version.
    Version(u32),
    /// The records have a different size than in this version.
    RecordBytes(u32),
    /// The head claims more records than the file contains.
    NrRecords(u32),
    /// The head does not match its checksum, because it was being written or is damaged.
    TornHead,
    /// A record claims more figures than it can contain.
    NrFigures(u16),
    /// A name is not UTF-8 or contains control characters.
    Text,
}

impl Page {
    /// Reads a page from a copy of the file.
    ///
    /// # Errors
    ///
    /// See [`Refusal`]. After [`Refusal::TornHead`], read the file again.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::page::{Page, Refusal};
    ///
    /// assert_eq!(Page::read(b"nothing"), Err(Refusal::TooShort(7)));
    /// assert_eq!(Page::read(&[0; 256]), Err(Refusal::NoPage));
    /// ```
    pub fn read(bytes: &[u8]) -> Result<Self, Refusal> {
        let (head, body) = split(bytes)?;
        let promised = u32_at(head, head::NR_RECORDS);
        let nr_records = promised as usize;
        if nr_records > body.len() / RECORD_BYTES {
            return Err(Refusal::NrRecords(promised));
        }
        let mut page = Self {
            pid: u32_at(head, head::PID),
            start_time: u64_at(head, head::START_TIME),
            name: text(&head[head::NAME])?,
            round: u64_at(head, head::ROUND),
            written_ns: u64_at(head, head::WRITTEN_NS),
            took_ns: u64_at(head, head::TOOK_NS),
            nr_left_out: u32_at(head, head::NR_LEFT_OUT),
            ..Self::default()
        };
        for bytes in body.chunks_exact(RECORD_BYTES).take(nr_records) {
            let is_whole = fits(bytes, record::CHECK);
            if !is_whole || u64_at(bytes, record::ROUND) != page.round {
                page.nr_torn += 1;
                continue;
            }
            match Kind::from_number(u16_at(bytes, record::KIND)) {
                Some(kind) => page.records.push(Record::read(kind, bytes)?),
                None => page.nr_unknown += 1,
            }
        }
        Ok(page)
    }

    /// Returns `true` if the page was not being written while it was read.
    pub fn is_whole(&self) -> bool {
        self.nr_torn == 0 && self.round.is_multiple_of(2)
    }

    /// Returns the records of a kind, in the order in which their subjects were created.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |record| record.kind == kind)
    }
}

impl Record {
    fn read(kind: Kind, bytes: &[u8]) -> Result<Self, Refusal> {
        let nr_figures = u16_at(bytes, record::NR_FIGURES);
        if usize::from(nr_figures) > MAX_FIGURES {
            return Err(Refusal::NrFigures(nr_figures));
        }
        // A newer writer adds unknown figures at the end.
        let nr_known = usize::from(nr_figures).min(kind.fields().len());
        Ok(Self {
            kind,
            name: text(&bytes[record::NAME])?,
            detail: text(&bytes[record::DETAIL])?,
            figures: (0..nr_known).map(|i| u64_at(bytes, record::FIGURES + 8 * i)).collect(),
        })
    }
}

/// Checks the head, and returns it and the rest of the file.
fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    if bytes.len() > MAX_BYTES {
        return Err(Refusal::TooLong(bytes.len()));
    }
    let (head, body) = bytes.split_at_checked(HEAD_BYTES).ok_or(Refusal::TooShort(bytes.len()))?;
    if head[head::MAGIC] != MAGIC[..] {
        return Err(Refusal::NoPage);
    }
    // The version is checked first, because the checksum may be elsewhere in another one.
    let version = u32_at(head, head::VERSION);
    if version != VERSION {
        return Err(Refusal::Version(version));
    }
    if !fits(head, head::CHECK) {
        return Err(Refusal::TornHead);
    }
    let record_bytes = u32_at(head, head::RECORD_BYTES);
    if record_bytes as usize != RECORD_BYTES {
        return Err(Refusal::RecordBytes(record_bytes));
    }
    Ok((head, body))
}

fn fits(bytes: &[u8], at: usize) -> bool {
    // A fuzzer would never produce a matching checksum.
    cfg!(fuzzing) || check(&bytes[..at]) == u64_at(bytes, at)
}

/// Returns the text up to the first zero byte, or all of `place`.
fn text(place: &[u8]) -> Result<String, Refusal> {
    let end = place.iter().position(|&byte| byte == 0).unwrap_or(place.len());
    let text = std::str::from_utf8(&place[..end]).map_err(|_| Refusal::Text)?;
    // A terminal would execute an escape sequence.
    if text.chars().any(char::is_control) {
        return Err(Refusal::Text);
    }
    Ok(text.to_owned())
}

topology::impl_error!(Refusal {
    TooShort(bytes) => InvalidData, "the file is too short for a page: {bytes} bytes";
    TooLong(bytes) => InvalidData, "the file is longer than any page: {bytes} bytes";
    NoPage => InvalidData, "it does not start like a page";
    Version(version) => InvalidData, "it has version {version}; this program reads version {VERSION}";
    RecordBytes(bytes) => InvalidData, "its records have {bytes} bytes instead of {RECORD_BYTES}";
    NrRecords(count) => InvalidData, "it is too short for the {count} records in its head";
    TornHead => InvalidData, "the checksum of its head is wrong";
    NrFigures(count) => InvalidData, "a record is too short for its {count} figures";
    Text => InvalidData, "a name in it is not UTF-8 or contains a control character";
});
