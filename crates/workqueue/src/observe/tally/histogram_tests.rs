//! Histograms compared with the durations that were added.

use super::*;

#[test]
fn each_number_of_cycles_has_a_bucket_and_buckets_are_in_order() {
    for cycles in (0..5000).chain((3..41).flat_map(|i| [(1 << i) - 1, 1 << i, (1 << i) + 1])) {
        let at = place(cycles);
        assert!(cycles <= most(at), "{cycles} at {at}");
        assert!(at == 0 || most(at - 1) < cycles, "{cycles} at {at}");
    }
    assert_eq!(place(u64::MAX), PLACES - 1);
    assert!((0..PLACES - 1).all(|at| most(at) < most(at + 1)));
}

#[test]
fn cycles_are_reported_as_nanoseconds_of_the_right_bucket() {
    let mut cycles = Cycles::default();
    let per_us = time::cycles_per_us();
    cycles.add(100 * per_us, 3);
    cycles.add_measured(5_000_000 * per_us, 1, 5_000_000 * per_us);
    let recorded = cycles.recorded();
    assert_eq!((recorded.count, recorded.total_ns), (4, 5_000_300_000));
    assert!((100_000..=262_144).contains(&recorded.quantile_ns(0.5)));
    assert!((5_000_000_000..20_000_000_000).contains(&recorded.quantile_ns(1.0)));
}

#[test]
fn huge_waits_are_recorded_or_saturate() {
    let mut cycles = Cycles::default();
    let hour = 3_600_000_000 * time::cycles_per_us();
    cycles.add(4 * hour, 1_000_000);
    assert_eq!(cycles.recorded().mean_ns(), 4.0 * 3.6e12);
    cycles.add(4 * hour, 1_000_000);
    cycles.take_back(4 * hour, 1_000_000);
    assert_eq!(cycles.recorded().total_ns, 4 * 3_600_000_000_000 * 1_000_000);
    let mut twice = cycles.recorded();
    twice.merge(&cycles.recorded());
    cycles.add(4 * hour, 1_000_000);
    assert_eq!((cycles.recorded().total_ns, twice.total_ns), (u64::MAX, u64::MAX));
}

#[test]
fn a_quantile_is_about_there_where_its_bucket_is_full() {
    let mut buckets = vec![0; 33];
    // 20 durations of 4.3 to 8.6 s, and one of a microsecond.
    (buckets[32], buckets[10]) = (20, 1);
    let times = Histogram { count: 21, total_ns: 0, buckets };
    let about_ms = |q| times.about_ns(q) / 1_000_000;
    assert_eq!(times.quantile_ns(0.5), 1 << 33);
    assert_eq!((about_ms(0.0), about_ms(0.5), about_ms(1.0)), (0, 6335, 8482));
    let empty = Histogram::default();
    assert_eq!((empty.about_ns(0.5), empty.quantile_ns(0.5), empty.mean_ns()), (0, 0, 0.0));
}
