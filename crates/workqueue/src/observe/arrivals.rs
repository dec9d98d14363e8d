//! The arrival times of the pending items, without a timestamp in each item.
//!
//! An item has no space for a timestamp, and reading the clock for each would cost more than to
//! queue it. The pending list is first in, first out, so the arrival time of the nth item suffices:
//!
//! ```text
//! producer: finds the injector empty: records the time     it owns that cache line at this moment
//! pool:     takes all items, and reads the clock           a span: n items of a pwq in an interval
//! worker:   takes an item, the nth that arrived            the span of the nth has its time
//! ```
//!
//! Items of one span count as if they had arrived evenly. The error is therefore at most the span,
//! during which all its items waited in the injector: a wait is accurate to within a factor of two,
//! and mostly much better. It is never attributed to the wrong item, because *every* item has one.
//!
//! A pwq keeps a few spans. If it needs more, the two neighbors that are shortest together are
//! merged. Items that leave the middle of the list because they were cancelled shorten all spans
//! alike, because their spans are not known.

/// Number of spans that a pwq keeps. A guess: enough for a list of many adoptions.
const NR_SPANS: usize = 12;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Span {
    /// Item numbers, in the order of arrival.
    first: u64,
    end: u64,
    from: u64,
    to: u64,
}

/// The arrival times of a pending list. Protected by the pool lock. There are mostly two spans,
/// which are next to the counts in memory.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Arrivals {
    nr_spans: usize,
    /// Number of items that have arrived, except those that left the middle.
    nr_came: u64,
    spans: [Span; NR_SPANS],
}

impl Arrivals {
    /// Records that `count` items joined a list of `nr_listed`. The first one found the injector
    /// empty at `from`, and all had arrived at `to`, in cycles.
    pub(crate) fn came(&mut self, nr_listed: usize, count: usize, from: u64, to: u64) {
        let first = self.nr_came;
        self.nr_came += count as u64;
        if let Some(last) = self.spans[..self.nr_spans].last_mut()
            && last.to == to
        {
            // Items of the same adoption.
            last.end = self.nr_came;
            return;
        }
        self.forget(nr_listed + count);
        if self.nr_spans == NR_SPANS {
            self.join_two();
        }
        self.spans[self.nr_spans] = Span {
            first,
            end: self.nr_came,
            from: from.min(to),
            to,
        };
        self.nr_spans += 1;
    }

    /// Removes all passed spans but the last, because items of a local batch may be returned.
    fn forget(&mut self, nr_listed: usize) {
        let front = self.front(nr_listed);
        let passed = self.spans[..self.nr_spans].partition_point(|span| span.end <= front);
        let nr_gone = passed.saturating_sub(1);
        self.spans.copy_within(nr_gone..self.nr_spans, 0);
        self.nr_spans -= nr_gone;
    }

    fn join_two(&mut self) {
        let span_of = |i: &usize| self.spans[i + 1].to.saturating_sub(self.spans[*i].from);
        let at = (0..self.nr_spans - 1).min_by_key(span_of).unwrap_or(0);
        let next = self.spans[at + 1];
        let to = self.spans[at].to.max(next.to);
        (self.spans[at].end, self.spans[at].to) = (next.end, to);
        self.spans.copy_within(at + 2..self.nr_spans, at + 1);
        self.nr_spans -= 1;
    }

    /// Records that `count` of `nr_listed` items leave the list at any position.
    pub(crate) fn cut(&mut self, nr_listed: usize, count: usize) {
        let front = self.front(nr_listed);
        let left = nr_listed.saturating_sub(count) as u64;
        let shorten = |number: u64| match number.checked_sub(front) {
            Some(behind) => front + share(behind, left, nr_listed as u64),
            None => number,
        };
        for span in &mut self.spans[..self.nr_spans] {
            (span.first, span.end) = (shorten(span.first), shorten(span.end));
        }
        self.nr_came = front + left;
    }

    /// Returns the time in cycles at which item `nth` (from 0) of a list of `nr_listed` arrived;
    /// `None` if it was not recorded.
    pub(crate) fn came_at(&self, nr_listed: usize, nth: usize) -> Option<u64> {
        let number = self.front(nr_listed) + nth as u64;
        let spans = &self.spans[..self.nr_spans];
        let span = spans.iter().find(|span| number < span.end)?;
        let behind = number.saturating_sub(span.first);
        let length = span.end.saturating_sub(span.first);
        Some(span.from + share(span.to - span.from, behind, length))
    }

    /// Returns the number of the first item of a list of `nr_listed`.
    fn front(&self, nr_listed: usize) -> u64 {
        self.nr_came.saturating_sub(nr_listed as u64)
    }
}

