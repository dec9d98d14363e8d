//! The parts of a bench: cases, their variants, and the values that each run measures.

use top::exit::Stop;

use super::beside::{Absent, Beside};
use super::claim::{Against, Claim};
use super::latency::Latencies;
use super::metric::{Better, Metric, Text};
use super::stats::Spread;

#[derive(Clone, Debug, Default)]
pub struct Sample {
    values: Vec<(&'static str, f64)>,
    thrown_away: Option<String>,
}

impl Sample {
    pub fn thrown_away(absent: Absent) -> Self {
        Self { thrown_away: Some(absent.0), ..Self::default() }
    }

    pub fn beside<T>(done: Beside<T>, sample: impl FnOnce(T) -> Option<Self>) -> Option<Self> {
        match done {
            Ok(done) => sample(done),
            Err(absent) => Some(Self::thrown_away(absent)),
        }
    }

    pub fn of<M: Into<&'static str>, const N: usize>(values: [(M, f64); N]) -> Self {
        let mut sample = Self::default();
        values.into_iter().for_each(|(metric, value)| sample.set(metric, value));
        sample
    }

    pub fn is_thrown_away(&self) -> bool {
        self.thrown_away.is_some()
    }

    /// Adds a value. A value that is not finite is ignored, as if it had not been measured.
    pub fn set(&mut self, metric: impl Into<&'static str>, value: f64) {
        if value.is_finite() {
            self.values.push((metric.into(), value));
        }
    }

    /// Adds percentiles of `latencies`, each to its metric. Without samples, adds nothing.
    pub fn with_percentiles<M: Into<&'static str>, const N: usize>(
        mut self,
        latencies: Latencies,
        metrics: [(f64, M); N],
    ) -> Self {
        let percents = metrics.each_ref().map(|(percent, _)| *percent);
        for (value, (_, metric)) in
            latencies.percentiles_ns(percents).into_iter().flatten().zip(metrics)
        {
            self.set(metric, value);
        }
        self
    }

    pub fn value(&self, metric: &str) -> Option<f64> {
        self.values.iter().find(|(name, _)| *name == metric).map(|&(_, value)| value)
    }
}

/// The result of one run, or `None` if SIGINT interrupted it.
pub type Ran = Result<Option<Sample>, Stop>;

/// A function that makes one run: it sets up, warms up, measures and tears down.
pub type RunFn = Box<dyn FnMut() -> Ran>;

pub struct Variant {
    /// The name in tables and records, which is unique within the case.
    pub name: String,
    /// `true` for third-party code, which is measured for comparison.
    pub peer: bool,
    pub run: RunFn,
}

impl Variant {
    pub fn ours(name: impl Into<String>, run: impl FnMut() -> Ran + 'static) -> Self {
        Self { name: name.into(), peer: false, run: Box::new(run) }
    }

    pub fn peer(name: impl Into<String>, run: impl FnMut() -> Ran + 'static) -> Self {
        Self::ours(name, run).into_peer()
    }

    pub fn into_peer(self) -> Self {
        Self { peer: true, ..self }
    }
}

/// A question that several variants answer in one interleaved run.
pub struct Case {
    pub bench: &'static str,
    /// The name in tables, in records and for `--cases`.
    pub name: &'static str,
    pub about: String,
    pub metrics: &'static [Metric],
    /// The metric whose ratio to the best peer is a column of the table.
    pub headline: &'static str,
    pub variants: Vec<Variant>,
    pub claims: Vec<Claim>,
}

impl Case {
    pub fn new(bench: Text, name: Text, metrics: &'static [Metric], headline: Text) -> Self {
        Self {
            bench,
            name,
            about: String::new(),
            metrics,
            headline,
            variants: Vec::new(),
            claims: Vec::new(),
        }
    }

    pub fn can_judge(&self, claim: &Claim) -> bool {
        let has = |name: &String| self.variants.iter().any(|variant| variant.name == *name);
        has(&claim.variant)
            && match &claim.against {
                Against::Variant(name) => has(name),
                Against::BestPeer => self.variants.iter().any(|variant| variant.peer),
            }
    }
}

/// The samples of one variant, one for each completed repetition.
#[derive(Clone, Debug)]
pub struct Series {
    pub variant: String,
    pub peer: bool,
    /// The samples, each with the number of its repetition.
    pub samples: Vec<(usize, Sample)>,
}

impl Series {
    fn points(&self, metric: &str) -> impl Iterator<Item = (usize, f64)> {
        let samples = self.samples.iter();
        samples.filter_map(move |(repetition, sample)| Some((*repetition, sample.value(metric)?)))
    }

    pub fn spread(&self, metric: &str) -> Option<Spread> {
        Spread::of(&self.points(metric).map(|(_, value)| value).collect::<Vec<_>>())
    }

