//! The isolation test: a real-time thread that must not be disturbed, and another CPU that wants its cache drained.
//!
//! The victim runs in a tight loop on a CPU of its own, and notes how long its loop ever stood still: a run in which it
//! stood still for a tenth of it is thrown away. Drains come at a
//! fixed pace from another CPU, each timed; the quiet run lasts as long and drains nothing, for a guest is disturbed by
//! its host as well.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use afterwork::percpu::{Owner, PerCpu, Qpw};
use afterwork::wake::Parker;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use sync::time::{cycles, cycles_per_us};
use top::exit::Stop;
use top::interrupt::Interrupt;
use topology::CpuId;

use super::interrupts::Interrupts;
use super::list::unmade;
use crate::bench::workqueue::producers::pin_to;
use crate::harness::beside::{Attendant, Attended, Beside, Span};
use crate::harness::latency::Latencies;

/// Between drains. A guess: so often that a victim disturbed by each has no peace, and 2000 take less than a second.
const PACE_US: u64 = 200;

/// Before each run: the kernel takes 50 ms of a second from real-time threads that want all of it, and a run takes less
/// than half a second.
const REST: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 500 });

/// Above the victim's, so that a worker of its CPU is not starved by it.
const WORKER_PRIORITY: u8 = 2;
const VICTIM_PRIORITY: u8 = 1;

/// How the cache is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Not at all.
    Quiet,
    /// By a worker thread of the victim's CPU, woken for each.
    QueuedToWorker,
    /// By the drainer, after the victim handed the slot over.
    OnDemand,
    /// By the drainer, between two operations of the victim's.
    EveryOp,
    /// By the drainer, while the victim has parked.
    Parked,
}

/// What came of it.
pub struct Outcome {
    /// One for each drain.
    pub drains: Latencies,
    /// Of the victim: its longest gap in cycles, and how often it lost the CPU.
    pub gap: u64,
    /// See `gap`.
    pub switches: Switches,
    /// Of the victim's CPU.
    pub interrupts: Interrupts,
}

/// What the victim noted.
struct Suffered {
    attended: Attended,
    switches: Switches,
}

/// How often a thread stopped running, and for how long it wanted to go on.
#[derive(Clone, Copy, Default)]
pub struct Switches {
    /// It went to sleep.
    pub voluntary: u64,
    /// Its CPU was taken away.
    pub involuntary: u64,
    /// It waited for a CPU, in nanoseconds.
    pub waited_ns: u64,
}

impl Way {
    fn qpw(self) -> Qpw {
        match self {
            Self::Quiet | Self::OnDemand => Qpw::OnDemand,
            Self::QueuedToWorker | Self::Parked => Qpw::Queue,
            Self::EveryOp => Qpw::EveryOp,
        }
    }
}

/// Runs the test on two CPUs; `None` says that it was cut short, [`Absent`](crate::harness::beside::Absent) that there was no
/// victim for a part of it.
pub fn run(
    way: Way,
    nr_drains: usize,
    (drainer, victim): (CpuId, CpuId),
    interrupt: &Interrupt,
) -> Result<Beside<Option<Outcome>>, Stop> {
    thread::sleep(REST);
    let builder = PerCpu::builder().qpw(way.qpw());
    let slots = builder.build(|_| 0u64).map_err(unmade)?;
    let span = Span::default();
    thread::scope(|scope| {
        let (slots, span) = (&slots, &span);
        let suffering = scope.spawn(move || {
            pin_to(victim);
            // Without the right to it the victim is an ordinary thread; the case says so.
            let _ = sync::thread::set_fifo(VICTIM_PRIORITY);
            let owner = slots.attach(victim);
            let mut attendant = span.attend();
            let before = switches();
            suffer(way, owner.ok(), &mut attendant);
            Suffered {
                attended: attendant.leave(),
                switches: switches().since(before),
            }
        });
        let ready = span.wait_for(1);
        span.begin();
        let drained = thread::scope(|scope| {
            let drain = scope.spawn(|| {
                pin_to(drainer);
                let before = Interrupts::now(victim);
                let drains = drain(way, slots, victim, nr_drains, interrupt);
                (drains, Interrupts::now(victim).since(before))
            });
            drain.join()
        });
        span.end();
        let suffered = suffering.join();
        let ((drains, interrupts), suffered) = match (drained, suffered) {
            (Ok(drained), Ok(suffered)) => (drained, suffered),
            (Err(panic), _) | (_, Err(panic)) => std::panic::resume_unwind(panic),
        };
        let outcome = drains.map(|drains| Outcome {
            drains,
            gap: suffered.attended.longest,
            switches: suffered.switches,
            interrupts,
        });
        let beside = ready.and_then(|()| span.judge(&[suffered.attended]));
        Ok(beside.map(|()| outcome))
    })
}

