//! The simulated machine: CPUs with clocks, and the tasks that take turns on them.
//!
//! The simulation is conservative: before a task takes a step that others can observe, it yields
//! until no CPU has an earlier clock. [`with`] gives access to the engine for one step that does
//! not suspend. A longer operation consists of several steps, with [`suspend`] in between, so no
//! reference to the engine exists while another task runs.

use std::any::Any;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use topology::Topology;

use super::clock::{Clock, NEVER};
use super::costs::Costs;
use super::line::{ByNumber, Lines};
use super::mask::{MAX_CPUS, Mask};
use super::plain::is_seen;
use super::report::{Counts, Failure, LockStat, Outcome, Samples};
use super::task::{State, Task};
use super::timers::Timers;

/// A task that makes this number of accesses without changing anything is in an endless loop.
const SPIN_LIMIT: u64 = 20_000_000;
const LONGEST_TURN_PS: u64 = 1_000_000_000;
/// The number of turns between two checks of the budget, which take a few milliseconds.
const BUDGET_EVERY: u64 = 64;
const CHECK_EVERY: u64 = 1 << 16;

/// The machine to simulate, and the options of the simulation.
pub struct Machine {
    /// The CPUs of the machine.
    pub topology: Topology,
    /// The costs of the machine's operations.
    pub costs: Costs,
    /// The seed of the random numbers. Equal seeds give equal runs.
    pub seed: u64,
    /// The random variation of the system's costs, per mille.
    pub jitter_per_mille: u64,
    /// The part of a transfer, per mille, during which the old owner still has the line.
    pub early_per_mille: u64,
    /// The maximum number of guarded lines that move with a lock; 0 if plain accesses are visible.
    pub guarded_lines: usize,
    /// Set if the stacks of waiters are captured. Printing them takes a third of a second.
    pub takes_stacks: bool,
    /// Set if a line is reserved when it is requested, which is the bug of a twin.
    pub reserves_ahead: bool,
    /// The time limit. If the run takes longer, it fails.
    pub budget: Option<Duration>,
}

impl Machine {
    /// Creates a machine with default options. Panics if it has more than 1024 CPUs.
    pub fn new(topology: Topology, costs: Costs) -> Self {
        assert!(topology.nr_cpus() <= MAX_CPUS, "more than {MAX_CPUS} CPUs");
        Self {
            topology,
            costs,
            seed: 1,
            jitter_per_mille: 50,
            early_per_mille: 500,
            guarded_lines: if is_seen() { 0 } else { 2 },
            takes_stacks: true,
            reserves_ahead: false,
            budget: None,
        }
    }
}

#[derive(Clone, Default)]
pub struct Cpu {
    pub now: u64,
    pub cur: Option<usize>,
    pub runq: Vec<usize>,
    pub min_vruntime: u64,
    /// Set if the running task must yield its CPU at its next step.
    pub resched: bool,
    pub slice_end: u64,
    pub idle_since: u64,
    /// The time at which the store buffer will be empty.
    pub drain: u64,
    /// The time at which the CPU's run queue is unlocked.
    pub rq_free: u64,
    /// The time at which the CPU gets the line that it waits for, if any.
    pub parked: Option<u64>,
    pub is_kept: bool,
}

/// The kernel's side of a futex.
#[derive(Default)]
pub struct Bucket {
    pub sleepers: VecDeque<usize>,
    /// The time at which the bucket is unlocked.
    pub free: u64,
}

pub struct Engine {
    pub machine: Machine,
    pub costs: Costs,
    pub cpus: Vec<Cpu>,
    pub tasks: Vec<Task>,
    pub clock: Clock,
    pub timers: Timers,
    pub futexes: ByNumber<Bucket>,
    pub lines: Lines,
    pub idle: Mask,
    pub core_of: Vec<Mask>,
    pub llc_of: Vec<Mask>,
    pub node_of: Vec<Mask>,
    /// The CPU whose turn it is.
    pub cpu: usize,
    /// The time up to which this CPU may run without yielding.
    pub limit: u64,
    pub counts: Counts,
    pub locks: BTreeMap<&'static str, LockStat>,
    pub samples: Samples,
    /// Set to end the run.
    pub failure: Option<Failure>,
    pub nr_queued: usize,
    pub is_balancing: bool,
    /// Set if suspended tasks must capture their stacks.
    pub is_asking: bool,
    dice: u64,
    /// The time of the last step that others could observe.
    last_step: u64,
}

