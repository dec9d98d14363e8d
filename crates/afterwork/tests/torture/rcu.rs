//! Torture of grace periods: versions are replaced, and no reader may see a freed one.
//!
//! `cargo xtask torture rcu --config TREE03 --minutes 5 --seed 7`
//!
//! `--twin BUG` injects a bug, which must cause a fault. The bugs are those of [`TWINS`]. With
//! `--hostile --asan`, in any configuration, they also include `rcu: a sweep overlooks its own
//! section` and `srcu: a refused callback is dropped`.

mod hostile_rcu;
mod rcu_flavor;
mod rcu_versions;
mod support;

use afterwork::rcu::srcu::{Domain, OwnedGuard};
use hostile_rcu::Den;
use rcu_flavor::{Flavor, Qsbr, Srcu, Tree};
use rcu_versions::{Seen, Versions};

use crate::support::*;

/// Number of consecutive sections between two random choices, in most configurations.
const BURST: usize = 200;
/// Maximum number of reads in such a section. They take 300 ns; a store reaches another CPU sooner.
const LOOKS: usize = 400;
/// Maximum number of spin hints between such sections: up to 4 us, the time of a few grace periods.
const PAUSES: usize = 200;
const NR_HOSTILE: usize = 2;
/// Number of callbacks in a flood before it waits for them.
const FLOOD: u64 = 500;

#[derive(Clone, Copy)]
enum Kind {
    Tree,
    Qsbr,
    Srcu,
}

/// A configuration: the flavor and its threads. All other choices are random.
struct Config {
    name: &'static str,
    kind: Kind,
    nr_readers: usize,
    /// Number of threads that request grace periods and free no version.
    nr_fakes: usize,
    /// Number of short sections between two random choices; one choice in 16 is a long section.
    burst: usize,
    /// Set if threads start, read once, and exit.
    has_churn: bool,
    has_hotplug: bool,
    /// Set if readers sometimes stay in a section for milliseconds.
    has_stalls: bool,
    /// Set if callbacks are queued by the hundred, with barriers.
    has_floods: bool,
    /// Set if guards are dropped on other threads, in flavors with such guards.
    has_travel: bool,
}

const fn tree(name: &'static str, nr_readers: usize, nr_fakes: usize) -> Config {
    Config {
        name,
        kind: Kind::Tree,
        nr_readers,
        nr_fakes,
        burst: BURST,
        has_churn: true,
        has_hotplug: false,
        has_stalls: false,
        has_floods: true,
        has_travel: true,
    }
}

const fn plain(name: &'static str, nr_readers: usize, nr_fakes: usize) -> Config {
    let tree = tree(name, nr_readers, nr_fakes);
    Config { has_churn: false, has_floods: false, has_travel: false, ..tree }
}

/// Configurations with the names of the kernel's most similar ones. The default is the most varied.
const CONFIGS: [Config; 10] = [
    Config { has_hotplug: true, has_stalls: true, ..tree("TREE03", 8, 4) },
    Config { has_hotplug: true, ..tree("TREE01", 4, 2) },
    Config { has_stalls: true, ..tree("TREE04", 16, 2) },
    Config { has_churn: false, has_floods: false, ..tree("TREE07", 2, 1) },
    Config { has_churn: false, ..tree("TINY01", 1, 0) },
    // The kernel has no such configuration, because its scheduler reports quiescent states.
    Config {
        kind: Kind::Qsbr,
        burst: 8,
        has_hotplug: true,
        has_stalls: true,
        ..tree("QSBR01", 6, 2)
    },
    Config { kind: Kind::Srcu, has_hotplug: true, has_stalls: true, ..tree("SRCU-P", 8, 4) },
    Config { kind: Kind::Srcu, ..tree("SRCU-N", 4, 2) },
    Config { kind: Kind::Srcu, ..plain("SRCU-T", 1, 0) },
    // The kernel has no such configuration: many long sections, and many grace periods that flip.
    Config { kind: Kind::Srcu, burst: 1, ..plain("SRCU-L", 4, 2) },
];

