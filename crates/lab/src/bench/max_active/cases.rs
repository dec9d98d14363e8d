//! The cases: sizes and variants.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use afterwork::params::Params;
use afterwork::workqueue::{self, Builder, MAX_ACTIVE, MaxActiveScope, Registry};
use clap::Args;
use sync::hint::spin_loop;
use sync::time::{cycles, cycles_per_us};
use top::exit::Stop;

use super::claims;
use super::crew::{
    self, BLOCKING, BLOCKING_768, Crew, RAYON_EACH, THREADS_8, THREADS_768, THREADS_EACH,
};
use super::drive::{Body, Drive};
use super::joins::{self, BufferPool, NR_INNER, NR_OUTER, Table};
use super::metrics::{ALL, HEADLINE, LATENCY_P99};
use crate::bench::settings::{Menu, Settings, count};
use crate::harness::case::{Case, RunFn, Variant};
use crate::harness::claim::Claim;

const BENCH: &str = "max-active";
const JOINS: &str = "joins";
const SUBSYSTEMS: &str = "subsystems";
const SHARES: &str = "shares";

/// The names of the cases and peers.
pub const MENU: Menu = Menu { cases: &[JOINS, SUBSYSTEMS, SHARES], peers: &crew::NAMES };

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

/// The names of our variants: the scope of the limit (system or CPU) and its value.
pub const SYSTEM_8: &str = "system-8";
/// See [`SYSTEM_8`].
pub const SYSTEM_16: &str = "system-16";
/// The total of the per-CPU limit of 8 on 96 CPUs that the kernel's measurement used, spread over
/// all CPUs.
pub const PER_CPU_MANY: &str = "per-cpu (768)";
const PER_CPU_8: &str = "per-cpu-8";
/// One queue for each subsystem.
pub const OURS: &str = "afterwork";
/// One queue with shares for each subsystem.
pub const SHARING: &str = "afterwork shares";
/// One queue in its own registry for each subsystem, so that each has its own pool.
pub const POOL_EACH: &str = "afterwork pool each";

/// The total limit in the kernel's measurement.
const MANY: usize = 768;

/// The number of items in flight, which is more than the largest limit.
const ON_THEIR_WAY: usize = 1024;

/// The number of joins in a run. With this number, many joins are in progress most of the time.
const NR_JOINS: usize = 1024;
const NR_JOINS_QUICK: usize = 512;

const NR_SUBSYSTEMS: usize = 8;
const LIMIT: usize = 16;

/// The number of items of each subsystem in flight, which is twice its limit.
const ITEMS_ON_THEIR_WAY: usize = 2 * LIMIT;

/// The number of items of each subsystem in a run, which takes a few tenths of a second.
const NR_ITEMS: usize = 1500;
const NR_ITEMS_QUICK: usize = 600;

/// The number of items of each subsystem that does not flood, their interval, and the number of
/// items that the flood keeps in flight.
const NR_REQUESTS: usize = 300;
const NR_REQUESTS_QUICK: usize = 100;
const REQUEST_EVERY: Duration = Duration::from_millis(4);
const FLOOD_ON_ITS_WAY: usize = 1024;

/// The computing time of an item. One item in `WAITS` also waits for the duration `DEVICE`.
const COMPUTE_US: u64 = 100;
const WAITS: usize = 16;
const DEVICE: Duration = Duration::from_millis(1);

/// Creates the cases that `args` select.
#[must_use]
pub fn cases(args: &MaxActiveArgs, settings: &Settings) -> Vec<Case> {
    let setting = Setting { settings: settings.clone(), args: args.clone() };
    settings.make(MENU, |name| match name {
        JOINS => setting.joins(),
        SUBSYSTEMS => setting.subsystems(),
        _ => setting.shares(),
    })
}

struct Setting {
    settings: Settings,
    args: MaxActiveArgs,
}

type Crews = Result<Vec<Arc<dyn Crew>>, Stop>;

impl Setting {
    fn items(&self, default: usize, quick: usize) -> usize {
        self.settings.size(self.args.items, default, quick)
    }

    fn dir(&self) -> PathBuf {
        self.args.dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// Returns a drive of `items` items for each crew.
    fn drive(&self, items: usize, on_their_way: usize, every: Option<Duration>) -> Drive {
        Drive { items, on_their_way, every, interrupt: self.settings.interrupt.clone() }
    }

    fn registry(&self) -> impl Fn() -> Result<Registry, Stop> + Clone + 'static {
        let topology = self.settings.topology.clone();
        // Like the peers, this allows one thread for each item of the largest limit.
        let params = Params { max_workers: MANY + self.settings.cpus.len(), ..Params::default() };
        move || {
            Registry::new(topology.clone(), params.clone())
                .map_err(|error| Stop::because("cannot start a registry", error))
        }
    }

