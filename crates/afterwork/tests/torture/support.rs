//! The parts of every torture program: a command line, random rounds, and a watchdog for each.
//!
//! A program is a test target named `torture_NAME`, without a harness. Its `main` is one call to
//! [`torture`]. The seed of a round determines its random choices and those of its threads, but not
//! the interleaving of the threads.

// No program uses all of these items.
#![allow(dead_code, unused_imports)]

#[path = "../support/dice.rs"]
mod dice;
#[path = "hostile.rs"]
pub mod hostile;
#[path = "options.rs"]
mod options;

pub use std::any::Any;
pub use std::backtrace::Backtrace;
pub use std::cell::{Cell, RefCell};
pub use std::fmt::Debug;
pub use std::future::Future;
pub use std::ops::Range;
pub use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
pub use std::path::Path;
pub use std::pin::{Pin, pin};
pub use std::process::ExitCode;
pub use std::ptr::NonNull;
pub use std::sync::atomic::*;
pub use std::sync::mpsc::{self, RecvTimeoutError, channel};
pub use std::sync::{Arc, Mutex, OnceLock};
pub use std::task::{Context, Poll, Wake, Waker};
pub use std::thread::{self, Scope, ScopedJoinHandle, Thread};
pub use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use afterwork::params::Params;
use afterwork::workqueue::{JoinError, Registry};
pub use dice::Dice;
use rustix::time::{ClockId, clock_gettime};
use topology::{CpuId, Topology};

/// Default duration of a program.
const DEFAULT: Duration = Duration::from_secs(2);
/// Number of [`NAP`]s without progress after which a step, which takes milliseconds, has hung.
const PATIENCE: u32 = 120;
/// Number of naps after which a step counts as hung even if it makes progress.
const PATIENCE_WITH_BUSY: u32 = 1800;
/// Both limits if a bug is injected: a twin must be found within a minute, even if it hangs.
const PATIENCE_WITH_TWIN: u32 = 20;
/// Time after which the threads of a [`Crew`] stop repeating their acts.
pub const ROUND: Duration = Duration::from_millis(300);
/// A delay that does not elapse within a round.
pub const NEVER: Duration = Duration::from_secs(3600);
/// The unit of waiting. A suspension of the machine costs one nap, however long it lasts.
const NAP: Duration = Duration::from_secs(1);
/// CPU time per nap below which the process makes no progress.
const NOTHING: Duration = Duration::from_millis(1);
/// Exit status of a process that found a fault. `xtask/src/torture.rs` repeats the value.
pub const FAULT: u8 = 70;
/// All options. Each one except `--hostile` is followed by a value.
const OPTIONS: &[&str] = &["--minutes", "--seed", "--config", "--twin", "--hostile", "--without"];
/// Options of the standard test runner, accepted so that these programs can run among its tests.
const OF_THE_RUNNER: &[&str] = &["--nocapture", "--show-output", "--quiet", "-q", "--exact"];

/// The seed of the current round, for messages.
static SEED: AtomicU64 = AtomicU64::new(0);
static HAS_TWIN: AtomicBool = AtomicBool::new(false);

pub struct Round<'a> {
    pub seed: u64,
    pub config: &'a str,
}

struct Options<'a> {
    length: Duration,
    seed: u64,
    config: &'a str,
    /// Set if the arguments without a dash, which select tests, do not match this program.
    is_filtered: bool,
}

/// Runs rounds until the time limit is reached. `configs` are the values of `--config`, with the
/// default first. On any thread, a panic is a fault unless its payload is [`Planned`].
pub fn torture<T: Debug + Default>(
    subject: &str,
    configs: &[&str],
    mut round: impl FnMut(&Round<'_>, &mut T),
) -> ExitCode {
    let options = match arguments(configs, std::env::args().skip(1)) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("torture: {wrong}");
            return ExitCode::from(2);
        }
    };
    let Options { length, seed, config, is_filtered } = options;
    if is_filtered {
        report([0, 1], Duration::ZERO);
        return ExitCode::SUCCESS;
    }
    let how = hostile::begin(seed);
    println!("torture of {subject} for {length:?}, --config {config} --seed {seed}{how}");
    std::panic::set_hook(Box::new(|info| {
        if !info.payload().is::<Planned>() && !hostile::expects_panics() {
            fault(&info.to_string());
        }
    }));
    let (start, mut nr_rounds, mut totals) = (Instant::now(), 0, T::default());
    while start.elapsed() < length {
        let seed = seed.wrapping_add(nr_rounds);
        SEED.store(seed, Ordering::Relaxed);
        watched("the round", || round(&Round { seed, config }, &mut totals));
        nr_rounds += 1;
    }
    println!("no fault in {nr_rounds} rounds: {totals:?}");
    report([1, 0], start.elapsed());
    ExitCode::SUCCESS
}