    /// Returns the spread of the ratios of a metric to that of `other` in the same repetition,
    /// which a slow phase of the machine affects equally. A repetition is ignored if a value is
    /// missing or that of `other` is 0.
    pub fn ratio(&self, metric: &str, other: &Self) -> Option<Spread> {
        let below: Vec<_> = other.points(metric).collect();
        let ratio = |(repetition, above)| {
            let (_, below) = *below.iter().find(|below| below.0 == repetition)?;
            (below != 0.0).then(|| above / below)
        };
        Spread::of(&self.points(metric).filter_map(ratio).collect::<Vec<f64>>())
    }

    pub fn thrown_away(&self) -> impl Iterator<Item = &str> {
        let samples = self.samples.iter();
        samples.filter_map(|(_, sample)| sample.thrown_away.as_deref())
    }
}

/// Returns the peer with the best median of `metric` over all repetitions. The best peer of each
/// repetition would be a mixture that no single peer achieves. Readers of a QSBR flavor must report
/// quiescent states, which no other variant requires, so such a peer is never the best one.
pub fn best_peer<'a>(all: &'a [Series], metric: &Metric) -> Option<&'a Series> {
    best_of(all.iter().filter(|it| it.peer && !it.variant.ends_with("-qsbr")), metric)
}

pub fn best_of<'a>(all: impl Iterator<Item = &'a Series>, metric: &Metric) -> Option<&'a Series> {
    let medians = all.filter_map(|series| Some((series, series.spread(metric.name)?.median)));
    let (best, _) = medians.reduce(|best, other| {
        let other_wins = match metric.better {
            Better::Higher => other.1 > best.1,
            Better::Lower => other.1 < best.1,
        };
        if other_wins { other } else { best }
    })?;
    Some(best)
}

#[cfg(test)]
pub mod tests {
    use std::io::Write;
    use std::sync::mpsc::{RecvTimeoutError, channel};

    use super::*;
    use crate::harness::metric::{higher, lower};

    /// The time after which a run of a variant counts as hung. It usually takes less than a second.
    const HUNG: std::time::Duration = std::time::Duration::from_secs(300);

    pub fn run_each(cases: Vec<Case>, check: impl Fn(&Case, &Variant, &Sample)) {
        for mut case in cases {
            for mut variant in std::mem::take(&mut case.variants) {
                let name = format!("{} of {}", case.name, variant.name);
                let sample = abort_if_hung(&name, || (variant.run)().unwrap().unwrap());
                check(&case, &variant, &sample);
            }
        }
    }

    /// Calls `run`. If it hangs, aborts the process with a message that names it: the output of a
    /// test that is killed is lost.
    fn abort_if_hung<R>(name: &str, run: impl FnOnce() -> R) -> R {
        let (done, is_done) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                if is_done.recv_timeout(HUNG) == Err(RecvTimeoutError::Timeout) {
                    writeln!(std::io::stderr(), "{name} hung").ok();
                    std::process::abort();
                }
            });
            let _done = done;
            run()
        })
    }

    pub fn series(variant: &str, peer: bool, samples: impl IntoIterator<Item = Sample>) -> Series {
        let samples = samples.into_iter().enumerate().collect();
        Series { variant: variant.into(), peer, samples }
    }

    #[test]
    fn each_metric_has_its_own_best_peer() {
        let [rate, time] = [higher, lower].map(|metric| metric("m", "", ("", ""), 1.0));
        let of = |variant, peer, value| series(variant, peer, [Sample::of([("m", value)])]);
        let all = [of("ours", false, 9.0), of("more", true, 5.0), of("less", true, 3.0)];
        assert_eq!(best_peer(&all, &rate).unwrap().variant, "more");
        assert_eq!(best_peer(&all, &time).unwrap().variant, "less");
        assert_eq!(all[0].ratio("m", &all[2]).unwrap().median, 3.0);
        assert!(best_peer(&all[..1], &rate).is_none());
    }

    #[test]
    fn non_finite_values_count_as_unmeasured() {
        let sample = Sample::of([("rate", f64::INFINITY), ("time", 1.0)]);
        assert_eq!((sample.value("rate"), sample.value("time")), (None, Some(1.0)));
    }

    #[test]
    fn ratios_pair_by_repetition_and_skip_missing_ones() {
        let of = |values: &[(usize, f64)]| {
            let samples = values.iter().map(|&(at, value)| (at, Sample::of([("m", value)])));
            Series { variant: String::new(), peer: false, samples: samples.collect() }
        };
        let ours = of(&[(0, 20.0), (1, 10.0), (3, 9.0), (4, 1.0)]);
        let peer = of(&[(1, 5.0), (0, 5.0), (2, 1.0), (3, 3.0), (4, 0.0)]);
        let ratio = ours.ratio("m", &peer).unwrap();
        assert_eq!((ratio.median, ratio.n), (3.0, 3));
    }
}
