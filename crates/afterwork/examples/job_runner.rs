//! A job runner for several tenants.
//!
//! | promise | kept by |
//! |---|---|
//! | a tenant has limits on concurrent jobs and on starts in a period | `max_active`, `RateLimit` |
//! | a job that fails is retried after pauses that grow and vary | `retry`, `Backoff` |
//! | a job that fails on every attempt is added to a list | `strand` |
//! | a tenant does not wait behind the jobs of another one | `shares` |
//! | a tenant can be cancelled with all its jobs, even waiting ones | `CancellationToken` |
//! | metrics for Prometheus | `Exposition`; `hidden` queues are left out |
//!
//! `cargo run --release --example job_runner`

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use afterwork::observe::{Exposition, snapshot_of};
use afterwork::workqueue::{
    Backoff, CancellationToken, JoinHandle, RateLimit, Registry, Strand, TaskSet, Workqueue,
    blocking,
};

type Failure = Box<dyn Error + Send + Sync>;
type Job = Arc<dyn Fn() -> Result<(), Failure> + Send + Sync>;
/// The result of the last attempt; `None` if the job was cancelled.
type Outcome = Option<Result<(), Failure>>;

/// The maximum number of jobs that a tenant runs at once.
const LIMIT: u32 = 2;
/// The pause after the first attempt. The next one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);
const POLICY: Backoff = Backoff::new(3, PAUSE).longest(MINUTE);
const MINUTE: Duration = Duration::from_secs(60);

/// Tests each promise. Only `advance` moves the clock.
pub fn main() -> Result<(), Failure> {
    limits()?;
    failures()?;
    priority()?;
    cancel()
}

struct Tenant {
    registry: Registry,
    /// Runs the attempts.
    queue: Workqueue,
    /// Polls the futures that make the attempts.
    drivers: Workqueue,
    starts: RateLimit,
    cancel: CancellationToken,
    /// The errors of jobs that failed on every attempt.
    dead: Strand<Vec<String>>,
}

impl Tenant {
    /// Creates a tenant that starts at most one attempt in each `period`.
    fn new(of: &Registry, name: &str, shares: u32, period: Duration) -> Result<Arc<Self>, Failure> {
        let builder = || Workqueue::builder(name).shares(shares);
        let drivers = builder().hidden().build_in(of)?;
        Ok(Arc::new(Self {
            registry: of.clone(),
            queue: builder().max_active(LIMIT).build_in(of)?,
            dead: drivers.strand(Vec::new()),
            drivers,
            starts: of.rate_limit(period, 1),
            cancel: CancellationToken::new(),
        }))
    }

    fn submit(self: &Arc<Self>, job: Job) -> JoinHandle<Outcome> {
        let tenant = self.clone();
        self.drivers.spawn_async(async move {
            let attempts = tenant.registry.retry(POLICY, async || {
                tenant.starts.acquire().await;
                let job = job.clone();
                tenant.queue.spawn(move || job()).cancel_on_drop().await?
            });
            let outcome = tenant.cancel.until_cancelled(attempts).await;
            if let Some(Err(error)) = &outcome {
                let error = error.to_string();
                let _ = tenant.dead.spawn_detached(|dead| dead.push(error));
            }
            outcome
        })
    }
}

fn limits() -> Result<(), Failure> {
    let mut registry = Registry::for_tests()?;
    let slow = Tenant::new(&registry, "slow", 100, PAUSE)?;
    let (sender, starts) = channel();
    let job = Arc::new(move || Ok(sender.send(())?));
    let jobs = [(); 4].map(|()| slow.submit(job.clone()));
    registry.run_until_idle();
    for job in jobs {
        assert!(job.is_finished() && starts.try_iter().count() == 1);
        registry.advance(PAUSE);
    }

    let bulk = Tenant::new(&registry, "bulk", 100, Duration::ZERO)?;
    let nr_running = AtomicU32::new(0);
    let job = Arc::new(move || {
        assert!(nr_running.fetch_add(1, Relaxed) < LIMIT);
        blocking(|| thread::sleep(Duration::from_millis(1)));
        nr_running.fetch_sub(1, Relaxed);
        Ok(())
    });
    let mut jobs = TaskSet::new(&bulk.drivers);
    (0..4 * LIMIT).for_each(|_| jobs.add(bulk.submit(job.clone())));
    registry.advance(MINUTE);
    for outcome in jobs.results() {
        outcome?.expect("no job was cancelled")?;
    }
    Ok(())
}

