//! The contents of the file, which are first assembled in the process's memory.

use std::ops::Range;

use super::kinds::{Kind, Record};
use super::layout::{
    HEAD_BYTES, MAGIC, MAX_RECORDS, RECORD_BYTES, VERSION, check, cut, head, put, record,
};

/// The contents of one round, or the records of a snapshot.
#[derive(Debug, Default)]
pub struct Image {
    /// All records of this round.
    pub records: Vec<Record>,
    round: u64,
    /// `true` if queues and pools must not add records.
    is_for_others: bool,
}

/// The process that the file belongs to, and the time at which the file was written.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    pub pid: u32,
    pub start_time: u64,
    pub name: String,
    pub written_ns: u64,
    pub took_ns: u64,
}

impl Image {
    /// Creates the image of `round`, which must be even.
    pub fn new(round: u64) -> Self {
        Self { round, ..Self::default() }
    }

    /// Creates an image to which queues and pools add no records.
    #[cfg(not(any(loom, shuttle)))]
    pub fn of_others() -> Self {
        Self { is_for_others: true, ..Self::default() }
    }

    /// Returns `true` if queues and pools must add records.
    pub fn wants_queues(&self) -> bool {
        !self.is_for_others
    }

    /// Adds a record. `figures` contains the figures of the kind, in the order of its table.
    pub fn add(&mut self, kind: Kind, name: &str, detail: &str, figures: &[u64]) {
        self.push(Record::new(kind, name.to_owned(), detail.to_owned(), figures.to_vec()));
    }

    /// Adds a record.
    pub fn push(&mut self, record: Record) {
        let nr_figures = record.kind.fields().len();
        debug_assert_eq!(record.figures.len(), nr_figures, "{:?}", record.kind);
        self.records.push(record);
    }

    /// Moves the histograms, and then the records of items, to the end, which a full file omits.
    pub(super) fn sort(&mut self) {
        self.records.sort_by_key(|it| (it.kind.is_transient(), it.kind.is_histogram()));
    }

    /// Returns the bytes of all records that fit, which follow the head.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let records = &self.records[..self.nr_records()];
        records.iter().flat_map(|it| self.bytes_of(it)).collect()
    }

    fn bytes_of(&self, it: &Record) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        put(&mut bytes, record::KIND, &(it.kind as u16).to_le_bytes());
        let nr_figures = it.figures.len() as u16;
        put(&mut bytes, record::NR_FIGURES, &nr_figures.to_le_bytes());
        put(&mut bytes, record::ROUND, &self.round.to_le_bytes());
        put_text(&mut bytes, record::NAME, &it.name);
        put_text(&mut bytes, record::DETAIL, &it.detail);
        for (i, figure) in it.figures.iter().enumerate() {
            put(&mut bytes, record::FIGURES + 8 * i, &figure.to_le_bytes());
        }
        let sum = check(&bytes[..record::CHECK]);
        put(&mut bytes, record::CHECK, &sum.to_le_bytes());
        bytes
    }

    /// Returns the head of the file. If `is_written` is `false`, it is the head during the writing
    /// of the records.
    pub(super) fn head(&self, origin: &Origin, is_written: bool) -> [u8; head::END] {
        let mut bytes = [0; head::END];
        let round = if is_written { self.round } else { self.round.wrapping_sub(1) };
        put(&mut bytes, head::MAGIC.start, MAGIC);
        put(&mut bytes, head::VERSION, &VERSION.to_le_bytes());
        let record_bytes = RECORD_BYTES as u32;
        put(&mut bytes, head::RECORD_BYTES, &record_bytes.to_le_bytes());
        put(&mut bytes, head::PID, &origin.pid.to_le_bytes());
        let nr_records = self.nr_records() as u32;
        let nr_left_out = self.records.len() as u32 - nr_records;
        put(&mut bytes, head::NR_RECORDS, &nr_records.to_le_bytes());
        put(&mut bytes, head::START_TIME, &origin.start_time.to_le_bytes());
        put(&mut bytes, head::ROUND, &round.to_le_bytes());
        put(&mut bytes, head::WRITTEN_NS, &origin.written_ns.to_le_bytes());
        put(&mut bytes, head::TOOK_NS, &origin.took_ns.to_le_bytes());
        put(&mut bytes, head::NR_LEFT_OUT, &nr_left_out.to_le_bytes());
        put_text(&mut bytes, head::NAME, &origin.name);
        let sum = check(&bytes[..head::CHECK]);
        put(&mut bytes, head::CHECK, &sum.to_le_bytes());
        bytes
    }

    pub(super) fn file_bytes(&self) -> usize {
        HEAD_BYTES + self.nr_records() * RECORD_BYTES
    }

    fn nr_records(&self) -> usize {
        self.records.len().min(MAX_RECORDS)
    }
}

/// Writes as much of the text as fits, in a form that readers accept. The middle is left out.
fn put_text(bytes: &mut [u8], place: Range<usize>, text: &str) {
    const GAP: &str = "…";
    let mut text = text.replace(char::is_control, "?");
    if text.len() > place.len() {
        let room = place.len() - GAP.len();
        let mut end = text.len() - room / 2;
        while !text.is_char_boundary(end) {
            end += 1;
        }
        let start = cut(&text, room - room / 2).len();
        text.replace_range(start..end, GAP);
    }
    put(bytes, place.start, text.as_bytes());
}
