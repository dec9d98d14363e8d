//! The contents of the file, made in the process's memory first.

use std::ops::Range;

use super::{
    kinds::Kind,
    layout::{
        HEAD_BYTES, MAGIC, MAX_RECORDS, RECORD_BYTES, VERSION, check, cut, head, put, record,
    },
};

/// The contents of one round.
#[derive(Debug)]
pub(crate) struct Image {
    /// All records of this round.
    records: Vec<u8>,
    round: u64,
    nr_left_out: u32,
}

/// Whose file it is, and when it was written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    pub(crate) pid: u32,
    pub(crate) start_time: u64,
    pub(crate) name: String,
    pub(crate) written_ns: u64,
    pub(crate) took_ns: u64,
}

impl Image {
    /// Starts the image of `round`, which is even.
    pub(crate) fn new(round: u64) -> Self {
        Self {
            records: Vec::new(),
            round,
            nr_left_out: 0,
        }
    }

    /// Adds a record. `figures` are those of the kind, in the order of its table.
    pub(crate) fn add(&mut self, kind: Kind, name: &str, detail: &str, figures: &[u64]) {
        debug_assert_eq!(figures.len(), kind.fields().len(), "{kind:?}");
        if self.nr_records() == MAX_RECORDS {
            self.nr_left_out += 1;
            return;
        }
        let mut bytes = [0; RECORD_BYTES];
        put(&mut bytes, record::KIND, &(kind as u16).to_le_bytes());
        let nr_figures = figures.len() as u16;
        put(&mut bytes, record::NR_FIGURES, &nr_figures.to_le_bytes());
        put(&mut bytes, record::ROUND, &self.round.to_le_bytes());
        for (text, place) in [(name, record::NAME), (detail, record::DETAIL)] {
            put_text(&mut bytes, place, text);
        }
        for (i, figure) in figures.iter().enumerate() {
            put(&mut bytes, record::FIGURES + 8 * i, &figure.to_le_bytes());
        }
        let sum = check(&bytes[..record::CHECK]);
        put(&mut bytes, record::CHECK, &sum.to_le_bytes());
        self.records.extend_from_slice(&bytes);
    }

    /// Returns the bytes of all records, which follow the head.
    pub(super) fn records(&self) -> &[u8] {
        &self.records
    }

    /// Returns the head of the file while the records are written, or when they are.
    pub(super) fn head(&self, origin: &Origin, is_written: bool) -> [u8; head::END] {
        let mut bytes = [0; head::END];
        let round = if is_written {
            self.round
        } else {
            self.round.wrapping_sub(1)
        };
        put(&mut bytes, head::MAGIC.start, MAGIC);
        put(&mut bytes, head::VERSION, &VERSION.to_le_bytes());
        let record_bytes = RECORD_BYTES as u32;
        put(&mut bytes, head::RECORD_BYTES, &record_bytes.to_le_bytes());
        put(&mut bytes, head::PID, &origin.pid.to_le_bytes());
        let nr_records = self.nr_records() as u32;
        put(&mut bytes, head::NR_RECORDS, &nr_records.to_le_bytes());
        put(
            &mut bytes,
            head::START_TIME,
            &origin.start_time.to_le_bytes(),
        );
        put(&mut bytes, head::ROUND, &round.to_le_bytes());
        put(
            &mut bytes,
            head::WRITTEN_NS,
            &origin.written_ns.to_le_bytes(),
        );
        put(&mut bytes, head::TOOK_NS, &origin.took_ns.to_le_bytes());
        put(
            &mut bytes,
            head::NR_LEFT_OUT,
            &self.nr_left_out.to_le_bytes(),
        );
        put_text(&mut bytes, head::NAME, &origin.name);
        let sum = check(&bytes[..head::CHECK]);
        put(&mut bytes, head::CHECK, &sum.to_le_bytes());
        bytes
    }

    /// Returns how long the file is to be.
    pub(super) fn file_bytes(&self) -> usize {
        HEAD_BYTES + self.records.len()
    }

    fn nr_records(&self) -> usize {
        self.records.len() / RECORD_BYTES
    }
}

/// Puts text as far as there is room, in the form in which a reader believes it.
fn put_text(bytes: &mut [u8], place: Range<usize>, text: &str) {
    let text = text.replace(char::is_control, "?");
    put(bytes, place.start, cut(&text, place.len()).as_bytes());
}
