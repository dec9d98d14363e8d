//! Plain functions that judge samples of workers, and decide which workers count as running.
//!
//! The kernel's scheduler notifies a pool when one of its workers goes to sleep. In user space,
//! three mechanisms replace that. Waits in this library and [`blocking`](crate::blocking) report
//! themselves. Samples of a pool in which work waits find workers that sleep without reporting it.
//! The worker of an item that uses a CPU for too long no longer counts as running.

/// The progress of a worker. Two equal values with a nonempty local batch almost always mean that
/// the worker has made no progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Activity {
    pub(crate) local_batch: u64,
    pub(crate) nr_done: u32,
}

/// The reasons why an executing worker does not count as awake, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Away {
    /// Set if the worker has reported that it may block.
    pub(crate) declared: bool,
    /// Set if a sample found the worker asleep.
    pub(crate) asleep: bool,
    /// Set if the worker's item hogs the CPU, according to its queue's attributes or to a sample.
    pub(crate) hogging: bool,
    pub(crate) rescuing: bool,
}

impl Away {
    pub(crate) fn counts_as_awake(self) -> bool {
        self == Self::default()
    }

    pub(crate) fn sleeps(self) -> bool {
        self.declared || self.asleep
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sample {
    pub(crate) activity: Activity,
    pub(crate) cpu_ns: u64,
    pub(crate) at_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) first: Sample,
    pub(crate) last: Sample,
    /// The time for which the thread had not run at the last sample.
    still_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Runs,
    /// Undecided; another sample is needed soon.
    Unclear,
    Asleep,
    /// The worker is runnable, and has not run for a long time.
    Starved,
    /// The item has used a CPU for a long time.
    Hogs,
}

/// The time after which a thread that does not run counts as asleep, if the kernel does not report
/// its state. The value is a guess: longer than the time slice of a busy CPU.
const STILL_NS: u64 = 5_000_000;
/// The time for which a runnable thread must have waited for its CPU before it may move: three or
/// four time slices of 3 to 4 ms.
const STARVED_NS: u64 = 12_000_000;

/// Judges a worker by the earlier samples `known` and the sample `now`. `runnable` is called only
/// if the worker has not run since the last sample. An item that has used the CPU for `hog_ns`
/// since its first sample is hogging it.
pub(crate) fn judge(
    known: Option<&Seen>,
    now: Sample,
    hog_ns: u64,
    runnable: impl FnOnce() -> Option<bool>,
) -> (Seen, Verdict) {
    let fresh = Seen { first: now, last: now, still_ns: 0 };
    let Some(known) = known.filter(|known| known.last.activity == now.activity) else {
        return (fresh, Verdict::Unclear);
    };
    let span_ns = now.at_ns.saturating_sub(known.last.at_ns);
    let ran_ns = now.cpu_ns.saturating_sub(known.last.cpu_ns);
    let still_ns = if ran_ns == 0 { known.still_ns.saturating_add(span_ns) } else { 0 };
    let seen = Seen { first: known.first, last: now, still_ns };
    let verdict = if ran_ns == 0 {
        match runnable() {
            Some(false) => Verdict::Asleep,
            None if still_ns >= STILL_NS => Verdict::Asleep,
            Some(true) if still_ns >= STARVED_NS => Verdict::Starved,
            _ => Verdict::Unclear,
        }
    } else if now.cpu_ns.saturating_sub(known.first.cpu_ns) >= hog_ns {
        Verdict::Hogs
    } else if ran_ns < span_ns / 2 {
        // The worker slept for part of the time, and may be asleep now.
        Verdict::Unclear
    } else {
        Verdict::Runs
    };
    (seen, verdict)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(crate) enum ScanResult {
    Quiet,
    /// Work waits, and all workers that are awake are running.
    Calm,
    Unclear,
    Found,
}

/// Returns the pause before the next sample, after a pause of `before_ns`. `tick_ns` is the middle
/// of the range.
///
/// The pause is short while sleepers are found, because further sleepers are likely. It grows while
/// all workers run. An undecided result requests one early sample, but not a second one.
pub(crate) fn pause_ns(scan: ScanResult, before_ns: u64, tick_ns: u64) -> u64 {
    let (shortest, longest) = (tick_ns / 4, tick_ns.saturating_mul(2));
    let slower = before_ns.saturating_mul(2).clamp(shortest, longest);
    match scan {
        ScanResult::Found => shortest,
        ScanResult::Unclear if before_ns > shortest => shortest,
        ScanResult::Unclear => longest,
        ScanResult::Calm | ScanResult::Quiet => slower,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOG_NS: u64 = 10_000_000;

    fn sample(cpu_us: u64, at_us: u64) -> Sample {
        Sample { activity: Activity::default(), cpu_ns: cpu_us * 1000, at_ns: at_us * 1000 }
    }

    #[test]
    fn each_sample_is_judged_by_the_earlier_ones() {
        use Verdict::{Asleep, Hogs, Starved, Unclear};
        type Case<'a> = (&'a str, &'a [(u64, u64)], Option<bool>, &'a [Verdict]);
        // The name, the samples (CPU time and time), the state at each query, and the verdicts.
        let cases: [Case<'_>; 7] = [
            ("first sample", &[(0, 0)], Some(false), &[Unclear]),
            ("not runnable", &[(5, 0), (5, 250)], Some(false), &[Unclear, Asleep]),
            (
                "waits for a CPU",
                &[(5, 0), (5, 1000), (5, 2000), (5, 11_000)],
                Some(true),
                &[Unclear; 4],
            ),
            ("waits for long", &[(5, 0), (5, 12_000)], Some(true), &[Unclear, Starved]),
            ("unknown", &[(5, 0), (5, 4000), (5, 5000)], None, &[Unclear, Unclear, Asleep]),
            ("runs in part", &[(0, 0), (400, 1000)], Some(true), &[Unclear; 2]),
            (
                "hogs by its own CPU time",
                &[(70_000, 0), (79_999, 50_000), (80_000, 50_001)],
                None,
                &[Unclear, Unclear, Hogs],
            ),
        ];
        for (name, samples, runnable, expected) in cases {
            let mut known = None;
            let verdicts = samples.iter().map(|&(cpu_us, at_us)| {
                let now = sample(cpu_us, at_us);
                let (seen, verdict) = judge(known.as_ref(), now, HOG_NS, || runnable);
                known = Some(seen);
                verdict
            });
            assert_eq!(verdicts.collect::<Vec<_>>(), expected, "{name}");
        }
    }

    #[test]
    fn running_thread_is_not_asked_whether_it_is_runnable() {
        let known = judge(None, sample(0, 0), HOG_NS, || None).0;
        let (_, verdict) = judge(Some(&known), sample(900, 1000), HOG_NS, || panic!("asked"));
        assert_eq!(verdict, Verdict::Runs);
    }

    #[test]
    fn samples_are_quick_while_sleepers_are_found() {
        let tick_ns = 1_000_000;
        let mut pause = pause_ns(ScanResult::Found, 2 * tick_ns, tick_ns);
        assert_eq!(pause, tick_ns / 4);
        for expected in [2, 4, 8, 8] {
            pause = pause_ns(ScanResult::Calm, pause, tick_ns);
            assert_eq!(pause, expected * tick_ns / 4);
        }
    }

    #[test]
    fn unclear_sample_is_followed_by_one_quick_sample() {
        let tick_ns = 1_000_000;
        let quick = pause_ns(ScanResult::Unclear, 2 * tick_ns, tick_ns);
        assert_eq!(quick, tick_ns / 4);
        assert_eq!(pause_ns(ScanResult::Unclear, quick, tick_ns), 2 * tick_ns);
    }

    #[test]
    fn pauses_of_any_tick_are_possible() {
        for tick_ns in [0, 1, u64::MAX] {
            for scan in
                [ScanResult::Quiet, ScanResult::Calm, ScanResult::Unclear, ScanResult::Found]
            {
                let pause = pause_ns(scan, tick_ns, tick_ns);
                assert!((tick_ns / 4..=tick_ns.saturating_mul(2)).contains(&pause));
            }
        }
    }
}
