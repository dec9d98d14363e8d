//! One call of `afterwork bench`: every case of every bench asked for, told as each ends.

use std::io;
use std::time::{Duration, Instant};

use topology::CpuId;

use super::args::{BenchArgs, CommonArgs, Which};
use super::mpscq::{self, MpscqArgs};
use super::task_work::{self, TaskWorkArgs};
use super::workqueue::{self, WorkqueueArgs};
use crate::exit::{Exit, Stop};
use crate::measure::case::Case;
use crate::measure::fingerprint::Fingerprint;
use crate::measure::handover;
use crate::measure::interrupt::Interrupt;
use crate::measure::noise::{self, NoiseMeter};
use crate::measure::progress::Progress;
use crate::measure::record::{Head, SCHEMA};
use crate::measure::report::{Finished, Form, Report};
use crate::measure::run::{Ended, Plan, run_case};
use crate::talk::may_colour;

/// Enough for a median that one wild run does not move.
const REPEAT: usize = 9;
const REPEAT_QUICK: usize = 5;

/// All benches together with `--quick`. The promise is two minutes; the rest is for the one repetition that
/// every case has whatever it takes.
const QUICK: Duration = Duration::from_secs(90);

/// What every bench is told when it makes its cases.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether runs are to be short.
    pub quick: bool,
    /// The CPUs that this process may use.
    pub cpus: Vec<CpuId>,
    /// Where to pin producers, in turn; empty for nowhere.
    pub pins: Vec<CpuId>,
    /// Asked by runs, at least ten times a second.
    pub interrupt: Interrupt,
}

/// Runs the benches asked for.
///
/// # Errors
///
/// A bench cannot run, or standard output is gone.
pub fn run(args: &BenchArgs) -> Result<Exit, Stop> {
    let interrupt =
        Interrupt::install().map_err(|error| Stop::because("cannot catch SIGINT", error))?;
    let common = &args.common;
    let settings = settings(common, interrupt.clone())?;
    let mut cases = only(&common.only, cases(args.which.as_ref(), &settings)?)?;

    let started = Instant::now();
    let mut report = Report::new(io::stdout(), form(common));
    let head = Head {
        schema: SCHEMA,
        fingerprint: Fingerprint::take()?,
        seed: common.seed.unwrap_or_else(|| fastrand::u64(..)),
    };
    report.head(&head, &early_warnings(&head.fingerprint)?)?;

    let repeat = repeat(common);
    let end = budget(common).map(|budget| started + budget);
    let planned = repeat * cases.iter().map(|case| case.variants.len()).sum::<usize>();
    let mut progress = Progress::on_stderr(planned, end);
    let count = cases.len();
    for (index, case) in cases.iter_mut().enumerate() {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let plan = Plan {
            repeat,
            seed: head.seed,
            budget: left.map(|left| share(left, count - index)),
        };
        let before = handover::round_trip_ns(&settings.cpus);
        let meter = NoiseMeter::start()?;
        let (series, ended) = run_case(case, &plan, &interrupt, &mut progress)?;
        let mut noise = meter.noise()?;
        noise.handover_ns = [before, handover::round_trip_ns(&settings.cpus)];
        let finished = Finished {
            case,
            series: &series,
            ended,
            repeat,
            noise,
        };
        progress.aside(|| report.case(&finished))?;
        if ended == Ended::Interrupted {
            return Ok(Exit::Interrupted);
        }
    }
    Ok(if common.check && report.unmet() > 0 {
        Exit::ClaimNotMet
    } else {
        Exit::Good
    })
}

/// The cases of the bench named, or of all.
fn cases(which: Option<&Which>, settings: &Settings) -> Result<Vec<Case>, Stop> {
    match which {
        Some(Which::Workqueue(args)) => workqueue::cases(args, settings),
        Some(Which::Mpscq(args)) => mpscq::cases(args, settings),
        Some(Which::TaskWork(args)) => task_work::cases(args, settings),
        None => {
            let mut all = workqueue::cases(&WorkqueueArgs::default(), settings)?;
            all.extend(mpscq::cases(&MpscqArgs::default(), settings)?);
            all.extend(task_work::cases(&TaskWorkArgs::default(), settings)?);
            Ok(all)
        }
    }
}

