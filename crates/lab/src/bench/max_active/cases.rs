//! The cases: sizes and variants.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use afterwork::params::Params;
use afterwork::workqueue::{self, Builder, MAX_ACTIVE, MaxActiveScope, Registry, Workqueue};
use clap::Args;
use top::exit::Stop;
use topology::AffinityScope;

use super::drive::{Body, Crew, Drive, burn, crew};
use super::joins::{self, BufferPool, NR_INNER, NR_OUTER, Table};
use super::metrics::{ALL, ITEMS, LATENCY_P99, MEMORY, THREADS};
use crate::bench::settings::{Entry, Menu, Settings, Sizes, count, names};
use crate::bench::workqueue::peers::{Peer, Rayon, SpawnBlocking, ThreadPool};
use crate::bench::workqueue::subject::OneShotPool;
use crate::harness::case::{Case, RunFn, Variant};
use crate::harness::claim::{Against, Claim};
use crate::harness::metric::Text;

const BENCH: &str = "max-active";
const CASES: [Entry<Setting>; 3] =
    [("joins", Setting::joins), ("subsystems", Setting::subsystems), ("shares", Setting::shares)];
pub const MENU: Menu = Menu { cases: &names(&CASES), peers: &PEERS };

const PEERS: [Text; 6] = [THREADS_8, THREADS_768, BLOCKING_768, THREADS_EACH, BLOCKING, RAYON_EACH];
const THREADS_8: &str = "threadpool-8";
const THREADS_768: &str = "threadpool-768";
const BLOCKING_768: &str = "spawn_blocking-768";
const THREADS_EACH: &str = "threadpool each";
const BLOCKING: &str = "spawn_blocking";
const RAYON_EACH: &str = "rayon each";

/// Options of `bench max-active`.
#[derive(Args, Clone, Debug, Default)]
pub struct MaxActiveArgs {
    /// Number of items in each run of a case [default: depends on the case and --quick]
    #[arg(long, value_name = "N", value_parser = count::<10_000_000>)]
    pub items: Option<usize>,

    /// Folder for the unnamed temporary file of `joins`, which is freed at the end of the run
    /// [default: the system's folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

const SYSTEM_8: &str = "system-8";
const SYSTEM_16: &str = "system-16";
/// The per-CPU limit of 8 on 96 CPUs of the kernel's measurement, spread over all CPUs.
const PER_CPU_MANY: &str = "per-cpu (768)";
const PER_CPU_8: &str = "per-cpu-8";
const OURS: &str = "afterwork";
const SHARING: &str = "afterwork shares";
const POOL_EACH: &str = "afterwork pool each";

const MANY: usize = 768;

/// The number of items in flight, which is more than the largest limit.
const ON_THEIR_WAY: usize = 1024;

const NR_JOINS: Sizes = [1024, 512];

const NR_SUBSYSTEMS: usize = 8;
const LIMIT: usize = 16;

const ITEMS_ON_THEIR_WAY: usize = 2 * LIMIT;

/// The number of items of each subsystem in a run, which takes a few tenths of a second.
const NR_ITEMS: Sizes = [1500, 600];

const NR_REQUESTS: Sizes = [300, 100];
const REQUEST_EVERY: Duration = Duration::from_millis(4);
const FLOOD_ON_ITS_WAY: usize = 1024;

const COMPUTE_US: u64 = 100;
const WAITS: usize = 16;
const DEVICE: Duration = Duration::from_millis(1);

pub fn cases(args: &MaxActiveArgs, settings: &Settings) -> Vec<Case> {
    let setting = Setting { settings: settings.clone(), args: args.clone() };
    settings.make(MENU, &CASES, &setting)
}

struct Setting {
    settings: Settings,
    args: MaxActiveArgs,
}

type Crews = Result<Vec<Crew>, Stop>;

impl Setting {
    fn drive(&self, items: Sizes, on_their_way: usize, every: Option<Duration>) -> Drive {
        let items = self.settings.size(self.args.items, items);
        Drive { items, on_their_way, every, interrupt: self.settings.interrupt.clone() }
    }

