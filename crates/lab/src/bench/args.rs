//! The options that every bench shares.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use top::exit::Stop;

use super::settings::{Menu, Pick, Settings, count, seed};
use super::{
    blocking, everyday, kept, max_active, mpscq, percpu, rcu, scale, task_work, workqueue,
};
use crate::harness::case::Case;

/// Measures how fast this machine defers work, beside the ways that programs use today.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = false)]
pub struct BenchArgs {
    /// Which bench; all of them without a name.
    #[command(subcommand)]
    pub which: Option<Which>,

    /// How it is measured.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// The benches.
#[derive(Subcommand, Clone, Debug)]
pub enum Which {
    /// Queue items to a pool of workers: one at a time, in batches, a million at once
    #[command(after_help = workqueue::MENU.help())]
    Workqueue(workqueue::WorkqueueArgs),

    /// Let items sleep in a pool: how soon others run in their place, with how many threads
    #[command(after_help = blocking::MENU.help())]
    Blocking,

    /// Push items from 1 to 8 producers to one consumer: intrusive, or 8 bytes by value
    #[command(after_help = mpscq::MENU.help())]
    Mpscq(mpscq::MpscqArgs),

    /// Post items to one thread that sleeps: wake-ups, latency and what they cost whom
    #[command(after_help = task_work::MENU.help())]
    TaskWork(task_work::TaskWorkArgs),

    /// Replace a value under readers: read side, grace periods, callbacks, many updaters
    #[command(after_help = rcu::MENU.help())]
    Rcu(rcu::RcuArgs),

    /// Work on a CPU's own cache, and drain it from elsewhere: cycles an object, and what a drain does to the owner
    #[command(after_help = percpu::MENU.help())]
    Percpu(percpu::PercpuArgs),

    /// Ask what programs ask for: room for so many, work that borrows, idle CPUs, a million sleeps
    #[command(after_help = everyday::MENU.help())]
    Everyday,

    /// See how costs grow: producers, queues, pending items, lengths, readers, mailboxes, timers; not among all benches
    #[command(after_help = scale::MENU.help())]
    Scale,

    /// Limit how many items run at once: joins over one pool of blocks, eight subsystems on one machine
    #[command(after_help = max_active::MENU.help())]
    MaxActive(max_active::MaxActiveArgs),
}

impl Which {
    /// Every bench as it is without options, but for [`Which::Scale`]: a study that takes minutes, and is asked for by name.
    #[must_use]
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

    /// Returns what it has to offer.
    #[must_use]
    pub fn menu(&self) -> Menu {
        match self {
            Self::Workqueue(_) => workqueue::MENU,
            Self::Blocking => blocking::MENU,
            Self::Mpscq(_) => mpscq::MENU,
            Self::TaskWork(_) => task_work::MENU,
            Self::Rcu(_) => rcu::MENU,
            Self::Percpu(_) => percpu::MENU,
            Self::MaxActive(_) => max_active::MENU,
            Self::Everyday => everyday::MENU,
            Self::Scale => scale::MENU,
        }
    }

    /// Returns whether `--pin` changes anything.
    #[must_use]
    pub fn pins_producers(&self) -> bool {
        matches!(self, Self::Workqueue(_) | Self::Mpscq(_) | Self::Everyday)
    }

    /// Makes its cases.
    pub fn cases(&self, settings: &Settings) -> Result<Vec<Case>, Stop> {
        match self {
            Self::Workqueue(args) => workqueue::cases(args, settings),
            Self::Blocking => Ok(blocking::cases(settings)),
            Self::Mpscq(args) => Ok(mpscq::cases(args, settings)),
            Self::TaskWork(args) => Ok(task_work::cases(args, settings)),
            Self::Rcu(args) => Ok(rcu::cases(args, settings)),
            Self::Percpu(args) => Ok(percpu::cases(args, settings)),
            Self::MaxActive(args) => max_active::cases(args, settings),
            Self::Everyday => everyday::cases(settings),
            Self::Scale => scale::cases(settings),
        }
    }
}

/// How a bench is measured, whichever it is.
#[derive(Args, Clone, Debug, Default)]
pub struct CommonArgs {
    /// Fewer and shorter repetitions: all benches together, scale not among them, end within two minutes
    #[arg(long, global = true)]
    pub quick: bool,

    /// Repetitions of each case [default: 9, with --quick 5]
    #[arg(long, global = true, value_name = "N", value_parser = count::<10_000>)]
    pub repeat: Option<usize>,

    /// Begin no repetition that would end later than this many seconds after the start
    #[arg(long, global = true, value_name = "S", value_parser = count::<86_400>)]
    pub seconds: Option<usize>,

    /// Cases and peers.
    #[command(flatten)]
    pub pick: Pick,

    /// Measure only the variants with these names, as tables spell them, separated by commas
    #[arg(long, global = true, value_name = "VARIANT,…")]
    pub only: Vec<String>,

    /// Pin producer threads to CPUs in turn, in workqueue, mpscq and everyday
    #[arg(long, global = true)]
    pub pin: bool,

    /// Seed of the order in which variants have their turns [default: a new one]
    #[arg(long, global = true, value_name = "SEED", value_parser = seed)]
    pub seed: Option<u64>,

    /// Print one JSON object a line instead of tables
    #[arg(long, global = true)]
    pub json: bool,

    /// Tell every run of every variant, too
    #[arg(long, global = true)]
    pub runs: bool,

    /// Write a page of the run to this file, - for standard output, where the tables go to standard error
    /// [default: afterwork-report.html when all benches run, unless with --json]
    #[arg(long, global = true, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// Write no page
    #[arg(long, global = true, conflicts_with = "report")]
    pub no_report: bool,

    /// Tell the cases, what each asks and who takes part, and measure nothing
    #[arg(long, global = true)]
    pub list: bool,

    /// Keep this program, and what it measures now, under a name, to compare with later
    #[arg(long, global = true, value_name = "NAME", value_parser = kept::name, conflicts_with_all = ["against", "against_binary"])]
    pub save: Option<String>,

    /// Compare this program with the one that was kept under a name, by turns: nine pairs show what became 3 % slower
    #[arg(long, global = true, value_name = "NAME", value_parser = kept::name)]
    pub against: Option<String>,

    /// The same with the program at this path
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "against")]
    pub against_binary: Option<PathBuf>,

    /// Measure in this process and end with that one, whose child it is, which measures each variant in a process of its own
    #[arg(long, global = true, hide = true, value_name = "PID")]
    pub inside: Option<u32>,

    /// Exit with 1 if a claim was measured and does not hold, or the program to compare with failed
    #[arg(long, global = true)]
    pub check: bool,
}
