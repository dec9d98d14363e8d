//! What a run tells: counts, locks, the lines that were waited for, and why it failed.

use std::backtrace::Backtrace;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::engine::Engine;

/// What was counted.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Accesses of atomic words, and of what locks guard.
    pub accesses: u64,
    /// Transfers of lines.
    pub moves: u64,
    /// Turns that the engine gave.
    pub turns: u64,
    /// Switches to another thread.
    pub switches: u64,
    /// Wake-ups of threads.
    pub wakes: u64,
    /// Of them, those of an idle CPU that had to be interrupted.
    pub wakes_idle: u64,
    /// Of them, those of an idle CPU that polled.
    pub wakes_polling: u64,
    /// Of them, those to a CPU that was running.
    pub wakes_busy: u64,
    /// Waits on a futex.
    pub futex_waits: u64,
    /// Calls that wake sleepers of a futex.
    pub futex_wakes: u64,
    /// Of them, those that found none.
    pub wakes_of_none: u64,
    /// Calls of `sched_yield`.
    pub yields: u64,
    /// Threads that lost their CPU.
    pub preempts: u64,
    /// Threads that an idle CPU took over.
    pub pulls: u64,
    /// Threads that were started.
    pub spawns: u64,
    /// Expedited membarriers.
    pub membarriers: u64,
}

/// What was seen of the locks that guard one type.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LockStat {
    /// How often one was taken.
    pub nr_taken: u64,
    /// How often it was not free.
    pub nr_contended: u64,
    /// Waiting for it, the fetch of its word included.
    pub waited_ps: u64,
    /// Holding it.
    pub held_ps: u64,
}

/// A line that was waited for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HotLine {
    /// How often it travelled.
    pub nr_moves: u64,
    /// Waiting for it by all CPUs, transfers included.
    pub waited_ns: u64,
    /// The places in the source that waited, longest first: place, number, nanoseconds.
    pub sites: Vec<(String, u64, u64)>,
    /// Stacks of who waited, with their share of the samples in percent, largest first.
    pub stacks: Vec<(u64, String)>,
}

/// What a run leaves behind.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// What was counted.
    pub counts: Counts,
    /// The latest clock.
    pub end_ns: u64,
    /// Lines that were accessed.
    pub nr_lines: usize,
    /// Locks by the type that they guard.
    pub locks: BTreeMap<&'static str, LockStat>,
    /// The lines that were waited for longest.
    pub hot: Vec<HotLine>,
}

/// Why a run did not come to its end.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// All threads wait, and nobody will wake one. With the stack of each.
    Deadlock(String),
    /// A thread spins and changes nothing. With the place of its loop.
    Spin(String),
    /// The program panicked.
    Panic(String),
    /// It took longer than it was given.
    Budget {
        /// What it was given.
        budget: Duration,
        /// How far it came.
        simulated_ns: u64,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadlock(stacks) => write!(
                f,
                "deadlock: all threads wait, and nobody will wake one\n{stacks}"
            ),
            Self::Spin(text) => f.write_str(text),
            Self::Panic(text) => write!(f, "the program panicked: {text}"),
            Self::Budget {
                budget,
                simulated_ns,
            } => write!(
                f,
                "over the budget of {budget:?}, after {:.3} ms of simulated time",
                *simulated_ns as f64 / 1e6
            ),
        }
    }
}

impl std::error::Error for Failure {}

/// Stacks of who waited, taken in proportion to the time waited.
#[derive(Default)]
pub struct Samples {
    all: Vec<(usize, u64, Backtrace)>,
    /// Time waited since the last sample.
    since_ps: u64,
}

/// So many at most; then every second one is dropped, and samples are taken half as often.
const NR_SAMPLES: usize = 256;
/// From one sample to the next at first.
const FIRST_PERIOD_PS: u64 = 1_000_000;

impl Samples {
    /// Counts a wait. Returns how much it stands for if its stack is to be taken.
    pub fn is_due(&mut self, waited_ps: u64) -> Option<u64> {
        self.since_ps += waited_ps;
        let period = FIRST_PERIOD_PS << (self.all.len() / NR_SAMPLES).min(20);
        (self.since_ps >= period).then(|| std::mem::take(&mut self.since_ps))
    }

    pub fn add(&mut self, place: usize, weight: u64, stack: Backtrace) {
        self.all.push((place, weight, stack));
    }

    /// Returns the stacks of a line, merged, with their shares.
    fn of(&self, place: usize) -> Vec<(u64, String)> {
        let mut merged: BTreeMap<String, u64> = BTreeMap::new();
        for (_, weight, stack) in self.all.iter().filter(|sample| sample.0 == place) {
            *merged.entry(shown(stack)).or_default() += weight;
        }
        let total = merged.values().sum::<u64>().max(1);
        let shares = merged
            .into_iter()
            .map(|(stack, weight)| (weight * 100 / total, stack));
        let mut shares: Vec<_> = shares.collect();
        shares.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        shares
    }
}

/// How many lines are told.
const NR_HOT: usize = 8;
/// How many frames of a stack.
const NR_FRAMES: usize = 12;

impl Outcome {
    pub(super) fn of(e: &mut Engine) -> Self {
        let waited =
            |line: &super::line::Line| line.sites.iter().map(|at| at.waited_ps).sum::<u64>();
        let mut places: Vec<_> = e
            .lines
            .iter()
            .enumerate()
            .map(|(at, (_, line))| (waited(line), at))
            .collect();
        places.sort_by_key(|&(waited, at)| (std::cmp::Reverse(waited), at));
        places.truncate(NR_HOT);
        let hot = places.into_iter().filter(|&(waited, _)| waited > 0);
        let hot: Vec<_> = hot
            .map(|(waited_ps, place)| {
                // Equal places may be at more than one address.
                let mut sites: BTreeMap<String, (u64, u64)> = BTreeMap::new();
                for at in &e.lines.at(place).sites {
                    let sum = sites.entry(super::seen::told(at.site)).or_default();
                    *sum = (sum.0 + at.nr_moves, sum.1 + at.waited_ps / 1000);
                }
                let mut sites: Vec<_> = sites
                    .into_iter()
                    .map(|(site, (moves, ns))| (site, moves, ns))
                    .collect();
                sites.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.0.cmp(&b.0)));
                HotLine {
                    nr_moves: sites.iter().map(|site| site.1).sum(),
                    waited_ns: waited_ps / 1000,
                    sites,
                    stacks: e.samples.of(place),
                }
            })
            .collect();
        Self {
            counts: e.counts.clone(),
            end_ns: e.cpus.iter().map(|cpu| cpu.now).max().unwrap_or(0) / 1000,
            nr_lines: e.lines.len(),
            locks: std::mem::take(&mut e.locks),
            hot,
        }
    }
}

/// Returns the frames of a stack that are the program's, innermost first.
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
            // Without its type arguments, which are long.
            let end = name.find('<').filter(|&at| at > 0).unwrap_or(name.len());
            frames.push(name[..end].to_owned());
        }
    }
    // By the place: what was inlined is told without its crate.
    let is_ours =
        |frame: &&String| frame.contains("(crates/") && !frame.contains("(crates/simachine/");
    let ours = frames.iter().filter(is_ours).take(NR_FRAMES);
    ours.map(|frame| format!("    {frame}\n")).collect()
}
