//! Compares two afterwork-lab programs, to detect slowdowns. Each variant of afterwork appears once
//! for each program. In each repetition, both programs measure the case once, in random order and
//! each in its own process. Ratios are computed within a repetition, so effects common to both
//! programs cancel out. A claim fails if the median exceeds `LEEWAY` by more than its MAD, so nine
//! pairs detect a change of 3 % if the MAD is below 1.5 %.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use top::exit::Stop;

use super::child::{args_for, measure, sample, this_program};
use crate::harness::case::{Case, Sample, Variant};
use crate::harness::claim::Claim;
use crate::harness::metric::{Better, Metric};
use crate::output::record::Record;

/// Half of the change to detect, so that it lies midway between no change and a change of 3 %.
const LEEWAY: f64 = 0.015;

pub fn cases(cases: Vec<Case>, other: &Path, seed: u64) -> Result<Vec<Case>, Stop> {
    let this = this_program()?;
    let compare = |case: Case| {
        let mut args = args_for(case.name);
        args.extend(["--peers=none".into(), format!("--seed={seed}").into()]);
        compared(case, [&this, other], &args)
    };
    Ok(cases.into_iter().map(compare).collect())
}

fn compared(case: Case, [this, other]: [&Path; 2], args: &[OsString]) -> Case {
    let name = other.file_name().map_or_else(|| "other".into(), OsStr::to_string_lossy);
    let [here, there] = [this, other].map(|program| {
        Rc::new(RefCell::new(Side {
            program: program.into(),
            args: args.to_vec(),
            bench: case.bench,
            metrics: case.metrics,
            records: None,
            taken: HashSet::new(),
        }))
    });
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
        let headline = case.metrics.iter().find(|metric| metric.name == case.headline);
        claims.extend(headline.map(|metric| {
            let claim = match metric.better {
                Better::Higher => Claim::at_least(&variant.name, *metric, before, 1.0 - LEEWAY),
                Better::Lower => Claim::at_most(&variant.name, *metric, before, 1.0 + LEEWAY),
            };
            Claim { surely: true, ..claim }
        }));
    }
    Case {
        about: format!("this program and {name} in turns: {}", case.about),
        variants,
        claims,
        ..case
    }
}

struct Side {
    program: PathBuf,
    args: Vec<OsString>,
    bench: &'static str,
    metrics: &'static [Metric],
    /// The results of the current repetition. `None` before the first repetition, and after SIGINT.
    records: Option<Vec<Record>>,
    /// The variants whose result of the current repetition has been returned.
    taken: HashSet<String>,
}

impl Side {
    /// Returns the result of `variant`. If that result was already returned, takes it from the next
    /// repetition.
    fn take(&mut self, variant: &str) -> Result<Option<Sample>, Stop> {
        if self.records.is_none() || self.taken.contains(variant) {
            self.taken.clear();
            self.records = measure(&self.program, &self.args)?;
        }
        self.taken.insert(variant.into());
        let records = self.records.as_ref();
        Ok(records.map(|records| sample(records, self.bench, variant, self.metrics)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use top::interrupt::Interrupt;

    use super::*;
    use crate::harness::claim::Verdict;
    use crate::harness::metric::higher;
    use crate::harness::progress::Progress;
    use crate::harness::run::{Plan, run_case};
    use crate::harness::stats::Spread;
    use crate::output::record::line;

    const METRICS: &[Metric] = &[higher("rate", "1/s", ("", "rate"), 1.0)];

    /// Creates a program that reports a rate of `factor`, and a rate of 1.5 times `factor` in every
    /// second run.
    fn program(root: &Path, name: &str, factor: f64) -> PathBuf {
        let record = |median| {
            let spread = Spread { median, mad: 0.0, n: 1 };
            Record::of(("test", "case"), ("v", false), ("rate", "1/s"), spread)
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
        let [this, other] = [("new", factor), ("old", 1.0)]
            .map(|(name, factor)| program(root.path(), name, factor));
        let variant = |name: &str| Variant::ours(name, || unreachable!("children measure"));
        let case = Case {
            variants: vec![variant("v"), variant("(limit)"), variant("w").into_peer()],
            ..Case::new("test", "case", METRICS, "rate")
        };
        let mut case = compared(case, [&this, &other], &["bench".into()]);
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
}
