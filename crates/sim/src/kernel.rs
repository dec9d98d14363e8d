//! A MODEL of the kernel's unbound workqueue under the test of `lib/test_workqueue.c`: several
//! threads, each bound to its own CPU, queue one item at a time and wait for it.
//!
//! The model follows the published code of the workqueue and of the test: when each lock is held,
//! which cache lines are accessed under it, and where each thread is woken. The steps:
//!
//! | thread | step | under the pool's lock |
//! |---|---|---|
//! | producer | marks the item pending | |
//! | | counts it in the pwq, puts it on the list, kicks | yes |
//! | worker | leaves the idle list | yes |
//! | | takes an item, marks itself busy, kicks for the remaining items, unmarks the item | yes |
//! | | runs the item, which completes and wakes its producer | |
//! | | unmarks itself and counts the end in the pwq, then takes the next item or goes idle | yes |
//!
//! A kick finds the worker that went idle last. That worker stays on the idle list until it runs,
//! so consecutive kicks find the same worker. If the worker last slept outside the pod, its wake-up
//! starts at a CPU of the pod (*soft* affinity). The worker is woken under the lock or afterwards
//! ([`Way`]).
//!
//! The model omits the creation and culling of workers, `max_active`, the last pool, RCU, and
//! interrupts.

use std::collections::VecDeque;
// The data of modeled locks and the model's own counters, which cost nothing in the simulation.
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard};

use sync::atomic::AtomicU32;
use sync::atomic::Ordering::Relaxed;
use sync::futex::Futex;
use sync::sim::kernel;
use sync::{cpu, hint, thread};
use topology::{CpuId, Pod, ShardParams};

use crate::host;
use crate::scenarios::{Job, Measured, Scenario, on_cpus, scenarios};

pub const SCENARIOS: &[Scenario] = scenarios! {
    "kernel-under-lock", "a MODEL of the kernel's workqueue, for handed-over: a worker is woken under the pool's lock"
        => |job, measured| producers_and_workers(job, measured, Way::UnderLock);
    "kernel-deferred", "the same, but a worker is chosen under the lock and woken afterwards"
        => |job, measured| producers_and_workers(job, measured, Way::Deferred);
    "kernel-bare", "the same, without the lines that a deferred wake-up touches under the lock"
        => |job, measured| producers_and_workers(job, measured, Way::Bare);
};

/// The time at which a kick wakes the worker.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    UnderLock,
    /// After the lock is released. Under the lock, the worker is moved to another list, and its
    /// thread to a wake queue, which holds a reference.
    Deferred,
    /// The same as `Deferred`, without the cost of deferring.
    Bare,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line<T = AtomicU32>(T);

impl Line {
    #[track_caller]
    fn touch(&self) {
        let value = self.0.load(Relaxed);
        self.0.store(value.wrapping_add(1), Relaxed);
    }
}

#[derive(Debug, Default)]
struct Node {
    is_first: AtomicU32,
    /// The next waiter: its CPU number plus 1.
    next: AtomicU32,
}

/// A queued spin lock without preemption. The first waiter polls the word, and all others poll
/// their own cache lines.
#[derive(Default)]
struct SpinLock {
    /// Two words: 1 if the lock is held, and the CPU number of the last waiter plus 1.
    word: Line<(AtomicU32, AtomicU32)>,
    nodes: Arc<[Line<Node>]>,
    is_held: AtomicBool,
}

struct Held<'a> {
    lock: &'a SpinLock,
    asked_ps: u64,
    got_ps: u64,
    is_contended: bool,
}

impl SpinLock {
    fn with(nodes: Arc<[Line<Node>]>) -> Self {
        Self { nodes, ..Self::default() }
    }

    fn lock(&self) -> Held<'_> {
        kernel::disable_preemption();
        let asked_ps = kernel::now_ps();
        let (word, tail) = &self.word.0;
        let is_free =
            tail.load(Relaxed) == 0 && word.compare_exchange(0, 1, Relaxed, Relaxed).is_ok();
        if !is_free {
            self.queue(cpu::current().index() as u32 + 1);
        }
        assert!(!self.is_held.swap(true, Relaxed), "two hold the lock");
        Held { lock: self, asked_ps, got_ps: kernel::now_ps(), is_contended: !is_free }
    }

    #[cold]
    fn queue(&self, me: u32) {
        let (word, tail) = &self.word.0;
        let node_of = |cpu: u32| &self.nodes[cpu as usize - 1].0;
        node_of(me).is_first.store(0, Relaxed);
        node_of(me).next.store(0, Relaxed);
        let before = tail.swap(me, Relaxed);
        if before != 0 {
            node_of(before).next.store(me, Relaxed);
            while node_of(me).is_first.load(Relaxed) == 0 {
                hint::spin_loop();
            }
        }
        while word.load(Relaxed) != 0 || word.compare_exchange(0, 1, Relaxed, Relaxed).is_err() {
            hint::spin_loop();
        }
        if tail.compare_exchange(me, 0, Relaxed, Relaxed).is_ok() {
            return;
        }
        loop {
            match node_of(me).next.load(Relaxed) {
                0 => hint::spin_loop(),
                next => return node_of(next).is_first.store(1, Relaxed),
            }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lock.is_held.store(false, Relaxed);
        let times = [self.asked_ps, self.got_ps, kernel::now_ps()];
        kernel::note_lock("the kernel's pool", times, self.is_contended);
        self.lock.word.0.0.store(0, Relaxed);
        kernel::enable_preemption();
    }
}

