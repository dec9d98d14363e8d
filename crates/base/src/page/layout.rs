//! The layout of the file. All numbers are little-endian.
//!
//! ```text
//! head:    0 magic | 8 version u32 | 12 record bytes u32 | 16 pid u32 | 20 records u32
//!         24 start time u64 | 32 round u64 | 40 written at, ns u64 | 48 took, ns u64
//!         56 left out u32 | 60 zero | 64 name, 32 bytes | 96 check u64 | 104 asked u32
//!        108 zero, to 256
//! record:  0 kind u16 | 2 figures u16 | 4 zero | 8 round u64 | 16 name, 64 bytes
//!         80 detail, 40 bytes | 120 figures, 24 u64 | 312 check u64
//! ```
//!
//! `round` is odd while the file is being written. A record belongs to the round that it contains.
//! `check` covers all bytes before it, so that a reader detects a torn copy.

/// The version of the format. A reader rejects any other version. New kinds, and new figures at the
/// end of a kind, do not change it.
pub const VERSION: u32 = 2;

/// The maximum number of records in a page.
pub const MAX_RECORDS: usize = 2048;

/// The maximum length of a page, in bytes.
pub const MAX_BYTES: usize = HEAD_BYTES + MAX_RECORDS * RECORD_BYTES;

/// The offset in bytes of the number with which readers ask for a new round.
pub const ASKED_AT: usize = 104;

pub(super) const MAGIC: &[u8; 8] = b"AFTRWORK";
pub(super) const HEAD_BYTES: usize = 256;
pub(super) const RECORD_BYTES: usize = 320;
pub(super) const MAX_FIGURES: usize = 24;

pub(super) mod head {
    use std::ops::Range;

    pub const MAGIC: Range<usize> = 0..8;
    pub const VERSION: usize = 8;
    pub const RECORD_BYTES: usize = 12;
    pub const PID: usize = 16;
    pub const NR_RECORDS: usize = 20;
    pub const START_TIME: usize = 24;
    pub const ROUND: usize = 32;
    pub const WRITTEN_NS: usize = 40;
    pub const TOOK_NS: usize = 48;
    pub const NR_LEFT_OUT: usize = 56;
    pub const NAME: Range<usize> = 64..96;
    pub const CHECK: usize = 96;
    /// The end of the part of the head that the process writes. Readers write the rest.
    pub const END: usize = 104;
}

/// The maximum length of a record's name, in bytes.
pub const NAME_BYTES: usize = record::NAME.end - record::NAME.start;

pub(super) mod record {
    use std::ops::Range;

    pub const KIND: usize = 0;
    pub const NR_FIGURES: usize = 2;
    pub const ROUND: usize = 8;
    pub const NAME: Range<usize> = 16..80;
    pub const DETAIL: Range<usize> = 80..120;
    pub const FIGURES: usize = 120;
    pub const CHECK: usize = 312;
}

pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Returns the checksum of `bytes`, whose length is a multiple of eight: FNV-1a on 64-bit words,
/// with a rotation so that the high bits affect the low ones.
pub(super) fn check(bytes: &[u8]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.chunks_exact(8).fold(BASIS, |sum, word| {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        (sum ^ word).wrapping_mul(PRIME).rotate_left(29)
    })
}

/// Returns the longest prefix of `text` that fits in `room` bytes.
pub(super) fn cut(text: &str, room: usize) -> &str {
    let mut len = text.len().min(room);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    &text[..len]
}
