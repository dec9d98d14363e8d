//! What the tests share: machines, gauges, counters of drops, and waiting that ends.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicUsize, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use afterwork::{
    params::Params,
    workqueue::{Builder, Registry, Work, Workqueue},
};
use topology::{CpuId, Topology};

/// How long a test waits for what must come. Nothing takes a hundredth of it; on a loaded machine, under a
/// sanitizer, some of it may be used.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Makes a registry of its own on a made-up machine; CPUs that do not exist here refuse their workers' affinity.
pub fn registry(machine: &str) -> Registry {
    registry_with(machine, Params::default())
}

/// Makes a registry of its own on a made-up machine.
pub fn registry_with(machine: &str, params: Params) -> Registry {
    Registry::new(Topology::synthetic(machine).unwrap(), params).unwrap()
}

/// Shuts a registry down of which queues may still be on their way out.
pub fn shut_down(registry: Registry) {
    let mut registry = Some(registry);
    eventually("the registry is shut down", || {
        match registry.take().unwrap().shutdown() {
            Ok(()) => true,
            Err(still) => {
                registry = Some(still.registry);
                false
            }
        }
    });
}

/// Makes a registry whose watch never looks: only what is reported brings another worker.
pub fn unwatched(machine: &str) -> Registry {
    let params = Params {
        watch_tick_us: 3_600_000_000,
        ..Params::default()
    };
    registry_with(machine, params)
}

/// Builds a queue of `builder` on a registry of its own with two CPUs in one pool.
pub fn alone_on_two(builder: Builder) -> Workqueue {
    builder.build_in(&registry("2 core")).unwrap()
}

/// Starts to describe a queue.
pub fn queue(name: &str) -> Builder {
    Workqueue::builder(name)
}

/// Calls `body` on a thread of its own and fails when it hangs.
pub fn ends<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || {
        let _ = send.send(body());
    });
    match receive.recv_timeout(PATIENCE) {
        Ok(value) => {
            thread.join().unwrap();
            value
        }
        Err(RecvTimeoutError::Timeout) => panic!("hangs"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(payload) => std::panic::resume_unwind(payload),
            Ok(()) => unreachable!("it ended without a value"),
        },
    }
}

/// Waits until `condition` holds, for things that have no event of their own.
#[track_caller]
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(
        holds_within(PATIENCE, condition),
        "not so after all that time: {what}"
    );
}

