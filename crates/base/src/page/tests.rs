use proptest::prelude::*;

use super::image::{Image, Origin};
use super::layout::{self, head, record};
use super::sources::join;
use super::*;

fn origin() -> Origin {
    Origin { pid: 7, start_time: 4711, name: "test".to_owned(), written_ns: 5, took_ns: 3 }
}

fn bytes(image: &Image, is_written: bool) -> Vec<u8> {
    let mut bytes = image.head(&origin(), is_written).to_vec();
    bytes.resize(layout::HEAD_BYTES, 0);
    bytes.extend_from_slice(&image.bytes());
    bytes
}

fn figures(kind: Kind) -> Vec<u64> {
    (0..kind.fields().len() as u64).map(|i| i * i).collect()
}

fn sample() -> Vec<u8> {
    let mut image = Image::new(4);
    for kind in Kind::ALL {
        image.add(kind, "name", "detail", &figures(kind));
    }
    bytes(&image, true)
}

fn seal(bytes: &mut [u8]) {
    let sum = layout::check(&bytes[..head::CHECK]);
    layout::put(bytes, head::CHECK, &sum.to_le_bytes());
    for record in bytes[layout::HEAD_BYTES..].chunks_exact_mut(layout::RECORD_BYTES) {
        let sum = layout::check(&record[..record::CHECK]);
        layout::put(record, record::CHECK, &sum.to_le_bytes());
    }
}

fn refusal(change: impl FnOnce(&mut Vec<u8>)) -> Refusal {
    let mut bytes = sample();
    change(&mut bytes);
    seal(&mut bytes);
    Page::read(&bytes).unwrap_err()
}

#[test]
fn written_records_are_read_back() {
    let page = Page::read(&sample()).unwrap();
    assert!(page.is_whole());
    assert_eq!((page.pid, page.start_time, page.round), (7, 4711, 4));
    assert_eq!((page.written_ns, page.took_ns), (5, 3));
    assert_eq!(page.name, "test");
    assert_eq!(page.records.len(), Kind::ALL.len());
    for (record, kind) in page.records.iter().zip(Kind::ALL) {
        assert_eq!((record.kind, &*record.name), (kind, "name"));
        assert_eq!(record.detail, "detail");
        let read: Vec<_> = record.figures().map(|(_, figure)| figure).collect();
        assert_eq!(read, figures(kind));
    }
    assert_eq!(page.records[0].figure("max_active"), Some(4));
    assert_eq!(page.records[0].figure("nosuch"), None);
}

#[test]
fn figures_of_a_kind_fit_and_have_names_that_differ() {
    for kind in Kind::ALL {
        assert!(kind.fields().len() <= layout::MAX_FIGURES);
        assert_eq!(kinds::Kind::from_number(kind as u16), Some(kind));
        let mut names: Vec<_> = kind.fields().iter().map(|field| field.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), kind.fields().len(), "{kind:?}");
    }
}

#[test]
fn names_are_cut_at_a_letter_and_have_no_control_characters() {
    let mut image = Image::new(2);
    let long = "ä".repeat(100);
    image.add(Kind::Rcu, &long, "\x1b[31m\n", &figures(Kind::Rcu));
    let page = Page::read(&bytes(&image, true)).unwrap();
    let half = "ä".repeat(15);
    assert_eq!(page.records[0].name, format!("{half}…{half}"));
    assert_eq!(page.records[0].detail, "?[31m?");
}

#[test]
fn long_details_that_differ_at_their_ends_stay_different() {
    let mut image = Image::new(2);
    let same = "tenants-of-the-third-shard-of-europe";
    let details = ["1", "2"].map(|end| format!("cache_shard, {same}-{end}"));
    details.iter().for_each(|it| image.add(Kind::Rcu, "rcu", it, &figures(Kind::Rcu)));
    let page = Page::read(&bytes(&image, true)).unwrap();
    let [first, second] = [0, 1].map(|at| page.records[at].detail.as_str());
    assert_eq!(first, "cache_shard, tenant…-shard-of-europe-1");
    assert_ne!(first, second);
    assert!(first.len() <= record::DETAIL.len());
}

#[test]
fn a_part_that_panics_or_whose_drop_does_hides_no_other() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any("the drop of a part");
        }
    }
    let bomb = Bomb;
    let broken = join(move |_| {
        let _ = &bomb;
        std::panic::panic_any("a part");
    });
    let whole = join(|image| image.add(Kind::Pool, "whole", "", &figures(Kind::Pool)));
    let mut image = Image::new(4);
    sources::describe_all(&mut image);
    drop((broken, whole));
    let page = Page::read(&bytes(&image, true)).unwrap();
    assert!(page.of(Kind::Pool).any(|pool| pool.name == "whole"));
}