/// Prints a result in the format of the test runner, for tools that count tests.
fn report([nr_passed, nr_filtered]: [u32; 2], time: Duration) {
    println!(
        "test result: ok. {nr_passed} passed; 0 failed; 0 ignored; 0 measured; {nr_filtered} filtered out; finished in {:.2}s",
        time.as_secs_f64()
    );
}

fn arguments<'a>(
    configs: &[&'a str],
    mut words: impl Iterator<Item = String>,
) -> Result<Options<'a>, String> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut options = Options {
        length: DEFAULT,
        seed: clock.map_or(1, |since| since.as_nanos() as u64),
        config: configs[0],
        is_filtered: false,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let wrong = |error: &dyn std::fmt::Display| format!("{word}: {error}");
        match word.as_str() {
            "--minutes" => {
                let text = value()?;
                let minutes: Option<f64> = text.parse().ok();
                let length = minutes.and_then(|it| Duration::try_from_secs_f64(it * 60.0).ok());
                options.length = length.filter(|length| !length.is_zero()).ok_or_else(|| {
                    wrong(&format!("`{text}` is not a number of minutes above 0"))
                })?;
            }
            "--seed" => options.seed = value()?.parse().map_err(|e| wrong(&e))?,
            "--config" => {
                options.config = options::find(&value()?, configs).map_err(|e| wrong(&e))?;
            }
            "--twin" => put_back(&value()?)?,
            "--hostile" => hostile::allow()?,
            "--without" => hostile::forbid(&value()?)?,
            other if other.starts_with('-') && !OF_THE_RUNNER.contains(&other) => {
                let known = options::find(other, OPTIONS);
                return Err(known.err().unwrap_or_default());
            }
            filter => options.is_filtered |= !program_name().contains(filter),
        }
    }
    Ok(options)
}

/// Returns the name of the test target, without the suffix that Cargo appends.
fn program_name() -> String {
    let program = std::env::args().next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('-').map_or(name, |(name, _)| name).to_string()
}

/// Injects a bug, if the build can inject bugs.
fn put_back(twin: &str) -> Result<(), String> {
    options::find_twin(twin, &Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))?;
    HAS_TWIN.store(true, Ordering::Relaxed);
    #[cfg(torture)]
    sync::twin::arm(twin);
    if cfg!(torture) {
        return Ok(());
    }
    Err(format!(
        "--twin {twin}: only a build with --cfg torture has bugs to put back, see cargo xtask torture"
    ))
}

/// The threads of a round that takes [`ROUND`], and then as long as their last acts take.
pub struct Crew<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    seed: u64,
    is_over: Arc<AtomicBool>,
    threads: Vec<ScopedJoinHandle<'scope, ()>>,
}

impl<'scope, 'env> Crew<'scope, 'env> {
    /// Starts the threads with `start`, and waits until they have ended. During the wait, calls
    /// `meanwhile` repeatedly with the time since the start.
    pub fn run(
        round: &Round<'_>,
        mut meanwhile: impl FnMut(Duration),
        start: impl for<'a> FnOnce(&mut Crew<'a, 'env>),
    ) {
        let begun = Instant::now();
        thread::scope(|scope| {
            let mut crew =
                Crew { scope, seed: round.seed, is_over: Arc::default(), threads: Vec::new() };
            start(&mut crew);
            while !crew.threads.iter().all(ScopedJoinHandle::is_finished) {
                let elapsed = begun.elapsed();
                crew.is_over.store(elapsed >= ROUND, Ordering::Relaxed);
                meanwhile(elapsed);
            }
        });
    }