struct Item {
    pending: Line,
    /// 0 before the run, 1 after it, 2 while the producer sleeps.
    done: Line<Futex>,
}

impl Item {
    fn complete(&self) {
        if self.done.0.word().swap(1, Relaxed) == 2 {
            self.done.0.wake(1);
        }
    }

    fn wait(&self) {
        let word = self.done.0.word();
        let sleeps = word.compare_exchange(0, 2, Relaxed, Relaxed).is_ok();
        while sleeps && word.load(Relaxed) == 2 {
            self.done.0.wait(2);
        }
    }
}

/// A worker, with the lines of its thread's `task_struct` that a wake-up touches.
struct Worker {
    thread: u32,
    fields: Line,
    /// The state, which is 0 while the thread sleeps, and the number of references to the thread.
    state: Line<(Futex, AtomicU32)>,
    wake_cpu: Line,
    /// The lock of the thread's state, and a flag that is set while the thread is on a wake queue.
    to_wake: Line<(AtomicU32, AtomicU32)>,
}

impl Worker {
    fn wake(&self, measured: &Measured) {
        measured.nr_kicks.fetch_add(1, Relaxed);
        self.to_wake.0.0.swap(1, Relaxed);
        let state = &self.state.0.0;
        if state.word().load(Relaxed) == 0 && state.word().swap(1, Relaxed) == 0 {
            state.wake(1);
        }
    }
}

#[derive(Default)]
struct Guarded {
    items: VecDeque<Arc<Item>>,
    idle: Vec<Arc<Worker>>,
}

struct Pool {
    way: Way,
    lock: SpinLock,
    /// The heads of both lists, the table of busy workers, and the pwq.
    heads: Line,
    busy: Line,
    link: Line,
    guarded: Mutex<Guarded>,
    cpus: Vec<CpuId>,
    nr_moved: AtomicUsize,
    measured: Arc<Measured>,
}

impl Pool {
    /// Returns the data that the spin lock guards. The access is not simulated.
    fn guarded(&self) -> MutexGuard<'_, Guarded> {
        self.guarded.lock().expect("nothing panics under it")
    }

    /// Chooses a worker for the listed items. Returns the worker if it must be woken after
    /// unlocking.
    fn kick(&self) -> Option<Arc<Worker>> {
        let worker = {
            let guarded = self.guarded();
            guarded.items.front()?;
            guarded.idle.last()?.clone()
        };
        self.heads.touch();
        worker.fields.0.load(Relaxed);
        worker.wake_cpu.0.load(Relaxed);
        let last = kernel::wake_cpu(worker.thread);
        if last.is_none_or(|cpu| !self.cpus.contains(&cpu)) {
            let turn = self.nr_moved.fetch_add(1, Relaxed);
            kernel::set_wake_cpu(worker.thread, self.cpus[turn % self.cpus.len()]);
            worker.wake_cpu.touch();
        }
        match self.way {
            Way::UnderLock => {
                worker.wake(&self.measured);
                return None;
            }
            Way::Deferred => {
                worker.fields.touch();
                let queued = &worker.to_wake.0.1;
                if queued.compare_exchange(0, 1, Relaxed, Relaxed).is_err() {
                    // Another thread is about to wake the worker.
                    return None;
                }
                worker.state.0.1.fetch_add(1, Relaxed);
            }
            Way::Bare => {}
        }
        Some(worker)
    }

    /// Releases the lock, and then wakes the worker that a kick returned.
    fn unlock(&self, held: Held<'_>, chosen: Option<Arc<Worker>>) {
        drop(held);
        let Some(worker) = chosen else { return };
        if self.way == Way::Bare {
            return worker.wake(&self.measured);
        }
        worker.to_wake.0.1.store(0, Relaxed);
        worker.wake(&self.measured);
        worker.state.0.1.fetch_sub(1, Relaxed);
    }

    fn queue(&self, item: &Arc<Item>) {
        item.pending.0.swap(1, Relaxed);
        kernel::spend(|costs| costs.wq_path);
        let held = self.lock.lock();
        self.link.touch();
        self.heads.touch();
        self.guarded().items.push_back(item.clone());
        kernel::spend(|costs| costs.wq_locked);
        let chosen = self.kick();
        self.unlock(held, chosen);
    }

    fn work(&self) {
        kernel::enter();
        let me = Arc::new(Worker {
            thread: thread::current().0,
            fields: Line::default(),
            state: Line((Futex::new(1), AtomicU32::new(1))),
            wake_cpu: Line::default(),
            to_wake: Line::default(),
        });
        loop {
            let mut held = self.lock.lock();
            me.fields.touch();
            self.heads.touch();
            self.guarded().idle.retain(|idle| !Arc::ptr_eq(idle, &me));
            loop {
                let Some(item) = self.guarded().items.pop_front() else { break };
                self.busy.touch();
                kernel::spend(|costs| costs.wq_locked);
                let chosen = self.kick();
                item.pending.0.store(0, Relaxed);
                self.unlock(held, chosen);
                kernel::spend(|costs| costs.wq_path);
                item.complete();
                held = self.lock.lock();
                self.busy.touch();
                self.link.touch();
            }
            self.heads.touch();
            let state = &me.state.0.0;
            state.word().store(0, Relaxed);
            self.guarded().idle.push(me.clone());
            drop(held);
            while state.word().load(Relaxed) == 0 {
                state.wait(0);
            }
        }
    }
}

