//! The measured programs. Each uses the shipped library as `afterwork-lab bench` does, with a
//! thread on each CPU.

// The scenarios count with the standard library's atomics, because these cost nothing in the
// simulation.
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use afterwork::mailbox::Mailbox;
use afterwork::params::{AffinityScope, Params, Qpw};
use afterwork::percpu::PerCpu;
use afterwork::rcu::{self, Rcu};
use afterwork::workqueue::{Builder, Registry, Work, Workqueue};
use sync::futex::Futex;
use sync::{thread, time};
use topology::{CpuId, Topology};

use crate::host;

#[derive(Clone, Debug)]
pub struct Job {
    pub topology: Topology,
    pub scope: AffinityScope,
    /// The number of items that each producer creates, after a warm-up of a tenth of that number.
    pub nr_items: usize,
    pub nr_producers: usize,
}

impl Job {
    /// Returns the CPUs of producers: the first CPUs, with one CPU of each core before a second CPU
    /// of any core.
    pub fn producers(&self) -> Vec<CpuId> {
        let mut cpus: Vec<_> = self.topology.allowed().iter().collect();
        if self.nr_producers < cpus.len() {
            cpus.sort_by_key(|&cpu| {
                let core = self.topology.smt_siblings(cpu).into_iter().flatten();
                core.take_while(|&sibling| sibling != cpu).count()
            });
            cpus.truncate(self.nr_producers);
        }
        cpus
    }
}

#[derive(Debug, Default)]
pub struct Measured {
    pub start_ns: AtomicU64,
    pub end_ns: AtomicU64,
    pub nr_items: AtomicU64,
    pub nr_kicks: AtomicU64,
    pub nr_workers: AtomicU64,
    /// The duration of each call that queues, in nanoseconds, if recorded.
    queued_ns: Mutex<Vec<u32>>,
}

impl Measured {
    pub fn span_ns(&self) -> u64 {
        let (start, end) = (self.start_ns.load(Relaxed), self.end_ns.load(Relaxed));
        end.saturating_sub(start).max(1)
    }

    pub fn note_queued(&self, took_ns: Vec<u32>) {
        // If a task lost its turn while holding the host's lock, the host's thread would block.
        host::unseen(|| self.queued_ns.lock().expect("no panic").extend(took_ns));
    }

    /// Returns the median and the 95th percentile of the durations of the calls that queue.
    pub fn queued_ns(&self) -> Option<[u32; 2]> {
        let mut all = self.queued_ns.lock().expect("no panic").clone();
        all.sort_unstable();
        (!all.is_empty()).then(|| [50, 95].map(|percent| all[all.len() * percent / 100]))
    }

    pub fn rate(&self) -> f64 {
        self.nr_items.load(Relaxed).max(1) as f64 / self.span_ns() as f64 * 1e9
    }
}

pub struct Scenario {
    pub name: &'static str,
    pub about: &'static str,
    pub run: fn(&Job, &Arc<Measured>),
}

/// Builds a list of scenarios from rows of a name, a description and a function.
macro_rules! scenarios {
    ($($name:literal, $about:literal => $run:expr;)*) => {
        &[$(Scenario { name: $name, about: $about, run: $run }),*]
    };
}
pub(crate) use scenarios;

pub const SCENARIOS: &[Scenario] = scenarios! {
    "one-at-a-time", "each CPU queues an item and flushes it, again and again"
        => |job, measured| queue_of(job, measured, 1, 0, |builder| builder);
    "handed-over", "as one-at-a-time, but a worker runs the item, not the flush"
        => |job, measured| queue_of(job, measured, 1, 0, |builder| builder.help(false));
    "batches", "each CPU queues 32 items by one call and flushes them"
        => |job, measured| queue_of(job, measured, 32, 0, |builder| builder);
    "max-active", "items of 1 µs, one at a time, on a queue whose limit is half the number of CPUs"
        => |job, measured| {
        let half = (job.topology.nr_cpus() as u32 / 2).max(1);
        queue_of(job, measured, 1, 1_000, |builder| builder.max_active(half))
    };
    "fan-out", "one CPU queues four items of 1 µs for each CPU by one call and flushes them"
        => fan_out;
    "mailbox", "all CPUs but one post to a mailbox, whose owner waits for one item per CPU"
        => mailbox;
    "readers", "all CPUs but one read under RCU, one replaces and waits for grace periods"
        => readers;
    "percpu-drain", "each CPU works on its slot on demand, one adds up all slots, again and again"
        => percpu_drain;
};