    /// Starts a thread. Its dice follow from `number`, and the flag is set at the end of the round.
    pub fn spawn(
        &mut self,
        number: usize,
        body: impl FnOnce(&mut Dice, &AtomicBool) + Send + 'scope,
    ) {
        let (mut dice, is_over) = (Dice::of_thread(self.seed, number), self.is_over.clone());
        self.threads.push(self.scope.spawn(move || body(&mut dice, &is_over)));
    }

    /// Starts a thread that repeats `act` until the end of the round.
    pub fn repeat(&mut self, number: usize, mut act: impl FnMut(&mut Dice) + Send + 'scope) {
        self.spawn(number, move |dice, is_over| {
            while !is_over.load(Ordering::Relaxed) {
                act(dice);
            }
        });
    }

    /// Does the same on a thread for each number. The act may panic.
    pub fn repeat_hostile(
        &mut self,
        numbers: Range<usize>,
        act: impl Fn(&mut Dice) + Copy + Send + 'scope,
    ) {
        for number in numbers {
            self.repeat(number, move |dice| _ = hostile::contained(|| act(dice)));
        }
    }
}

/// Ends the process if `body` does not return in time.
pub fn watched<R>(what: &'static str, body: impl FnOnce() -> R) -> R {
    let (done, ended) = channel::<()>();
    let watch = thread::spawn(move || {
        let (most, most_idle) = match HAS_TWIN.load(Ordering::Relaxed) {
            true => (PATIENCE_WITH_TWIN, PATIENCE_WITH_TWIN),
            false => (PATIENCE_WITH_BUSY, PATIENCE),
        };
        let (mut nr_naps, mut nr_idle, mut before) = (0, 0, cpu_time());
        while ended.recv_timeout(NAP) == Err(RecvTimeoutError::Timeout) {
            let now = cpu_time();
            nr_naps += 1;
            nr_idle = if now - before < NOTHING { nr_idle + 1 } else { 0 };
            before = now;
            if nr_naps == most || nr_idle == most_idle {
                let threads = threads();
                fault(&format!("{what} hangs: a wake-up was lost\n{threads}"));
            }
        }
    });
    let outcome = body();
    drop(done);
    watch.join().expect("the watch does not panic");
    outcome
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().expect("CPU time is never negative")
}

/// Returns the kernel's data on each thread: name, state, policy, and the call that it sleeps in.
fn threads() -> String {
    let mut report = String::new();
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return report;
    };
    for task in tasks.flatten() {
        let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let (stat, wchan, syscall) = (read("stat"), read("wchan"), read("syscall"));
        // After the name in parentheses come the state and, as the thirty-ninth field, the policy.
        let (name, rest) = stat.rsplit_once(") ").unwrap_or_default();
        let rest: Vec<_> = rest.split(' ').collect();
        let field = |at: usize| rest.get(at).copied().unwrap_or("?");
        let (state, policy, syscall) = (field(0), field(38), syscall.trim());
        report += &format!("{name}) {state} policy {policy} in {wchan}, system call {syscall}\n");
    }
    report
}

/// Prints the fault and ends the process at once: other threads would report false faults later.
pub fn fault(what: &str) -> ! {
    let seed = SEED.load(Ordering::Relaxed);
    // The stack is captured if `RUST_BACKTRACE` is set.
    let stack = Backtrace::capture();
    let text = format!("{what}\nin the round of --seed {seed}\n{stack}\n");
    // This does not use `eprintln`, because its lock may be held forever in a forked child.
    // SAFETY: the pointer and length are those of `text`. Then the process exits.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        libc::_exit(FAULT.into())
    }
}

/// The payload of a panic that is part of the torture.
#[derive(Default)]
pub struct Planned {
    /// Number of times that its drop panics.
    fuse: u32,
}

impl Planned {
    pub fn panic() -> ! {
        std::panic::panic_any(Planned::default())
    }