thread_local! {
    static ENGINE: Cell<*mut Engine> = const { Cell::new(std::ptr::null_mut()) };
    static RUNNING: Cell<Option<usize>> = const { Cell::new(None) };
    /// Set during a step, and while code runs that the machine must not observe.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Returns the task whose turn it is, if a simulation runs on this thread.
pub fn running() -> Option<usize> {
    RUNNING.try_with(Cell::get).unwrap_or(None)
}

/// Calls `step`, which must not suspend, with this thread's engine, if there is one.
#[inline(always)]
pub fn with<R>(step: impl FnOnce(&mut Engine) -> R) -> Option<R> {
    let engine = ENGINE.try_with(Cell::get).unwrap_or(std::ptr::null_mut());
    if engine.is_null() {
        return None;
    }
    let was_inside = IS_INSIDE.replace(true);
    debug_assert!(!was_inside, "a step inside a step");
    // SAFETY: `run` keeps the engine alive while the pointer is set. Everything is on this thread,
    // and no step holds a reference while another one runs.
    let result = step(unsafe { &mut *engine });
    IS_INSIDE.set(was_inside);
    Some(result)
}

/// Returns `true` inside a step. Accesses made there are not simulated.
pub fn is_inside() -> bool {
    IS_INSIDE.try_with(Cell::get).unwrap_or(true)
}

/// Calls `step` without simulating its plain accesses. `step` must not use the facade.
pub fn unseen<R>(step: impl FnOnce() -> R) -> R {
    IS_INSIDE.set(true);
    let result = step();
    IS_INSIDE.set(false);
    result
}

/// Calls `step` with the engine. Only tasks may call it.
#[inline(always)]
pub fn engine<R>(step: impl FnOnce(&mut Engine) -> R) -> R {
    with(step).expect("tasks run inside a simulation")
}

/// Ends the turn of this task until the engine gives it another one.
#[inline(never)]
pub fn suspend() {
    loop {
        let me = running().expect("only tasks suspend");
        let yielder = engine(|e| e.tasks[me].yielder.expect("the task has started"));
        // SAFETY: the yielder is on the stack of this coroutine, which is the running one.
        unsafe { (*yielder).suspend(()) };
        if !engine(|e| e.is_asking) {
            return;
        }
        let stack = std::backtrace::Backtrace::force_capture();
        engine(|e| e.tasks[me].backtrace = Some(stack));
    }
}

/// Yields to CPUs whose clocks are behind, if there are any.
#[inline]
pub fn sync() {
    if engine(|e| e.is_over()) {
        give_way();
    }
}

/// Makes a system call: calls `charge`, which adds its cost, waits for the turn of this task, and
/// calls `act`. If `act` returns `true`, suspends the task. Does nothing outside a simulation.
pub fn system_call(charge: impl FnOnce(&mut Engine), act: impl FnOnce(&mut Engine) -> bool) {
    if running().is_none() {
        return;
    }
    engine(charge);
    sync();
    if engine(act) {
        suspend();
    }
}

/// Yields until the task may take its step. It may have to give up its CPU first.
#[cold]
#[inline(never)]
pub fn give_way() {
    while {
        engine(|e| {
            let cpu = &e.cpus[e.cpu];
            let is_due = cpu.resched || (!cpu.runq.is_empty() && cpu.now >= cpu.slice_end);
            if is_due && !cpu.is_kept {
                e.counts.preempts += 1;
                e.requeue_current();
                e.pick_next();
            }
        });
        suspend();
        engine(|e| e.is_over())
    } {}
}

impl Engine {
    fn new(machine: Machine) -> Self {
        let topology = &machine.topology;
        let nr_cpus = topology.nr_cpus();
        let all = Mask::from(topology.allowed());
        let cpus: Vec<_> = topology.cpus().collect();
        let per_cpu = |of: &dyn Fn(&topology::Cpu) -> Option<Mask>| -> Vec<Mask> {
            cpus.iter().map(|cpu| of(cpu).unwrap_or(all)).collect()
        };
        let core_of = per_cpu(&|cpu| {
            Some(topology.smt_siblings(cpu.id).map_or(Mask::one(cpu.id.index()), Mask::from))
        });
        let llc_of = per_cpu(&|cpu| topology.llc_of(cpu.id).map(|llc| Mask::from(&llc.cpus)));
        let node_of = per_cpu(&|cpu| {
            let node = topology.nodes().iter().find(|node| Some(node.id) == cpu.node);
            node.map(|node| Mask::from(&node.cpus))
        });
        let cpu = Cpu { slice_end: NEVER, ..Cpu::default() };
        Self {
            costs: machine.costs.clone(),
            cpus: vec![cpu; nr_cpus],
            tasks: Vec::new(),
            clock: Clock::new(nr_cpus + 1),
            timers: Timers::default(),
            futexes: ByNumber::default(),
            lines: Lines::default(),
            idle: all,
            core_of,
            llc_of,
            node_of,
            cpu: 0,
            limit: 0,
            counts: Counts::default(),
            locks: BTreeMap::new(),
            samples: Samples::default(),
            failure: None,
            nr_queued: 0,
            is_balancing: false,
            is_asking: false,
            dice: machine.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            last_step: 0,
            machine,
        }
    }

    /// Returns `ps` with the machine's random variation.
    pub fn around(&mut self, ps: u64) -> u64 {
        let jitter = self.machine.jitter_per_mille;
        if jitter == 0 {
            return ps;
        }
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        ps * (1000 - jitter + self.dice % (2 * jitter + 1)) / 1000
    }

    #[inline]
    pub fn now(&self) -> u64 {
        self.cpus[self.cpu].now
    }

    #[inline]
    pub fn advance(&mut self, ps: u64) {
        self.cpus[self.cpu].now += ps;
    }

    /// Returns the task whose turn it is.
    #[inline]
    pub fn current(&self) -> usize {
        self.cpus[self.cpu].cur.expect("a task has its turn")
    }

    #[inline]
    pub fn task(&mut self) -> &mut Task {
        let current = self.current();
        &mut self.tasks[current]
    }

    pub fn lock_stat(&mut self, name: &'static str) -> &mut LockStat {
        self.locks.entry(name).or_default()
    }

    /// Returns `true` if the task has to yield before a step that others can observe.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.now() > self.limit
    }

    pub fn set_limit(&mut self) {
        let cpu = &self.cpus[self.cpu];
        let slice = match () {
            () if cpu.is_kept => NEVER,
            () if cpu.resched => 0,
            () if cpu.runq.is_empty() => NEVER,
            () => cpu.slice_end,
        };
        // Even if no other task can run, the turn ends, so that the budget is checked.
        self.limit = self.clock.min().0.min(slice).min(self.now() + LONGEST_TURN_PS);
    }

    pub fn set_timer_clock(&mut self) {
        let player = self.cpus.len();
        self.clock.set(player, self.timers.next());
    }

    /// Asserts that no CPU is behind this one, which is about to take an observable step.
    pub fn check_step(&mut self) {
        if cfg!(debug_assertions) {
            let now = self.now();
            assert!(now <= self.limit, "a step while another CPU is behind");
            assert!(now >= self.last_step, "the clocks went back");
            self.last_step = now;
        }
    }

    fn check_places(&self) {
        let mut places = vec![0_u32; self.tasks.len()];
        for cpu in &self.cpus {
            cpu.cur.iter().chain(&cpu.runq).for_each(|&task| places[task] += 1);
        }
        let sleepers = self.futexes.values().flat_map(|bucket| &bucket.sleepers);
        sleepers.for_each(|&task| places[task] += 1);
        for (task, &nr_places) in self.tasks.iter().zip(&places) {
            let may_be_in_none = matches!(task.state, State::Asleep | State::Done);
            let is_fine = nr_places == 1 || (nr_places == 0 && may_be_in_none);
            assert!(is_fine, "{} is in {nr_places} places, and {:?}", task.name, task.state);
        }
    }

    /// Counts an access that changes nothing. Ends the run if the task makes no other accesses.
    #[inline]
    pub fn count_idle(&mut self) {
        let task = self.task();
        task.nr_idle += 1;
        if task.nr_idle == SPIN_LIMIT {
            let text = format!(
                "{} spins for ever: {SPIN_LIMIT} accesses without a change, the last at {}\n{}",
                task.name,
                task.last_site.map_or_else(String::new, ToString::to_string),
                super::report::shown(&std::backtrace::Backtrace::force_capture()),
            );
            self.failure = Some(Failure::Spin(text));
            self.limit = 0;
        }
    }
}

