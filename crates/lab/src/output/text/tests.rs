use super::*;
use crate::harness::case::tests::series as of_samples;
use crate::harness::case::{Sample, Variant};
use crate::harness::claim::{Against, Bound, Claim};
use crate::harness::fingerprint::{Fingerprint, find_cpus};
use crate::harness::metric::{Metric, higher, lower};
use crate::output::table::tests::MAX_WIDTH;

const METRICS: &[Metric] =
    &[higher("rate", "1/s", ("items", "M/s"), 1e6), lower("time", "ns", ("", "µs"), 1e3)];

fn case(bound: Bound) -> Case {
    Case {
        about: "what is done".into(),
        variants: vec![Variant::ours("ours", || Ok(None)), Variant::peer("theirs", || Ok(None))],
        claims: vec![Claim { bound, ..Claim::at_least("ours", "rate", Against::BestPeer, 1.0) }],
        ..Case::new("test", "example", METRICS, "rate")
    }
}

fn series(variant: &str, peer: bool, rates: &[f64]) -> Series {
    of_samples(variant, peer, rates.iter().map(|&rate| Sample::of([("rate", rate)])))
}

/// Returns a series with our rate, and one with half of it.
fn both() -> [Series; 2] {
    [series("ours", false, &[2e6, 4e6, 6e6]), series("theirs", true, &[1e6, 2e6, 3e6])]
}

fn finished<'a>(case: &'a Case, series: &'a [Series], ended: Ended) -> Finished<'a> {
    Finished {
        case,
        series,
        ended,
        repeat: 5,
        noise: Noise::default(),
        runs: true,
        asked: None,
        completes: None,
    }
}

/// Returns the report of a case in which our rate is twice the peer's.
fn report(form: Form, bound: Bound, ended: Ended) -> (String, usize) {
    let (case, all, mut out) = (case(bound), both(), Vec::new());
    let mut report = Report::new(&mut out, form, false);
    report.case(&finished(&case, &all, ended)).unwrap();
    let unmet = report.unmet;
    (String::from_utf8(out).unwrap(), unmet)
}

fn line<'a>(text: &'a str, start: &str) -> &'a str {
    text.lines().find(|it| it.starts_with(start)).unwrap()
}

const PLAIN: Form = Form::Text { claims: true };

