//! A counter, which is built on slots.

use crate::support::*;

#[test]
fn sloppy_counter_sums_exactly_and_errs_by_less_than_its_slop() {
    let _alone = alone_in_hotplug();
    for qpw in Qpw::ALL {
        let counter = SloppyCounter::new(builder(qpw), 32).unwrap();
        let count = || {
            for amount in 0..1000 {
                counter.add(amount);
                counter.add(-amount / 2);
                if amount % 100 == 0 {
                    counter.sum();
                }
            }
        };
        thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(count)));
        let expected: i64 = 4 * (0..1000).map(|amount| amount - amount / 2).sum::<i64>();
        assert!(counter.rough().abs_diff(expected) < counter.slop(), "{qpw}");
        assert_eq!(counter.sum(), expected, "{qpw}");
        assert_eq!(counter.rough(), expected, "{qpw}");
    }
}

#[test]
fn parts_of_absent_cpus_are_added_to_the_common_count() {
    let _alone = alone_in_hotplug();
    for qpw in Qpw::ALL {
        let counter = SloppyCounter::new(builder(qpw), 32).unwrap();
        counter.add(7);
        assert_eq!(counter.rough(), 0, "{qpw}");
        // The counter's part is drained, whichever slot holds it.
        set_online_cpus(&cpus(&[]));
        assert_eq!(counter.rough(), 7, "{qpw}");
    }
}
