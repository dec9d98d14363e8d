//! The growth of a cost with the number of things.

/// Returns the slope of the least-squares line through the logarithms of `points`. Returns `None`
/// if there are fewer than two different places or if a value has no logarithm.
#[must_use]
fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let logs: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let (sum_x, sum_y) = logs.iter().fold((0.0, 0.0), |sums, log| (sums.0 + log.0, sums.1 + log.1));
    let (mean_x, mean_y) = (sum_x / count, sum_y / count);
    let both: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let square: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let slope = both / square;
    slope.is_finite().then_some(slope)
}

/// Returns the factor by which the fitted value grows when the number doubles, if there is a fit.
#[must_use]
pub fn growth(points: &[(f64, f64)]) -> Option<f64> {
    exponent(points).map(f64::exp2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DECADES: [u32; 5] = [1, 10, 100, 1_000, 10_000];

    #[test]
    fn a_line_doubles_and_a_square_quadruples() {
        let of =
            |power| growth(&DECADES.map(|n| (f64::from(n), f64::from(n).powi(power)))).unwrap();
        assert!((of(1) - 2.0).abs() < 1e-9 && (of(2) - 4.0).abs() < 1e-9);
        assert!((of(-1) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn one_number_has_no_exponent() {
        assert_eq!(exponent(&[]), None);
        assert_eq!(exponent(&[(10.0, 3.0)]), None);
        assert_eq!(exponent(&[(10.0, 3.0), (10.0, 4.0)]), None);
        assert_eq!(exponent(&[(1.0, 0.0), (10.0, 4.0)]), None);
    }

    proptest! {
        #[test]
        fn power_is_found_for_any_factor(power in -2.0..3.0_f64, by in 1e-3..1e6_f64) {
            let points = DECADES.map(|n| (f64::from(n), by * f64::from(n).powf(power)));
            prop_assert!((exponent(&points).unwrap() - power).abs() < 1e-9);
        }
    }
}