/// Injectable bugs, and the configuration that finds each within a minute on two CPUs.
#[cfg(torture)]
const TWINS: [(&str, &str); 13] = [
    ("rcu: no heavy barrier", "TREE07"),
    ("rcu: callbacks without a grace period", "TREE01"),
    ("rcu: barrier joins a running sweep", "TREE03"),
    ("rcu: a bag is left open", "TREE03"),
    ("rcu: a holdout is not counted", "TREE03"),
    ("rcu: the driver wakes early", "TREE03"),
    ("rcu: the newest reader is skipped", "TREE07"),
    ("qsbr: reports inside a section", "QSBR01"),
    ("rcu: a callback is lost", "TREE03"),
    ("srcu: single flip", "SRCU-L"),
    ("srcu: a callback is lost", "SRCU-P"),
    ("srcu: parity read again at the end", "SRCU-P"),
    ("srcu: no fence before the sums", "SRCU-T"),
];

fn main() -> ExitCode {
    #[cfg(torture)]
    if std::env::args().any(|word| word == "--twins") {
        for (twin, config) in TWINS {
            println!("{config}\t{twin}");
        }
        return ExitCode::SUCCESS;
    }
    let names: Vec<_> = CONFIGS.iter().map(|config| config.name).collect();
    support::torture("grace periods", &names, |round, totals: &mut Totals| {
        let config = CONFIGS.iter().find(|config| config.name == round.config);
        let config = config.expect("the command line was checked");
        match config.kind {
            Kind::Tree => Scene::new(config, totals, Tree).run(round),
            Kind::Qsbr => Scene::new(config, totals, Qsbr).run(round),
            Kind::Srcu => Scene::new(config, totals, Srcu(Domain::new())).run(round),
        }
    })
}

#[derive(Debug, Default)]
struct Totals {
    nr_sections: AtomicU64,
    nr_replaced: AtomicU64,
    nr_fakes: AtomicU64,
    nr_callbacks: AtomicU64,
    nr_threads: AtomicU64,
}

struct Scene<'a, F> {
    config: &'static Config,
    totals: &'a Totals,
    flavor: F,
    versions: Arc<Versions>,
    travelling: Mutex<Vec<(OwnedGuard, Seen)>>,
    nr_flooded: AtomicU64,
    nr_called: Arc<AtomicU64>,
}

impl<'a, F: Flavor> Scene<'a, F> {
    fn new(config: &'static Config, totals: &'a Totals, flavor: F) -> Self {
        Self {
            config,
            totals,
            flavor,
            versions: Arc::default(),
            travelling: Mutex::default(),
            nr_flooded: AtomicU64::new(0),
            nr_called: Arc::default(),
        }
    }

    fn run(self, round: &Round<'_>) {
        let config = self.config;
        let den = hostile::is_on().then(|| Den::new(&mut Dice::of_thread(round.seed, 300)));
        let meanwhile = |elapsed| {
            // Some threads still wait for sections that are left to other threads.
            if elapsed >= ROUND {
                self.end_travelling();
                hostile::clean_up();
            }
            let pause = ROUND.saturating_sub(elapsed);
            thread::sleep(pause.max(Duration::from_micros(100)));
        };
        Crew::run(round, meanwhile, |crew| {
            for i in 0..config.nr_readers {
                crew.repeat(i, |dice| self.read(dice));
            }
            for i in 0..config.nr_fakes {
                crew.repeat(100 + i, |dice| self.fake(dice));
            }
            crew.repeat(200, |dice| self.write(dice));
            if config.has_churn {
                crew.repeat(201, |_| self.churn());
            }
            if config.has_floods {
                crew.repeat(202, |_| self.flood());
            }
            if let Some(den) = &den {
                crew.repeat_hostile(301..301 + NR_HOSTILE, |dice| den.act(dice));
            }
        });
        // Guards that no thread took would block the barrier.
        while self.end_travelling() {}
        if let Some(den) = den {
            watched("ending what is hostile", || den.end());
        }
        self.flavor.barrier();
        let nr_callbacks = self.nr_called.load(Ordering::Relaxed);
        assert_eq!(nr_callbacks, self.nr_flooded.into_inner(), "a callback was lost");
        self.versions.assert_all_free();
        self.totals.nr_callbacks.fetch_add(nr_callbacks, Ordering::Relaxed);
    }

