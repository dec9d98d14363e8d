//! Small measurements, which are the same on a real machine and on a simulated one. Each is used to
//! fit one cost.

use std::sync::Arc;
use std::time::Duration;

use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::futex::Futex;
use sync::{asym, cpu, hint, thread, time};
use topology::{CpuId, Topology};

use crate::host::{join, pin, start_on};

pub struct Micro {
    pub name: &'static str,
    /// The costs that are fitted to the measurement. All of them get the same value.
    pub costs: &'static [&'static str],
    /// Returns the result in nanoseconds.
    pub run: Box<dyn Fn() -> f64 + Send + Sync>,
}

#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

/// The measurements of a machine, in order of dependency.
struct Micros(Vec<Micro>);

impl Micros {
    fn add(
        &mut self,
        name: &'static str,
        costs: &'static [&'static str],
        run: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        self.0.push(Micro { name, costs, run: Box::new(run) });
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Returns the median of several attempts. A simulation needs few, because nothing disturbs it.
fn middle(attempt: impl Fn() -> f64) -> f64 {
    let nr = if cfg!(sim) { 3 } else { 31 };
    median((0..nr).map(|_| attempt()).collect())
}

pub fn each(nr_calls: u32, call: impl Fn()) -> f64 {
    middle(|| {
        let start = time::now_ns();
        (0..nr_calls).for_each(|_| call());
        (time::now_ns() - start) as f64 / f64::from(nr_calls)
    })
}

/// Runs `body` at the same time on one thread for each of `cpus`. Returns the time of one round.
fn together(cpus: [CpuId; 2], nr_rounds: u32, body: impl Fn(u32) + Send + Sync + 'static) -> f64 {
    let (nr_met, took_ns) = (AtomicUsize::new(0), Arc::new(AtomicU64::new(0)));
    let most_ns = took_ns.clone();
    join(start_on(cpus, move |index| {
        nr_met.fetch_add(1, Ordering::SeqCst);
        while nr_met.load(Ordering::SeqCst) < 2 {
            // Both threads may be on one CPU.
            thread::yield_now();
        }
        let start = time::now_ns();
        body(index as u32);
        most_ns.fetch_max(time::now_ns() - start, Ordering::SeqCst);
    }));
    took_ns.load(Ordering::SeqCst) as f64 / f64::from(nr_rounds)
}

#[derive(Clone, Copy)]
enum By {
    Spinning,
    Yielding,
    Sleeping,
}

fn ping_pong(cpus: [CpuId; 2], nr_rounds: u32, by: By) -> f64 {
    middle(|| {
        let word = Arc::new(Futex::new(0));
        together(cpus, nr_rounds, move |me| {
            for _ in 0..nr_rounds {
                while word.word().load(Ordering::Acquire) != me {
                    match by {
                        By::Spinning => hint::spin_loop(),
                        By::Yielding => thread::yield_now(),
                        By::Sleeping => word.wait(1 - me),
                    }
                }
                word.word().store(1 - me, Ordering::Release);
                if matches!(by, By::Sleeping) {
                    word.wake(1);
                }
            }
        })
    })
}

/// Wakes a thread that slept on the other CPU for `idle`. Returns the call's time and the latency.
fn wake_up(cpus: [CpuId; 2], idle: Duration) -> (f64, f64) {
    let nr = if cfg!(sim) { 3 } else { 15 };
    let (word, woken_ns) = (Arc::new(Futex::new(0)), Arc::new(AtomicU64::new(0)));
    let (its_word, its_ns) = (word.clone(), woken_ns.clone());
    let sleeper = start_on([cpus[1]], move |_| {
        for round in 0..nr {
            while its_word.word().load(Ordering::Acquire) == round {
                its_word.wait(round);
            }
            its_ns.store(time::now_ns(), Ordering::Release);
        }
    });
    pin(cpus[0]);
    let (mut calls, mut ways) = (Vec::new(), Vec::new());
    for round in 0..nr {
        thread::sleep(idle);
        woken_ns.store(0, Ordering::Release);
        word.word().store(round + 1, Ordering::Release);
        let start = time::now_ns();
        word.wake(1);
        let called = time::now_ns();
        while woken_ns.load(Ordering::Acquire) == 0 {
            hint::spin_loop();
        }
        calls.push((called - start) as f64);
        ways.push(woken_ns.load(Ordering::Acquire).saturating_sub(start) as f64);
    }
    join(sleeper);
    (median(calls), median(ways))
}

/// Returns the first CPU and the first other one at the distance of `cost`.
fn pair(topology: &Topology, cost: &str) -> Option<[CpuId; 2]> {
    let cpus: Vec<_> = topology.cpus().collect();
    let first = cpus.first()?;
    let kind_of = |other: &topology::Cpu| {
        let smt = topology.smt_siblings(first.id);
        let llc = topology.llc_of(first.id);
        match () {
            () if smt.is_some_and(|smt| smt.contains(other.id)) => "smt",
            () if llc.is_some_and(|llc| llc.cpus.contains(other.id)) => "llc_dirty",
            () if first.node == other.node => "xllc",
            () => "xnode",
        }
    };
    let other = cpus[1..].iter().find(|other| kind_of(other) == cost)?;
    Some([first.id, other.id])
}

/// Returns the measurements that a machine allows, in order of dependency. With one CPU there are
/// none.
pub fn micros(topology: &Topology) -> Vec<Micro> {
    let ids: Vec<_> = topology.cpus().map(|cpu| cpu.id).collect();
    let &[first, second, ..] = &ids[..] else { return Vec::new() };
    let (one, two) = ([first, first], [first, second]);
    let mut all = Micros(Vec::new());
    let line = Arc::new(Line::default());
    let its = |call: fn(&AtomicU64)| {
        let line = line.clone();
        move || each(10_000, || call(&line.0))
    };
    let load = its(|word| _ = std::hint::black_box(word.load(Ordering::Relaxed)));
    all.add("a load that hits", &["instr", "load_hit"], load);
    let addition = its(|word| _ = word.fetch_add(1, Ordering::Relaxed));
    all.add("an addition that hits", &["rmw_hit"], addition);
    let store = its(|word| {
        word.store(1, Ordering::Relaxed);
        sync::atomic::fence(Ordering::SeqCst);
    });
    all.add("a store and a fence", &["fence"], store);
    let call = |call: fn()| move || each(3_000, call);
    all.add("a spin hint", &["pause"], call(hint::spin_loop));
    all.add("the clock", &["clock"], call(|| _ = std::hint::black_box(time::now_ns())));
    all.add("the cycle counter", &["tsc"], call(|| _ = std::hint::black_box(time::cycles())));
    all.add("the CPU's number", &["getcpu"], call(|| _ = std::hint::black_box(cpu::current())));
    all.add("a yield to no thread", &["sched_yield"], call(thread::yield_now));
    let nobody = Arc::new(Futex::new(0));
    all.add("a wake-up of no thread", &["futex"], move || each(3_000, || nobody.wake(1)));
    asym::init();
    all.add("a membarrier alone", &["membarrier"], || each(300, asym::heavy));
    for (name, costs) in [
        ("a line there and back, one core", &["smt"]),
        ("a line there and back, one cache", &["llc_dirty"]),
        ("a line there and back, two caches", &["xllc"]),
        ("a line there and back, two nodes", &["xnode"]),
    ] {
        if let Some(cpus) = pair(topology, costs[0]) {
            all.add(name, costs, move || ping_pong(cpus, 1_000, By::Spinning));
        }
    }
    let additions = move || {
        let (line, nr) = (Arc::new(Line::default()), 20_000);
        let body = move |_| (0..nr).for_each(|_| _ = line.0.fetch_add(1, Ordering::Relaxed));
        together(two, nr, body)
    };
    all.add("additions by two CPUs", &["hold"], move || middle(additions));
    let ping_pong = |by| move || ping_pong(one, 500, by);
    all.add("yields there and back, one CPU", &["switch"], ping_pong(By::Yielding));
    all.add("sleeps there and back, one CPU", &["ttwu"], ping_pong(By::Sleeping));
    let [soon, late] = [300, 8_000].map(Duration::from_micros);
    all.add("the call that wakes an idle CPU", &["ipi_send"], move || wake_up(two, soon).0);
    all.add("until an idle CPU runs", &["idle_exit"], move || wake_up(two, soon).1);
    let name = "until a CPU runs that was idle for 8 ms";
    all.add(name, &["deep_exit"], move || wake_up(two, late).1);
    let start_and_join = || {
        let thread = thread::spawn("micro", || ()).expect("a thread");
        thread.join().expect("no panic");
    };
    all.add("a thread, started and joined", &["spawn"], move || each(20, start_and_join));
    all.0
}

pub fn run(topology: &Topology, micro: Micro) -> f64 {
    let first = topology.cpus().next().expect("a machine has CPUs").id;
    let outcome = Arc::new(AtomicU64::new(0));
    let result = outcome.clone();
    join(start_on([first], move |_| {
        result.store((micro.run)().to_bits(), Ordering::SeqCst);
    }));
    f64::from_bits(outcome.load(Ordering::SeqCst))
}