#[test]
fn all_runs_are_printed_on_request() {
    let json = report(Form::Json, Bound::AtLeast(1.5), Ended::Complete).0;
    let last = json.lines().last().unwrap();
    assert!(last.contains(r#""run":3,"values":[["rate",3000000.0]]"#), "{last}");
}

#[test]
fn text_has_values_ratio_and_verdict_and_no_escape() {
    let (text, unmet) = report(PLAIN, Bound::AtLeast(1.5), Ended::Complete);
    let ours: Vec<_> = line(&text, "ours").split_whitespace().collect();
    assert_eq!(ours, ["ours", "4.00", "50", "2.00", "±0", "-"]);
    let claim = line(&text, "ours, rate");
    assert!(claim.contains("theirs") && claim.contains(">= 1.5"));
    assert!(claim.ends_with("yes"), "{claim}");
    assert!(text.contains("best peer theirs"), "{text}");
    assert!(text.contains("differ by more than 10 %"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    assert_eq!(unmet, 0);
    let (case, all, mut out) = (case(Bound::AtLeast(1.5)), both(), Vec::new());
    let mut report = Report::new(&mut out, PLAIN, true);
    report.case(&finished(&case, &all, Ended::Complete)).unwrap();
    assert!(out.contains(&b'\x1b'), "color where it is allowed");
}

#[test]
fn failed_claim_is_counted_and_printed() {
    let (text, unmet) = report(PLAIN, Bound::AtLeast(3.0), Ended::Complete);
    assert!(line(&text, "ours, rate").ends_with("no"), "{text}");
    assert_eq!(unmet, 1);
}

/// Returns the report of a run of one case that took 12.3 s.
fn run_of(case: &Case, series: &[Series], (ended, why): (Ended, Why)) -> String {
    let mut out = Vec::new();
    let mut report = Report::new(&mut out, PLAIN, false);
    report.head(&Head::of_tests()).unwrap();
    report.case(&finished(case, series, ended)).unwrap();
    report.end(End { ended: why, seconds: 12.3 }).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_run_ends_with_its_verdict_in_words() {
    let case = case(Bound::AtLeast(3.0));
    let text = run_of(&case, &both(), (Ended::Interrupted, Why::Interrupted));
    let last: Vec<&str> = text.lines().rev().take(3).collect();
    assert_eq!(
        last[0],
        "0 claims hold, 1 does not; 12 s in total; interrupted: the rest was not measured"
    );
    let claim = "ours, rate, against theirs: 2.00 ±0, claimed >= 3";
    let fails = format!("does not hold: example (test example): {claim}");
    assert!(last[1].starts_with(&fails), "{text}");
    assert_eq!(last[2], "  example, by rate: 2.00 × theirs (example: ours to theirs, n 3)");
    assert!(text.contains("started  2026-11-21 21:15:03 UTC: afterwork-lab bench"));
}

#[test]
fn text_explains_missing_repetitions() {
    let (text, _) = report(PLAIN, Bound::AtLeast(1.5), Ended::OutOfTime(3));
    assert!(text.contains("medians of 3 repetitions: time was up before the other 2"), "{text}");
    let (text, _) = report(PLAIN, Bound::AtLeast(1.5), Ended::Interrupted);
    assert!(text.contains("interrupted: medians of 3"), "{text}");
    let never_ran = [series("ours", false, &[])];
    assert!(!values(&case(Bound::AtLeast(1.0)), &never_ran, None).contains("ours"));
}

#[test]
fn json_is_one_object_per_line() {
    let (text, _) = report(Form::Json, Bound::AtLeast(1.5), Ended::Complete);
    let lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(matches!(&lines[0], Line::Case(head) if head.headline == "rate"));
    let claims = lines.iter().filter(|line| {
        matches!(line, Line::Claimed(it) if it.verdict == Verdict::Holds && it.against.as_deref() == Some("theirs"))
    });
    assert_eq!(claims.count(), 1);
    let of = |variant: &str, metric: &str| {
        lines.iter().find_map(|line| match line {
            Line::Record(it) if it.variant == variant && it.metric == metric => Some(it),
            _ => None,
        })
    };
    let ratio = of("ours", "rate.vs_best_peer").unwrap();
    assert_eq!((ratio.median, ratio.n, ratio.peer), (2.0, 3, false));
    assert!(of(record::MACHINE, "steal").is_some());
}

#[test]
fn run_without_a_peer_is_summarized_by_its_claims() {
    let case = case(Bound::AtLeast(1.0));
    let both = both();
    for (series, words) in
        [(&both[..], "ours against the best peer"), (&both[..1], "what became of the claims")]
    {
        let text = run_of(&case, series, (Ended::Complete, Why::Complete));
        assert!(text.contains(&format!("in words: {words}")), "{text}");
    }
}

#[test]
fn the_machine_fits_in_the_width_of_a_table() {
    for line in Fingerprint::take(&find_cpus().unwrap()).lines() {
        // Hardware may have long names, so the limit is 40 characters higher here.
        assert!(line.len() <= MAX_WIDTH + 40, "{line}");
    }
}

#[test]
fn discarded_repetitions_are_not_requested_again() {
    use crate::harness::beside::Absent;
    let case = case(Bound::AtLeast(1.0));
    let mut all = both();
    for (_, sample) in &mut all[0].samples[..2] {
        *sample = Sample::thrown_away(Absent("one of 2 threads made no progress".into()));
    }
    let warning = |all: &[Series], is_cut| {
        let warnings = spread_warnings(&case, all, is_cut);
        warnings.into_iter().next().unwrap_or_default()
    };
    assert_eq!(
        warning(&all, false),
        "only 1 of 3 repetitions of example counted for ours, too few to show a spread"
    );
    let once = [series("ours", false, &[2e6])];
    for (is_cut, hint) in [(false, "--repeat 3 or more does"), (true, "the time ran out")] {
        let expected = format!("1 repetition of example shows no spread: {hint}");
        assert_eq!(warning(&once, is_cut), expected);
    }
    let found = beside::warnings(&all);
    let start = "ours: 2 of 3 runs discarded, because a background thread";
    assert!(found[0].starts_with(start), "{found:?}");
}
