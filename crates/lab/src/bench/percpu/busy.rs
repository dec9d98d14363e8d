//! Remote calls to a slot that is free only for a few nanoseconds between operations of 30 µs. A
//! caller that polls rarely hits such a gap, so the owner or the mutex must admit the caller.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use afterwork::percpu::{PerCpu, Qpw};
use sync::time::cycles;
use top::exit::Stop;
use top::interrupt::Interrupt;

use super::list::unmade;
use super::metrics::{CALL_MAX, CALL_P50, CALLER_CPU, CALLS, OPERATIONS};
use crate::bench::max_active::drive::burn;
use crate::harness::case::Sample;
use crate::harness::latency::Latencies;
use crate::harness::switches::Usage;

const OPERATION_US: u64 = 30;

/// The time between two calls. It is as long as several operations, so that each call finds the
/// owner at work.
const PAUSE: Duration = Duration::from_micros(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    Quiet,
    Load,
    FifoCaller,
}

pub fn on_mutex(beside: Beside, span: Duration, interrupt: &Interrupt) -> Sample {
    let data = Mutex::new(0_u64);
    let with = |work: fn(&mut u64)| work(&mut data.lock().expect("nothing panics inside"));
    beside.run(span, interrupt, |stop| own(stop, || with(operate)), || with(operate_remotely))
}

pub fn on_slot(
    qpw: Qpw,
    beside: Beside,
    span: Duration,
    interrupt: &Interrupt,
) -> Result<Sample, Stop> {
    let slots = PerCpu::builder().qpw(qpw).build(|_| 0_u64).map_err(unmade)?;
    let cpu = slots.cpus().iter().find(|&cpu| slots.attach(cpu).is_ok());
    let cpu = cpu.ok_or_else(|| Stop::CouldNotRun("every CPU is isolated".into()))?;
    let operations = |stop: &AtomicBool| {
        let mut owner = slots.attach(cpu).expect("it could be attached before");
        own(stop, || {
            owner.with(operate);
            // In `Queue`, the owner runs the calls.
            owner.poll();
        })
    };
    let call = || slots.run_on(cpu, operate_remotely);
    Ok(beside.run(span, interrupt, operations, call))
}

fn operate(data: &mut u64) {
    *data += 1;
    burn(OPERATION_US);
}

fn operate_remotely(data: &mut u64) {
    *data += 1;
}

fn own(stop: &AtomicBool, mut operate: impl FnMut()) -> u64 {
    let mut nr_operations = 0;
    while !stop.load(Ordering::Relaxed) {
        operate();
        nr_operations += 1;
    }
    nr_operations
}

impl Beside {
    /// Runs `owner` until `call` has been called for `span`.
    fn run(
        self,
        span: Duration,
        interrupt: &Interrupt,
        owner: impl FnOnce(&AtomicBool) -> u64 + Send,
        call: impl Fn() + Send,
    ) -> Sample {
        let stop = &AtomicBool::new(false);
        thread::scope(|scope| {
            let nr_burners = match self {
                Self::Load => thread::available_parallelism().map_or(1, usize::from),
                Self::Quiet | Self::FifoCaller => 0,
            };
            for _ in 0..nr_burners {
                scope.spawn(|| own(stop, || burn(OPERATION_US)));
            }
            let owner = scope.spawn(move || owner(stop));
            let caller = scope.spawn(move || {
                if self == Self::FifoCaller {
                    // Without that permission, it is an ordinary thread.
                    let _ = sync::thread::set_fifo(1);
                }
                let mut waits = Latencies::with_capacity_for(1 << 16);
                let (mut nr_calls, start, before) = (0_u64, Instant::now(), Usage::of_thread());
                while start.elapsed() < span && !interrupt.requested() {
                    let begun = cycles();
                    call();
                    waits.push(begun, cycles());
                    nr_calls += 1;
                    thread::sleep(PAUSE);
                }
                let cpu_ns = Usage::of_thread().since(before).cpu_ns;
                stop.store(true, Ordering::Relaxed);
                (waits, nr_calls, start.elapsed(), cpu_ns)
            });
            let (waits, nr_calls, took, cpu_ns) = caller.join().expect("no call panics");
            let nr_operations = owner.join().expect("no operation panics");
            Sample::of([
                (CALLS, nr_calls as f64 / took.as_secs_f64()),
                (OPERATIONS, nr_operations as f64 / took.as_secs_f64()),
                (CALLER_CPU, cpu_ns as f64 / nr_calls as f64),
            ])
            .with_percentiles(waits, [(50.0, CALL_P50), (100.0, CALL_MAX)])
        })
    }
}
