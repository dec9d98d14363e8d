//! Types built on slots: a counter and a page cache.

use std::thread;

use afterwork::percpu::{PageBatches, Qpw, SloppyCounter, set_online_cpus};

use crate::support::{alone_in_hotplug, builder, cpus};

/// Calls `body` on four threads at once.
fn by_threads(body: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(&body);
        }
    });
}

#[test]
fn sloppy_counter_sums_exactly_and_errs_by_less_than_its_slop() {
    let _alone = alone_in_hotplug();
    for qpw in Qpw::ALL {
        let counter = SloppyCounter::new(builder(qpw), 32).unwrap();
        by_threads(|| {
            for amount in 0..1000 {
                counter.add(amount);
                counter.add(-amount / 2);
                if amount % 100 == 0 {
                    counter.sum();
                }
            }
        });
        let expected: i64 = 4 * (0..1000).map(|amount| amount - amount / 2).sum::<i64>();
        assert!(counter.rough().abs_diff(expected) < counter.slop(), "{qpw}");
        assert_eq!(counter.sum(), expected, "{qpw}");
        assert_eq!(counter.rough(), expected, "{qpw}");
    }
}

#[test]
fn pages_of_absent_cpus_are_found_elsewhere() {
    let _alone = alone_in_hotplug();
    for qpw in Qpw::ALL {
        let pages = PageBatches::new(builder(qpw), 16, 2).unwrap();
        pages.free(vec![7; 16].into());
        // The pages are drained, whichever slot holds them.
        set_online_cpus(&cpus(&[]));
        assert_eq!(*pages.alloc(), [7; 16], "{qpw}");
    }
}

#[test]
fn pages_come_back_by_the_batch_and_none_is_handed_out_twice() {
    let _alone = alone_in_hotplug();
    for qpw in Qpw::ALL {
        let pages = PageBatches::new(builder(qpw), 64, 2).unwrap();
        by_threads(|| {
            for round in 0..200u8 {
                let mine: Vec<_> = (0..9)
                    .map(|_| {
                        let mut page = pages.alloc();
                        page.fill(round);
                        page
                    })
                    .collect();
                for page in mine {
                    assert!(page.iter().all(|&byte| byte == round));
                    pages.free(page);
                }
            }
        });
        let nr_pages = pages.shrink();
        // 36 pages are in use, and each CPU keeps four.
        assert!((9..=52).contains(&nr_pages), "{qpw}: {nr_pages}");
        assert_eq!(pages.shrink(), 0);
    }
}
