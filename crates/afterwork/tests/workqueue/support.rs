//! Shared helpers: machines, gauges, counters of drops, and waits with a limit.

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

/// The limit of every wait, over a hundred times what any test needs without load.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Creates a registry on a synthetic machine. Workers of CPUs that do not exist here run anywhere.
pub fn registry(machine: &str) -> Registry {
    registry_with(machine, Params::default())
}

pub fn registry_with(machine: &str, params: Params) -> Registry {
    Registry::new(Topology::synthetic(machine).unwrap(), params).unwrap()
}

/// Shuts down a registry whose queues may still be in the process of being destroyed.
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

/// Creates a registry without monitor: only reports of waiting workers bring another worker.
pub fn unwatched(machine: &str) -> Registry {
    let params = Params {
        watch_tick_us: 3_600_000_000,
        ..Params::default()
    };
    registry_with(machine, params)
}

/// Builds a queue on a registry of its own, with two CPUs in one pool.
pub fn alone_on_two(builder: Builder) -> Workqueue {
    builder.build_in(&registry("2 core")).unwrap()
}

/// Returns a builder of a queue.
pub fn queue(name: &str) -> Builder {
    Workqueue::builder(name)
}

/// Calls `body` on its own thread, and fails if it hangs.
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

/// Waits until `condition` holds. For conditions without an event.
#[track_caller]
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(
        holds_within(PATIENCE, condition),
        "not so after all that time: {what}"
    );
}

/// Returns `true` if `condition` holds within `span`.
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

/// Runs `body` in its own process, without the threads of other tests.
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
    // A test may take minutes on a loaded machine.
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

/// Keeps a thread inside an item until it is released or dropped.
pub struct Plug {
    entered: Receiver<()>,
    release: Sender<()>,
}

/// The item's side of a [`Plug`].
pub struct Hole {
    entered: Sender<()>,
    release: Receiver<()>,
}

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
    /// Waits until an item blocks in the hole.
    pub fn wait_until_stuck(&self) {
        self.entered.recv_timeout(PATIENCE).expect("nobody came");
    }

    /// Releases the blocked item once.
    pub fn release(&self) {
        self.release.send(()).unwrap();
    }
}

impl Hole {
    /// Notifies the plug and blocks until it is released, without a report to the pool.
    pub fn sit(&self) {
        self.entered.send(()).unwrap();
        let _ = self.release.recv();
    }
}

/// Occupies one seat of `queue` until the plug is released.
pub fn plug_into(queue: &Workqueue) -> Plug {
    let (plug, hole) = stopper();
    queue.spawn_detached(move || hole.sit()).unwrap();
    plug.wait_until_stuck();
    plug
}

/// Counts the threads that are inside, and the maximum.
#[derive(Clone, Default)]
pub struct Gauge(Arc<(AtomicUsize, AtomicUsize)>);

impl Gauge {
    pub fn within<T>(&self, body: impl FnOnce() -> T) -> T {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(now, Ordering::SeqCst);
        let result = body();
        self.0.0.fetch_sub(1, Ordering::SeqCst);
        result
    }

    pub fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

/// Counts the lives that exist, and those that were dropped.
#[derive(Clone, Default)]
pub struct Census(Arc<(AtomicI64, AtomicUsize)>);

/// Counts as alive until it is dropped.
pub struct Life(Census);

impl Census {
    pub fn life(&self) -> Life {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        Life(self.clone())
    }

    pub fn alive(&self) -> i64 {
        self.0.0.load(Ordering::SeqCst)
    }

    pub fn dropped(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }

    /// Waits until `count` lives are dropped, and checks that none was dropped twice.
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

/// Creates an item that counts its runs.
pub fn counting(count: &Count) -> Work {
    let count = count.clone();
    Work::new(move || count.add())
}

/// Returns `true` if a thread sleeps until the item ends a run.
pub fn is_slept_for(work: &Work) -> bool {
    format!("{work:?}").contains("waited")
}

/// Pins this thread to the `i`th CPU that it may use, modulo their number.
pub fn pin(i: usize) {
    let cpus: Vec<CpuId> = sync::cpu::affinity().unwrap().iter().collect();
    let cpu = cpus[i % cpus.len()];
    sync::cpu::set_affinity(None, &[cpu].into_iter().collect()).unwrap();
}

/// Runs `body(i)` on `count` threads, and joins them.
pub fn threads(count: usize, body: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for i in 0..count {
            let body = &body;
            scope.spawn(move || body(i));
        }
    });
}

/// Waits until all other threads sleep. A thread that starts needs memory, and without it the
/// standard library aborts the process.
pub fn others_sleep() {
    let is_awake = |task: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat"));
        // The state follows the name. A thread whose file cannot be read has exited.
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

/// Returns the resident memory of the process in KiB.
pub fn resident_kib() -> usize {
    status("VmRSS:")
}

/// Checks that one of five calls of `act` leaves less than `limit_kib` behind. Memory that is
/// cached once, such as a thread's stack, counts in one call only.
pub fn leaves_less_than(limit_kib: usize, what: &str, mut act: impl FnMut()) {
    let grown_kib = (0..5).map(|_| {
        let before = resident_kib();
        act();
        resident_kib().saturating_sub(before)
    });
    let grown_kib: Vec<_> = grown_kib.take_while(|grown| *grown >= limit_kib).collect();
    assert!(grown_kib.len() < 5, "{what}: {grown_kib:?} KiB");
}

/// Returns the number of threads of the process.
pub fn nr_threads() -> usize {
    status("Threads:")
}

/// Returns the number that procfs reports for this process under `name`, in the unit of procfs.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.unwrap().split_whitespace().next().unwrap();
    number.parse().unwrap()
}

/// A pseudorandom number generator (xorshift64*).
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

/// Prints and returns the seed of this run, which `AFTERWORK_SEED` overrides.
pub fn seed() -> u64 {
    let seed = std::env::var("AFTERWORK_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| u64::from(std::process::id()) ^ sync::time::now_ns());
    println!("AFTERWORK_SEED={seed}");
    seed
}
