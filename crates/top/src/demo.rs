//! `afterwork demo`: a load of every kind, which can be watched in `afterwork top`.

use std::thread;
use std::time::{Duration, Instant};

use afterwork::mailbox::Mailbox;
use afterwork::observe;
use afterwork::percpu::PerCpu;
use afterwork::rcu::{self, Rcu};
use afterwork::workqueue::{self, DelayedWork, Workqueue};
use clap::Args;

use crate::cli::number;
use crate::exit::{Exit, Stop};
use crate::interrupt::Interrupt;

/// Runs a load worth watching: a queue at its limit with waiting items, a queue with blocking
/// items, delayed items, an ordered queue, a mailbox whose owner takes its items in batches, RCU
/// callbacks, and per-CPU data that is drained.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// End after this number of seconds; by default on Ctrl-C
    #[arg(long, value_name = "S", value_parser = number::<1, 86_400>)]
    pub seconds: Option<u64>,
}

/// The time between two rounds of the load. This is also the maximum delay before Ctrl-C takes
/// effect.
const ROUND: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_secs(1);
/// The number of items in the queue that is always at its limit.
const BACKLOG: usize = 100;

/// Runs the load until it must end.
pub fn run(args: &DemoArgs) -> Result<Exit, Stop> {
    let interrupt = Interrupt::install().map_err(Stop::because("cannot catch SIGINT"))?;
    observe::publish().map_err(Stop::because("cannot publish a page of this process"))?;
    let failed = "cannot create a queue";
    let queue = |name: &str, limit| {
        Workqueue::builder(name).max_active(limit).build().map_err(Stop::because(failed))
    };
    let (thumbnails, fetch, later) =
        (queue("thumbnails", 2)?, queue("fetch", 16)?, queue("later", 4)?);
    let delayed: [DelayedWork; 64] = std::array::from_fn(|_| DelayedWork::new(|| ()));
    let log = Workqueue::builder("log").ordered().build().map_err(Stop::because(failed))?;
    let counts = PerCpu::builder().name("counts").build(|_cpu| 0_u64);
    let counts = counts.map_err(Stop::because(failed))?;
    let routes = Rcu::new(0_u64);
    let mut mailbox = Mailbox::builder().name("loop").build();
    let poster = mailbox.poster();
    let owner = thread::spawn(move || {
        while mailbox.wait(8).is_ok() {
            mailbox.drain(32).for_each(drop::<u64>);
        }
    });
    let text = format!(
        "process {0} runs the load; watch it from another terminal:\n  afterwork top {0}\nCtrl-C ends it\n",
        std::process::id()
    );
    crate::print(text.as_bytes())?;

    let end = args.seconds.map(|s| Instant::now() + Duration::from_secs(s));
    let mut round = 0_u64;
    while !interrupt.requested() && end.is_none_or(|end| Instant::now() < end) {
        // The load rises and falls in waves of a few seconds.
        let wave = 1 + (round / 50) % 5;
        for _ in 0..wave {
            drop(fetch.spawn(fetch_page));
            drop(log.spawn(write_line));
            // The owner outlives this poster.
            let _ = poster.post_lazy(round);
        }
        // No thread waits for these items. Two run at a time, and the others stay in the queue.
        for _ in thumbnails.stats().nr_inactive..BACKLOG {
            thumbnails.spawn_detached(draw_thumbnail).expect("it is open");
        }
        later.enqueue_after(&delayed[round as usize % delayed.len()], PAUSE);
        counts.with_current(|count| *count += wave);
        if round.is_multiple_of(50) {
            counts.drain_all(|_cpu, count| *count = 0);
        }
        rcu::call(|| ());
        routes.replace(round);
        round += 1;
        thread::sleep(ROUND);
    }
    drop(poster);
    let _ = owner.join();
    Ok(if interrupt.requested() { Exit::Interrupted } else { Exit::Good })
}

// The items are functions with names, so that `top` shows these names.

fn fetch_page() {
    workqueue::blocking(|| thread::sleep(ROUND));
}

fn write_line() {
    drop(rcu::read());
}

/// Uses a CPU for a millisecond, and sleeps for two rounds.
fn draw_thumbnail() {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1) {
        std::hint::spin_loop();
    }
    workqueue::blocking(|| thread::sleep(2 * ROUND));
}
