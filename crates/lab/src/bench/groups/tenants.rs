//! Tenants with items of different lengths, on one pool or on one pool per tenant.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use afterwork::params::Params;
use afterwork::workqueue::{Group, Workqueue};
use sync::time::cycles;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use top::exit::Stop;
use topology::Topology;

use crate::bench::workqueue::ours::Pools;
use crate::bench::workqueue::peers::{Peer, Tokio};
use crate::bench::workqueue::subject::OneShotPool;
use crate::harness::latency::Latencies;

/// The number of tenants. Tenant `t`, counted from 0, has `t + 1` shares.
pub const NR_TENANTS: usize = 8;

const LENGTHS_US: [u64; NR_TENANTS] = [1000, 10, 3000, 100, 30, 10_000, 300, 50];

const FLOODER: usize = 0;
const FLOOD: usize = 128;

const REQUEST_US: u64 = 10;
const REQUEST_EVERY: Duration = Duration::from_micros(500);

pub fn shares(tenant: usize) -> usize {
    tenant + 1
}

pub trait Tenants: Send + Sync + 'static {
    fn send(&self, tenant: usize, work: impl FnOnce() + Send + 'static);
}

pub struct Queues {
    // The queues are declared before the pools, so that they are dropped first.
    queues: Vec<[Workqueue; 2]>,
    _pools: Pools,
    next: AtomicUsize,
}

impl Queues {
    /// Builds the queues. Each tenant has a group with its shares, or the queues are in no group.
    pub fn start(topology: &Topology, grouped: bool) -> Result<Self, Stop> {
        let failed = Stop::because("cannot build a tenant's queue");
        let pools = Pools::start(topology, Params::default())?;
        let tenant = |tenant| {
            let group = Group::builder("tenant").shares(shares(tenant) as u32);
            let group = group.build_in(&pools).map_err(&failed)?;
            let build = || {
                let builder = Workqueue::builder("tenant");
                let builder = if grouped { builder.group(&group) } else { builder };
                builder.build_in(&pools).map_err(&failed)
            };
            Ok([build()?, build()?])
        };
        let queues = (0..NR_TENANTS).map(tenant).collect::<Result<_, Stop>>()?;
        Ok(Self { queues, _pools: pools, next: AtomicUsize::new(0) })
    }
}

impl Tenants for Queues {
    fn send(&self, tenant: usize, work: impl FnOnce() + Send + 'static) {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % 2;
        self.queues[tenant][at].spawn_detached(work).unwrap();
    }
}

pub struct Semaphores {
    runtime: Runtime,
    permits: Vec<Arc<Semaphore>>,
}

impl Semaphores {
    pub fn start(workers: usize) -> Result<Self, Stop> {
        let Tokio(runtime) = Tokio::start(workers)?;
        let permits = (0..NR_TENANTS).map(|it| Arc::new(Semaphore::new(shares(it)))).collect();
        Ok(Self { runtime, permits })
    }
}

impl Tenants for Semaphores {
    fn send(&self, tenant: usize, work: impl FnOnce() + Send + 'static) {
        let permits = self.permits[tenant].clone();
        self.runtime.spawn(async move {
            let _permit = permits.acquire_owned().await;
            work();
        });
    }
}

pub struct PoolEach<P>(Vec<P>);

impl<P> PoolEach<P> {
    pub fn start(start: impl Fn(usize) -> Result<P, Stop>) -> Result<Self, Stop> {
        Ok(Self((0..NR_TENANTS).map(|it| start(shares(it))).collect::<Result<_, _>>()?))
    }
}

impl<P: OneShotPool + Send + Sync + 'static> Tenants for PoolEach<P> {
    fn send(&self, tenant: usize, work: impl FnOnce() + Send + 'static) {
        self.0[tenant].submit(work);
    }
}