/// Returns `whole * part / of`, if that is not larger than a `u64`. A 128-bit division costs as
/// much as the rest of a start, so it is used only for products that need it.
#[inline]
fn share(whole: u64, part: u64, of: u64) -> u64 {
    if part == 0 {
        return 0;
    }
    let of = of.max(1);
    match whole.checked_mul(part) {
        Some(product) => product / of,
        None => (u128::from(whole) * u128::from(part) / u128::from(of)) as u64,
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_single_item_came_when_its_producer_found_nothing() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.came_at(0, 0), None);
        arrivals.came(0, 1, 100, 170);
        assert_eq!(arrivals.came_at(1, 0), Some(100));
        arrivals.came(1, 1, 200, 270);
        assert_eq!(arrivals.came_at(2, 0), Some(100));
        assert_eq!(arrivals.came_at(2, 1), Some(200));
        assert_eq!(arrivals.came_at(1, 0), Some(200), "the first was taken");
        assert_eq!(arrivals.came_at(2, 0), Some(100), "it was put back");
    }

    #[test]
    fn items_of_one_adoption_came_evenly() {
        let mut arrivals = Arrivals::default();
        // Two runs of items of one pwq, with another pwq's items between them.
        arrivals.came(0, 4, 1000, 2000);
        arrivals.came(4, 6, 1000, 2000);
        let at: Vec<_> = (0..10)
            .filter_map(|nth| arrivals.came_at(10, nth))
            .collect();
        assert_eq!(at, (0..10).map(|i| 1000 + i * 100).collect::<Vec<_>>());
    }

    #[test]
    fn a_share_is_exact_whatever_its_product_takes() {
        assert_eq!(share(7, 0, 0), 0);
        assert_eq!(share(7, 3, 2), 10);
        assert_eq!(share(u64::MAX, 3, 4), (u64::MAX / 4) * 3 + 2);
    }

    #[test]
    fn a_noted_time_after_the_adoption_is_that_of_the_adoption() {
        let mut arrivals = Arrivals::default();
        arrivals.came(0, 1, 130, 120);
        assert_eq!(arrivals.came_at(1, 0), Some(120));
    }

    #[test]
    fn a_long_line_keeps_its_old_and_its_new_times() {
        let mut arrivals = Arrivals::default();
        // 50 spans of growing distance.
        let start = |i: u64| 1000 * i * i;
        for i in 1..=50 {
            arrivals.came(10 * (i as usize - 1), 10, start(i), start(i) + 10);
        }
        for i in 1..=50 {
            let at = arrivals.came_at(500, 10 * (i as usize - 1)).unwrap();
            let error = at.abs_diff(start(i));
            assert!(error <= start(50) / 10, "{i}: {at} for {}", start(i));
        }
        assert_eq!(arrivals.came_at(500, 0), Some(start(1)));
    }

    #[test]
    fn a_counter_that_is_set_back_loses_no_item_its_time() {
        let mut arrivals = Arrivals::default();
        let start = |i: u64| 1_000_000 + 1000 * i - if i > 6 { 900_000 } else { 0 };
        for i in 0..30 {
            arrivals.came(10 * i as usize, 10, start(i), start(i) + 10);
        }
        let times = (0..300).map(|nth| arrivals.came_at(300, nth));
        assert!(
            times
                .into_iter()
                .all(|at| at.is_some_and(|at| at <= start(6) + 10))
        );
    }

    #[test]
    fn what_leaves_the_middle_shortens_all_alike() {
        let mut arrivals = Arrivals::default();
        arrivals.came(0, 100, 1000, 2000);
        arrivals.came(100, 100, 5000, 6000);
        arrivals.cut(200, 100);
        assert_eq!(arrivals.came_at(100, 0), Some(1000));
        assert_eq!(arrivals.came_at(100, 50), Some(5000));
        arrivals.came(100, 1, 9000, 9000);
        assert_eq!(arrivals.came_at(101, 100), Some(9000));
        arrivals.cut(101, 101);
        assert_eq!(arrivals.came_at(0, 0), None);
        arrivals.came(0, 1, 9500, 9600);
        assert_eq!(arrivals.came_at(1, 0), Some(9500));
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "plain data, and hours of it")]
        fn every_item_of_a_line_has_a_time_and_they_are_in_order(
            steps in prop::collection::vec((0u8..4, any::<u16>()), 1..300),
        ) {
            let (mut arrivals, mut nr_listed, mut now) = (Arrivals::default(), 0, 1);
            for (step, number) in steps {
                let some = usize::from(number) % (nr_listed + 1);
                match step {
                    0 | 1 => {
                        let count = usize::from(number % 20) + 1;
                        let from = now + u64::from(number);
                        now = from + u64::from(number / 2) + 1;
                        arrivals.came(nr_listed, count, from, now);
                        nr_listed += count;
                    }
                    2 => nr_listed -= some,
                    _ => {
                        arrivals.cut(nr_listed, some);
                        nr_listed -= some;
                    }
                }
                let times = (0..nr_listed).map(|nth| arrivals.came_at(nr_listed, nth));
                let times: Option<Vec<_>> = times.collect();
                prop_assert!(times.as_ref().is_some_and(|it| it.is_sorted()), "{:?}", times);
                prop_assert!(times.unwrap().last().is_none_or(|last| *last <= now));
            }
        }
    }
}