/// The number of workers of a pool in addition to one per producer.
const NR_SPARE: usize = 2;

fn producers_and_workers(job: &Job, measured: &Arc<Measured>, way: Way) {
    let pods = job.topology.pods(job.scope, &ShardParams::default());
    let cpus = job.topology.cpus();
    let nodes: Arc<[_]> = cpus.map(|_| Line::default()).collect();
    let pool = |pod: &Pod| {
        Arc::new(Pool {
            way,
            lock: SpinLock::with(nodes.clone()),
            heads: Line::default(),
            busy: Line::default(),
            link: Line::default(),
            guarded: Mutex::default(),
            cpus: pod.cpus.iter().collect(),
            nr_moved: AtomicUsize::new(0),
            measured: measured.clone(),
        })
    };
    let pools: Vec<_> = pods.iter().map(pool).collect();
    let producers = job.producers();
    let of_cpu = |&cpu| pools[pods.pod_of(cpu).expect("it is of the machine")].clone();
    let pool_of: Vec<_> = producers.iter().map(of_cpu).collect();
    for pool in &pools {
        let nr_producers = pool_of.iter().filter(|its| Arc::ptr_eq(its, pool)).count();
        let nr_workers = nr_producers + NR_SPARE * nr_producers.min(1);
        for _ in 0..nr_workers {
            let pool = pool.clone();
            thread::spawn("kworker", move || pool.work()).expect("a thread");
        }
        measured.nr_workers.fetch_add(nr_workers as u64, Relaxed);
    }
    let (nr_items, measured2) = (job.nr_items, measured.clone());
    on_cpus(measured, producers, move |index, ready| {
        kernel::enter();
        let pool = &pool_of[index];
        let item = Arc::new(Item { pending: Line::default(), done: Line(Futex::new(0)) });
        let rounds = |nr_rounds: usize| {
            let mut queued_ns = Vec::with_capacity(nr_rounds);
            for _ in 0..nr_rounds {
                item.done.0.word().store(0, Relaxed);
                host::timed(&mut queued_ns, || pool.queue(&item));
                item.wait();
            }
            queued_ns
        };
        rounds((nr_items / 10).max(1));
        ready();
        measured2.note_queued(rounds(nr_items));
        measured2.nr_items.fetch_add(nr_items as u64, Relaxed);
    });
}

#[cfg(test)]
mod tests {
    use sync::sim::{Costs, LockStat, Machine, Outcome, run};
    use topology::{AffinityScope, Topology};

    use super::*;

    const WAYS: [Way; 3] = [Way::UnderLock, Way::Deferred, Way::Bare];
    const PATH_NS: f64 = 700.0;
    const TTWU_NS: f64 = 300.0;
    const SWITCH_NS: f64 = 1_100.0;