pub fn scope_of(name: &str) -> Result<AffinityScope, String> {
    let scope = AffinityScope::ALL.into_iter().find(|scope| scope.as_str() == name);
    scope.ok_or_else(|| {
        let names: Vec<_> = AffinityScope::ALL.iter().map(|scope| scope.as_str()).collect();
        format!("unknown scope `{name}`; valid: {}", names.join(", "))
    })
}

/// Runs `body` at the same time on one thread for each of `cpus`, and records the start and the
/// end.
pub fn on_cpus(
    measured: &Arc<Measured>,
    cpus: Vec<CpuId>,
    body: impl Fn(usize, &dyn Fn()) + Send + Sync + 'static,
) {
    let [nr_ready, go] = [0; 2].map(|value| Arc::new(Futex::new(value)));
    measured.start_ns.store(u64::MAX, Relaxed);
    let nr_cpus = cpus.len();
    let (ready, gone, times) = (nr_ready.clone(), go.clone(), measured.clone());
    let threads = host::start_on(cpus, move |index| {
        body(index, &|| {
            ready.word().fetch_add(1, Relaxed);
            ready.wake(1);
            while gone.word().load(Relaxed) == 0 {
                gone.wait(0);
            }
            times.start_ns.fetch_min(time::now_ns(), Relaxed);
        });
        times.end_ns.fetch_max(time::now_ns(), Relaxed);
    });
    loop {
        let ready = nr_ready.word().load(Relaxed);
        if ready as usize == nr_cpus {
            break;
        }
        nr_ready.wait(ready);
    }
    // When this sleep ends, all other threads are asleep, and the new workers are idle.
    thread::sleep(std::time::Duration::from_millis(1));
    host::measure_from_here();
    measured.nr_kicks.store(0, Relaxed);
    go.word().store(1, Relaxed);
    go.wake(u32::MAX);
    host::join(threads);
}

pub fn registry(job: &Job) -> Registry {
    // The machine does not change.
    let params = Params { topology_refresh_ms: 0, ..Params::default() };
    Registry::new(job.topology.clone(), params).expect("a registry")
}

fn kicks(registry: &Registry) -> u64 {
    registry.pool_stats().iter().map(|pool| pool.kicks).sum()
}

fn note_pools(measured: &Measured, registry: &Registry, kicks_before: u64) {
    measured.nr_kicks.store(kicks(registry) - kicks_before, Relaxed);
    let created = registry.pool_stats().iter().map(|pool| pool.created).sum();
    measured.nr_workers.store(created, Relaxed);
}

fn queue_of(
    job: &Job,
    measured: &Arc<Measured>,
    batch: usize,
    work_ns: u64,
    with: impl FnOnce(Builder) -> Builder,
) {
    let registry = registry(job);
    let builder = with(Workqueue::builder("sim").affinity(job.scope));
    let queue = Arc::new(builder.build_in(&registry).expect("a queue"));
    let (nr_items, measured2, shared) = (job.nr_items, measured.clone(), queue.clone());
    let kicks = kicks(&registry);
    on_cpus(measured, job.producers(), move |_, ready| {
        let make = |_| Work::new(move || host::work_ns(work_ns));
        let works: Vec<_> = (0..batch).map(make).collect();
        let rounds = |nr_rounds: usize, queued_ns: &mut Vec<u32>| {
            for _ in 0..nr_rounds {
                host::timed(queued_ns, || match &works[..] {
                    [work] => assert!(shared.enqueue(work)),
                    works => assert_eq!(shared.task().enqueue_all(works), works.len()),
                });
                works.iter().for_each(|work| _ = work.flush().expect("another thread's"));
            }
        };
        // A large allocation has its own pages, so it does not move other allocations.
        let mut queued_ns = Vec::with_capacity(nr_items.max(4096));
        rounds((nr_items / 10 / batch).max(1), &mut queued_ns);
        queued_ns.clear();
        ready();
        let nr_rounds = (nr_items / batch).max(1);
        rounds(nr_rounds, &mut queued_ns);
        measured2.note_queued(queued_ns);
        measured2.nr_items.fetch_add((nr_rounds * batch) as u64, Relaxed);
    });
    note_pools(measured, &registry, kicks);
    drop(queue);
    registry.shutdown().ok();
}

