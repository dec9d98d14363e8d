//! Held-out scenarios, to which no costs are fitted. They run on the real machine and on a
//! simulated one.

pub struct Case {
    pub scenario: &'static str,
    pub scope: &'static str,
    pub nr_items: usize,
    /// The group of the case. A simulation is judged by the median of each group.
    pub regime: &'static str,
}

const fn case(
    regime: &'static str,
    scenario: &'static str,
    scope: &'static str,
    nr_items: usize,
) -> Case {
    Case { scenario, scope, nr_items, regime }
}

/// The item runs on the waiter's thread.
const ON_THE_SPOT: &str = "on the spot";
/// Another thread is woken to run the item.
const HANDED_OVER: &str = "handed over";
/// CPUs share words and do not sleep.
const SHARED: &str = "shared words";

pub const CASES: &[Case] = &[
    case(ON_THE_SPOT, "one-at-a-time", "cpu", 20_000),
    case(ON_THE_SPOT, "one-at-a-time", "system", 20_000),
    case(ON_THE_SPOT, "batches", "cpu", 20_000),
    case(ON_THE_SPOT, "batches", "system", 20_000),
    case(ON_THE_SPOT, "max-active", "system", 10_000),
    case(HANDED_OVER, "handed-over", "cpu", 5_000),
    case(HANDED_OVER, "handed-over", "system", 5_000),
    case(HANDED_OVER, "fan-out", "cpu", 2_000),
    case(HANDED_OVER, "fan-out", "system", 2_000),
    case(SHARED, "mailbox", "system", 50_000),
    case(SHARED, "readers", "system", 20_000),
    case(SHARED, "percpu-drain", "system", 20_000),
];

impl Case {
    pub fn name(&self) -> String {
        format!("{}, {}", self.scenario, self.scope)
    }
}

/// Returns the median, and the bounds of all rates except a tenth at either end.
pub fn spread(rates: &[f64]) -> (f64, f64, f64) {
    let mut rates = rates.to_vec();
    rates.sort_by(f64::total_cmp);
    let (last, tenth) = (rates.len() - 1, rates.len() / 10);
    (rates[last / 2], rates[tenth], rates[last - tenth])
}

/// Returns `true` if the rates form two distant regimes, for which an average is meaningless.
pub fn is_bistable((_, low, high): (f64, f64, f64)) -> bool {
    high > 3.0 * low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separated_clusters_are_bistable_and_one_outlier_is_not() {
        let mut rates = vec![10.0; 20];
        rates[3] = 1.0;
        assert!(!is_bistable(spread(&rates)));
        rates[..8].fill(1.0);
        assert!(is_bistable(spread(&rates)));
        assert_eq!(spread(&[3.0, 1.0, 2.0]), (2.0, 1.0, 3.0));
    }

    #[test]
    fn there_are_eight_cases_at_least_and_two_for_each_regime() {
        assert!(CASES.len() >= 8);
        for case in CASES {
            let same = CASES.iter().filter(|it| it.regime == case.regime);
            assert!(same.count() >= 2, "{}", case.name());
        }
    }
}
