//! `afterwork-lab try`: seven questions of a newcomer, each answered by one case.

use std::path::PathBuf;

use clap::Args;

use super::args::{BenchArgs, CommonArgs, Which};
use super::settings::{Pick, Settings, count, seed};
use crate::harness::case::{Case, Variant};
use crate::output::answer::Unit::{Count as PLAIN, Ends as RUNS, Rate as PER_S, Time as NS};
use crate::output::answer::{Question, Row};

/// The number of turns of a question whose outcomes differ by far more than its turns do.
const FEW: usize = 9;
/// The number of turns of other questions. The uncertainty falls with the square root of it.
const MANY: usize = 31;
const SECONDS: usize = 60;

/// The peers of our readers. Of liburcu's, only the default ones give the same guarantees.
const SHARED: [&str; 5] = ["urcu-memb", "crossbeam-epoch", "seize", "haphazard", "arc-swap"];
/// The pools as they are shipped, each with its own way of waiting.
const AS_SHIPPED: [&str; 3] = ["tokio+join", "rayon+join", "crossbeam+join"];
/// The same pools and `threadpool`, with a waiter that busy-polls, which none of them provides.
const WITH_OUR_WAITER: [&str; 4] =
    ["tokio+look", "rayon+look", "threadpool+look", "crossbeam+look"];

/// Expands to questions with their case, its number of turns, and the rows of the answer: label,
/// metric, ours, peers, unit.
macro_rules! questions {
    ($($text:literal, $bench:literal $case:literal, $turns:ident: {
        $($label:literal, $metric:literal, $ours:literal, $peers:expr, $unit:expr;)*
    })*) => {
        [$(Question {
            text: $text,
            case: ($bench, $case),
            turns: $turns,
            rows: &[$(Row { label: $label, metric: $metric, ours: $ours, peers: $peers, unit: $unit }),*],
        }),*]
    };
}

pub const QUESTIONS: [Question; 7] = questions! {
    "May I hold a lock while I wait for my own work?", "everyday" "locked", FEW: {
        "8 requests for it", "until_end", "ours", &["rayon"], RUNS;
    }
    "1000 × \"save soon after the last change\"", "everyday" "save-soon", MANY: {
        "saves (peer: a timer for each)", "saves", "ours", &["tokio+each"], PLAIN;
        "a change (peer: aborted timer)", "per_change", "ours", &["tokio+abort"], NS;
    }
    "8 subsystems, each limited to 16 items at once", "max-active" "subsystems", FEW: {
        "p99, queued to done", "latency_p99", "afterwork", &[], NS;
        "median", "latency_p50", "afterwork", &[], NS;
        "threads", "threads", "afterwork", &[], PLAIN;
    }
    "An owner that waits for 32 messages", "task-work" "wake", FEW: {
        "CPU per message", "owner_cpu_per_item", "wait-32", &[], NS;
        "median wait of a message", "latency_p50", "wait-32", &[], NS;
    }
    "Reading shared configuration", "rcu" "read", FEW: {
        "per read", "read_ns", "rcu", &SHARED, NS;
    }
    "1000 small closures at once", "workqueue" "batch-1000", MANY: {
        "per second", "items_per_s", "cache_shard+spawn", &[], PER_S;
        "CPU per closure", "cpu_per_item", "cache_shard+spawn", &[], NS;
    }
    "One closure at a time that another thread must run", "workqueue" "one-at-a-time", MANY: {
        "there and back", "completion_p50", "cache_shard+spawn", &AS_SHIPPED, NS;
        "pools given our waiter", "completion_p50", "cache_shard+spawn", &WITH_OUR_WAITER, NS;
        "CPU per closure", "cpu_per_item", "cache_shard+spawn", &AS_SHIPPED, NS;
    }
};

/// Options of `afterwork-lab try`.
#[derive(Args, Clone, Debug, Default)]
pub struct TryArgs {
    /// Turns of each variant [default: 9 or 31, by question]
    #[arg(long, value_name = "N", value_parser = count::<10_000>)]
    pub repeat: Option<usize>,

    /// Start no turn that would end more than this many seconds after the start [default: 60]
    #[arg(long, value_name = "S", value_parser = count::<86_400>)]
    pub seconds: Option<usize>,

    /// Seed for the order in which variants run [default: random]
    #[arg(long, value_name = "SEED", value_parser = seed)]
    pub seed: Option<u64>,

    /// Print one JSON object per line instead of the answers
    #[arg(long)]
    pub json: bool,

    /// Also write a page with all figures to this file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

impl TryArgs {
    pub fn bench(&self) -> BenchArgs {
        BenchArgs {
            which: None,
            common: CommonArgs {
                quick: true,
                repeat: self.repeat,
                seconds: Some(self.seconds.unwrap_or(SECONDS)),
                seed: self.seed,
                json: self.json,
                report: self.report.clone(),
                no_report: self.report.is_none(),
                ..CommonArgs::default()
            },
        }
    }
}

pub fn cases(settings: &Settings) -> Vec<Case> {
    let benches = Which::all();
    let case = |question: &Question| {
        let (bench, name) = question.case;
        let needs = |case: &Case, variant: &Variant| {
            case.bench == bench && question.needs(&variant.name, variant.peer)
        };
        find(&benches, name, settings, needs).expect("each question names a case")
    };
    QUESTIONS.iter().map(case).collect()
}

/// Creates the case `name` of one of `benches`, without claims and with only the variants that a
/// table needs. Returns `None` if no bench creates it with such a variant.
pub(super) fn find(
    benches: &[Which],
    name: &str,
    settings: &Settings,
    needs: impl Fn(&Case, &Variant) -> bool,
) -> Option<Case> {
    let settings =
        Settings { pick: Pick { cases: vec![name.into()], peers: Vec::new() }, ..settings.clone() };
    let benches = benches.iter().filter(|it| it.menu().cases.contains(&name));
    let mut cases = benches.flat_map(|bench| bench.cases(&settings)).map(|mut case| {
        let mut variants = std::mem::take(&mut case.variants);
        variants.retain(|variant| needs(&case, variant));
        Case { variants, claims: Vec::new(), ..case }
    });
    cases.find(|case| !case.variants.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_names_a_metric_and_variants_of_its_case() {
        let cases = cases(&Settings::of_tests(&[]));
        for (question, case) in QUESTIONS.iter().zip(&cases) {
            for row in question.rows {
                let has = |name: &str| case.variants.iter().any(|it| it.name == name);
                assert!(case.metrics.iter().any(|it| it.name == row.metric), "{}", row.label);
                let absent = |it: &&&str| !has(it) && **it != "urcu-memb";
                assert!(has(row.ours) && !row.peers.iter().any(|it| absent(&it)), "{}", row.label);
            }
            assert!(case.variants.iter().any(|it| it.peer), "{}", question.text);
        }
    }
}
