//! One run of `afterwork-lab bench`: runs each case and prints its results.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use time::OffsetDateTime;
use top::exit::{Exit, Stop};
use top::interrupt::Interrupt;
use top::talk::{may_color, say};
use top::topology::draw::draw;
use topology::{CpuId, ShardParams};

use super::args::{BenchArgs, CommonArgs, Which};
use super::child::{self, retain_known};
use super::questions::{self, QUESTIONS};
use super::seeds::Part;
use super::settings::{self, Menu, NONE as NO_PEERS, Settings};
use super::{against, groups, rcu, scale, seeds};
use crate::harness::case::Case;
use crate::harness::fingerprint::{Fingerprint, find_cpus};
use crate::harness::handover;
use crate::harness::noise::{self, Noise, NoiseMeter};
use crate::harness::progress::{Progress, rounded};
use crate::harness::run::{Ended, Plan, run_case};
use crate::output::answer::Question;
use crate::output::page::{may_write, write_page};
use crate::output::record::{self, End, Head, Listed, SCHEMA, Why};
use crate::output::text::{Finished, Form, Report};

/// The number of repetitions. It is large enough that one outlier does not move the median.
const REPEAT: usize = 9;
const REPEAT_QUICK: usize = 5;

/// The time limit for all benches together with `--quick`. Every case runs at least one repetition
/// even beyond it, so the documented limit is two minutes.
const QUICK: Duration = Duration::from_secs(90);

const DEFAULT_PAGE: &str = "afterwork-report.html";

/// Runs the selected benches, or answers the questions of `try` if `asks` is set.
pub fn run(args: &BenchArgs, asks: bool) -> Result<Exit, Stop> {
    let interrupt = Interrupt::install().map_err(Stop::because("cannot catch SIGINT"))?;
    let common = &args.common;
    common.inside.map(child::end_with).transpose()?;
    let seed = common.seed.unwrap_or_else(|| fastrand::u64(..));
    let mut settings = settings(common, interrupt.clone())?;
    let mut cases = match &common.against {
        None if asks => questions::cases(&settings),
        None => cases(args, &settings)?,
        Some(other) => {
            // The peers do not depend on the program, so measuring them would waste time.
            settings.pick.peers = vec![NO_PEERS.into()];
            let mut cases = cases(args, &settings)?;
            let bench = args.which.as_ref().and(cases.first()).map(|case| case.bench);
            retain_known(other, bench, &mut cases)?;
            against::cases(cases, other, seed)?
        }
    };
    if common.list {
        return list(&cases, common.json);
    }
    // A failure after the measurement would lose the results.
    let page = page(args);
    if let Some(path) = &page {
        may_write(path)?;
    }

    let repeats = matches!(args.which, Some(Which::Seeds(_)));
    let asked = |index: usize| QUESTIONS.get(index).filter(|_| asks);
    let part = |(index, case)| part(case, common, repeats, asked(index));
    let parts: Vec<Part> = cases.iter().enumerate().map(part).collect();
    let limit = repeats.then_some(Duration::from_secs(seeds::SECONDS as u64));
    let budget = budget(common).or(limit);
    let started = Instant::now();
    let mut report =
        Report::new(results(common)?, form(common, asks, repeats), may_color(&io::stdout()));
    if !asks && common.inside.is_none() {
        say(format_args!("{}", estimate(&cases, &parts, common.quick, budget)));
    }
    let fingerprint = Fingerprint::take(&settings.topology);
    // The parent process has already checked the machine.
    let inside = common.inside.is_some();
    let before = if inside { Noise::default() } else { noise::before()? };
    let warned = || early_warnings(&before, &fingerprint, &cases);
    let head = Head {
        schema: SCHEMA,
        warnings: if inside { Vec::new() } else { warned() },
        others_cpu: before.others,
        fingerprint,
        started: utc(OffsetDateTime::now_utc()),
        command: command(std::env::args().skip(1)),
        seed,
        drawing: draw(&settings.topology, &ShardParams::default()),
    };
    report.head(&head)?;

    let end = budget.map(|budget| started + budget);
    let planned = parts.iter().zip(&cases).map(|(it, case)| it.repeat * case.variants.len()).sum();
    let mut progress = Progress::on_stderr(planned, end);
    let mut why = Why::Complete;
    let mut needed = Vec::new();
    for index in 0..cases.len() {
        let (case, next) = cases[index..].split_first_mut().expect("it is an index");
        let Part { repeat, weight } = parts[index];
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let plan = Plan {
            repeat,
            seed: head.seed,
            budget: left.map(|left| {
                let all = parts[index..].iter().map(|it| it.weight).sum();
                share(left, weight, all)
            }),
        };
        let before = handover::round_trip_ns(&settings.cpus);
        let meter = NoiseMeter::start()?;
        let began = Instant::now();
        let (series, ended) = run_case(case, &plan, &interrupt, &mut progress)?;
        if let Ended::Complete | Ended::OutOfTime(_) = ended {
            let done = if let Ended::OutOfTime(done) = ended { done } else { repeat };
            let time = began.elapsed().mul_f64(repeat as f64 / done as f64);
            needed.push(Needed { case: case.name, time, weight, is_cut: done < repeat });
        }
        let mut noise = meter.noise()?;
        noise.handover_ns = [before, handover::round_trip_ns(&settings.cpus)];
        let finished = Finished {
            case,
            series: &series,
            ended,
            repeat,
            noise,
            runs: common.runs || repeats,
            asked: asked(index),
            completes: match ended {
                _ if !repeats => None,
                Ended::Interrupted => seeds::completed(case, None),
                _ => seeds::completed(case, next.first()),
            },
        };
        progress.aside(|| report.case(&finished))?;
        if ended == Ended::Interrupted {
            why = Why::Interrupted;
            break;
        }
    }
    drop(progress);
    let cut: Vec<&str> = needed.iter().filter(|it| it.is_cut).map(|it| it.case).collect();
    if !cut.is_empty() && common.inside.is_none() {
        let seconds = enough(&needed).as_secs_f64().ceil();
        say(format_args!(
            "time ran out in {}: give --seconds {seconds} for all repetitions",
            cut.join(", ")
        ));
    }
    report.end(End { ended: why, seconds: started.elapsed().as_secs_f64() })?;
    if let Some(path) = page {
        write_page(&path, report.lines)?;
    }
    Ok(match why {
        Why::Interrupted => Exit::Interrupted,
        Why::Complete if common.check && report.unmet > 0 => Exit::ClaimNotMet,
        Why::Complete => Exit::Good,
    })
}

