//! The reader of `/dev/shm/afterwork-PID` against whatever a hostile process writes there.
//!
//! In this build checks fit always (`cfg(fuzzing)` in the reader), so that what lies behind them is reached. What must
//! hold of a page that is not refused: no more comes out of it than went in, names are text that no terminal obeys, and
//! everything that can be asked of it is answered.
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
