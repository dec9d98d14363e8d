//! Numbers for people: three digits with a suitable unit.

use crate::output::outcome::three_digits;

/// Formats a value in the unit that leaves one to three digits before the point.
pub fn with_unit(value: f64, unit: &str) -> String {
    let steps: &[(f64, &str)] = match unit {
        "ns" => &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")],
        "ns/item" => &[(1.0, "ns/item"), (1e3, "µs/item"), (1e6, "ms/item")],
        "bytes" => &[(1.0, "B"), (1024.0, "KiB"), (1048576.0, "MiB"), (1073741824.0, "GiB")],
        "share" => return format!("{} %", three_digits(value * 100.0)),
        "ratio" => return format!("{} ×", three_digits(value)),
        "x" => return format!("×\u{a0}{value:.2}"),
        "1/item" => return format!("{} per item", three_digits(value)),
        "1/1000 items" => return format!("{} per 1000 items", three_digits(value)),
        unit if unit.ends_with("/s") => {
            let letter = [(1.0, ""), (1e3, "k "), (1e6, "M "), (1e9, "G ")];
            let (scale, letter) = step(&letter, value);
            let value = three_digits(value / scale);
            return match unit {
                "1/s" => format!("{value} {}/s", letter.trim_end()).replace(" /s", "/s"),
                unit => format!("{value} {letter}{unit}"),
            };
        }
        unit => return format!("{} {unit}", three_digits(value)),
    };
    let (scale, unit) = step(steps, value);
    format!("{} {unit}", three_digits(value / scale))
}

fn step<'a>(steps: &[(f64, &'a str)], value: f64) -> (f64, &'a str) {
    let fits = steps.iter().rev().find(|(scale, _)| value.abs() >= *scale);
    fits.copied().unwrap_or(steps[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_a_unit_of_their_size() {
        for (value, unit, shown) in [
            (0.5, "ns", "0.500 ns"),
            (1234.0, "ns", "1.23 µs"),
            (2.5e9, "ns", "2.50 s"),
            (31.4e6, "items/s", "31.4 M items/s"),
            (0.0132, "share", "1.32 %"),
            (2.5, "ratio", "2.50 ×"),
            (3.0, "1/item", "3.00 per item"),
            (0.0, "ns", "0 ns"),
            (1234.5, "1/s", "1.23 k/s"),
            (12.0, "1/s", "12.0/s"),
            (529.0, "1/1000 items", "529 per 1000 items"),
            (2.5e6, "bytes", "2.38 MiB"),
        ] {
            assert_eq!(with_unit(value, unit), shown);
        }
    }
}
