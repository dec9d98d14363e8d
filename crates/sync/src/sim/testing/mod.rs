//! What unit tests take of the standard library, on the simulated machine, and how they run there.
//!
//! A blocked thread of the standard library's would block all tasks, which are on it. So tests name threads, channels and barriers by
//! [`crate::testing`], which is this here and the standard library elsewhere.

pub mod mpsc;
pub mod thread;

use std::time::{Duration, Instant};

use topology::Topology;

use super::{Costs, Machine, run};
use crate::{
    Mutex,
    atomic::{AtomicU32, Ordering},
};

/// A run that takes longer hangs: most end within some milliseconds, and on a loaded host the longest took 7 s.
const BUDGET: Duration = Duration::from_secs(40);
/// So many tests run at once, each on one of the host's CPUs.
const NR_AT_ONCE: usize = 2;
/// What the tests run on, and from which seed: two pods of four CPUs, and two of two.
const MACHINES: [(&str, u64); 3] = [
    ("2 llc x 4 core", 1),
    ("2 llc x 4 core", 2),
    ("2 numa x 2 core", 3),
];

/// A test.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// Its path in the crate.
    pub name: &'static str,
    /// What it does.
    pub body: fn() -> Result<(), String>,
    /// Whether it is to panic.
    pub panics: bool,
    /// A bug that is put back, with which it is to fail.
    pub twin: Option<&'static str>,
}

/// Runs `tests` whose names have one of the process's arguments in them, each for each machine and seed in a process of its own, and
/// tells it as the standard harness does. `left_out` has beginnings of names, and why they are not run. A pair of `twins` is a bug and a
/// test that must fail with it. `--twin BUG` puts one back in all. Ends the process: with 101 if one failed.
pub fn main(tests: &[Test], left_out: &[(&str, &str)], twins: &[(&'static str, &str)]) -> ! {
    let mut words = Vec::new();
    let mut args = std::env::args().skip(1);
    let mut armed = false;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--twin" => {
                crate::twin::arm(&args.next().expect("--twin wants a name"));
                armed = true;
            }
            option if option.starts_with("--") => {}
            _ => words.push(arg),
        }
    }
    let mut all = tests.to_vec();
    for (bug, name) in twins.iter().filter(|_| !armed) {
        let found = tests.iter().find(|test| test.name == *name);
        let test = found.unwrap_or_else(|| panic!("no test is called {name}"));
        all.push(Test {
            twin: Some(bug),
            ..*test
        });
    }
    let is_asked =
        |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let nr_all = all.len();
    all.retain(|test| is_asked(test.name));
    println!("\nrunning {} tests", all.len());
    let mut tally = Tally::default();
    for test in &all {
        let why = left_out
            .iter()
            .find(|(part, _)| test.name.starts_with(part));
        if let Some((_, why)) = why {
            println!("test {} ... ignored, {why}", test.name);
            tally.nr_ignored += 1;
            continue;
        }
        if tally.running.len() == NR_AT_ONCE {
            tally.reap();
        }
        tally.running.push((start(test), *test));
    }
    while !tally.running.is_empty() {
        tally.reap();
    }
    let (nr_failed, nr_ignored) = (tally.nr_failed, tally.nr_ignored);
    let ended = if nr_failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {ended}. {} passed; {nr_failed} failed; {nr_ignored} ignored; 0 measured; {} filtered out; finished in 0.00s\n",
        all.len() - nr_ignored - nr_failed,
        nr_all - all.len()
    );
    std::process::exit(if nr_failed == 0 { 0 } else { 101 });
}

#[derive(Default)]
struct Tally {
    running: Vec<(i32, Test)>,
    nr_failed: usize,
    nr_ignored: usize,
}