    /// A machine on which lines cost nothing, so that the formulas are short.
    fn machine(nr_cpus: usize, locked_ns: f64) -> Machine {
        let costs = Costs::from_ns(|name| match name {
            "wq_path" => PATH_NS,
            "wq_locked" => locked_ns,
            "ttwu" => TTWU_NS,
            "switch" => SWITCH_NS,
            "pause" => 100.0,
            "slice" | "wakeup_gran" | "deep_after" => 1e9,
            _ => 0.0,
        });
        let topology = Topology::synthetic(&format!("{nr_cpus} core")).unwrap();
        let mut machine = Machine::new(topology, costs);
        (machine.jitter_per_mille, machine.takes_stacks) = (0, false);
        machine
    }

    fn simulate(
        machine: Machine,
        scope: AffinityScope,
        nr_producers: usize,
        way: Way,
    ) -> (f64, Outcome) {
        let job = Job { topology: machine.topology.clone(), scope, nr_items: 60, nr_producers };
        let measured = Arc::<Measured>::default();
        let inside = measured.clone();
        let outcome = run(machine, move || producers_and_workers(&job, &inside, way)).unwrap();
        (measured.rate(), outcome)
    }

    fn assert_near(is: f64, form: f64, tolerance: f64) {
        let is_near = (is / form - 1.0).abs() < tolerance;
        assert!(is_near, "{is:.1} where the form says {form:.1}");
    }

    fn each_ns(outcome: &Outcome, of: impl Fn(&LockStat) -> u64) -> f64 {
        let lock = &outcome.locks["the kernel's pool"];
        of(lock) as f64 / lock.nr_taken as f64 / 1e3
    }

    /// The producer and the worker alternate on one CPU. Each spends the time of the path, the
    /// section, the wake-up and the switch.
    #[test]
    fn one_producer_takes_the_sum_of_all_costs() {
        for way in WAYS {
            let (rate, _) = simulate(machine(2, 400.0), AffinityScope::Cpu, 1, way);
            let each = 2.0 * (PATH_NS + 400.0 + TTWU_NS + SWITCH_NS);
            assert_near(1e9 / rate, each, 0.01);
        }
    }

    /// Each item needs two sections: one for its producer and one for its worker.
    #[test]
    fn a_lock_that_is_always_held_is_the_ceiling() {
        let locked_ns = 20_000.0;
        for way in WAYS {
            let (rate, _) = simulate(machine(16, locked_ns), AffinityScope::System, 16, way);
            assert_near(1e9 / rate, 2.0 * locked_ns, 0.05);
        }
    }

    /// For random arrivals and a fixed service time D, the mean wait is rho * D / (2 * (1 - rho)).
    #[test]
    fn the_lock_waits_as_long_as_a_queue_of_fixed_service() {
        const NR_CPUS: usize = 64;
        const SERVICE_NS: u64 = 5_000;
        const LOAD: f64 = 0.6;
        let outcome = run(machine(NR_CPUS, 0.0), || {
            let lock = SpinLock::with((0..NR_CPUS).map(|_| Line::default()).collect());
            let cpus = (0..NR_CPUS as u32).map(CpuId::new).collect();
            on_cpus(&Arc::default(), cpus, move |me, ready| {
                ready();
                let mut seed = me as u64 * 77 + 5;
                for _ in 0..60 {
                    seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    let uniform = ((seed >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
                    let mean = NR_CPUS as f64 * SERVICE_NS as f64 / LOAD;
                    host::work_ns((-uniform.ln() * mean) as u64);
                    let _held = lock.lock();
                    host::work_ns(SERVICE_NS);
                }
            });
        });
        let (outcome, service) = (outcome.unwrap(), SERVICE_NS as f64);
        assert_near(each_ns(&outcome, |lock| lock.held_ps), service, 0.001);
        let form = LOAD * service / (2.0 * (1.0 - LOAD));
        assert_near(each_ns(&outcome, |lock| lock.waited_ps), form, 0.25);
    }

    fn with_seed(seed: u64, way: Way) -> (f64, Outcome) {
        let topology = Topology::synthetic("4 core").unwrap();
        let mut machine = Machine::new(topology, Costs::example());
        (machine.seed, machine.takes_stacks) = (seed, false);
        simulate(machine, AffinityScope::System, 4, way)
    }

    /// This holds for four producers. With many more producers, deferring holds the lock longer:
    /// kicks then find workers that are already awake, and a no-op wake-up is cheaper than
    /// deferring it.
    #[test]
    fn waking_after_the_unlock_holds_the_lock_shorter() {
        for seed in 1..4 {
            let held = WAYS.map(|way| each_ns(&with_seed(seed, way).1, |lock| lock.held_ps));
            let is_so = 1.1 * held[1] < held[0] && 1.5 * held[2] < held[1];
            assert!(is_so, "{held:?} ns");
        }
    }
}
