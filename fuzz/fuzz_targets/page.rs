//! Fuzzes the reader of `/dev/shm/afterwork-PID`, to which a hostile process may write anything.
//!
//! In this build checksums always match (`cfg(fuzzing)` in the reader), so that the code behind the
//! check is reached. In an accepted page, the records have no more bytes than the input, names
//! contain no control characters, and every query returns.
#![no_main]

use afterwork::page::{Kind, Page};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(page) = Page::read(bytes) else { return };
    let mut nr_bytes = page.name.len();
    assert_plain(&page.name);
    let records = Kind::ALL.into_iter().flat_map(|kind| page.of(kind));
    for record in records {
        assert_plain(&record.name);
        assert_plain(&record.detail);
        nr_bytes += record.name.len() + record.detail.len();
        for (field, figure) in record.figures() {
            assert_eq!(record.figure(field.name), Some(figure));
            nr_bytes += size_of_val(&figure);
        }
    }
    assert!(nr_bytes <= bytes.len());
    page.is_whole();
});

fn assert_plain(text: &str) {
    assert!(!text.chars().any(char::is_control), "{text:?}");
}