/// Computes for about `us` microseconds of CPU time.
pub fn compute(us: u64) {
    static PER_US: OnceLock<u64> = OnceLock::new();
    fn rounds(nr: u64) {
        let mut state = 1_u64;
        for _ in 0..nr {
            state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
    let per_us = PER_US.get_or_init(|| {
        const NR: u64 = 1_000_000;
        let timed = |_| {
            let start = Instant::now();
            rounds(NR);
            start.elapsed()
        };
        // The shortest of a few attempts was probably not preempted.
        let shortest = (0..5).map(timed).min().unwrap_or_default();
        (NR / (shortest.as_micros() as u64).max(1)).max(1)
    });
    rounds(us * per_us);
}

struct Arena<T> {
    tenants: T,
    is_over: AtomicBool,
    done: [AtomicU64; NR_TENANTS],
}

/// The number of items that are queued or running. The pools are dropped once it is zero.
type InFlight = Arc<AtomicUsize>;

impl<T: Tenants> Arena<T> {
    fn new(tenants: T) -> Arc<Self> {
        Arc::new(Self { tenants, is_over: AtomicBool::new(false), done: Default::default() })
    }

    fn keep_busy(self: &Arc<Self>, tenant: usize, count: usize, in_flight: &InFlight) {
        for _ in 0..count {
            self.clone().add(tenant, in_flight.clone());
        }
    }

    fn add(self: Arc<Self>, tenant: usize, in_flight: InFlight) {
        in_flight.fetch_add(1, Ordering::Relaxed);
        let arena = self.clone();
        self.tenants.send(tenant, move || {
            compute(LENGTHS_US[tenant]);
            arena.done[tenant].fetch_add(1, Ordering::Relaxed);
            if arena.is_over.load(Ordering::Relaxed) {
                drop(arena);
            } else {
                arena.add(tenant, in_flight.clone());
            }
            // This is the last step of an item, so that no item drops its own pool.
            in_flight.fetch_sub(1, Ordering::Release);
        });
    }

    fn done(&self) -> [u64; NR_TENANTS] {
        self.done.each_ref().map(|it| it.load(Ordering::Relaxed))
    }

    /// Queues items of all tenants except the flooder, in turn, for `time`. Returns the times of
    /// the items. A thread that is woken late queues fewer items.
    fn time(self: &Arc<Self>, time: Duration, in_flight: &InFlight) -> Latencies {
        let most = (time.as_micros() / REQUEST_EVERY.as_micros()).max(1) as usize;
        let times: Arc<[(AtomicU64, AtomicU64)]> = (0..most).map(|_| Default::default()).collect();
        let nr_left = InFlight::default();
        let (start, mut count) = (Instant::now(), 0);
        for nth in 0..most {
            if nth > 0 && start.elapsed() >= time {
                break;
            }
            sleep(REQUEST_EVERY);
            count += 1;
            nr_left.fetch_add(1, Ordering::Relaxed);
            let (times, nr_left, in_flight) = (times.clone(), nr_left.clone(), in_flight.clone());
            in_flight.fetch_add(1, Ordering::Relaxed);
            times[nth].0.store(cycles(), Ordering::Relaxed);
            self.tenants.send((FLOODER + 1 + nth % (NR_TENANTS - 1)) % NR_TENANTS, move || {
                compute(REQUEST_US);
                times[nth].1.store(cycles(), Ordering::Relaxed);
                nr_left.fetch_sub(1, Ordering::Release);
                in_flight.fetch_sub(1, Ordering::Release);
            });
        }
        while nr_left.load(Ordering::Acquire) > 0 {
            sleep(Duration::from_micros(100));
        }
        let mut latencies = Latencies::with_capacity_for(count);
        for (start, end) in &times[..count] {
            latencies.push(start.load(Ordering::Relaxed), end.load(Ordering::Relaxed));
        }
        latencies
    }

    fn end(self: Arc<Self>, in_flight: &InFlight) {
        self.is_over.store(true, Ordering::Relaxed);
        while in_flight.load(Ordering::Acquire) > 0 {
            sleep(Duration::from_micros(100));
        }
    }
}

/// Keeps all tenants busy for `time`. Returns each tenant's part of the CPU time, divided by its
/// due part.
pub fn parts<T: Tenants>(tenants: T, time: Duration, least: usize) -> [f64; NR_TENANTS] {
    compute(0);
    let (arena, in_flight) = (Arena::new(tenants), InFlight::default());
    for tenant in 0..NR_TENANTS {
        let count = if tenant == FLOODER { FLOOD.max(least) } else { least };
        arena.keep_busy(tenant, count, &in_flight);
    }
    sleep(time / 8);
    let before = arena.done();
    sleep(time);
    let after = arena.done();
    arena.end(&in_flight);
    let used: [u64; NR_TENANTS] =
        std::array::from_fn(|it| (after[it] - before[it]) * LENGTHS_US[it]);
    let all = used.iter().sum::<u64>().max(1) as f64;
    let all_shares = (0..NR_TENANTS).map(shares).sum::<usize>() as f64;
    std::array::from_fn(|it| used[it] as f64 / all / (shares(it) as f64 / all_shares))
}

pub fn flood<T: Tenants>(tenants: T, time: Duration) -> [Latencies; 2] {
    compute(0);
    let (arena, in_flight) = (Arena::new(tenants), InFlight::default());
    let alone = arena.time(time, &in_flight);
    arena.keep_busy(FLOODER, FLOOD, &in_flight);
    let flooded = arena.time(time, &in_flight);
    arena.end(&in_flight);
    [alone, flooded]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_all_tenants_are_their_shares_of_one() {
        let topology = Topology::synthetic("2 core").unwrap();
        let parts = parts(Queues::start(&topology, true).unwrap(), Duration::from_millis(100), 4);
        let all = 36.0;
        let sum: f64 = parts.iter().enumerate().map(|(it, part)| part * shares(it) as f64).sum();
        assert!((sum / all - 1.0).abs() < 1e-9, "{parts:?}");
    }

    #[test]
    fn every_timed_item_is_counted() {
        for latencies in flood(Semaphores::start(2).unwrap(), Duration::from_millis(10)) {
            let [least, most] = latencies.percentiles_ns([0.0, 100.0]).unwrap();
            assert!(0.0 < least && least <= most);
        }
    }
}