impl Tally {
    /// Waits for the end of one of the tests that run.
    fn reap(&mut self) {
        let (which, is_good) = ended(-1);
        let at = self
            .running
            .iter()
            .position(|it| it.0 == which)
            .expect("one of ours");
        let (_, test) = self.running.swap_remove(at);
        let is_good = is_good != test.twin.is_some();
        let with = test.twin.map_or(String::new(), |bug| {
            format!("::fails_with::{}", bug.replace(' ', "_"))
        });
        println!(
            "test {}{with} ... {}",
            test.name,
            if is_good { "ok" } else { "FAILED" }
        );
        self.nr_failed += usize::from(!is_good);
    }
}

/// Starts a process for a test. Each of its runs is a process below that, for what a run leaves in statics stays.
fn start(test: &Test) -> i32 {
    // SAFETY: this process has one thread.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process for {}", test.name);
    if child > 0 {
        return child;
    }
    if let Some(bug) = test.twin {
        crate::twin::arm(bug);
    }
    let is_good = MACHINES.iter().all(|&(cpus, seed)| {
        // SAFETY: as above.
        let run = unsafe { libc::fork() };
        if run == 0 {
            let is_good = simulate(test, cpus, seed);
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!is_good)) };
        }
        let (_, is_good) = ended(run);
        if !is_good && test.twin.is_none() {
            eprintln!("{} failed on `{cpus}`, seed {seed}", test.name);
        }
        is_good
    });
    // SAFETY: ends the process.
    unsafe { libc::_exit(i32::from(!is_good)) };
}

/// Waits for a process, or any where it is -1; returns which ended, and whether well.
fn ended(process: i32) -> (i32, bool) {
    let mut status = 0;
    // SAFETY: `status` is written to.
    let which = unsafe { libc::waitpid(process, &raw mut status, 0) };
    (
        which,
        which > 0 && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
    )
}

/// Runs a test on a machine.
fn simulate(test: &Test, cpus: &str, seed: u64) -> bool {
    // SAFETY: asks for a signal, which ends a process that the budget cannot, since its OS thread sleeps.
    unsafe { libc::alarm(2 * BUDGET.as_secs() as u32) };
    let topology = Topology::synthetic(cpus).expect("a description of a machine");
    let mut machine = Machine::new(topology, Costs::example());
    machine.seed = seed;
    machine.budget = Some(BUDGET);
    machine.takes_stacks = false;
    let start = Instant::now();
    let body = test.body;
    let outcome = run(machine, move || body().unwrap());
    if std::env::var_os("AFTERWORK_SIM_TIMES").is_some() {
        eprintln!("{} ms: {}", start.elapsed().as_millis(), test.name);
    }
    match outcome {
        Err(super::Failure::Panic(_)) if test.panics => true,
        Err(failure) => {
            eprintln!("{}: {failure}", test.name);
            false
        }
        Ok(_) => !test.panics,
    }
}

/// Stands for `std::sync::Barrier`.
#[derive(Debug)]
pub struct Barrier {
    nr_threads: usize,
    nr_waiting: Mutex<usize>,
    round: AtomicU32,
}

impl Barrier {
    /// Makes a barrier for so many threads.
    pub const fn new(nr_threads: usize) -> Self {
        Self {
            nr_threads,
            nr_waiting: Mutex::new(0),
            round: AtomicU32::new(0),
        }
    }

    /// Waits until all have come.
    pub fn wait(&self) {
        let mut nr_waiting = self.nr_waiting.lock();
        // Under the lock, which orders all.
        let round = self.round.load(Ordering::Relaxed);
        *nr_waiting += 1;
        if *nr_waiting == self.nr_threads {
            *nr_waiting = 0;
            self.round.store(round + 1, Ordering::Relaxed);
            drop(nr_waiting);
            super::futex::wake(self.round.as_ptr(), u32::MAX);
            return;
        }
        drop(nr_waiting);
        while self.round.load(Ordering::Relaxed) == round {
            super::futex::wait(self.round.as_ptr(), round, None);
        }
    }
}