/// The victim's loop.
fn suffer(way: Way, owner: Option<Owner<'_, u64>>, over: &mut Attendant<'_>) {
    match (way, owner) {
        // A worker reaches the slot of somebody who has none.
        (Way::QueuedToWorker, owner) => {
            drop(owner);
            stand(over, || ())
        }
        (Way::Parked, Some(owner)) => {
            let _parked = owner.park();
            stand(over, || ())
        }
        (_, Some(mut owner)) => stand(over, || owner.with(|count| *count += 1)),
        (_, None) => stand(over, || ()),
    }
}

#[inline(always)]
fn stand(over: &mut Attendant<'_>, mut work: impl FnMut()) {
    while over.goes_on() {
        work();
    }
}

/// Drains at a fixed pace.
fn drain(
    way: Way,
    slots: &PerCpu<u64>,
    victim: CpuId,
    nr_drains: usize,
    interrupt: &Interrupt,
) -> Option<Latencies> {
    let mut latencies = Latencies::with_room(nr_drains);
    let worker = (way == Way::QueuedToWorker).then(|| Worker::start(victim));
    let pace = PACE_US * cycles_per_us();
    let mut next = cycles() + pace;
    for _ in 0..nr_drains {
        if interrupt.requested() {
            return None;
        }
        while cycles() < next {
            std::hint::spin_loop();
        }
        let start = cycles();
        match (&worker, way) {
            (_, Way::Quiet) => {
                next = start + pace;
                continue;
            }
            (Some(worker), _) => worker.run(),
            _ => slots.run_on(victim, |count| *count = 0),
        }
        latencies.push(start, cycles());
        next = cycles() + pace;
    }
    Some(latencies)
}

/// A thread of the victim's CPU that drains when it is told to.
struct Worker {
    asked: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
    unparker: afterwork::wake::Unparker,
    thread: Option<thread::JoinHandle<()>>,
}

/// In `Worker::asked`: to end.
const END: u64 = u64::MAX;

impl Worker {
    fn start(cpu: CpuId) -> Self {
        let (asked, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut parker = Parker::with_spin_limit(0);
        let unparker = parker.unparker();
        let (their_asked, their_done) = (asked.clone(), done.clone());
        let thread = thread::spawn(move || {
            pin_to(cpu);
            // Without the right to it the worker starves, as an ordinary one does; `about` says so.
            let _ = sync::thread::set_fifo(WORKER_PRIORITY);
            loop {
                parker.park();
                match their_asked.load(Ordering::Acquire) {
                    END => return,
                    asked => their_done.store(asked, Ordering::Release),
                }
            }
        });
        Self {
            asked,
            done,
            unparker,
            thread: Some(thread),
        }
    }

    fn run(&self) {
        let asked = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        self.unparker.unpark();
        while self.done.load(Ordering::Acquire) < asked {
            std::hint::spin_loop();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.asked.store(END, Ordering::Release);
        self.unparker.unpark();
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

/// Returns what this thread has suffered so far; 0 where the system does not say.
fn switches() -> Switches {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).ok();
    let count = |of: fn(&Usage) -> i64| usage.as_ref().map_or(0, |usage| of(usage) as u64);
    // Time on a CPU, time of waiting for one, turns.
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited_ns = schedstat.split_whitespace().nth(1);
    Switches {
        voluntary: count(Usage::voluntary_context_switches),
        involuntary: count(Usage::involuntary_context_switches),
        waited_ns: waited_ns.and_then(|text| text.parse().ok()).unwrap_or(0),
    }
}

impl Switches {
    fn since(self, before: Self) -> Self {
        Self {
            voluntary: self.voluntary - before.voluntary,
            involuntary: self.involuntary - before.involuntary,
            waited_ns: self.waited_ns.saturating_sub(before.waited_ns),
        }
    }
}