fn failures() -> Result<(), Failure> {
    let mut registry = Registry::for_tests()?;
    let tenant = Tenant::new(&registry, "mail", 100, Duration::ZERO)?;
    let (sender, starts) = channel();
    let clock = registry.clone();
    let job = tenant.submit(Arc::new(move || {
        sender.send(clock.now())?;
        Err("the mailbox is full".into())
    }));
    registry.advance(3 * PAUSE);
    assert!(matches!(job.join()?, Some(Err(_))));
    let dead = tenant.dead.spawn(std::mem::take).join()?;
    assert_eq!(dead, ["the mailbox is full"]);
    let [first, second] = [starts.recv()?, starts.recv()?];
    assert!((PAUSE / 2..=PAUSE).contains(&(second - first)));
    assert!((PAUSE..=2 * PAUSE).contains(&(starts.recv()? - second)));
    assert!(starts.try_recv().is_err(), "it has three attempts");

    let mut metrics = Exposition::new();
    metrics.add_snapshot(&[], &snapshot_of(&registry));
    metrics.counter("dead_total", "Failed jobs", &[], dead.len() as f64);
    let text = metrics.to_string();
    assert!(text.contains("dead_total 1\n"));
    // The other queue is hidden.
    assert_eq!(text.matches("\nafterwork_queue_started_total{").count(), 1);
    Ok(())
}

fn priority() -> Result<(), Failure> {
    let registry = Registry::for_tests()?;
    let bulk = Tenant::new(&registry, "bulk", 100, Duration::ZERO)?;
    let gold = Tenant::new(&registry, "gold", 900, Duration::ZERO)?;
    let (sender, order) = channel();
    let job = |name| {
        let sender = sender.clone();
        Arc::new(move || Ok(sender.send(name)?))
    };
    let (many, one) = (job("bulk"), job("gold"));
    let (flood, other) = (bulk.clone(), gold.clone());
    // The only worker starts no job before this item has submitted all of them.
    bulk.queue.spawn_detached(move || {
        (0..100).for_each(|_| drop(flood.submit(many.clone())));
        drop(other.submit(one));
    })?;
    registry.run_until_idle();
    assert_eq!(order.try_iter().last(), Some("bulk"), "overtaken");
    Ok(())
}

fn cancel() -> Result<(), Failure> {
    let registry = Registry::for_tests()?;
    let tenant = Tenant::new(&registry, "left", 100, Duration::ZERO)?;
    let mut jobs = TaskSet::new(&tenant.drivers);
    // One job waits for its second attempt, `LIMIT` jobs run, and one job waits for those.
    jobs.add(tenant.submit(Arc::new(|| Err("busy".into()))));
    registry.run_until_idle();
    let (sender, starts) = channel();
    let job = Arc::new(move || {
        sender.send(())?;
        assert!(CancellationToken::current().wait_timeout(MINUTE));
        Ok(())
    });
    (0..=LIMIT).for_each(|_| jobs.add(tenant.submit(job.clone())));
    (0..LIMIT).try_for_each(|_| starts.recv())?;
    tenant.cancel.cancel();
    // The running jobs see that they are cancelled, and the last one does not start.
    tenant.queue.shutdown(MINUTE)?;
    assert!(starts.try_recv().is_err());
    registry.run_until_idle();
    for _ in 0..LIMIT + 2 {
        let outcome = jobs.try_join_next().ok_or("a job was not cancelled")?;
        assert!(outcome?.is_none());
    }
    Ok(())
}
