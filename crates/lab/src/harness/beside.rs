//! Background threads of a measurement: readers, clients, or a loop that must not be disturbed. A
//! figure "with a busy reader" is valid only if the reader was busy, so each background thread,
//! called an *attendant*, calls [`Attendant::goes_on`] for each unit of work. The clock starts when
//! each attendant has completed a unit that it began after all attendants had started. If an
//! attendant pauses for more than a tenth of the run, the run is discarded with a warning. An
//! attendant records its longest pause in its own memory, which costs the measured threads nothing.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use sync::time::{cycles, cycles_per_us};

use super::case::Series;

/// The longest pause that an attendant may make is the length of the run divided by this number.
const SHARE: u64 = 10;

/// The time for which a runnable thread waits for another one on its CPU, which is a tick of the
/// slowest timers.
const TURN_MS: u64 = 4;

const PATIENCE_US: u64 = 10_000_000;

/// The phase in which the attendants start. Their work does not count yet.
const GATHERING: u8 = 0;
const RUNNING: u8 = 1;
/// The phase in which the attendants exit.
const OVER: u8 = 2;

#[derive(Debug, Default)]
pub struct Span {
    phase: AtomicU8,
    nr_seen: AtomicUsize,
    /// The start in cycles. This and `ended` are written before the phase to which they belong.
    began: AtomicU64,
    ended: AtomicU64,
}

pub struct Attendant<'s> {
    span: &'s Span,
    phase: u8,
    last: u64,
    longest: u64,
    nr_pieces: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attended {
    /// The longest time between the ends of two units of work, in cycles.
    pub longest: u64,
    /// The number of units of work that ended within the span.
    pub nr_pieces: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent(pub String);

pub type Beside<T> = Result<T, Absent>;

impl Span {
    pub fn attend(&self) -> Attendant<'_> {
        Attendant { span: self, phase: GATHERING, last: cycles(), longest: 0, nr_pieces: 0 }
    }

    /// Waits until `count` attendants are at work. Returns an error if they do not start within ten
    /// seconds.
    pub fn wait_for(&self, count: usize) -> Beside<()> {
        let began = cycles();
        // ORDER(seen): publish, other end in `Attendant::goes_on`.
        // If an attendant's increment comes first, our load sees the attendant's earlier writes. If
        // our load comes first, it reads a lower count, and we poll again.
        // Test: the_body_begins_when_all_are_at_work.
        while self.nr_seen.load(Ordering::Acquire) < count {
            if cycles().saturating_sub(began) > PATIENCE_US * cycles_per_us() {
                return Err(Absent("a background thread did not start".into()));
            }
            // The thread yields, because the attendants may need this CPU.
            thread::yield_now();
        }
        Ok(())
    }

    pub fn begin(&self) {
        self.began.store(cycles(), Ordering::Relaxed);
        // ORDER(phase): publish, other end in `Attendant::goes_on`.
        // If our store comes first, the attendant that reads the phase also reads `began`. If its
        // load comes first, it continues in the old phase.
        // Test: the_body_begins_when_all_are_at_work.
        self.phase.store(RUNNING, Ordering::Release);
    }

    pub fn end(&self) {
        self.ended.store(cycles(), Ordering::Relaxed);
        // ORDER(phase): publish, other end in `Attendant::goes_on`, as in `begin`.
        self.phase.store(OVER, Ordering::Release);
    }

    /// Returns an error if an attendant that has exited paused for more than a tenth of the span.
    pub fn judge(&self, attended: &[Attended]) -> Beside<()> {
        let [began, ended] = [&self.began, &self.ended].map(|at| at.load(Ordering::Relaxed));
        judge(ended.saturating_sub(began), attended)
    }
}

fn judge(span: u64, attended: &[Attended]) -> Beside<()> {
    let Some(worst) = attended.iter().max_by_key(|one| one.longest) else { return Ok(()) };
    if worst.longest <= span / SHARE {
        return Ok(());
    }
    let us = |cycles: u64| cycles as f64 / cycles_per_us() as f64;
    Err(Absent(format!(
        "one of {} background threads made no progress for {:.0} of {:.0} us",
        attended.len(),
        us(worst.longest),
        us(span)
    )))
}