    /// Panics with a payload whose drop panics, `fuse` times in a row.
    pub fn panic_twice(fuse: u32) -> ! {
        std::panic::panic_any(Planned { fuse })
    }

    pub fn is(payload: &(dyn Any + Send)) -> bool {
        payload.is::<Planned>()
    }
}

sync::on_drop!(Planned, this => if this.fuse > 0 && !thread::panicking() {
    Self::panic_twice(this.fuse - 1);
});

/// Counts the values that are alive.
#[derive(Default)]
pub struct Lives(AtomicI64);

impl Lives {
    pub fn assert_none(&self) {
        let nr_alive = self.0.load(Ordering::Relaxed);
        assert_eq!(nr_alive, 0, "something outlives everything");
    }
}

pub struct Life(Arc<Lives>);

impl Life {
    pub fn new(lives: &Arc<Lives>) -> Self {
        lives.0.fetch_add(1, Ordering::Relaxed);
        Self(lives.clone())
    }
}

sync::on_drop!(Life, this => {
    let before = this.0.0.fetch_sub(1, Ordering::Relaxed);
    assert!(before > 0, "something was dropped twice");
});

/// Wakers stored by futures, each with a flag: set if it may be dropped instead of fired.
#[derive(Clone, Default)]
pub struct Wakes(Arc<Mutex<Vec<(Waker, bool)>>>);

impl Wakes {
    pub fn push(&self, waker: &Waker, may_drop: bool) {
        self.0.lock().unwrap().push((waker.clone(), may_drop));
    }

    /// Fires one waker, possibly twice, or drops it. Returns `true` if there was one.
    pub fn ring(&self, dice: &mut Dice) -> bool {
        let mut wakes = self.0.lock().unwrap();
        if wakes.is_empty() {
            return false;
        }
        let which = dice.below(wakes.len());
        let (waker, may_drop) = wakes.swap_remove(which);
        drop(wakes);
        match dice.below(6) {
            0 if may_drop => return true,
            1 => {
                let another = waker.clone();
                another.wake();
            }
            2 => waker.wake_by_ref(),
            _ => {}
        }
        waker.wake();
        true
    }

    pub fn ring_until(&self, is_over: &AtomicBool, dice: &mut Dice) {
        while !is_over.load(Ordering::Acquire) {
            if !self.ring(dice) {
                thread::yield_now();
            }
        }
    }

    pub fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}

/// Moves this thread to a random CPU among those that it began with.
pub fn wander(dice: &mut Dice) {
    static CPUS: OnceLock<Vec<CpuId>> = OnceLock::new();
    let cpus = CPUS.get_or_init(|| {
        let allowed = sync::cpu::affinity().unwrap_or_default();
        allowed.iter().collect()
    });
    if !cpus.is_empty() {
        // The CPU may be offline by now, which is harmless.
        let _ = sync::cpu::set_affinity(None, &[dice.pick(cpus)].into_iter().collect());
    }
}

pub fn registry_on(machine: &str, params: Params) -> Registry {
    insist(|| Registry::new(Topology::synthetic(machine).unwrap(), params.clone()))
}

/// Shuts down a registry, in which a queue that an item dropped may still be ending.
pub fn shut_down(registry: Registry) {
    let mut shut = registry.shutdown();
    while let Err(still) = shut {
        thread::yield_now();
        shut = still.registry.shutdown();
    }
}

/// Returns the result of an item, or `None` if it was cancelled, rejected, or panicked as planned.
pub fn result_of<T>(outcome: Result<T, JoinError>) -> Option<T> {
    match outcome {
        Ok(result) => Some(result),
        Err(JoinError::Cancelled | JoinError::Closed) => None,
        Err(JoinError::Panicked(payload)) if payload.downcast_ref::<Planned>().is_some() => {
            hostile::discard(payload.into_inner());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Calls `make`, and retries if a fault was injected.
pub fn insist<T, E: Debug>(mut make: impl FnMut() -> Result<T, E>) -> T {
    loop {
        match make() {
            Ok(made) => return made,
            Err(_) if hostile::is_on() => thread::yield_now(),
            Err(error) => panic!("{error:?}"),
        }
    }
}
