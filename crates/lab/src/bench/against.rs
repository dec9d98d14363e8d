//! Compares two afterwork-lab programs in alternating runs, to detect slowdowns.
//!
//! In each case, every variant of afterwork appears twice: once for this program and once for the
//! other one. In each repetition, both programs measure the case once, in random order and each in
//! its own process. The ratio of a variant is computed within the repetition, so effects common to
//! both programs cancel out.
//!
//! A claim fails if the median exceeds `LEEWAY` by more than its MAD. With nine pairs, a change of
//! 3 % is detected in a variant whose MAD is below 1.5 %. The output contains the MAD.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::rc::Rc;

use top::exit::Stop;
use top::talk::say;

use super::child::{Failed, Known, forwarded, measure, sample};
use crate::harness::case::{Case, Sample, Variant};
use crate::harness::claim::{Bound, Claim};
use crate::harness::metric::{Better, Metric};
use crate::output::record::Record;

/// Half of the change to detect, so that it lies midway between no change and a change of 3 %.
const LEEWAY: f64 = 0.015;

/// The two programs to compare.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The path of this program.
    pub this: PathBuf,
    /// The path of the program to compare with.
    pub other: PathBuf,
    /// The name of the other program in tables.
    pub name: String,
    /// The cases that the other program lists.
    pub known: Vec<Known>,
    /// The number of these cases that the other program failed to measure.
    pub nr_failed: Rc<Cell<usize>>,
}

/// Converts `cases` into comparisons of both programs. `args` does not contain the program name.
#[must_use]
pub fn cases(cases: Vec<Case>, programs: &Programs, args: &[OsString], seed: u64) -> Vec<Case> {
    let mut args = forwarded(args);
    args.extend(["--json", "--repeat=1", "--peers=none"].map(Into::into));
    args.push(format!("--seed={seed}").into());
    let cases = cases.into_iter();
    cases.map(|case| compared(case, programs, &args)).collect()
}

fn compared(case: Case, programs: &Programs, args: &[OsString]) -> Case {
    let Programs { this, other, name, .. } = programs;
    let is_known = programs.known.iter().any(|it| it.is(&case));
    let mut args = args.to_vec();
    args.push(format!("--cases={}", case.name).into());
    let side = |program: &PathBuf, on_failure| {
        Rc::new(RefCell::new(Side {
            program: program.clone(),
            args: args.clone(),
            bench: case.bench,
            metrics: case.metrics,
            on_failure,
            cannot: false,
            records: None,
            taken: HashSet::new(),
        }))
    };
    let goes_on = OnFailure::GoesOn(is_known.then(|| programs.nr_failed.clone()));
    let (here, there) = (side(this, OnFailure::Stops), side(other, goes_on));
    // Variants in brackets are limits, which do not depend on the program.
    let ours = case.variants.iter().filter(|it| !it.peer && !it.name.starts_with('('));
    let (mut variants, mut claims) = (Vec::new(), Vec::new());
    for variant in ours {
        let before = format!("{} @{name}", variant.name);
        for (shown, side) in [(&variant.name, &here), (&before, &there)] {
            let (side, of) = (side.clone(), variant.name.clone());
            let run = move || side.borrow_mut().take(&of);
            variants.push(Variant::ours(shown.clone(), run));
        }
        let bound = case.metrics.iter().find(|metric| metric.name == case.headline);
        let bound = bound.map(|metric| match metric.better {
            Better::Higher => Bound::AtLeast(1.0 - LEEWAY),
            Better::Lower => Bound::AtMost(1.0 + LEEWAY),
        });
        let what = case.headline.replace('_', " ");
        let claim = Claim::of(variant.name.clone(), what, case.headline, before);
        claims.push(claim.keeps(bound).surely());
    }
    Case {
        about: format!("this program and {name} in turns: {}", case.about),
        variants,
        claims,
        ..case
    }
}

/// The reaction to a program that cannot measure.
enum OnFailure {
    Stops,
    /// The run continues. The failure is counted if the program lists the case.
    GoesOn(Option<Rc<Cell<usize>>>),
}

/// One program, and its results of the current repetition.
struct Side {
    program: PathBuf,
    args: Vec<OsString>,
    bench: &'static str,
    metrics: &'static [Metric],
    on_failure: OnFailure,
    /// `true` if the program failed. It is not started again.
    cannot: bool,
    /// The results of the current repetition. It is `None` before the first repetition, and empty
    /// if the program failed.
    records: Option<Vec<Record>>,
    /// The variants whose result of the current repetition has been returned.
    taken: HashSet<String>,
}