/// Leaves only the variants with these `names`, and the cases that have any; all of them without names.
fn only(names: &[String], mut cases: Vec<Case>) -> Result<Vec<Case>, Stop> {
    if names.is_empty() {
        return Ok(cases);
    }
    let mut known: Vec<&str> = cases
        .iter()
        .flat_map(|case| &case.variants)
        .map(|variant| variant.name.as_str())
        .collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        known.sort_unstable();
        known.dedup();
        return Err(Stop::CouldNotRun(format!(
            "--only {unknown}: no variant has this name; valid: {}",
            known.join(", ")
        )));
    }
    for case in &mut cases {
        case.variants
            .retain(|variant| names.contains(&variant.name));
        case.claims.retain(|claim| names.contains(&claim.variant));
    }
    cases.retain(|case| !case.variants.is_empty());
    Ok(cases)
}

fn settings(common: &CommonArgs, interrupt: Interrupt) -> Result<Settings, Stop> {
    let allowed = sync::cpu::affinity()
        .map_err(|error| Stop::because("cannot tell the allowed CPUs", error))?;
    let cpus: Vec<CpuId> = allowed.iter().collect();
    let pins = if common.pin { cpus.clone() } else { Vec::new() };
    Ok(Settings {
        quick: common.quick,
        cpus,
        pins,
        interrupt,
    })
}

/// What already speaks against the results before there are any.
fn early_warnings(fingerprint: &Fingerprint) -> Result<Vec<String>, Stop> {
    let mut warnings = noise::warnings(&noise::before()?, "just before the start");
    if let Some([load1, ..]) = fingerprint.load {
        warnings.extend(noise::load_warning(load1, fingerprint.cpus_allowed));
    }
    if !fingerprint.is_optimised() {
        warnings
            .push("this is a debug build: its figures mean nothing, build with --release".into());
    }
    Ok(warnings)
}

fn form(common: &CommonArgs) -> Form {
    if common.json {
        Form::Json
    } else {
        Form::Text {
            colour: may_colour(&io::stdout()),
        }
    }
}

fn repeat(common: &CommonArgs) -> usize {
    let default = if common.quick { REPEAT_QUICK } else { REPEAT };
    common.repeat.map_or(default, |repeat| {
        usize::try_from(repeat).unwrap_or(usize::MAX)
    })
}

fn budget(common: &CommonArgs) -> Option<Duration> {
    let asked = common.seconds.map(Duration::from_secs);
    asked.or_else(|| common.quick.then_some(QUICK))
}

/// An equal share of what is left: what one case leaves over goes to those after it.
fn share(left: Duration, cases: usize) -> Duration {
    left / u32::try_from(cases).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_is_shorter_and_what_is_asked_for_wins() {
        let quick = CommonArgs {
            quick: true,
            ..CommonArgs::default()
        };
        assert!(repeat(&quick) < repeat(&CommonArgs::default()));
        assert_eq!(budget(&quick), Some(QUICK));
        assert_eq!(budget(&CommonArgs::default()), None);
        let asked = CommonArgs {
            repeat: Some(3),
            seconds: Some(7),
            ..quick
        };
        assert_eq!(
            (repeat(&asked), budget(&asked)),
            (3, Some(Duration::from_secs(7)))
        );
    }

    #[test]
    fn shares_add_up_to_what_is_left_whatever_each_case_takes() {
        let mut left = Duration::from_secs(90);
        for cases in (1..=6).rev() {
            left -= share(left, cases);
        }
        assert_eq!(left, Duration::ZERO);
        assert_eq!(share(Duration::ZERO, 3), Duration::ZERO);
    }
}
