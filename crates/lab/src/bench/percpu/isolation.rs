//! The isolation test: the victim, a real-time thread, runs a tight loop on its own CPU and records
//! its longest pause. A thread on another CPU requests drains at a fixed pace. A quiet run has no
//! drains, and shows how much the host of a virtual machine disturbs the victim.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, thread};

use afterwork::percpu::{Owner, PerCpu, Qpw};
use afterwork::wake::Parker;
use sync::time::{cycles, cycles_per_us};
use top::exit::Stop;
use top::interrupt::Interrupt;
use topology::CpuId;

use super::interrupts::Interrupts;
use super::list::unmade;
use super::metrics::{
    CALL, DRAIN_MAX, DRAIN_P50, DRAIN_P99, GAP, INTERRUPTS, INVOLUNTARY, RESCHED, SWITCHES, TIMER,
    WAITED,
};
use crate::bench::workqueue::producers::{on_own_thread, pin_to};
use crate::harness::beside::{Attendant, Beside, beside};
use crate::harness::case::Sample;
use crate::harness::latency::Latencies;
use crate::harness::switches::Usage;

/// The time between drains. This is a guess: it disturbs a victim noticeably.
const PACE_US: u64 = 200;

/// The pause before a run: the kernel throttles real-time threads for 50 ms in each second.
const REST: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 500 });

/// Higher than the victim's priority, so that the victim does not starve the worker.
const WORKER_PRIORITY: u8 = 2;
const VICTIM_PRIORITY: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Quiet,
    QueuedToWorker,
    OnDemand,
    EveryOp,
    Parked,
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

/// Runs the test on two CPUs. Returns `None` if interrupted, and
/// [`Absent`](crate::harness::beside::Absent) if the victim paused for too long.
pub fn run(
    way: Way,
    nr_drains: usize,
    (drainer, victim): (CpuId, CpuId),
    interrupt: &Interrupt,
) -> Result<Beside<Option<Sample>>, Stop> {
    thread::sleep(REST);
    let builder = PerCpu::builder().qpw(way.qpw());
    let slots = builder.build(|_| 0u64).map_err(unmade)?;
    let suffering = |_: usize, attendant: &mut Attendant<'_>| {
        pin_to(victim);
        // Without that permission, the victim is an ordinary thread, which `about` reports.
        let _ = sync::thread::set_fifo(VICTIM_PRIORITY);
        let owner = slots.attach(victim);
        let (before, waited_before) = (Usage::of_thread(), waited_ns());
        suffer(way, owner.ok(), attendant);
        let waited_ns = waited_ns().saturating_sub(waited_before);
        (Usage::of_thread().since(before), waited_ns)
    };
    let done = beside(1, suffering, || {
        on_own_thread(Some(drainer), || {
            let before = Interrupts::now(victim);
            let drains = drain(way, &slots, victim, nr_drains, interrupt);
            (drains, Interrupts::now(victim).since(before))
        })
    });
    Ok(done.map(|((drains, interrupts), victims)| {
        let [((usage, waited_ns), attended)] = victims[..] else { unreachable!("one victim") };
        let Interrupts([timer, resched, call, _]) = interrupts;
        let percentiles = [(50.0, DRAIN_P50), (99.0, DRAIN_P99), (100.0, DRAIN_MAX)];
        let sample = Sample::of([
            (SWITCHES, usage.switches() as f64),
            (INVOLUNTARY, usage.preempted as f64),
            (WAITED, waited_ns as f64),
            (INTERRUPTS, interrupts.sum() as f64),
            (TIMER, timer as f64),
            (RESCHED, resched as f64),
            (CALL, call as f64),
            (GAP, attended.longest as f64 * 1000.0 / cycles_per_us() as f64),
        ]);
        Some(sample.with_percentiles(drains?, percentiles))
    }))
}

fn suffer(way: Way, owner: Option<Owner<'_, u64>>, over: &mut Attendant<'_>) {
    match (way, owner) {
        // The worker drains the slot, so the victim must not own it.
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

fn drain(
    way: Way,
    slots: &PerCpu<u64>,
    victim: CpuId,
    nr_drains: usize,
    interrupt: &Interrupt,
) -> Option<Latencies> {
    let mut latencies = Latencies::with_capacity_for(nr_drains);
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

struct Worker {
    asked: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
    unparker: afterwork::wake::Unparker,
    thread: Option<thread::JoinHandle<()>>,
}

const END: u64 = u64::MAX;

impl Worker {
    fn start(cpu: CpuId) -> Self {
        let (asked, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut parker = Parker::with_spin_limit(0);
        let unparker = parker.unparker();
        let (their_asked, their_done) = (asked.clone(), done.clone());
        let thread = thread::spawn(move || {
            pin_to(cpu);
            // Without that permission, the worker starves, which `about` reports.
            let _ = sync::thread::set_fifo(WORKER_PRIORITY);
            loop {
                parker.park();
                match their_asked.load(Ordering::Acquire) {
                    END => return,
                    asked => their_done.store(asked, Ordering::Release),
                }
            }
        });
        Self { asked, done, unparker, thread: Some(thread) }
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
            // The worker does not panic.
            let _ = thread.join();
        }
    }
}

/// Returns the time for which this thread has waited for a CPU, or 0 if it is not counted.
fn waited_ns() -> u64 {
    // Fields: time on a CPU, time waiting for a CPU, number of time slices.
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited_ns = schedstat.split_whitespace().nth(1);
    waited_ns.and_then(|text| text.parse().ok()).unwrap_or(0)
}