/// Runs `main` on CPU 0 of a simulated machine until it returns.
///
/// A process can run only one simulation, because statics and unfinished stacks remain afterwards.
///
/// # Errors
///
/// See [`Failure`].
pub fn run(machine: Machine, main: impl FnOnce() + 'static) -> Result<Outcome, Failure> {
    run_boxed(machine, Box::new(main))
}

fn run_boxed(machine: Machine, main: Box<dyn FnOnce()>) -> Result<Outcome, Failure> {
    assert!(ENGINE.get().is_null(), "a simulation inside a simulation");
    let engine = Box::into_raw(Box::new(Engine::new(machine)));
    ENGINE.set(engine);
    let start = Instant::now();
    let first = super::life::make_task("main", main);
    let failure = turns(first, start);
    ENGINE.set(std::ptr::null_mut());
    // SAFETY: the engine was created above, and no task has a turn now.
    let mut engine = unsafe { Box::from_raw(engine) };
    let panic = engine.tasks[first].panic.take();
    let outcome = Outcome::of(&mut engine);
    // Unwinding the stacks of threads that never ended would run their code.
    for task in &mut engine.tasks {
        std::mem::forget(task.coroutine.take());
        std::mem::forget(std::mem::take(&mut task.locals));
    }
    match (failure, panic) {
        (Some(failure), _) => Err(failure),
        (None, Some(panic)) => Err(Failure::Panic(words_of(&*panic))),
        (None, None) => Ok(outcome),
    }
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let word = panic.downcast_ref::<&str>().map(ToString::to_string);
    word.or_else(|| panic.downcast_ref().cloned()).unwrap_or_else(|| "a panic".into())
}

