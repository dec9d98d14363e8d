//! The JSON that `--json` prints: one record a line, the same shape for every bench.
//!
//! `docs/bench-method.md` documents it for readers; a change of shape raises [`SCHEMA`].

use serde::{Deserialize, Serialize};

use super::case::{Metric, Series};
use super::claim::{Against, Claim};
use super::fingerprint::Fingerprint;
use super::noise::Noise;
use super::stats::Spread;
use super::summary::Row;

/// Version of the shape of the records; named in the first one.
pub const SCHEMA: u32 = 1;

/// The `variant` of records that tell of the machine rather than of anything measured on it.
pub const MACHINE: &str = "(machine)";

/// The first line: what was measured on what.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Head {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The machine and the build.
    pub fingerprint: Fingerprint,
    /// Seed of the shuffles.
    pub seed: u64,
}

/// Every other line: one metric of one variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Which bench.
    pub bench: String,
    /// Which question of it.
    pub case: String,
    /// Who was measured.
    pub variant: String,
    /// What of it.
    pub metric: String,
    /// In which unit; `ratio` for a quotient.
    pub unit: String,
    /// Median over the repetitions.
    pub median: f64,
    /// Median absolute deviation.
    pub mad: f64,
    /// Repetitions behind it.
    pub n: usize,
    /// Whether the variant is somebody else's code.
    pub peer: bool,
}

/// Returns the records of a case: values, ratios to the best peer, and the ratios that claims ask for.
#[must_use]
pub fn of_case(
    (bench, case): (&str, &str),
    metrics: &[Metric],
    rows: &[Row],
    (claims, series): (&[Claim], &[Series]),
) -> Vec<Record> {
    let record = |variant: &str, peer: bool, metric: String, unit: &str, spread: Spread| Record {
        bench: bench.into(),
        case: case.into(),
        variant: variant.into(),
        metric,
        unit: unit.into(),
        median: spread.median,
        mad: spread.mad,
        n: spread.n,
        peer,
    };
    let mut records = Vec::new();
    for row in rows {
        for (metric, cell) in metrics.iter().zip(&row.cells) {
            records.extend(cell.spread.map(|spread| {
                record(
                    &row.variant,
                    row.peer,
                    metric.name.into(),
                    metric.unit,
                    spread,
                )
            }));
            records.extend(cell.vs_best_peer.map(|spread| {
                let name = format!("{}.vs_best_peer", metric.name);
                record(&row.variant, row.peer, name, "ratio", spread)
            }));
        }
    }
    for claim in claims {
        let Against::Variant(against) = &claim.against else {
            continue;
        };
        records.extend(claim.judge(metrics, series).ratio.map(|spread| {
            let name = format!("{}.vs.{against}", claim.metric);
            record(&claim.variant, false, name, "ratio", spread)
        }));
    }
    records
}

/// Returns the records that tell how quiet the machine was while the case ran.
#[must_use]
pub fn of_noise((bench, case): (&str, &str), noise: &Noise) -> Vec<Record> {
    let [before, after] = noise.handover_ns;
    [
        ("others_cpu", "share", Some(noise.others)),
        ("steal", "share", Some(noise.steal)),
        ("handover_before", "ns", before),
        ("handover_after", "ns", after),
    ]
    .into_iter()
    .filter_map(|(metric, unit, value)| {
        Some(Record {
            bench: bench.into(),
            case: case.into(),
            variant: MACHINE.into(),
            metric: metric.into(),
            unit: unit.into(),
            median: value?,
            mad: 0.0,
            n: 1,
            peer: false,
        })
    })
    .collect()
}

/// Returns the line of JSON for a record, without the newline.
#[must_use]
pub fn line(record: &impl Serialize) -> String {
    // Records hold strings, finite numbers and plain structs: nothing that JSON cannot say.
    serde_json::to_string(record).expect("a record of plain data is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_exactly_the_documented_fields() {
        let record = Record {
            bench: "workqueue".into(),
            case: "fan-out".into(),
            variant: "tokio".into(),
            metric: "items_per_s".into(),
            unit: "items/s".into(),
            median: 2.5,
            mad: 0.5,
            n: 5,
            peer: true,
        };
        let text = line(&record);
        assert_eq!(
            text,
            r#"{"bench":"workqueue","case":"fan-out","variant":"tokio","metric":"items_per_s","unit":"items/s","median":2.5,"mad":0.5,"n":5,"peer":true}"#
        );
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    }
}
