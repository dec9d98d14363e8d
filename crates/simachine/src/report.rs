//! The report of a run: counts, locks, the lines with the longest waits, the reason for a failure.

use std::backtrace::Backtrace;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::engine::Engine;

/// The counts of a run.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    /// The number of accesses to atomic words, and to the data that locks guard.
    pub accesses: u64,
    /// The number of transfers of lines.
    pub moves: u64,
    /// The number of turns that the engine gave to tasks.
    pub turns: u64,
    /// The number of switches to another thread.
    pub switches: u64,
    /// The number of wake-ups of threads.
    pub wakes: u64,
    /// The number of wake-ups that had to interrupt an idle CPU.
    pub wakes_idle: u64,
    /// The number of wake-ups of an idle CPU that polled.
    pub wakes_polling: u64,
    /// The number of wake-ups on a CPU that ran another thread.
    pub wakes_busy: u64,
    /// The number of waits on a futex.
    pub futex_waits: u64,
    /// The number of futex wake calls.
    pub futex_wakes: u64,
    /// The number of futex wake calls that found no sleeper.
    pub wakes_of_none: u64,
    /// The number of calls to `sched_yield`.
    pub yields: u64,
    /// The number of threads that were preempted.
    pub preempts: u64,
    /// The number of threads that an idle CPU pulled.
    pub pulls: u64,
    /// The number of threads that were started.
    pub spawns: u64,
    /// The number of expedited membarriers.
    pub membarriers: u64,
}

/// The statistics of the locks that guard one type.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LockStat {
    /// The number of acquisitions.
    pub nr_taken: u64,
    /// The number of acquisitions that had to wait.
    pub nr_contended: u64,
    /// The time spent waiting for the lock, including the fetch of its word.
    pub waited_ps: u64,
    /// The time for which the lock was held.
    pub held_ps: u64,
}

impl LockStat {
    pub(super) fn note_taken(&mut self, is_contended: bool, waited_ps: u64) {
        self.nr_taken += 1;
        self.nr_contended += u64::from(is_contended);
        self.waited_ps += waited_ps;
    }
}

/// A line for which CPUs waited.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HotLine {
    /// The number of transfers of the line.
    pub nr_moves: u64,
    /// The total time that CPUs waited for the line, including transfers.
    pub waited_ns: u64,
    /// The source locations that waited, longest first: location, number of waits, nanoseconds.
    pub sites: Vec<(String, u64, u64)>,
    /// Stacks of the waiters, with their share of the samples in percent, largest first.
    pub stacks: Vec<(u64, String)>,
}

/// The results of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The counts.
    pub counts: Counts,
    /// The latest clock of all CPUs.
    pub end_ns: u64,
    /// The number of accessed lines.
    pub nr_lines: usize,
    /// Statistics of locks by the type that they guard.
    pub locks: BTreeMap<&'static str, LockStat>,
    /// The lines with the longest waits.
    pub hot: Vec<HotLine>,
}

/// The reason why a run did not complete.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// All threads wait and no wake-up is pending. Contains the stack of each thread.
    Deadlock(String),
    /// A thread spins without changing anything. Contains the location of its loop.
    Spin(String),
    /// The program panicked.
    Panic(String),
    /// The run exceeded its time budget.
    Budget {
        /// The budget.
        budget: Duration,
        /// The simulated time that had passed.
        simulated_ns: u64,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadlock(stacks) => {
                write!(f, "deadlock: all threads wait, and no wake-up is pending\n{stacks}")
            }
            Self::Spin(text) => f.write_str(text),
            Self::Panic(text) => write!(f, "the program panicked: {text}"),
            Self::Budget { budget, simulated_ns } => write!(
                f,
                "over the budget of {budget:?}, after {:.3} ms of simulated time",
                *simulated_ns as f64 / 1e6
            ),
        }
    }
}

impl std::error::Error for Failure {}

/// Stacks of waiters, sampled in proportion to the time waited.
#[derive(Default)]
pub struct Samples {
    all: Vec<(usize, u64, Backtrace)>,
    since_ps: u64,
}

