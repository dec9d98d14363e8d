//! The rule that decides a comparison, and figures in words.
//!
//! The xtask chore that writes the tables of README and docs/figures.md also compiles this file.

pub const BETTER: &str = "better";
/// The difference is at most 5 %.
pub const EVEN: &str = "even";
pub const WORSE: &str = "worse";
pub const UNDECIDED: &str = "undecided";

pub const OUTCOMES: [&str; 4] = [BETTER, EVEN, WORSE, UNDECIDED];

/// The relative difference up to which two medians count as even.
const LEAST: f64 = 0.05;
/// The maximum uncertainty of a factor at which an insignificant difference counts as even.
const KNOWN: f64 = 0.10;
/// The uncertainty of a median of `n` values, in units of the MAD divided by the square root of
/// `n`. It is two standard errors. The standard error of a median is 1.25 standard deviations of
/// the values, divided by the square root of `n`. A standard deviation is about 1.5 MADs.
const UNCERTAINTY: f64 = 2.0 * 1.25 * 1.5;

/// Returns the outcome for the factor by which our variant is better, given its median, its median
/// absolute deviation and the number of turns.
pub fn of(median: f64, mad: f64, n: usize) -> &'static str {
    let (difference, uncertainty) = (median - 1.0, UNCERTAINTY * mad / (n as f64).sqrt());
    match difference.abs() > LEAST.max(uncertainty) {
        _ if n < 2 => UNDECIDED,
        true if difference > 0.0 => BETTER,
        true => WORSE,
        false if uncertainty <= KNOWN => EVEN,
        false => UNDECIDED,
    }
}

/// Formats `value` with about three significant digits, in at most five characters below 10^10. A
/// value other than zero is never printed as zero.
pub fn three_digits(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude > 0.0 && magnitude < 0.0005 {
        return format!("{value:.0e}");
    }
    // Larger values get a letter for the power of a thousand.
    let (scaled, letter) = match magnitude {
        _ if magnitude < 9_999.5 => (value, ""),
        _ if magnitude < 9_999_500.0 => (value / 1e3, "k"),
        _ => (value / 1e6, "M"),
    };
    let magnitude = scaled.abs();
    let decimals = match magnitude {
        _ if magnitude == 0.0 || magnitude >= 99.95 => 0,
        _ if magnitude >= 9.995 => 1,
        _ if magnitude >= 0.9995 => 2,
        _ => 3,
    };
    format!("{scaled:.decimals$}{letter}")
}

pub fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        _ if ns < 999.5 => (ns, "ns"),
        _ if ns < 999_500.0 => (ns / 1e3, "µs"),
        _ if ns < 999_500_000.0 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_needs_a_difference_beyond_its_spread() {
        assert_eq!(of(1.3, 0.1, 9), BETTER);
        assert_eq!(of(0.7, 0.1, 9), WORSE);
        assert_eq!(of(1.04, 0.01, 9), EVEN);
        assert_eq!(of(1.07, 0.07, 9), EVEN);
        assert_eq!(of(1.3, 0.5, 9), UNDECIDED);
        assert_eq!(of(3.0, 0.0, 1), UNDECIDED);
    }

    #[test]
    fn more_turns_decide_a_difference_that_few_turns_cannot() {
        assert_eq!([2, 9, 31].map(|n| of(1.17, 0.14, n)), [UNDECIDED, UNDECIDED, BETTER]);
        assert_eq!([2, 9, 31].map(|n| of(1.01, 0.14, n)), [UNDECIDED, UNDECIDED, EVEN]);
        assert_eq!([2, 9].map(|n| of(0.92, 0.04, n)), [UNDECIDED, WORSE]);
    }

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let shown = [0.85, 999.6, 167_000.0, 14_200_000.0, 2e9].map(time);
        assert_eq!(shown, ["0.850 ns", "1.00 µs", "167 µs", "14.2 ms", "2.00 s"]);
    }
}
