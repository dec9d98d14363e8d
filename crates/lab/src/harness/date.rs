//! The date of a run, which is shown at the head of its results.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;

/// Formats a time as `2026-11-21 21:15:03 UTC`. A time before 1970 becomes the start of 1970.
pub fn utc(moment: SystemTime) -> String {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / DAY, since.as_secs() % DAY);
    let (year, month, day) = civil(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

/// Returns the year, month and day of the date that is `days` days after 1970-01-01.
///
/// Years start in March, so that a leap day comes last (H. Hinnant, `civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let shown = [0, 951_782_400, 1_709_164_799, 4_107_542_399]
            .map(|seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds)));
        assert_eq!(
            shown,
            [
                "1970-01-01 00:00:00 UTC",
                "2000-02-29 00:00:00 UTC",
                "2024-02-28 23:59:59 UTC",
                "2100-02-28 23:59:59 UTC",
            ]
        );
    }
}