fn fan_out(job: &Job, measured: &Arc<Measured>) {
    let registry = registry(job);
    let queue = Workqueue::builder("sim").affinity(job.scope).build_in(&registry).expect("a queue");
    let works: Vec<_> =
        (0..4 * job.topology.nr_cpus()).map(|_| Work::new(|| host::work_ns(1_000))).collect();
    let round = || {
        assert_eq!(queue.task().enqueue_all(&works), works.len());
        works.iter().for_each(|work| _ = work.flush().expect("another thread's"));
    };
    round();
    let kicks = kicks(&registry);
    let nr_rounds = (job.nr_items / 4).max(2);
    host::measure_from_here();
    measured.start_ns.store(time::now_ns(), Relaxed);
    (0..nr_rounds).for_each(|_| round());
    measured.end_ns.store(time::now_ns(), Relaxed);
    measured.nr_items.store((nr_rounds * works.len()) as u64, Relaxed);
    note_pools(measured, &registry, kicks);
    drop((queue, works));
    registry.shutdown().ok();
}

fn mailbox(job: &Job, measured: &Arc<Measured>) {
    let nr_cpus = job.topology.nr_cpus();
    let mailbox = Mailbox::<usize>::new();
    let poster = mailbox.poster();
    let owners = Mutex::new(Some(mailbox));
    let (nr_items, measured2) = (job.nr_items, measured.clone());
    let nr_all = nr_items * (nr_cpus - 1);
    on_cpus(measured, job.producers(), move |index, ready| {
        if index > 0 {
            let poster = poster.clone();
            ready();
            (0..nr_items).for_each(|item| poster.post_lazy(item).expect("the owner is there"));
            return;
        }
        let mut mailbox = owners.lock().expect("no panic").take().expect("one owner");
        ready();
        let mut nr_got = 0;
        while nr_got < nr_all {
            mailbox.wait(nr_cpus.min(nr_all - nr_got)).expect("the posters are there");
            nr_got += mailbox.drain(4096).count();
        }
        measured2.nr_items.store(nr_got as u64, Relaxed);
    });
}

fn readers(job: &Job, measured: &Arc<Measured>) {
    let cell = Arc::new(Rcu::new(1_u64));
    let (nr_items, measured2) = (job.nr_items, measured.clone());
    let nr_readers = (job.topology.nr_cpus() - 1) as u64;
    let nr_done = Arc::new(AtomicU64::new(0));
    on_cpus(measured, job.producers(), move |index, ready| {
        let section = || assert!(*cell.load(&rcu::read()) > 0);
        section();
        ready();
        if index == 0 {
            while nr_done.load(Relaxed) < nr_readers {
                cell.replace(2);
                rcu::synchronize();
            }
        } else {
            for _ in 0..nr_items {
                section();
                host::work_ns(100);
            }
            nr_done.fetch_add(1, Relaxed);
            measured2.nr_items.fetch_add(nr_items as u64, Relaxed);
        }
    });
}

fn percpu_drain(job: &Job, measured: &Arc<Measured>) {
    let builder = PerCpu::builder().qpw(Qpw::OnDemand).topology(job.topology.clone());
    let data = Arc::new(builder.build(|_| 0_u64).expect("per-CPU data"));
    let (nr_items, nr_owners, measured2) =
        (job.nr_items, job.topology.nr_cpus() - 1, measured.clone());
    let nr_done = Arc::new(AtomicU64::new(0));
    on_cpus(measured, job.producers(), move |index, ready| {
        if index == 0 {
            ready();
            while nr_done.load(Relaxed) < nr_owners as u64 {
                data.sum_over(|hits| *hits);
            }
            return;
        }
        let mut owner = data.attach(CpuId::new(index as u32)).expect("no other thread owns it");
        ready();
        for _ in 0..nr_items {
            owner.with(|hits| *hits += 1);
            host::work_ns(100);
        }
        drop(owner);
        nr_done.fetch_add(1, Relaxed);
        measured2.nr_items.fetch_add(nr_items as u64, Relaxed);
    });
}