    fn read(&self, dice: &mut Dice) {
        self.wander(dice);
        // The sections are consecutive, or a pause makes the reader idle.
        let (nr_looks, nr_pauses) = (dice.below(LOOKS), dice.below(2) * dice.below(PAUSES));
        for _ in 0..self.config.burst {
            let guard = self.flavor.read();
            let seen = self.versions.look();
            for _ in 0..=nr_looks {
                self.versions.check(seen);
            }
            drop(guard);
            for _ in 0..nr_pauses {
                std::hint::spin_loop();
            }
        }
        let burst = self.config.burst as u64;
        self.totals.nr_sections.fetch_add(burst, Ordering::Relaxed);
        match dice.below(16) {
            0 => self.read_long(dice),
            1 => self.read_nested(),
            2 if self.config.has_travel => self.send_guard(),
            // This is an extended quiescent state, or a pause long enough to count as one.
            3 => {
                let span = Duration::from_micros(dice.below(300) as u64);
                self.flavor.rest(|| thread::sleep(span));
            }
            _ => {}
        }
    }

    fn read_long(&self, dice: &mut Dice) {
        let guard = self.flavor.read();
        let seen = self.versions.look();
        for _ in 0..dice.below(50) {
            thread::yield_now();
            self.versions.check(seen);
        }
        if self.config.has_stalls && dice.below(50) == 0 {
            thread::sleep(Duration::from_millis(dice.below(10) as u64));
        }
        self.versions.check(seen);
        drop(guard);
    }

    fn read_nested(&self) {
        let outer = self.flavor.read();
        let seen = self.versions.look();
        let inner = self.flavor.read();
        thread::yield_now();
        drop(outer);
        // The two guards may end in either order.
        thread::yield_now();
        self.versions.check(seen);
        drop(inner);
    }

    /// Leaves a section for another thread to end, and ends one that another thread left.
    fn send_guard(&self) {
        let Some(guard) = self.flavor.read_owned() else {
            return;
        };
        let seen = self.versions.look();
        self.end_travelling();
        self.travelling.lock().unwrap().push((guard, seen));
    }

    /// Ends a section that another thread left. Returns `true` if there was one.
    fn end_travelling(&self) -> bool {
        let arrived = self.travelling.lock().unwrap().pop();
        arrived.inspect(|(_, seen)| self.versions.check(*seen)).is_some()
    }

    fn write(&self, dice: &mut Dice) {
        let Some(old) = self.versions.replace() else {
            // All versions wait for callbacks.
            self.end_travelling();
            return thread::yield_now();
        };
        self.totals.nr_replaced.fetch_add(1, Ordering::Relaxed);
        match dice.below(8) {
            0 => {
                let versions = self.versions.clone();
                return self.flavor.call(move || versions.free(old));
            }
            1 => {
                let cookie = self.flavor.get_state();
                thread::yield_now();
                self.flavor.cond_synchronize(cookie);
            }
            2 => {
                let cookie = self.flavor.get_state();
                for _ in 0..dice.below(100) {
                    if self.flavor.poll_state(&cookie) {
                        break;
                    }
                    thread::yield_now();
                }
                if !self.flavor.poll_state(&cookie) {
                    self.flavor.synchronize();
                }
            }
            _ => self.flavor.synchronize(),
        }
        self.versions.free(old);
    }

    fn fake(&self, dice: &mut Dice) {
        self.wander(dice);
        match dice.below(4) {
            0 => self.flavor.cond_synchronize(self.flavor.get_state()),
            1 => thread::sleep(Duration::from_micros(dice.below(200) as u64)),
            _ => self.flavor.synchronize(),
        }
        self.end_travelling();
        self.totals.nr_fakes.fetch_add(1, Ordering::Relaxed);
    }

    fn flood(&self) {
        for _ in 0..FLOOD {
            let nr_called = self.nr_called.clone();
            self.flavor.call(move || _ = nr_called.fetch_add(1, Ordering::Relaxed));
        }
        let nr_flooded = self.nr_flooded.fetch_add(FLOOD, Ordering::Relaxed) + FLOOD;
        self.flavor.barrier();
        let nr_called = self.nr_called.load(Ordering::Relaxed);
        assert_eq!(nr_called, nr_flooded, "the barrier missed a callback");
        thread::sleep(Duration::from_millis(1));
    }

    fn churn(&self) {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let guard = self.flavor.read();
                    let seen = self.versions.look();
                    thread::yield_now();
                    self.versions.check(seen);
                    drop(guard);
                });
            }
        });
        self.totals.nr_threads.fetch_add(2, Ordering::Relaxed);
    }

    fn wander(&self, dice: &mut Dice) {
        if self.config.has_hotplug && dice.below(8) == 0 {
            wander(dice);
        }
    }
}