fn list(cases: &[Case], json: bool) -> Result<Exit, Stop> {
    let mut out = io::stdout();
    for case in cases {
        if json {
            writeln!(out, "{}", record::line(&Listed::of(case)))?;
            continue;
        }
        let names: Vec<&str> = case.variants.iter().map(|it| it.name.as_str()).collect();
        let (bench, name, about) = (case.bench, case.name, &case.about);
        // Semicolons separate the names, because some names contain commas.
        writeln!(out, "{bench} {name}\n  {about}\n  {}", names.join("; "))?;
    }
    out.flush()?;
    Ok(Exit::Good)
}

/// Returns the output for results: standard output, unless the report page is written there.
fn results(common: &CommonArgs) -> Result<Box<dyn Write>, Stop> {
    if common.report.as_deref() != Some(Path::new("-")) {
        return Ok(Box::new(io::stdout()));
    }
    if common.json {
        return Err(Stop::CouldNotRun(
            "--report - and --json both write to standard output: give the page a file, or create it \
             with `afterwork-lab report`"
                .into(),
        ));
    }
    Ok(Box::new(io::stderr()))
}

fn command(args: impl Iterator<Item = String>) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=,./+:".contains(c);
    let words = args.map(|word| {
        if !word.is_empty() && word.chars().all(is_plain) {
            word
        } else {
            format!("'{}'", word.escape_debug().to_string().replace('\'', "'\\''"))
        }
    });
    std::iter::once("afterwork-lab".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

fn page(args: &BenchArgs) -> Option<PathBuf> {
    let common = &args.common;
    let is_compared = common.against.is_some();
    let is_default = args.which.is_none() && !common.json && !common.no_report && !is_compared;
    let default = is_default.then(|| DEFAULT_PAGE.into());
    common.report.clone().or(default)
}

/// Returns the cases of the named bench, or of all benches, without claims about unselected
/// variants.
fn cases(args: &BenchArgs, settings: &Settings) -> Result<Vec<Case>, Stop> {
    let benches = args.which.clone().map_or_else(Which::all, |one| vec![one]);
    let menus: Vec<Menu> = benches.iter().map(Which::menu).collect();
    for (bench, menu) in [("scale", scale::MENU), ("groups", groups::MENU)] {
        if let (None, Some(case)) = (&args.which, settings.pick.first_of(&menu)) {
            return Err(Stop::CouldNotRun(format!(
                "--cases {case}: it is a case of `bench {bench}`, which runs only if named: afterwork-lab bench {bench} --cases {case}"
            )));
        }
    }
    settings.pick.check(&menus)?;
    if matches!(args.which, Some(Which::Seeds(_))) && args.common.against.is_some() {
        return Err(Stop::CouldNotRun(
            "seeds: its tables compare old and new ways of this program; compare programs by the \
             benches of its cases"
                .into(),
        ));
    }
    if args.common.pin && !benches.iter().any(Which::pins_producers) {
        return Err(Stop::CouldNotRun(
            "--pin: this bench pins no producers; workqueue, mpscq and everyday do".into(),
        ));
    }
    let cases = benches.iter().flat_map(|bench| bench.cases(settings)).collect();
    let mut cases = only(&args.common.only, cases)?;
    for case in &mut cases {
        let claims = std::mem::take(&mut case.claims).into_iter();
        case.claims = claims.filter(|claim| case.can_judge(claim)).collect();
    }
    Ok(cases)
}

fn only(names: &[String], mut cases: Vec<Case>) -> Result<Vec<Case>, Stop> {
    if names.is_empty() {
        return Ok(cases);
    }
    let mut known: Vec<&str> =
        cases.iter().flat_map(|case| &case.variants).map(|variant| variant.name.as_str()).collect();
    known.sort_unstable();
    known.dedup();
    settings::known("--only", names, known)?;
    for case in &mut cases {
        case.variants.retain(|variant| names.contains(&variant.name));
    }
    cases.retain(|case| !case.variants.is_empty());
    Ok(cases)
}

fn settings(common: &CommonArgs, interrupt: Interrupt) -> Result<Settings, Stop> {
    let allowed = sync::cpu::affinity().map_err(Stop::because("cannot read the allowed CPUs"))?;
    let cpus: Vec<CpuId> = allowed.iter().collect();
    let pins = if common.pin { cpus.clone() } else { Vec::new() };
    Ok(Settings {
        quick: common.quick,
        topology: find_cpus()?,
        inside: common.inside.is_some(),
        cpus,
        pins,
        interrupt,
        pick: common.pick.clone(),
    })
}

fn early_warnings(before: &Noise, fingerprint: &Fingerprint, cases: &[Case]) -> Vec<String> {
    let mut warnings = noise::warnings(before, "just before the start");
    if !fingerprint.is_optimised() {
        warnings
            .push("this is a debug build: its figures mean nothing, build with --release".into());
    }
    let has_peer = |case: &Case| case.variants.iter().any(|it| it.peer);
    let of_rcu = |case: &Case| case.bench == rcu::BENCH;
    let wants_liburcu = cases.iter().any(|case| of_rcu(case) && has_peer(case));
    if wants_liburcu && !lab_peers::reclaim::has_liburcu() {
        warnings.push(
            "liburcu is missing, so its four rows in rcu and the claims about them are skipped: install its headers \
             (Debian, Ubuntu: liburcu-dev; Fedora: userspace-rcu-devel; Arch: liburcu) and build again"
                .into(),
        );
    }
    warnings
}

fn form(common: &CommonArgs, asks: bool, repeats: bool) -> Form {
    match () {
        () if common.json => Form::Json,
        () if asks => Form::Answers,
        () if repeats => Form::Sources { some: !common.pick.cases.is_empty() },
        () => Form::Text { claims: common.check },
    }
}

fn part(case: &Case, common: &CommonArgs, repeats: bool, asked: Option<&Question>) -> Part {
    let usual = match asked {
        Some(question) => Part { repeat: question.turns, weight: 1 },
        None if repeats && common.quick => Part { repeat: 1, ..seeds::part(case) },
        None if repeats => seeds::part(case),
        None if common.quick => Part { repeat: REPEAT_QUICK, weight: 1 },
        None => Part { repeat: REPEAT, weight: 1 },
    };
    Part { repeat: common.repeat.unwrap_or(usual.repeat), ..usual }
}

fn budget(common: &CommonArgs) -> Option<Duration> {
    let asked = common.seconds.map(|s| Duration::from_secs(s as u64));
    asked.or_else(|| common.quick.then_some(QUICK))
}

/// The average seconds of one run of a variant on two CPUs, in full size and with `--quick`.
const RUN_SECONDS: [(&str, [f64; 2]); 9] = [
    ("workqueue", [0.44, 0.18]),
    ("blocking", [0.08, 0.07]),
    ("mpscq", [0.3, 0.18]),
    ("task-work", [0.1, 0.08]),
    ("rcu", [0.14, 0.09]),
    ("percpu", [0.3, 0.16]),
    ("max-active", [0.29, 0.19]),
    ("everyday", [0.33, 0.1]),
    ("scale", [0.5, 0.2]),
];

fn estimate(cases: &[Case], parts: &[Part], quick: bool, budget: Option<Duration>) -> String {
    let runs = |repeat: fn(&Part) -> usize| {
        let seconds = cases.iter().zip(parts).map(|(case, part)| {
            if part.weight > 1 && !quick {
                // The weight of a case of `bench seeds` is its number of seconds.
                return f64::from(part.weight) * repeat(part) as f64 / part.repeat as f64;
            }
            let known = RUN_SECONDS.iter().find(|(bench, _)| *bench == case.bench);
            let seconds = known.map_or(0.1, |(_, seconds)| seconds[usize::from(quick)]);
            (repeat(part) * case.variants.len()) as f64 * seconds
        });
        Duration::from_secs_f64(seconds.sum())
    };
    // Each case has at least one repetition, even if the time is up.
    let most = budget.map(|it| it.max(runs(|_| 1)));
    let all = runs(|part| part.repeat);
    let nr_cases = cases.len();
    let cases = if nr_cases == 1 { "case" } else { "cases" };
    let time = rounded(most.map_or(all, |most| all.min(most)));
    format!("{nr_cases} {cases}, about {time} on two CPUs")
}

struct Needed {
    case: &'static str,
    time: Duration,
    weight: u32,
    is_cut: bool,
}

/// Returns the shortest time limit with which every case has enough time for all repetitions, if
/// each case gets its share of the time that is left when it begins.
fn enough(needed: &[Needed]) -> Duration {
    let mut before = Duration::ZERO;
    let mut enough = Duration::ZERO;
    for (index, it) in needed.iter().enumerate() {
        let all: u32 = needed[index..].iter().map(|it| it.weight).sum();
        enough = enough.max(before + it.time * all / it.weight.max(1));
        before += it.time;
    }
    enough
}

/// Returns the share of the remaining time. `all` is the sum of the remaining weights.
fn share(left: Duration, weight: u32, all: u32) -> Duration {
    left * weight / all.max(1)
}

fn utc(moment: OffsetDateTime) -> String {
    let (hour, minute, second) = moment.to_hms();
    format!("{} {hour:02}:{minute:02}:{second:02} UTC", moment.date())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::harness::case::tests::run_each;
    use crate::harness::claim::Against;
    use crate::output::words;

    #[test]
    fn variants_have_different_names_and_claims_speak_of_them() {
        for quick in [true, false] {
            let settings = Settings { quick, ..Settings::of_tests(&[]) };
            for bench in Which::all() {
                for case in bench.cases(&settings) {
                    let name = format!("{} {}", case.bench, case.name);
                    let names: HashSet<&str> =
                        case.variants.iter().map(|v| v.name.as_str()).collect();
                    assert_eq!(names.len(), case.variants.len(), "{name}");
                    for claim in &case.claims {
                        let known = case.metrics.iter().any(|m| m.name == claim.metric);
                        assert!(known && case.can_judge(claim), "{name}: {claim:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_variant_has_the_metric_of_its_case() {
        let settings = Settings::of_tests(&[]);
        for bench in [Which::Everyday, Which::Groups] {
            run_each(bench.cases(&settings), |case, variant, sample| {
                assert!(sample.value(case.headline).is_some(), "{} of {}", case.name, variant.name);
            });
        }
    }

    #[test]
    fn dates_and_times_have_leading_zeros() {
        let moment = OffsetDateTime::from_unix_timestamp(1_709_089_445).unwrap();
        assert_eq!(utc(moment), "2024-02-28 03:04:05 UTC");
    }

    fn every_case() -> Vec<Case> {
        let settings = Settings::of_tests(&[]);
        let benches = Which::all().into_iter().chain([Which::Scale, Which::Groups]);
        benches.flat_map(|it| it.cases(&settings)).collect()
    }

    #[test]
    fn every_case_has_words_and_no_words_are_left_over() {
        let cases = every_case();
        let cases: HashSet<_> = cases.iter().map(|it| (it.bench, it.name)).collect();
        let known: HashSet<_> = words::tests::known().collect();
        assert_eq!(cases, known);
    }

    #[test]
    fn every_metric_has_words_and_no_words_are_left_over() {
        let mut left_over: HashSet<_> = words::tests::known_metrics().collect();
        for case in every_case() {
            let narrow = format!("{} {}", case.bench, case.name);
            for metric in case.metrics.iter().map(|it| it.name) {
                let mut places = [narrow.as_str(), case.bench, "*"].into_iter();
                let key = |place| Some((place, words::tests::key_of(place, metric)?));
                let found = places.find_map(key);
                let key = found.unwrap_or_else(|| panic!("{narrow}: {metric}"));
                left_over.retain(|it| *it != key);
            }
        }
        assert!(left_over.is_empty(), "{left_over:?}");
    }

    #[test]
    fn claims_about_excluded_variants_are_dropped() {
        let args = BenchArgs {
            which: None,
            common: CommonArgs {
                only: vec!["mailbox".into(), "wait-1".into()],
                ..CommonArgs::default()
            },
        };
        let cases = cases(&args, &Settings::of_tests(&[])).unwrap();
        let claims = cases.iter().flat_map(|case| &case.claims);
        let against: Vec<&Against> = claims.map(|claim| &claim.against).collect();
        assert!(!cases.is_empty() && against.is_empty(), "{against:?}");
    }

    #[test]
    fn command_line_is_quoted_for_a_shell() {
        let words = ["bench", "--only", "on_demand, breakable", ""];
        let columns_set = command(words.map(String::from).into_iter());
        let expected = "afterwork-lab bench --only 'on_demand, breakable' ''";
        assert_eq!(columns_set, expected);
    }

    #[test]
    fn quick_is_shorter_and_explicit_options_win() {
        let case = Case::new("rcu", "read", &[], "");
        let repeat = |common: &CommonArgs| part(&case, common, false, None).repeat;
        let quick = CommonArgs { quick: true, ..CommonArgs::default() };
        assert!(repeat(&quick) < repeat(&CommonArgs::default()));
        assert_eq!(budget(&quick), Some(QUICK));
        assert_eq!(budget(&CommonArgs::default()), None);
        let asked = CommonArgs { repeat: Some(3), seconds: Some(7), ..quick };
        let seven = Some(Duration::from_secs(7));
        assert_eq!((repeat(&asked), budget(&asked)), (3, seven));
    }

    #[test]
    fn an_estimate_is_within_the_limit() {
        let case = || Case { variants: Vec::new(), ..Case::new("rcu", "read", &[], "") };
        let cases = [case(), case()];
        let parts = [Part { repeat: 9, weight: 1 }, Part { repeat: 9, weight: 1 }];
        assert_eq!(estimate(&cases, &parts, false, None), "2 cases, about 0 s on two CPUs");
        let sources = [Part { repeat: 5, weight: 200 }, Part { repeat: 10, weight: 15 }];
        let known = estimate(&cases, &sources, false, None);
        assert_eq!(known, "2 cases, about 3 min 40 s on two CPUs");
        let all = every_case();
        let parts = vec![Part { repeat: 9000, weight: 1 }; all.len()];
        let limited = estimate(&all, &parts, true, Some(Duration::from_secs(10_000)));
        assert!(limited.ends_with("about 166 min 40 s on two CPUs"), "{limited}");
    }

    #[test]
    fn the_limit_for_all_repetitions_gives_each_case_its_time() {
        let needed = |time, weight| Needed {
            case: "c",
            time: Duration::from_secs(time),
            weight,
            is_cut: true,
        };
        for cases in [
            [needed(10, 1), needed(90, 1)],
            [needed(90, 1), needed(10, 1)],
            [needed(60, 2), needed(30, 1)],
        ] {
            let limit = enough(&cases);
            let mut left = limit;
            for (index, case) in cases.iter().enumerate() {
                let all = cases[index..].iter().map(|it| it.weight).sum();
                assert!(share(left, case.weight, all) >= case.time);
                left -= case.time;
            }
        }
        assert_eq!(enough(&[needed(10, 1), needed(90, 1)]), Duration::from_secs(100));
    }

    #[test]
    fn shares_add_up_to_the_remaining_time() {
        let mut left = Duration::from_secs(90);
        for cases in (1..=6).rev() {
            left -= share(left, 1, cases);
        }
        assert_eq!(left, Duration::ZERO);
        assert_eq!(share(Duration::ZERO, 1, 3), Duration::ZERO);
        let all = Duration::from_secs(90);
        assert_eq!(share(all, 2, 3), Duration::from_secs(60));
    }
}
