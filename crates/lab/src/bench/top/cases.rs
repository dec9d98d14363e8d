//! The one case, and what is claimed.

use super::args::TopBenchArgs;
use super::load::{Shown, measure};
use crate::bench::session::Settings;
use crate::measure::case::{Case, Sample, Variant};
use crate::measure::claim::{Against, Bound, Claim};
use crate::measure::metric::{Metric, NS_PER_US, PERCENT, higher, lower};

const BENCH: &str = "top";
const LOOKED_AT: &str = "looked-at";

/// As `--cases` and tables spell them.
pub const CASES: [&str; 1] = [LOOKED_AT];
/// As `--peers` and tables spell them.
pub const PEERS: [&str; 0] = [];

const KEPT: &str = "throughput_kept";
const GATHER: &str = "gather";

/// Pairs of stretches in a run.
const PAIRS: usize = 10;
const PAIRS_QUICK: usize = 3;

const METRICS: &[Metric] = &[
    higher(KEPT, "share", ("", "throughput kept %"), PERCENT),
    lower(GATHER, "ns", ("", "gather µs"), NS_PER_US),
];

const ALL: [(&str, Shown); 3] = [
    ("hidden", Shown::Never),
    ("published", Shown::Page),
    ("watched", Shown::Watched),
];

/// Makes the cases that `args` ask for.
#[must_use]
pub fn cases(args: &TopBenchArgs, settings: &Settings) -> Vec<Case> {
    args.pick.make(|_| case(settings))
}

fn case(settings: &Settings) -> Case {
    let nr_pairs = if settings.quick { PAIRS_QUICK } else { PAIRS };
    let variant = |(name, shown): (&str, Shown)| {
        let interrupt = settings.interrupt.clone();
        Variant::ours(name, move || {
            let measured = measure(shown, nr_pairs, &interrupt)?;
            Ok(measured.map(|measured| {
                let mut sample = Sample::default();
                sample.set(KEPT, measured.kept);
                if let Some(gather_ns) = measured.gather_ns {
                    sample.set(GATHER, gather_ns);
                }
                sample
            }))
        })
    };
    let claim = |name: &str, what: &str| Claim {
        what: format!("{name}: {what}"),
        variant: name.into(),
        metric: KEPT,
        against: Against::Variant("hidden".into()),
        bound: Some(Bound::AtLeast(0.99)),
        source: None,
    };
    Case {
        bench: BENCH,
        name: LOOKED_AT,
        about: format!(
            "items done while the process is looked at, by those done while it is not; {nr_pairs} pairs of stretches"
        ),
        metrics: METRICS,
        headline: KEPT,
        variants: ALL.into_iter().map(variant).collect(),
        claims: vec![
            claim("published", "throughput kept, nobody looks"),
            claim("watched", "throughput kept, ten looks a second"),
        ],
    }
}