impl Attendant<'_> {
    /// Records the end of a unit of work. Returns `true` if the attendant must continue. It must
    /// also be called before the first unit.
    #[inline]
    pub fn goes_on(&mut self) -> bool {
        self.goes_on_at(cycles())
    }

    #[inline]
    pub fn goes_on_at(&mut self, now: u64) -> bool {
        // ORDER(phase): consume, other ends in `Span::begin` and `Span::end`.
        // Test: the_body_begins_when_all_are_at_work.
        let phase = self.span.phase.load(Ordering::Acquire);
        if phase != self.phase {
            self.enter(phase);
        }
        if phase != OVER {
            self.longest = self.longest.max(now.saturating_sub(self.last));
            self.last = now.max(self.last);
            self.nr_pieces += 1;
        }
        if phase == GATHERING && self.nr_pieces == 2 {
            // ORDER(seen): publish, other end in `Span::wait_for`.
            self.span.nr_seen.fetch_add(1, Ordering::Release);
        }
        phase != OVER
    }

    /// Discards the work before the span, and accounts for the pause at its end.
    #[cold]
    fn enter(&mut self, phase: u8) {
        if self.phase == GATHERING {
            self.last = self.span.began.load(Ordering::Relaxed);
            (self.longest, self.nr_pieces) = (0, 0);
        }
        if phase == OVER {
            let ended = self.span.ended.load(Ordering::Relaxed);
            self.longest = self.longest.max(ended.saturating_sub(self.last));
        }
        self.phase = phase;
    }

    /// Returns the work of the attendant. An attendant that leaves before the end counts as absent.
    pub fn leave(mut self) -> Attended {
        if self.phase != OVER {
            // The attendant exits early, so the rest of the span is one pause.
            self.longest = u64::MAX;
        }
        Attended { longest: self.longest, nr_pieces: self.nr_pieces }
    }
}

/// Returns the minimum duration of a run in milliseconds, so that each of `threads` threads on
/// `cpus` CPUs runs in every tenth of the run. Even two threads may share a CPU for a while.
pub fn least_ms(threads: usize, cpus: usize) -> u64 {
    match threads.div_ceil(cpus.max(1)) as u64 {
        0 | 1 if threads <= 1 => 0,
        0 | 1 => SHARE * TURN_MS,
        // This assumes one more thread per CPU, because threads are not always spread evenly.
        on_one_cpu => SHARE * (on_one_cpu + 1) * TURN_MS,
    }
}

