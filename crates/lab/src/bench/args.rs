//! The options that every bench shares.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::settings::{Menu, Pick, Settings, count, seed};
use super::{
    blocking, everyday, groups, max_active, mpscq, percpu, rcu, scale, seeds, task_work, workqueue,
};
use crate::harness::case::Case;

/// Measures the cost of deferring work on this machine, and compares it with other libraries.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = false)]
pub struct BenchArgs {
    /// Name of the bench; if absent, all benches run.
    #[command(subcommand)]
    pub which: Option<Which>,

    #[command(flatten)]
    pub common: CommonArgs,
}

/// The benches.
#[derive(Subcommand, Clone, Debug)]
pub enum Which {
    /// Queue items to a pool of workers: one at a time, in batches, all at once
    #[command(after_help = workqueue::MENU.help())]
    Workqueue(workqueue::WorkqueueArgs),

    /// Let items sleep in a pool: time until other items run instead, and number of threads
    #[command(after_help = blocking::MENU.help())]
    Blocking,

    /// Push items from 1 to 8 producers to one consumer: intrusive, or 8 bytes by value
    #[command(after_help = mpscq::MENU.help())]
    Mpscq(mpscq::MpscqArgs),

    /// Post items to one sleeping thread: wake-ups, latency, and cost for poster and owner
    #[command(after_help = task_work::MENU.help())]
    TaskWork(task_work::TaskWorkArgs),

    /// Replace a value under readers: read side, grace periods, callbacks, many updaters
    #[command(after_help = rcu::MENU.help())]
    Rcu(rcu::RcuArgs),

    /// Use a CPU's own cache and drain it from other CPUs: cycles per object, effect on the owner
    #[command(after_help = percpu::MENU.help())]
    Percpu(percpu::PercpuArgs),

    /// Measure common needs: limited capacity, borrowed data, idle CPUs, many sleeps
    #[command(after_help = everyday::MENU.help())]
    Everyday,

    /// Divide a machine between tenants, and show the cost of groups; runs only if named
    #[command(after_help = groups::MENU.help())]
    Groups,

    /// Show how costs grow with the number of queues and of SRCU domains; runs only if named
    #[command(after_help = scale::MENU.help())]
    Scale,

    /// Limit concurrent items: joins through one pool of blocks, eight subsystems on one machine
    #[command(after_help = max_active::MENU.help())]
    MaxActive(max_active::MaxActiveArgs),

    /// Repeat the measurements of the five sources of afterwork, old way next to new way, in
    /// about 5 minutes; runs only if named
    #[command(after_help = seeds::help())]
    Seeds(seeds::SeedsArgs),
}

/// The menu of a bench, and the function that creates its selected cases.
type Parts<'a> = (Menu, Box<dyn Fn(&Settings) -> Vec<Case> + 'a>);

impl Which {
    /// Returns all benches with default options, except [`Which::Groups`] and [`Which::Scale`],
    /// which run only if they are named, and [`Which::Seeds`], which measures cases of the other
    /// benches.
    pub fn all() -> Vec<Self> {
        vec![
            Self::Workqueue(Default::default()),
            Self::Blocking,
            Self::Mpscq(Default::default()),
            Self::TaskWork(Default::default()),
            Self::Rcu(Default::default()),
            Self::Percpu(Default::default()),
            Self::MaxActive(Default::default()),
            Self::Everyday,
        ]
    }

    fn parts(&self) -> Parts<'_> {
        match self {
            Self::Workqueue(args) => (workqueue::MENU, Box::new(|it| workqueue::cases(args, it))),
            Self::Blocking => (blocking::MENU, Box::new(blocking::cases)),
            Self::Mpscq(args) => (mpscq::MENU, Box::new(|it| mpscq::cases(args, it))),
            Self::TaskWork(args) => (task_work::MENU, Box::new(|it| task_work::cases(args, it))),
            Self::Rcu(args) => (rcu::MENU, Box::new(|it| rcu::cases(args, it))),
            Self::Percpu(args) => (percpu::MENU, Box::new(|it| percpu::cases(args, it))),
            Self::MaxActive(args) => (max_active::MENU, Box::new(|it| max_active::cases(args, it))),
            Self::Everyday => (everyday::MENU, Box::new(everyday::cases)),
            Self::Groups => (groups::MENU, Box::new(groups::cases)),
            Self::Scale => (scale::MENU, Box::new(scale::cases)),
            Self::Seeds(args) => (seeds::MENU, Box::new(|it| seeds::cases(args, it))),
        }
    }

    pub fn menu(&self) -> Menu {
        self.parts().0
    }

    pub fn cases(&self, settings: &Settings) -> Vec<Case> {
        self.parts().1(settings)
    }

    /// Returns `true` if `--pin` has an effect on the bench.
    pub fn pins_producers(&self) -> bool {
        matches!(self, Self::Workqueue(_) | Self::Mpscq(_) | Self::Everyday)
    }
}

/// Options that apply to every bench.
#[derive(Args, Clone, Debug, Default)]
pub struct CommonArgs {
    /// Run fewer and shorter repetitions: all benches except scale end within two minutes
    #[arg(long, global = true)]
    pub quick: bool,

    /// Repetitions of each case [default: 9, with --quick 5]
    #[arg(long, global = true, value_name = "N", value_parser = count::<10_000>)]
    pub repeat: Option<usize>,

    /// Start no repetition that would end more than this many seconds after the start
    #[arg(long, global = true, value_name = "S", value_parser = count::<86_400>)]
    pub seconds: Option<usize>,

    #[command(flatten)]
    pub pick: Pick,

    /// Measure only the variant with this name (as printed in the tables); may be repeated
    #[arg(long, global = true, value_name = "VARIANT")]
    pub only: Vec<String>,

    /// Pin producer threads to CPUs in turn (workqueue, mpscq and everyday only)
    #[arg(long, global = true)]
    pub pin: bool,

    /// Seed for the order in which variants run [default: random]
    #[arg(long, global = true, value_name = "SEED", value_parser = seed)]
    pub seed: Option<u64>,

    /// Print one JSON object per line instead of tables
    #[arg(long, global = true)]
    pub json: bool,

    /// Also print every run of every variant (only with --json)
    #[arg(long, global = true)]
    pub runs: bool,

    /// Write a report page to this file; - writes it to standard output, and the tables to standard
    /// error [default: afterwork-report.html if all benches run without --json]
    #[arg(long, global = true, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// Write no report page
    #[arg(long, global = true, conflicts_with = "report")]
    pub no_report: bool,

    /// List the cases with their descriptions and variants, and measure nothing
    #[arg(long, global = true)]
    pub list: bool,

    /// Compare this program with the one at this path, in alternating runs; nine pairs show a 3 %
    /// slowdown
    #[arg(long, global = true, value_name = "PATH")]
    pub against: Option<PathBuf>,

    /// Measure every variant in this process, and exit when the parent process PID exits
    #[arg(long, global = true, hide = true, value_name = "PID")]
    pub inside: Option<u32>,

    /// Exit with 1 if a measured claim fails
    #[arg(long, global = true)]
    pub check: bool,
}
