//! The final table.

use serde_json::json;

use super::libtest::{Count, Reader};

#[derive(Debug, Default)]
pub struct Tally {
    pub layers: Vec<LayerTally>,
}

#[derive(Debug)]
pub struct LayerTally {
    name: &'static str,
    pub count: Count,
    /// The duration in seconds, including builds.
    pub seconds: f64,
    failures: Vec<String>,
}

impl LayerTally {
    pub fn new(name: &'static str) -> Self {
        Self { name, count: Count::default(), seconds: 0.0, failures: Vec::new() }
    }

    pub fn add(&mut self, reader: Reader) {
        self.count += reader.count;
        self.failures.extend(reader.failures);
    }
}

impl Tally {
    pub fn total(&self) -> Count {
        let mut total = Count::default();
        for layer in &self.layers {
            total += layer.count;
        }
        total
    }

    /// Formats the table. The last line is the sum in words.
    pub fn table(&self) -> String {
        let mut text = format!(
            "\n{:<12} {:>7} {:>7} {:>8} {:>9}\n",
            "layer", "passed", "failed", "skipped", "time"
        );
        for layer in &self.layers {
            let Count { passed, failed, skipped } = layer.count;
            let LayerTally { name, seconds, .. } = layer;
            text += &format!("{name:<12} {passed:>7} {failed:>7} {skipped:>8} {seconds:>7.1} s\n");
        }
        text += "\n";
        for layer in &self.layers {
            for failure in &layer.failures {
                text += &format!("failed: {}: {failure}\n", layer.name);
            }
        }
        let total = self.total();
        text += &format!("{} passed, {} failed", total.passed, total.failed);
        if total.skipped > 0 {
            text += &format!(", {} skipped", total.skipped);
        }
        text + "\n"
    }

    pub fn json(&self) -> String {
        let record = |LayerTally { name, count, seconds, failures }: &LayerTally| {
            let record = json!({
                "layer": name, "passed": count.passed, "failed": count.failed, "skipped": count.skipped,
                "seconds": seconds, "failures": failures,
            });
            format!("{record}\n")
        };
        let layers = self.layers.iter();
        let all = LayerTally {
            name: "all",
            count: self.total(),
            seconds: layers.clone().map(|layer| layer.seconds).sum(),
            failures: layers.clone().flat_map(|layer| layer.failures.clone()).collect(),
        };
        layers.chain([&all]).map(record).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(counts: [(u64, u64, u64); 2]) -> Tally {
        let layer = |(index, (passed, failed, skipped)): (usize, (u64, u64, u64))| LayerTally {
            name: ["unit", "miri"][index],
            count: Count { passed, failed, skipped },
            seconds: 1.25,
            failures: (0..failed).map(|number| format!("a: test_{number}")).collect(),
        };
        Tally { layers: counts.into_iter().enumerate().map(layer).collect() }
    }

    #[test]
    fn the_last_line_is_the_sum_alone() {
        let last = |counts| tally(counts).table().lines().last().unwrap().to_string();
        assert_eq!(last([(3, 0, 0), (4, 0, 0)]), "7 passed, 0 failed");
        assert_eq!(last([(3, 1, 0), (0, 0, 2)]), "3 passed, 1 failed, 2 skipped");
    }

    #[test]
    fn failures_are_named_above_the_sum() {
        assert!(tally([(3, 1, 0), (0, 0, 0)]).table().contains("failed: unit: a: test_0\n"));
    }

    #[test]
    fn records_and_table_agree() {
        let text = tally([(3, 1, 0), (4, 0, 2)]).json();
        let records: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(records.len(), 3);
        assert_eq!(records[0]["layer"], "unit");
        assert_eq!(records[2]["layer"], "all");
        assert_eq!(records[2]["passed"], 7);
        assert_eq!(records[2]["skipped"], 2);
        assert_eq!(records[2]["failures"][0], "a: test_0");
    }
}