/// Runs `body` while each of `loads` attendants works on a thread of its own. `load(index,
/// attendant)` loops until the attendant must stop. The results are in index order.
pub fn beside<L: Send, R>(
    loads: usize,
    load: impl Fn(usize, &mut Attendant<'_>) -> L + Sync,
    body: impl FnOnce() -> R,
) -> Beside<(R, Vec<(L, Attended)>)> {
    let (span, load) = (Span::default(), &load);
    let span = &span;
    let (done, left) = thread::scope(|scope| {
        let start = |index| {
            scope.spawn(move || {
                let mut attendant = span.attend();
                let result = load(index, &mut attendant);
                (result, attendant.leave())
            })
        };
        let threads: Vec<_> = (0..loads).map(start).collect();
        let ready = span.wait_for(loads);
        span.begin();
        // The guard also ends the span if `body` panics. Otherwise the attendants would never exit.
        let ending = scopeguard::guard((), |()| span.end());
        let done = ready.map(|()| body());
        drop(ending);
        let left = threads.into_iter().map(|thread| thread.join().expect("no attendant panics"));
        (done, left.collect::<Vec<_>>())
    });
    let done = done?;
    let attended: Vec<Attended> = left.iter().map(|(_, attended)| *attended).collect();
    span.judge(&attended)?;
    Ok((done, left))
}

pub fn warnings(series: &[Series]) -> Vec<String> {
    let thrown = |series: &Series| {
        let mut reasons = series.thrown_away();
        let first = reasons.next()?;
        Some(format!(
            "{}: {} of {} runs discarded, because a background thread did not start, or made no progress for more than a tenth of the run, or because no worker was woken; the first: {first}",
            series.variant,
            1 + reasons.count(),
            series.samples.len(),
        ))
    };
    series.iter().filter_map(thrown).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn judged(longest: &[u64]) -> Beside<()> {
        let one = |&longest: &u64| Attended { longest, nr_pieces: 1 };
        judge(1000, &longest.iter().map(one).collect::<Vec<_>>())
    }

    #[test]
    fn background_thread_may_pause_for_a_tenth_of_the_run() {
        assert_eq!(judged(&[]), Ok(()));
        assert_eq!(judged(&[3, 100]), Ok(()));
        let Err(Absent(reason)) = judged(&[3, 101, 5]) else {
            panic!("101 of 1000 is more than a tenth");
        };
        assert!(reason.starts_with("one of 3 background threads made no progress"), "{reason}");
    }

    /// Returns the record of an attendant whose units of work ended at these times. The span is
    /// from 1000 to 2000.
    fn attended(before: &[u64], within: &[u64]) -> Attended {
        let span = Span::default();
        let mut attendant = span.attend();
        attendant.last = 0;
        assert!(before.iter().all(|&at| attendant.goes_on_at(at)));
        span.began.store(1000, Ordering::Relaxed);
        span.phase.store(RUNNING, Ordering::Release);
        assert!(within.iter().all(|&at| attendant.goes_on_at(at)));
        span.ended.store(2000, Ordering::Relaxed);
        span.phase.store(OVER, Ordering::Release);
        assert!(!attendant.goes_on_at(99_999));
        attendant.leave()
    }

    #[test]
    fn only_pauses_within_the_span_count() {
        let steady = attended(&[10, 900], &[1100, 1300, 1500, 1700, 1900]);
        assert_eq!((steady.longest, steady.nr_pieces), (200, 5));
        // A unit of work that began before the span counts from the start of the span.
        assert_eq!(attended(&[10, 20], &[1050, 1950]).longest, 900);
        assert_eq!(attended(&[10, 990], &[1400]).longest, 600);
        assert_eq!(attended(&[10, 990], &[]).longest, 1000, "it never ran");
    }

    #[test]
    fn background_thread_that_exits_early_is_rejected() {
        let span = Span::default();
        let mut attendant = span.attend();
        assert!(attendant.goes_on());
        assert_eq!(attendant.leave().longest, u64::MAX);
    }

    #[test]
    fn reader_without_progress_has_the_run_discarded() {
        let is_over = AtomicBool::new(false);
        let stands_still = |index: usize, attendant: &mut Attendant<'_>| {
            while attendant.goes_on() {
                // Both attendants start to work. Then one of them stops.
                if index == 1 && attendant.phase == RUNNING {
                    while !is_over.load(Ordering::Relaxed) {
                        thread::yield_now();
                    }
                }
            }
        };
        let done = beside(2, stands_still, || {
            // This is longer than the other attendant's slowest turn.
            thread::sleep(std::time::Duration::from_millis(100));
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(done.is_err(), "{done:?}");
    }

    #[test]
    fn the_body_begins_when_all_are_at_work() {
        let pieces = [const { AtomicU64::new(0) }; 3];
        let work = |index: usize, attendant: &mut Attendant<'_>| {
            while attendant.goes_on() {
                pieces[index].fetch_add(1, Ordering::Relaxed);
                thread::yield_now();
            }
            index
        };
        let begun = || pieces.iter().all(|pieces| pieces.load(Ordering::Relaxed) > 0);
        // On a busy machine a background thread may pause for too long. That is not tested here.
        if let Ok((begun, left)) = beside(3, work, begun) {
            assert!(begun);
            let indexes: Vec<usize> = left.into_iter().map(|(index, _)| index).collect();
            assert_eq!(indexes, [0, 1, 2]);
        }
        assert!(begun());
    }

    #[test]
    fn threads_that_share_cpus_need_time_for_their_turns() {
        assert_eq!((least_ms(1, 2), least_ms(0, 2), least_ms(1, 0)), (0, 0, 0));
        assert!(least_ms(2, 2) > 0 && least_ms(3, 2) > least_ms(2, 2));
        assert!(least_ms(9, 2) > least_ms(3, 2));
    }
}
