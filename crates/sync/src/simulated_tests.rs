//! Compares the simulated machine with closed-form formulas, and tests how a run fails.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Plain;
use std::sync::atomic::Ordering::Relaxed;

use simachine::{Costs, Failure, Machine, Outcome, run};
use topology::{CpuId, Topology};

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::futex::Futex;
use crate::{cpu, hint, thread, time};

const TRANSFER_NS: f64 = 50.0;
const RMW_NS: f64 = 5.0;

fn machine(nr_cpus: usize) -> Machine {
    let topology = Topology::synthetic(&format!("{nr_cpus} core")).unwrap();
    let mut costs = Costs::example();
    // These costs are zero or fixed, which simplifies the formulas.
    (costs.instr, costs.hold, costs.pause) = (0, 0, 1_000);
    let mut machine = Machine::new(topology, costs);
    machine.jitter_per_mille = 0;
    machine
}

#[repr(align(128))]
#[derive(Default)]
struct Line<T = AtomicU64>(T);

fn word() -> Arc<Line> {
    Arc::default()
}

fn bind_to(cpu: usize) {
    let here = [CpuId::new(cpu as u32)].into_iter().collect();
    cpu::set_affinity(None, &here).unwrap();
}

/// Starts `nr_threads` threads that run `body`, and joins them.
fn in_threads(nr_threads: usize, body: impl Fn(usize) + Send + Sync + 'static) {
    let body = Arc::new(body);
    let start = |index| {
        let body = body.clone();
        thread::spawn("test", move || body(index)).unwrap()
    };
    let threads: Vec<_> = (0..nr_threads).map(start).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Runs `body` on all CPUs at the same time. Returns the time from the first start to the last end.
fn on_all(machine: Machine, body: impl Fn(usize) + Send + Sync + 'static) -> (f64, Outcome) {
    let nr_cpus = machine.topology.nr_cpus();
    let span = Arc::new([Plain::new(u64::MAX), Plain::new(0)]);
    let [start_ns, end_ns] = [0, 1].map(|at| {
        let span = span.clone();
        move || span[at].load(Relaxed)
    });
    let outcome = run(machine, move || {
        let nr_ready = AtomicU32::new(0);
        in_threads(nr_cpus, move |index| {
            bind_to(index);
            nr_ready.fetch_add(1, Ordering::Relaxed);
            while nr_ready.load(Ordering::Relaxed) < nr_cpus as u32 {
                hint::spin_loop();
            }
            span[0].fetch_min(time::now_ns(), Relaxed);
            body(index);
            span[1].fetch_max(time::now_ns(), Relaxed);
        });
    });
    ((end_ns() - start_ns()) as f64, outcome.unwrap())
}

/// Returns the mean time of an addition when all CPUs add to one word.
fn fetch_add_ns(machine: Machine) -> f64 {
    let nr_cpus = machine.topology.nr_cpus();
    let word = word();
    let each = 2000;
    let (took, _) = on_all(machine, move |_| {
        (0..each).for_each(|_| _ = word.0.fetch_add(1, Ordering::Relaxed));
    });
    took / (each * nr_cpus) as f64
}

fn assert_near(is: f64, form: f64, tolerance: f64) {
    assert!((is / form - 1.0).abs() < tolerance, "{is:.1} where the form says {form:.1}");
}

/// One CPU writes a word and the other reads it, in turn, with one transfer for each request.
#[test]
fn a_ping_pong_costs_two_transfers_each_way() {
    let rounds = 1000;
    let word = word();
    let (took, _) = on_all(machine(2), move |me| {
        for round in 0..rounds {
            while word.0.load(Ordering::Relaxed) != 2 * round + me as u64 {
                hint::spin_loop();
            }
            word.0.store(2 * round + me as u64 + 1, Ordering::Relaxed);
        }
    });
    assert_near(took / (2 * rounds) as f64, 2.0 * TRANSFER_NS, 0.1);
}

/// An owner can add to a line until the next request arrives, half a transfer later.
fn fetch_add_form() -> f64 {
    TRANSFER_NS / (TRANSFER_NS / 2.0 / RMW_NS)
}

#[test]
fn concurrent_additions_share_transfers() {
    for nr_cpus in [2, 3, 16, 64] {
        assert_near(fetch_add_ns(machine(nr_cpus)), fetch_add_form(), 0.15);
    }
}

/// Twin: a ledger that reserves a line at request time needs a transfer for each addition.
#[test]
fn ledger_that_reserves_ahead_fails_the_two_adder_check() {
    let mut naive = machine(2);
    naive.reserves_ahead = true;
    let each = fetch_add_ns(naive);
    assert!(each > 3.0 * fetch_add_form(), "the twin looks like the original: {each:.1} ns");
}

/// One exchange completes every two transfers: one to read, and one to write.
#[test]
fn a_loop_of_exchanges_does_not_collapse() {
    let nr_added = 300;
    for nr_cpus in [2, 8, 64] {
        let word = word();
        let (took, _) = on_all(machine(nr_cpus), move |_| {
            let (order, add) = (Ordering::Relaxed, |seen| Some(seen + 1));
            (0..nr_added).for_each(|_| _ = word.0.fetch_update(order, order, add));
        });
        let each = took / (nr_added * nr_cpus) as f64;
        assert!(each < 2.5 * TRANSFER_NS, "{each:.0} ns an exchange with {nr_cpus} CPUs");
    }
}

/// With a fixed service time and random arrivals, the mean wait is rho * D / (2 * (1 - rho)).
#[test]
fn a_lock_waits_as_long_as_a_queue_of_fixed_service() {
    const NR_CPUS: usize = 64;
    const SERVICE_NS: u64 = 5_000;
    const LOAD: f64 = 0.6;
    let (next, serving) = (word(), word());
    let waited = Arc::new(Plain::new(0));
    let result = waited.clone();
    let each = 60;
    on_all(machine(NR_CPUS), move |me| {
        let mut seed = me as u64 * 77 + 5;
        for _ in 0..each {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let uniform = ((seed >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
            let mean = NR_CPUS as f64 * SERVICE_NS as f64 / LOAD;
            simachine::work_ns((-uniform.ln() * mean) as u64);
            let start = time::now_ns();
            let mine = next.0.fetch_add(1, Ordering::Relaxed);
            while serving.0.load(Ordering::Relaxed) != mine {
                // The poll is rare, because the formula does not include polling.
                simachine::work_ns(200);
            }
            waited.fetch_add(time::now_ns() - start, Relaxed);
            simachine::work_ns(SERVICE_NS - 300);
            serving.0.store(mine + 1, Ordering::Relaxed);
        }
    });
    let mean = result.load(Relaxed) as f64 / (each * NR_CPUS) as f64;
    assert_near(mean, LOAD * SERVICE_NS as f64 / (2.0 * (1.0 - LOAD)), 0.25);
}

#[test]
fn deadlock_report_names_each_thread() {
    let failure = run(machine(2), || {
        let word = Arc::new(Futex::new(0));
        let other = word.clone();
        let sleeper = thread::spawn("sleeper", move || other.wait(0)).unwrap();
        sleeper.join().unwrap();
    });
    let Err(Failure::Deadlock(text)) = failure else { panic!("{failure:?}") };
    assert!(text.contains("main (Asleep") && text.contains("sleeper (Asleep"), "{text}");
}

#[test]
fn endless_loop_is_reported_with_its_line() {
    let failure = run(machine(1), || {
        let word = AtomicU32::new(0);
        while word.load(Ordering::Relaxed) == 0 {}
    });
    let Err(Failure::Spin(text)) = failure else { panic!("{failure:?}") };
    assert!(text.contains("sync/src/simulated_tests.rs:"), "{text}");
}

#[test]
fn a_panic_and_a_budget_end_a_run() {
    let panics = run(machine(1), || panic!("of the program"));
    assert!(matches!(panics, Err(Failure::Panic(text)) if text == "of the program"));
    let mut machine = machine(1);
    machine.budget = Some(std::time::Duration::from_millis(20));
    let long = run(machine, || {
        loop {
            simachine::work_ns(1_000_000);
        }
    });
    assert!(matches!(long, Err(Failure::Budget { .. })));
}

#[test]
fn thread_locals_are_of_a_thread_and_destroyed_at_its_end() {
    thread_local!(static DROPS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    struct Counts(std::cell::Cell<u32>);
    impl Drop for Counts {
        fn drop(&mut self) {
            DROPS.set(DROPS.get() + self.0.get());
        }
    }
    crate::thread_local! { static MINE: Counts = Counts(std::cell::Cell::new(0)) }
    let uses = |index| {
        let add = index as u32 + 1;
        MINE.with(|mine| mine.0.set(mine.0.get() + add));
        thread::yield_now();
        MINE.with(|mine| assert_eq!(mine.0.get(), add));
    };
    run(machine(4), move || in_threads(3, uses)).unwrap();
    assert_eq!(DROPS.get(), 6);
}

/// With more threads than CPUs, each thread gets its share, and sleeps and timed waits end on time.
#[test]
fn threads_share_a_cpu_and_sleeps_end_on_time() {
    run(machine(1), || {
        let start = time::now_ns();
        let busy: Vec<_> = (0..3)
            .map(|_| thread::spawn("busy", || simachine::work_ns(10_000_000)).unwrap())
            .collect();
        thread::sleep(std::time::Duration::from_millis(2));
        Futex::new(0).wait_timeout(0, std::time::Duration::from_millis(2));
        let slept = time::now_ns() - start;
        assert!((4_000_000..20_000_000).contains(&slept), "{slept}");
        busy.into_iter().for_each(|thread| thread.join().unwrap());
        let all = time::now_ns() - start;
        assert!((30_000_000..32_000_000).contains(&all), "{all}");
    })
    .unwrap();
}

#[test]
fn equal_seeds_give_equal_runs() {
    let once = || {
        let mut machine = machine(8);
        machine.jitter_per_mille = 50;
        machine.seed = 9;
        let lock = Line(crate::Mutex::new(0));
        let (took, outcome) = on_all(machine, move |_| (0..200).for_each(|_| *lock.0.lock() += 1));
        (took.to_bits(), format!("{:?}", outcome.counts))
    };
    assert_eq!(once(), once());
}

/// Wakes a thread that sleeps on the other CPU. Returns the time that the waker spends on it.
fn wake_ns(is_kernel: bool) -> f64 {
    let mut machine = machine(2);
    (machine.costs.hold, machine.costs.llc_dirty, machine.costs.clock) = (0, 0, 0);
    let took_ns = Arc::new(Plain::new(0));
    let (result, word) = (took_ns.clone(), Line(Futex::new(0)));
    on_all(machine, move |me| {
        if is_kernel {
            simachine::kernel::enter();
        }
        if me == 1 {
            return word.0.wait(0);
        }
        simachine::work_ns(100_000);
        let start = simachine::kernel::now_ps();
        word.0.wake(1);
        result.store((simachine::kernel::now_ps() - start) / 1000, Relaxed);
    });
    took_ns.load(Relaxed) as f64
}

#[test]
fn a_kernel_thread_wakes_without_a_call_and_locks_the_run_queue() {
    let (costs, ns) = (Costs::example(), |ps: u64| ps as f64 / 1000.0);
    let both = ns(costs.ttwu + costs.ipi_send);
    assert_near(wake_ns(true), both + ns(costs.rq_lock), 0.01);
    assert_near(wake_ns(false), both + ns(costs.syscall + costs.futex), 0.01);
}

/// Although slices are short, the second thread waits until the first one enables preemption.
#[test]
fn thread_with_preemption_disabled_keeps_the_cpu() {
    let mut machine = machine(1);
    machine.costs.slice = 10_000_000;
    run(machine, || {
        let word = Arc::new(AtomicU32::new(0));
        let other = word.clone();
        let keeper = thread::spawn("keeper", move || {
            simachine::kernel::disable_preemption();
            let before = other.load(Ordering::Relaxed);
            for _ in 0..100 {
                simachine::work_ns(10_000);
                assert_eq!(other.load(Ordering::Relaxed), before);
            }
            simachine::kernel::enable_preemption();
            assert_ne!(other.load(Ordering::Relaxed), before);
        });
        for count in 0..200 {
            simachine::work_ns(10_000);
            assert_eq!(word.fetch_add(1, Ordering::Relaxed), count);
        }
        keeper.unwrap().join().unwrap();
    })
    .unwrap();
}

#[test]
fn plain_access_pays_only_for_a_moving_cache_line() {
    // The simulated machine defines these, for instrumented crates.
    unsafe extern "C" {
        safe fn __tsan_read8(at: *const c_void);
        safe fn __tsan_write8(at: *const c_void);
        fn __tsan_atomic64_load(at: *mut u64, order: c_int) -> u64;
    }
    static PLAIN: Line<Plain> = Line(Plain::new(0));
    static WORD: Line<AtomicU64> = Line(AtomicU64::new(0));
    let at = || (&raw const PLAIN).cast();
    let took_ps = |step: &dyn Fn()| {
        let start = simachine::kernel::now_ps();
        step();
        simachine::kernel::now_ps() - start
    };
    run(machine(2), move || {
        let costs = Costs::example();
        let own = 0_u64;
        assert_eq!(took_ps(&|| __tsan_read8(at())), costs.dram);
        assert_eq!(took_ps(&|| __tsan_read8(at())), 0, "a hit");
        assert_eq!(took_ps(&|| __tsan_read8((&raw const own).cast())), 0);
        let other = thread::spawn("other", move || {
            bind_to(1);
            __tsan_write8(at());
        });
        other.unwrap().join().unwrap();
        assert_eq!(took_ps(&|| __tsan_read8(at())), costs.llc_dirty);
        // The first call of `load` counts as the instruction of the load above.
        let load = || {
            // SAFETY: the word is never freed.
            unsafe { __tsan_atomic64_load(WORD.0.as_ptr(), 0) };
        };
        WORD.0.load(Ordering::Relaxed);
        assert_eq!(took_ps(&load), 0);
        assert_eq!(took_ps(&load), costs.load_hit);
        assert_eq!(took_ps(&|| simachine::unseen(|| __tsan_write8(at()))), 0);
    })
    .unwrap();
}