    fn registry(&self) -> impl Fn() -> Result<Registry, Stop> + Clone + 'static {
        let topology = self.settings.topology.clone();
        // Like the peers, this allows one thread for each item of the largest limit.
        let params = Params { max_workers: MANY + self.settings.cpus.len(), ..Params::default() };
        move || {
            Registry::new(topology.clone(), params.clone())
                .map_err(Stop::because("cannot start a registry"))
        }
    }

    fn queues(&self, describe: fn(Builder) -> Builder) -> impl Fn() -> Crews + 'static {
        let registry = self.registry();
        move || {
            let registry = registry()?;
            each(|| queue(&registry, LIMIT, describe))
        }
    }

    fn joins(&self, case: Text) -> Case {
        let drive = self.drive(NR_JOINS, ON_THEIR_WAY, None);
        let dir = self.args.dir.clone().unwrap_or_else(std::env::temp_dir);
        // The table is written once, before the first run.
        let table = Arc::new(Mutex::new(None));
        let open = move || -> Result<Body, Stop> {
            let mut table = table.lock().expect("no thread panics under it");
            let table = match &*table {
                Some(table) => Arc::clone(table),
                None => table.insert(Arc::new(Table::create(&dir)?)).clone(),
            };
            let pool = BufferPool::new(table);
            Ok(Arc::new(move |number| pool.join(number)))
        };
        let about = format!(
            "{} joins of {NR_INNER} inner blocks of {} KiB, each needed {NR_OUTER} times, through one buffer \
             pool; {ON_THEIR_WAY} on their way",
            drive.items,
            joins::BLOCK / 1024
        );
        let limited = |name, max: usize, meant_for: MaxActiveScope| {
            let registry = self.registry();
            let hire = move || alone(queue(&registry()?, max, |it| it.max_active_scope(meant_for)));
            Variant::ours(name, run(&drive, open.clone(), hire))
        };
        let each = (MANY / self.settings.cpus.len()).clamp(1, MAX_ACTIVE as usize);
        let peer = |name, hire: fn() -> Crews| Variant::peer(name, run(&drive, open.clone(), hire));
        let variants = vec![
            limited(SYSTEM_8, 8, MaxActiveScope::System),
            limited(SYSTEM_16, 16, MaxActiveScope::System),
            limited(PER_CPU_8, 8, MaxActiveScope::Cpu),
            limited(PER_CPU_MANY, each, MaxActiveScope::Cpu),
            peer(THREADS_8, || alone(ThreadPool::start(8))),
            peer(THREADS_768, || alone(ThreadPool::start(MANY))),
            peer(BLOCKING_768, || alone(SpawnBlocking::start(MANY))),
        ];
        let claims = vec![
            // With system-wide limits, the kernel became faster by this factor, rounded down.
            Claim::at_least(SYSTEM_8, ITEMS, PER_CPU_MANY, 1.9),
            Claim::at_most(SYSTEM_8, MEMORY, PER_CPU_MANY, 0.5),
        ];
        described(case, about, variants, claims)
    }

    fn subsystems(&self, case: Text) -> Case {
        let drive = self.drive(NR_ITEMS, ITEMS_ON_THEIR_WAY, None);
        let all = NR_SUBSYSTEMS * LIMIT;
        let peer = |name, hire: fn() -> Crews| Variant::peer(name, run(&drive, mixed, hire));
        let variants = vec![
            Variant::ours(OURS, run(&drive, mixed, self.queues(|it| it))),
            peer(THREADS_EACH, || each(|| ThreadPool::start(LIMIT))),
            peer(BLOCKING, || {
                Ok(vec![crew(SpawnBlocking::start(NR_SUBSYSTEMS * LIMIT))?; NR_SUBSYSTEMS])
            }),
            peer(RAYON_EACH, || each(|| Rayon::start(LIMIT))),
        ];
        let about = format!(
            "{NR_SUBSYSTEMS} subsystems of {} items and a limit of {LIMIT} (together {all}): {COMPUTE_US} us \
             each, one in {WAITS} waits {} ms",
            drive.items,
            DEVICE.as_millis()
        );
        let claims = vec![
            Claim::at_most(OURS, THREADS, Against::BestPeer, 0.25),
            Claim::at_most(OURS, LATENCY_P99, Against::BestPeer, 0.5),
            Claim::at_least(OURS, ITEMS, Against::BestPeer, 1.0),
        ];
        described(case, about, variants, claims)
    }

    fn shares(&self, case: Text) -> Case {
        let drive = self.drive(NR_REQUESTS, FLOOD_ON_ITS_WAY, Some(REQUEST_EVERY));
        let compute = || -> Result<Body, Stop> {
            Ok(Arc::new(|_| {
                burn(COMPUTE_US);
                Ok(())
            }))
        };
        let registry = self.registry();
        let pool_each = move || each(|| queue(&registry()?, LIMIT, |it| it));
        let peer = |name, hire: fn() -> Crews| Variant::peer(name, run(&drive, compute, hire));
        let variants = vec![
            Variant::ours(SHARING, run(&drive, compute, self.queues(|it| it.shares(100)))),
            Variant::ours(OURS, run(&drive, compute, self.queues(|it| it))),
            Variant::ours(POOL_EACH, run(&drive, compute, pool_each)),
            peer(THREADS_EACH, || each(|| ThreadPool::start(LIMIT))),
            peer(RAYON_EACH, || each(|| Rayon::start(LIMIT))),
        ];
        let about = format!(
            "{NR_SUBSYSTEMS} subsystems with a limit of {LIMIT}, items of {COMPUTE_US} us: one keeps {FLOOD_ON_ITS_WAY} in \
            flight, each other one queues one every {} ms, {} in total, which are timed",
            REQUEST_EVERY.as_millis(),
            drive.items
        );
        let claims = vec![
            Claim::at_most(SHARING, LATENCY_P99, OURS, 0.5),
            Claim::at_most(SHARING, THREADS, Against::BestPeer, 0.25),
        ];
        Case { headline: LATENCY_P99.name, ..described(case, about, variants, claims) }
    }
}