impl Side {
    /// Returns the result of `variant`. If that result was already returned, takes it from the next
    /// repetition.
    fn take(&mut self, variant: &str) -> Result<Option<Sample>, Stop> {
        let is_next = self.records.is_none() || self.taken.contains(variant);
        if is_next && !self.cannot {
            self.taken.clear();
            match measure(&self.program, &self.args) {
                Ok(records) => self.records = Some(records),
                Err(Failed::Interrupted) => return Ok(None),
                Err(Failed::Because(reason)) => {
                    let OnFailure::GoesOn(nr_failed) = &self.on_failure else {
                        return Err(Failed::Because(reason).into());
                    };
                    if let Some(nr_failed) = nr_failed {
                        nr_failed.set(nr_failed.get() + 1);
                    }
                    say(format_args!("nothing to compare with: {reason}"));
                    self.cannot = true;
                    self.records = Some(Vec::new());
                }
            }
        }
        self.taken.insert(variant.into());
        let records = self.records.iter().flatten();
        let of_bench = records.filter(|record| record.bench == self.bench);
        Ok(Some(sample(of_bench, variant, self.metrics)))
    }
}

/// Returns the table name of a program that was given by its path.
#[must_use]
pub fn file_name(program: &std::path::Path) -> String {
    let name = program.file_name().map(OsStr::to_string_lossy);
    name.map_or_else(|| "other".into(), |name| name.into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;
    use crate::harness::claim::Verdict;
    use crate::harness::metric::higher;
    use crate::harness::progress::Progress;
    use crate::harness::run::{Plan, run_case};
    use crate::output::record::line;
    use top::interrupt::Interrupt;

    const METRICS: &[Metric] = &[higher("rate", "1/s", ("", "rate"), 1.0)];

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(Into::into).collect()
    }

    /// Creates a program that reports a rate of `factor`, and a rate of 1.5 times `factor` in every
    /// second run.
    fn program(root: &Path, name: &str, factor: f64) -> PathBuf {
        let record = |rate: f64| Record {
            bench: "test".into(),
            case: "case".into(),
            variant: "v".into(),
            metric: "rate".into(),
            unit: "1/s".into(),
            median: rate,
            mad: 0.0,
            n: 1,
            peer: false,
        };
        let [slow, fast] = [1.0, 1.5].map(|rate| line(&record(rate * factor)));
        let path = root.join(name);
        let script = format!(
            "#!/bin/sh\nif mkdir {}.x 2>/dev/null; then echo '{slow}'; else rmdir {}.x; echo '{fast}'; fi\n",
            path.display(),
            path.display()
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn verdict(factor: f64) -> (Verdict, Option<f64>) {
        let root = tempfile::tempdir().unwrap();
        let programs = Programs {
            this: program(root.path(), "new", factor),
            other: program(root.path(), "old", 1.0),
            name: "old".into(),
            ..Programs::default()
        };
        let variant = |name: &str| Variant::ours(name, || unreachable!("children measure"));
        let case = Case {
            variants: vec![variant("v"), variant("(limit)"), variant("w").as_peer()],
            ..Case::new("test", "case", METRICS, "rate")
        };
        let mut case = cases(vec![case], &programs, &words("bench test"), 7).remove(0);
        assert_eq!(case.variants.len(), 2);
        let plan = Plan { repeat: 9, seed: 7, budget: None };
        let interrupt = Interrupt::default();
        let (series, _) = run_case(&mut case, &plan, &interrupt, &mut Progress::silent()).unwrap();
        let judged = case.claims[0].judge(METRICS, &series);
        (judged.verdict, judged.ratio.map(|ratio| ratio.median))
    }

    #[test]
    fn nine_pairs_detect_three_percent_when_runs_differ_by_half() {
        let (now, ratio) = verdict(0.97);
        assert!(now == Verdict::Fails && (ratio.unwrap() - 0.97).abs() < 1e-9);
        assert_eq!(verdict(1.0), (Verdict::Holds, Some(1.0)));
    }

    #[test]
    fn program_without_the_case_is_reported_and_not_judged() {
        let mut side = Side {
            program: "/bin/false".into(),
            args: Vec::new(),
            bench: "test",
            metrics: METRICS,
            on_failure: OnFailure::GoesOn(None),
            cannot: false,
            records: None,
            taken: HashSet::new(),
        };
        let sample = side.take("v").unwrap().unwrap();
        assert_eq!(sample.value("rate"), None);
        // The program is not started for the next repetition either.
        side.program = "/bin/sh".into();
        side.args = words("-c exit\\ 130");
        assert!(side.take("v").unwrap().is_some());
        side.cannot = false;
        side.on_failure = OnFailure::Stops;
        assert!(side.take("v").is_err());
    }
}