/// The number of samples after which the sampling period doubles.
const NR_SAMPLES: usize = 256;
const FIRST_PERIOD_PS: u64 = 1_000_000;

impl Samples {
    /// Counts a wait. Returns the weight of its sample if its stack must be captured.
    pub fn is_due(&mut self, waited_ps: u64) -> Option<u64> {
        self.since_ps += waited_ps;
        let period = FIRST_PERIOD_PS << (self.all.len() / NR_SAMPLES).min(20);
        (self.since_ps >= period).then(|| std::mem::take(&mut self.since_ps))
    }

    pub fn add(&mut self, place: usize, weight: u64, stack: Backtrace) {
        self.all.push((place, weight, stack));
    }

    /// Returns the merged stacks of a line with their shares.
    fn of(&self, place: usize) -> Vec<(u64, String)> {
        let mut merged: BTreeMap<String, u64> = BTreeMap::new();
        for (_, weight, stack) in self.all.iter().filter(|sample| sample.0 == place) {
            *merged.entry(shown(stack)).or_default() += weight;
        }
        let total = merged.values().sum::<u64>().max(1);
        let shares = merged.into_iter().map(|(stack, weight)| (weight * 100 / total, stack));
        let mut shares: Vec<_> = shares.collect();
        // The sort is stable, so equal shares remain in the order of their text.
        shares.sort_by_key(|&(share, _)| Reverse(share));
        shares
    }
}

const NR_HOT: usize = 8;
const NR_FRAMES: usize = 12;

impl Outcome {
    pub(super) fn of(e: &mut Engine) -> Self {
        let mut places: Vec<_> = e
            .lines
            .iter()
            .map(|line| line.sites.iter().map(|at| at.waited_ps).sum::<u64>())
            .enumerate()
            .filter(|&(_, waited_ps)| waited_ps > 0)
            .collect();
        places.sort_by_key(|&(place, waited_ps)| (Reverse(waited_ps), place));
        places.truncate(NR_HOT);
        let hot = |(place, waited_ps)| HotLine::of(e, place, waited_ps);
        Self {
            hot: places.into_iter().map(hot).collect(),
            counts: e.counts.clone(),
            end_ns: e.cpus.iter().map(|cpu| cpu.now).max().unwrap_or(0) / 1000,
            nr_lines: e.lines.len(),
            locks: std::mem::take(&mut e.locks),
        }
    }
}

impl HotLine {
    fn of(e: &mut Engine, place: usize, waited_ps: u64) -> Self {
        // One source location may have several addresses.
        let mut sites: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for at in &e.lines.at(place).sites {
            let (nr_moves, waited_ns) = sites.entry(super::plain::described(at.site)).or_default();
            *nr_moves += at.nr_moves;
            *waited_ns += at.waited_ps / 1000;
        }
        let sites = sites.into_iter().map(|(site, (nr_moves, ns))| (site, nr_moves, ns));
        let mut sites: Vec<_> = sites.collect();
        sites.sort_by_key(|&(.., ns)| Reverse(ns));
        let nr_moves = sites.iter().map(|site| site.1).sum();
        Self { nr_moves, waited_ns: waited_ps / 1000, sites, stacks: e.samples.of(place) }
    }
}

/// Returns the frames of a stack that belong to the program, innermost first.
pub fn shown(stack: &Backtrace) -> String {
    let text = stack.to_string();
    let mut frames: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(at) = line.strip_prefix("at ") {
            if let Some(last) = frames.last_mut() {
                let short = at.rfind("/crates/").map_or(at, |from| &at[from + 1..]);
                last.push_str(&format!(" ({short})"));
            }
        } else if let Some((_, name)) = line.split_once(": ") {
            // Strip the type arguments, which are long.
            let end = name.find('<').filter(|&at| at > 0).unwrap_or(name.len());
            frames.push(name[..end].to_owned());
        }
    }
    // Select by location, because an inlined frame is printed without its crate.
    let is_ours =
        |frame: &&String| frame.contains("(crates/") && !frame.contains("(crates/simachine/");
    let ours = frames.iter().filter(is_ours).take(NR_FRAMES);
    ours.map(|frame| format!("    {frame}\n")).collect()
}
