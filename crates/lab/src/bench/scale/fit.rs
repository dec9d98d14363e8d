//! The exponent of a curve: how the cost of n things grows with n.

/// Returns the slope of the straight line through the logarithms of `points` with the least squares; `None` for fewer than
/// two different places, or values that have no logarithm.
#[must_use]
pub fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let logs: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let (sum_x, sum_y) = logs
        .iter()
        .fold((0.0, 0.0), |sums, log| (sums.0 + log.0, sums.1 + log.1));
    let (mean_x, mean_y) = (sum_x / count, sum_y / count);
    let both: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let square: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let slope = both / square;
    slope.is_finite().then_some(slope)
}

/// Returns the exponent that n log n has at these places. The logarithm is that of 2 n, so that one thing costs something.
#[must_use]
pub fn of_n_log_n(places: &[usize]) -> Option<f64> {
    let cost = |&n: &usize| (n as f64, n as f64 * (2.0 * n as f64).log2());
    exponent(&places.iter().map(cost).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DECADES: [usize; 5] = [1, 10, 100, 1_000, 10_000];

    #[test]
    fn n_log_n_lies_between_the_line_and_the_square() {
        let exponent = of_n_log_n(&DECADES).unwrap();
        assert!((1.1..1.5).contains(&exponent), "{exponent}");
    }

    #[test]
    fn one_place_has_no_exponent() {
        assert_eq!(exponent(&[]), None);
        assert_eq!(exponent(&[(10.0, 3.0)]), None);
        assert_eq!(exponent(&[(10.0, 3.0), (10.0, 4.0)]), None);
        assert_eq!(exponent(&[(1.0, 0.0), (10.0, 4.0)]), None);
    }

    proptest! {
        #[test]
        fn a_power_is_found_whatever_it_is_multiplied_by(power in -2.0..3.0_f64, by in 1e-3..1e6_f64) {
            let points = DECADES.map(|n| (n as f64, by * (n as f64).powf(power)));
            prop_assert!((exponent(&points).unwrap() - power).abs() < 1e-9);
        }
    }
}