fn turns(first: usize, start: Instant) -> Option<Failure> {
    loop {
        enum Turn {
            Over(Option<Failure>),
            Deadlock,
            Timer,
            Of(usize),
        }
        let turn = engine(|e| {
            if e.failure.is_some() || e.tasks[first].state == State::Done {
                return Turn::Over(e.failure.take());
            }
            e.counts.turns += 1;
            if cfg!(debug_assertions) && e.counts.turns.is_multiple_of(CHECK_EVERY) {
                e.check_places();
            }
            if e.counts.turns.is_multiple_of(BUDGET_EVERY)
                && let Some(budget) = e.machine.budget.filter(|&it| start.elapsed() > it)
            {
                return Turn::Over(Some(Failure::Budget { budget, simulated_ns: e.now() / 1000 }));
            }
            match e.clock.min() {
                (NEVER, _) => Turn::Deadlock,
                (time, player) if player == e.cpus.len() => {
                    e.ring(time);
                    Turn::Timer
                }
                (_, cpu) => {
                    e.clock.set(cpu, NEVER);
                    e.cpu = cpu;
                    e.set_limit();
                    Turn::Of(cpu)
                }
            }
        });
        match turn {
            Turn::Over(failure) => return failure,
            Turn::Deadlock => return Some(Failure::Deadlock(stacks())),
            Turn::Timer => {}
            Turn::Of(cpu) => {
                resume(engine(|e| e.current()));
                engine(|e| {
                    let Cpu { now, cur, parked, .. } = e.cpus[cpu];
                    e.clock.set(cpu, parked.or(cur.map(|_| now)).unwrap_or(NEVER));
                });
            }
        }
    }
}

fn resume(task: usize) {
    let mut coroutine =
        engine(|e| e.tasks[task].coroutine.take()).expect("a task that runs has a stack");
    RUNNING.set(Some(task));
    let result = coroutine.resume(());
    RUNNING.set(None);
    if let corosensei::CoroutineResult::Yield(()) = result {
        engine(|e| e.tasks[task].coroutine = Some(coroutine));
    }
}

fn stacks() -> String {
    engine(|e| e.is_asking = true);
    let mut text = String::new();
    for task in 0..engine(|e| e.tasks.len()) {
        if engine(|e| e.tasks[task].state == State::Done || e.tasks[task].yielder.is_none()) {
            continue;
        }
        resume(task);
        engine(|e| {
            let task = &e.tasks[task];
            let stack = task.backtrace.as_ref().map(super::report::shown).unwrap_or_default();
            text += &format!("{} ({:?} on CPU {}):\n{stack}", task.name, task.state, task.cpu);
        });
    }
    engine(|e| e.is_asking = false);
    text
}
