//! The options that every bench shares.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::builder::{RangedU64ValueParser, TypedValueParser};
use clap::{Args, Subcommand};

use super::blocking::{self, BlockingArgs};
use super::max_active::{self, MaxActiveArgs};
use super::mpscq::{self, MpscqArgs};
use super::percpu::{self, PercpuArgs};
use super::rcu::{self, RcuArgs};
use super::session::Settings;
use super::sum::{self, SumBenchArgs};
use super::task_work::{self, TaskWorkArgs};
use super::top::{self, TopBenchArgs};
use super::workqueue::{self, WorkqueueArgs};
use crate::exit::Stop;
use crate::measure::case::Case;

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
    Workqueue(WorkqueueArgs),

    /// Let items sleep in a pool: how soon others run in their place, with how many threads
    Blocking(BlockingArgs),

    /// Push items from 1 to 8 producers to one consumer: intrusive, in chains, 8 bytes by value
    Mpscq(MpscqArgs),

    /// Post items to one thread that sleeps: wake-ups, latency and what they cost whom
    TaskWork(TaskWorkArgs),

    /// Replace a value under readers: read side, grace periods, callbacks, many updaters
    Rcu(RcuArgs),

    /// Work on a CPU's own cache, and drain it from elsewhere: cycles an object, and what a drain does to the owner
    Percpu(PercpuArgs),

    /// Sum a tree of files with `afterwork sum`, against rayon and xargs with sha256sum
    Sum(SumBenchArgs),

    /// Limit how many items run at once: contended writes, and eight subsystems on one machine
    MaxActive(MaxActiveArgs),

    /// Look at a busy process as `afterwork top` does: what that costs its throughput
    Top(TopBenchArgs),
}

impl Which {
    /// Every bench as it is without options.
    #[must_use]
    pub fn all() -> Vec<Self> {
        vec![
            Self::Workqueue(WorkqueueArgs::default()),
            Self::Blocking(BlockingArgs::default()),
            Self::Mpscq(MpscqArgs::default()),
            Self::TaskWork(TaskWorkArgs::default()),
            Self::Rcu(RcuArgs::default()),
            Self::Percpu(PercpuArgs::default()),
            Self::Sum(SumBenchArgs::default()),
            Self::MaxActive(MaxActiveArgs::default()),
            Self::Top(TopBenchArgs::default()),
        ]
    }

    /// Makes its cases.
    ///
    /// # Errors
    ///
    /// The bench cannot run on this machine.
    pub fn cases(&self, settings: &Settings) -> Result<Vec<Case>, Stop> {
        match self {
            Self::Workqueue(args) => workqueue::cases(args, settings),
            Self::Blocking(args) => Ok(blocking::cases(args, settings)),
            Self::Mpscq(args) => Ok(mpscq::cases(args, settings)),
            Self::TaskWork(args) => Ok(task_work::cases(args, settings)),
            Self::Rcu(args) => Ok(rcu::cases(args, settings)),
            Self::Percpu(args) => Ok(percpu::cases(args, settings)),
            Self::Sum(args) => Ok(sum::cases(args, settings)),
            Self::MaxActive(args) => max_active::cases(args, settings),
            Self::Top(args) => Ok(top::cases(args, settings)),
        }
    }
}

/// How a bench is measured, whichever it is.
#[derive(Args, Clone, Debug, Default)]
pub struct CommonArgs {
    /// Fewer and shorter repetitions: all benches together end within two minutes
    #[arg(long, global = true)]
    pub quick: bool,

    /// Repetitions of each case [default: 9, with --quick 5]
    #[arg(long, global = true, value_name = "N", value_parser = count::<10_000>())]
    pub repeat: Option<usize>,

    /// Begin no repetition that would end later than this many seconds after the start
    #[arg(long, global = true, value_name = "S", value_parser = count::<86_400>())]
    pub seconds: Option<usize>,

    /// Measure only the variants with these names, as tables spell them, separated by commas
    #[arg(long, global = true, value_name = "VARIANT,…", value_delimiter = ',')]
    pub only: Vec<String>,

    /// Pin producer threads to CPUs in turn
    #[arg(long, global = true)]
    pub pin: bool,

    /// Seed of the order in which variants have their turns [default: a new one]
    #[arg(long, global = true, value_name = "SEED")]
    pub seed: Option<u64>,

    /// Print one JSON object a line instead of tables
    #[arg(long, global = true)]
    pub json: bool,

    /// Tell every run of every variant, too
    #[arg(long, global = true)]
    pub runs: bool,

    /// Write a page of the run to this file [default: afterwork-report.html when all benches run, unless
    /// with --json]
    #[arg(long, global = true, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// Write no page
    #[arg(long, global = true, conflicts_with = "report")]
    pub no_report: bool,

    /// Exit with 1 if a claim was measured and does not hold
    #[arg(long, global = true)]
    pub check: bool,
}

/// Parses a whole number from 1 to `MAX`, and says so to whoever gives another.
#[must_use]
pub fn count<const MAX: u64>() -> impl TypedValueParser<Value = usize> {
    let range: RangeInclusive<u64> = 1..=MAX;
    RangedU64ValueParser::<usize>::new().range(range)
}