/// Returns `true` if `condition` came to hold within `span`.
pub fn holds_within(span: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + span;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `body` in a process of its own, where no other test's threads are.
pub fn in_own_process(test: &str, body: impl FnOnce()) {
    const KEY: &str = "AFTERWORK_TEST_ALONE";
    if std::env::var(KEY).as_deref() == Ok(test) {
        return body();
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(KEY, test)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut status = None;
    // It may do what takes minutes beside much else.
    let ended = holds_within(10 * PATIENCE, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    if !ended {
        let _ = child.kill();
    }
    assert!(
        status.is_some_and(|status| status.success()),
        "{test} alone: {status:?}"
    );
}

/// Keeps a thread inside an item until it is told to go on, or dropped.
pub struct Plug {
    entered: Receiver<()>,
    release: Sender<()>,
}

/// The item's side of a [`Plug`].
pub struct Hole {
    entered: Sender<()>,
    release: Receiver<()>,
}

/// Makes both sides.
pub fn stopper() -> (Plug, Hole) {
    let (enter, entered) = mpsc::channel();
    let (release, released) = mpsc::channel();
    (
        Plug { entered, release },
        Hole {
            entered: enter,
            release: released,
        },
    )
}

impl Plug {
    /// Waits until an item sits in it.
    pub fn wait_until_stuck(&self) {
        self.entered.recv_timeout(PATIENCE).expect("nobody came");
    }

    /// Lets one stay go on.
    pub fn release(&self) {
        self.release.send(()).unwrap();
    }
}

impl Hole {
    /// Says that it is here, and stays until it is released. The pool is not told.
    pub fn sit(&self) {
        self.entered.send(()).unwrap();
        let _ = self.release.recv();
    }
}

/// Occupies one seat of `queue` until the plug is released.
pub fn plug_into(queue: &Workqueue) -> Plug {
    let (plug, hole) = stopper();
    queue.spawn_detached(move || hole.sit());
    plug.wait_until_stuck();
    plug
}

/// Counts who is inside, and the most that ever were.
#[derive(Clone, Default)]
pub struct Gauge(Arc<(AtomicUsize, AtomicUsize)>);

impl Gauge {
    /// Calls `body` inside.
    pub fn within<T>(&self, body: impl FnOnce() -> T) -> T {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(now, Ordering::SeqCst);
        let result = body();
        self.0.0.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Returns the most that were inside at once.
    pub fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

/// Counts its clones that are alive and how often one was dropped.
#[derive(Clone, Default)]
pub struct Census(Arc<(AtomicI64, AtomicUsize)>);

/// Is alive until it is dropped.
pub struct Life(Census);

impl Census {
    /// Brings one to life.
    pub fn life(&self) -> Life {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        Life(self.clone())
    }

    /// Returns how many live.
    pub fn alive(&self) -> i64 {
        self.0.0.load(Ordering::SeqCst)
    }

    /// Returns how many were dropped.
    pub fn dropped(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }

    /// Waits until all are dropped, and checks that none was dropped twice.
    #[track_caller]
    pub fn all_dropped(&self, count: usize) {
        eventually("everything is dropped", || self.alive() <= 0);
        assert_eq!((self.alive(), self.dropped()), (0, count), "alive, dropped");
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.0.0.0.fetch_sub(1, Ordering::SeqCst);
        self.0.0.1.fetch_add(1, Ordering::SeqCst);
    }
}

/// Counts runs.
#[derive(Clone, Default)]
pub struct Count(Arc<AtomicUsize>);

impl Count {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Makes an item that counts its runs.
pub fn counting(count: &Count) -> Work {
    let count = count.clone();
    Work::new(move || count.add())
}

/// Returns `true` if somebody sleeps until the item ends a run.
pub fn is_slept_for(work: &Work) -> bool {
    format!("{work:?}").contains("waited")
}

/// Lets this thread run on the `i`th CPU that it may use, counted round.
pub fn pin(i: usize) {
    let cpus: Vec<CpuId> = sync::cpu::affinity().unwrap().iter().collect();
    let cpu = cpus[i % cpus.len()];
    sync::cpu::set_affinity(None, &[cpu].into_iter().collect()).unwrap();
}

/// Runs `body(i)` on `count` threads and waits for all.
pub fn threads(count: usize, body: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for i in 0..count {
            let body = &body;
            scope.spawn(move || body(i));
        }
    });
}

/// Returns how much memory the process has, in KiB.
/// Waits until all other threads sleep: one that starts, or has just been made, needs memory of its own, and the standard library
/// ends the process where it gets none.
pub fn others_sleep() {
    let is_awake = |task: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat"));
        // After the name, which may hold anything. One that cannot be read has ended.
        stat.is_ok_and(|it| !it.rsplit(") ").next().is_some_and(|it| it.starts_with('S')))
    };
    eventually("all other threads sleep", || {
        let me = std::fs::read_link("/proc/thread-self").unwrap();
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let mut others = tasks
            .flatten()
            .filter(|it| Some(&*it.file_name()) != me.file_name());
        !others.any(|it| is_awake(&it))
    });
}

pub fn resident_kib() -> usize {
    status("VmRSS:")
}

/// Checks that `act` leaves less than `limit_kib` behind: not each of five times, for what is kept once, as a stack of a
/// thread more than ever before, is kept once.
pub fn leaves_less_than(limit_kib: usize, what: &str, mut act: impl FnMut()) {
    let grown_kib = (0..5).map(|_| {
        let before = resident_kib();
        act();
        resident_kib().saturating_sub(before)
    });
    let grown_kib: Vec<_> = grown_kib.take_while(|grown| *grown >= limit_kib).collect();
    assert!(grown_kib.len() < 5, "{what}: {grown_kib:?} KiB");
}

/// Returns how many threads the process has.
pub fn nr_threads() -> usize {
    status("Threads:")
}

/// Returns what procfs says of this process under `name`, in whatever unit.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.unwrap().split_whitespace().next().unwrap();
    number.parse().unwrap()
}

/// A small generator of numbers that look random (xorshift64*).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize) % limit
    }
}

/// Returns a seed for this run and prints it; `AFTERWORK_SEED` overrides.
pub fn seed() -> u64 {
    let seed = std::env::var("AFTERWORK_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| u64::from(std::process::id()) ^ sync::time::now_ns());
    println!("AFTERWORK_SEED={seed}");
    seed
}