#[test]
fn records_beyond_the_capacity_are_counted() {
    let mut image = Image::new(2);
    for _ in 0..MAX_RECORDS + 3 {
        image.add(Kind::Rcu, "", "", &figures(Kind::Rcu));
    }
    let page = Page::read(&bytes(&image, true)).unwrap();
    assert_eq!((page.records.len(), page.nr_left_out), (MAX_RECORDS, 3));
}

#[test]
fn page_that_is_being_written_is_not_whole() {
    let mut image = Image::new(4);
    image.add(Kind::Rcu, "", "", &figures(Kind::Rcu));
    let page = Page::read(&bytes(&image, false)).unwrap();
    assert!(!page.is_whole());
    // The other records belong to the unfinished round.
    assert_eq!((page.records.len(), page.nr_torn), (0, 1));
}

#[test]
fn torn_record_is_omitted_and_counted() {
    let mut bytes = sample();
    bytes[layout::HEAD_BYTES + record::FIGURES] ^= 1;
    let page = Page::read(&bytes).unwrap();
    assert_eq!((page.nr_torn, page.is_whole()), (1, false));
    assert_eq!(page.records.len(), Kind::ALL.len() - 1);
}

#[test]
fn each_reason_to_reject_a_page_is_named() {
    let first = layout::HEAD_BYTES;
    for (at, value, expected) in [
        (0, &b"x"[..], Refusal::NoPage),
        (head::VERSION, &[9], Refusal::Version(9)),
        (head::RECORD_BYTES, &[0; 4], Refusal::RecordBytes(0)),
        (head::NR_RECORDS, &[255; 4], Refusal::NrRecords(u32::MAX)),
        (head::NAME.start, b"\x1b", Refusal::Text),
        (head::NAME.start, b"\xff", Refusal::Text),
        (first + record::NR_FIGURES, &[255; 2], Refusal::NrFigures(u16::MAX)),
        (first + record::DETAIL.start, b"a\x07", Refusal::Text),
    ] {
        assert_eq!(refusal(|bytes| layout::put(bytes, at, value)), expected);
    }
    let short = |bytes: &mut Vec<u8>| bytes.truncate(layout::HEAD_BYTES + layout::RECORD_BYTES);
    assert_eq!(refusal(short), Refusal::NrRecords(Kind::ALL.len() as u32));
    let long = vec![0; MAX_BYTES + 1];
    assert_eq!(Page::read(&long), Err(Refusal::TooLong(MAX_BYTES + 1)));
    let mut damaged = sample();
    damaged[head::PID] ^= 1;
    assert_eq!(Page::read(&damaged), Err(Refusal::TornHead));
}

#[test]
fn kinds_and_figures_of_a_later_writer_are_skipped() {
    let mut bytes = sample();
    let first = layout::HEAD_BYTES;
    layout::put(&mut bytes, first + record::KIND, &99_u16.to_le_bytes());
    let second = first + layout::RECORD_BYTES;
    layout::put(&mut bytes, second + record::NR_FIGURES, &24_u16.to_le_bytes());
    seal(&mut bytes);
    let page = Page::read(&bytes).unwrap();
    assert_eq!((page.nr_unknown, page.nr_torn), (1, 0));
    assert_eq!(page.records[0].figures().count(), Kind::ALL[1].fields().len());
}

proptest! {
    /// A reader does not panic and does not accept more records than the file has.
    #[test]
    fn no_bytes_are_too_strange(
        len in 0_usize..3000,
        noise in prop::collection::vec((0_usize..3000, any::<u8>()), 0..40),
        sealed in any::<bool>(),
    ) {
        let mut bytes = sample();
        bytes.resize(len, 0xa5);
        for (at, byte) in noise {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        if sealed && bytes.len() >= layout::HEAD_BYTES {
            seal(&mut bytes);
        }
        if let Ok(page) = Page::read(&bytes) {
            let nr_seen = page.records.len() + page.nr_torn + page.nr_unknown;
            prop_assert!(layout::HEAD_BYTES + nr_seen * layout::RECORD_BYTES <= bytes.len());
            for record in &page.records {
                prop_assert!(!record.name.contains(char::is_control));
                prop_assert!(record.figures().count() <= record.kind.fields().len());
            }
        }
    }
}
