//! `afterwork-lab bench seeds`: repeats the measurements of the five sources of afterwork's
//! mechanisms, with the old way next to the new way. The cases are those of other benches, with the
//! sizes of the sources. [`SOURCES`] lists the tables and the published figures.

use std::path::PathBuf;

use clap::Args;
use topology::AffinityScope;

use super::args::Which;
use super::questions::find;
use super::settings::{Menu, Settings, Sizes, count, names};
use super::{max_active, percpu, rcu, task_work, workqueue};
use crate::harness::case::{Case, Variant};
use crate::harness::metric::Text;
use crate::output::sources::{self, Source};

mod tables;

pub use tables::SOURCES;

pub const SECONDS: usize = 300;

/// The number of items of each producer in the source's test of workqueues.
const ITEMS: Sizes = [200_000, 2_000];
const PRODUCERS: usize = 8;

/// The number of calls in each run of the source's test of RCU.
const CALLS: Sizes = [100, 10];

const PARTS: [(Text, Part); 9] = [
    ("lock-hold", Part { repeat: 5, weight: 200 }),
    ("replace-idle", Part { repeat: 10, weight: 15 }),
    ("replace-8-busy", Part { repeat: 5, weight: 30 }),
    ("bridge", Part { repeat: 3, weight: 25 }),
    ("joins", Part { repeat: 5, weight: 20 }),
    ("service-8", Part { repeat: 5, weight: 15 }),
    ("service-1024", Part { repeat: 5, weight: 15 }),
    ("alloc-warm", Part { repeat: 5, weight: 5 }),
    ("isolation", Part { repeat: 5, weight: 30 }),
];

pub const MENU: Menu = Menu { cases: &names(&PARTS), peers: &[] };

pub fn help() -> String {
    format!(
        "{}\nWithout --repeat, 3 to 10 repetitions, with --quick one. Without --seconds, at most {SECONDS} s.",
        MENU.help()
    )
}

/// Options of `bench seeds`.
#[derive(Args, Clone, Debug, Default)]
pub struct SeedsArgs {
    /// Items of each of the 8 producers of lock-hold [default: 200000, with --quick 2000]
    #[arg(long, value_name = "N", value_parser = count::<100_000_000>)]
    pub items: Option<usize>,

    /// Folder for the unnamed temporary file of `joins` [default: the system's folder for temporary
    /// files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub repeat: usize,
    /// The share of the time. It is about the number of seconds that the repetitions take on two
    /// CPUs, so that no case prevents another one from running.
    pub weight: u32,
}

pub fn part(case: &Case) -> Part {
    PARTS.iter().find(|(name, _)| *name == case.name).expect("the menu has all cases").1
}

pub fn cases(args: &SeedsArgs, settings: &Settings) -> Vec<Case> {
    let scopes = AffinityScope::ALL.to_vec();
    let benches = [
        Which::Workqueue(workqueue::WorkqueueArgs {
            producers: Some(PRODUCERS),
            items: Some(settings.size(args.items, ITEMS)),
            scope: scopes,
            workers: None,
        }),
        Which::Rcu(rcu::RcuArgs { calls: Some(settings.size(None, CALLS)) }),
        Which::MaxActive(max_active::MaxActiveArgs { items: None, dir: args.dir.clone() }),
        Which::TaskWork(task_work::TaskWorkArgs::default()),
        Which::Percpu(percpu::PercpuArgs::default()),
    ];
    let names = MENU.cases.iter().filter(|name| settings.wants_case(name));
    let case = |name: &&str| {
        let needs = |case: &Case, variant: &Variant| {
            let case = (case.bench, case.name);
            SOURCES.iter().any(|it| it.needs(case, &variant.name))
        };
        find(&benches, name, settings, needs)
    };
    names.filter_map(case).collect()
}

/// Returns the table of the source of `case`, if `case` completes it because `next` belongs to
/// another source.
pub fn completed(case: &Case, next: Option<&Case>) -> Option<&'static Source> {
    let of = |case: &Case| SOURCES.iter().position(|it| it.has((case.bench, case.name)));
    let source = of(case)?;
    (next.and_then(of) != Some(source)).then(|| &SOURCES[source])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::sources::{Column, Show};
    use crate::output::text::tables_of;

    fn all() -> Vec<Case> {
        cases(&SeedsArgs::default(), &Settings::of_tests(&[]))
    }

    #[test]
    fn every_row_names_variants_and_metrics_of_its_case() {
        let cases = all();
        let services = ["service-8", "service-1024"];
        for block in SOURCES.iter().flat_map(|it| it.blocks) {
            for row in block.rows {
                let case = cases.iter().find(|it| (it.bench, it.name) == row.case);
                let Some(case) = case else {
                    // Without io_uring there are no service cases, and without two CPUs there is no
                    // `isolation`.
                    assert!(services.contains(&row.case.1) || row.case.1 == "isolation");
                    continue;
                };
                for name in row.variants {
                    let has = case.variants.iter().any(|it| it.name == *name);
                    assert!(has, "{name} of {}", case.name);
                }
                let metric = |it: &Column| match it.show {
                    Show::Value(_, metric, _)
                    | Show::Change(metric)
                    | Show::Increase(metric)
                    | Show::Ratio(metric)
                    | Show::Runs(metric) => Some(metric),
                    Show::Published(_) => None,
                };
                for metric in block.columns.iter().filter_map(metric) {
                    let has = case.metrics.iter().any(|it| it.name == metric);
                    assert!(has, "{metric} of {}", case.name);
                }
            }
        }
    }

    #[test]
    fn a_source_has_a_figure_for_each_row_of_a_column() {
        for block in SOURCES.iter().flat_map(|it| it.blocks) {
            let published = block.columns.iter().filter_map(|it| match it.show {
                Show::Published(figures) => Some(figures.split('|').count()),
                _ => None,
            });
            for nr_figures in published {
                assert!(block.each_run || nr_figures == block.rows.len(), "{}", block.source);
            }
        }
    }

    #[test]
    fn a_table_is_complete_with_the_last_case_of_its_source() {
        let cases = all();
        let next = |index: usize| cases.get(index + 1);
        let completed = |index: usize| completed(&cases[index], next(index));
        let tables: Vec<_> = (0..cases.len()).filter_map(completed).collect();
        let titles: Vec<_> = tables.iter().map(|it| it.title).collect();
        let mut once = titles.clone();
        once.dedup();
        assert_eq!(titles, once);
        assert!(titles.len() >= SOURCES.len() - 1);
    }

    #[test]
    fn tables_without_records_fit_the_width() {
        for source in &SOURCES {
            let table = tables_of(source, &[], false);
            let lines = table.lines().filter(|line| !line.contains(": "));
            for line in lines {
                assert!(line.chars().count() <= 100, "{line}");
            }
            assert!(table.contains("not measured") && table.contains("Why ours differs"));
        }
    }
}