fn queue(
    registry: &Registry,
    max_active: usize,
    describe: impl FnOnce(Builder) -> Builder,
) -> Result<Workqueue, Stop> {
    let builder = Workqueue::builder("max-active")
        .affinity(AffinityScope::System)
        .max_active(max_active as u32);
    let queue = describe(builder).build_in(registry);
    queue.map_err(Stop::because("cannot build a queue"))
}

fn each<P: OneShotPool + Send + 'static>(hire: impl Fn() -> Result<P, Stop>) -> Crews {
    (0..NR_SUBSYSTEMS).map(|_| crew(hire())).collect()
}

fn alone<P: OneShotPool + Send + 'static>(pool: Result<P, Stop>) -> Crews {
    Ok(vec![crew(pool)?])
}

fn described(name: Text, about: String, variants: Vec<Variant>, claims: Vec<Claim>) -> Case {
    Case { about, variants, claims, ..Case::new(BENCH, name, ALL, ITEMS.name) }
}

fn run(
    drive: &Drive,
    open: impl Fn() -> Result<Body, Stop> + 'static,
    hire: impl Fn() -> Crews + 'static,
) -> RunFn {
    let drive = drive.clone();
    Box::new(move || drive.run(&hire, &open()?))
}

fn mixed() -> Result<Body, Stop> {
    Ok(Arc::new(|number| {
        burn(COMPUTE_US);
        if number.is_multiple_of(WAITS) {
            workqueue::blocking(|| thread::sleep(DEVICE));
        }
        Ok(())
    }))
}