    /// Returns a function that creates a queue for each subsystem in one registry.
    fn queues(&self, describe: fn(Builder) -> Builder) -> impl Fn() -> Crews + 'static {
        let registry = self.registry();
        move || {
            let registry = registry()?;
            each(|| crew::queue(&registry, LIMIT, describe))
        }
    }

    fn joins(&self) -> Case {
        let items = self.items(NR_JOINS, NR_JOINS_QUICK);
        let drive = self.drive(items, ON_THEIR_WAY, None);
        let dir = self.dir();
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
            "{items} joins of {NR_INNER} inner blocks of {} KiB, each needed {NR_OUTER} times, through one buffer \
             pool; {ON_THEIR_WAY} on their way",
            joins::BLOCK / 1024
        );
        let variants = self.limits(&drive, &open);
        case(JOINS, about, variants, claims::joins())
    }

    /// Returns variants with system-wide and per-CPU limits, and pools with the same number of
    /// threads.
    fn limits<O>(&self, drive: &Drive, open: &O) -> Vec<Variant>
    where
        O: Fn() -> Result<Body, Stop> + Clone + 'static,
    {
        let queue = |max: usize, meant_for: MaxActiveScope| {
            let registry = self.registry();
            move || -> Crews {
                Ok(vec![crew::queue(&registry()?, max, |it| it.max_active_scope(meant_for))?])
            }
        };
        let system = |max: usize| queue(max, MaxActiveScope::System);
        let per_cpu = |max: usize| queue(max, MaxActiveScope::Cpu);
        let each = (MANY / self.settings.cpus.len()).clamp(1, MAX_ACTIVE as usize);
        let peer = |name, hire: fn() -> Crews| Variant::peer(name, run(drive, open.clone(), hire));
        vec![
            Variant::ours(SYSTEM_8, run(drive, open.clone(), system(8))),
            Variant::ours(SYSTEM_16, run(drive, open.clone(), system(16))),
            Variant::ours(PER_CPU_8, run(drive, open.clone(), per_cpu(8))),
            Variant::ours(PER_CPU_MANY, run(drive, open.clone(), per_cpu(each))),
            peer(THREADS_8, || Ok(vec![crew::threads(8)?])),
            peer(THREADS_768, || Ok(vec![crew::threads(MANY)?])),
            peer(BLOCKING_768, || Ok(vec![crew::blocking(MANY)?])),
        ]
    }

    fn subsystems(&self) -> Case {
        let items = self.items(NR_ITEMS, NR_ITEMS_QUICK);
        let drive = self.drive(items, ITEMS_ON_THEIR_WAY, None);
        let all = NR_SUBSYSTEMS * LIMIT;
        let peer = |name, hire: fn() -> Crews| Variant::peer(name, run(&drive, mixed, hire));
        let variants = vec![
            Variant::ours(OURS, run(&drive, mixed, self.queues(|it| it))),
            peer(THREADS_EACH, || each(|| crew::threads(LIMIT))),
            peer(BLOCKING, || Ok(vec![crew::blocking(NR_SUBSYSTEMS * LIMIT)?; NR_SUBSYSTEMS])),
            peer(RAYON_EACH, || each(|| crew::rayon(LIMIT))),
        ];
        let about = format!(
            "{NR_SUBSYSTEMS} subsystems of {items} items and a limit of {LIMIT} (together {all}): {COMPUTE_US} us \
             each, one in {WAITS} waits {} ms",
            DEVICE.as_millis()
        );
        case(SUBSYSTEMS, about, variants, claims::subsystems())
    }

    fn shares(&self) -> Case {
        let items = self.items(NR_REQUESTS, NR_REQUESTS_QUICK);
        let drive = self.drive(items, FLOOD_ON_ITS_WAY, Some(REQUEST_EVERY));
        let compute = || -> Result<Body, Stop> {
            Ok(Arc::new(|_| {
                burn(COMPUTE_US);
                Ok(())
            }))
        };
        let registry = self.registry();
        let pool_each = move || each(|| crew::queue(&registry()?, LIMIT, |it| it));
        let peer = |name, hire: fn() -> Crews| Variant::peer(name, run(&drive, compute, hire));
        let variants = vec![
            Variant::ours(SHARING, run(&drive, compute, self.queues(|it| it.shares(100)))),
            Variant::ours(OURS, run(&drive, compute, self.queues(|it| it))),
            Variant::ours(POOL_EACH, run(&drive, compute, pool_each)),
            peer(THREADS_EACH, || each(|| crew::threads(LIMIT))),
            peer(RAYON_EACH, || each(|| crew::rayon(LIMIT))),
        ];
        let about = format!(
            "{NR_SUBSYSTEMS} subsystems with a limit of {LIMIT}, items of {COMPUTE_US} us: one keeps {FLOOD_ON_ITS_WAY} in \
            flight, each other one queues one every {} ms, {items} in total, which are timed",
            REQUEST_EVERY.as_millis()
        );
        Case { headline: LATENCY_P99.name, ..case(SHARES, about, variants, claims::shares()) }
    }
}

/// Hires a crew for each subsystem.
fn each(hire: impl FnMut() -> Result<Arc<dyn Crew>, Stop>) -> Crews {
    std::iter::repeat_with(hire).take(NR_SUBSYSTEMS).collect()
}

fn case(name: &'static str, about: String, variants: Vec<Variant>, claims: Vec<Claim>) -> Case {
    Case { about, variants, claims, ..Case::new(BENCH, name, ALL, HEADLINE) }
}

/// Returns a run that executes the body from `open` on the crews from `hire`.
fn run(
    drive: &Drive,
    open: impl Fn() -> Result<Body, Stop> + 'static,
    hire: impl Fn() -> Crews + 'static,
) -> RunFn {
    let drive = drive.clone();
    Box::new(move || drive.run(&hire, &open()?))
}

/// Returns a body that computes and sometimes waits for a device.
fn mixed() -> Result<Body, Stop> {
    Ok(Arc::new(|number| {
        burn(COMPUTE_US);
        if number.is_multiple_of(WAITS) {
            workqueue::blocking(|| thread::sleep(DEVICE));
        }
        Ok(())
    }))
}

/// Keeps the CPU busy for `us` microseconds of wall-clock time.
fn burn(us: u64) {
    let end = cycles() + us * cycles_per_us();
    while cycles() < end {
        spin_loop();
    }
}
