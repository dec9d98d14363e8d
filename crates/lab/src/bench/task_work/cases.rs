//! The cases: sizes and variants.

use std::cell::OnceCell;
use std::time::Duration;

use afterwork::mailbox::{Backlog, Mailbox};
use clap::Args;
use sync::time::cycles_per_us;
use top::talk::say;

use super::metrics::{
    GBITS, LATENCY_P50, LATENCY_P99, LOST, OWNER_CPU, PER_DRAIN, POST, POST_SHARE, REQUESTS,
    SERVICE, SHARE, TASK_WORK, WAKE, WAKEUPS,
};
use super::ours::Wait;
use super::peers;
use super::service::meter::Meter;
use super::service::owner::Served;
use super::service::run::{Service, ring_works};
use super::wake::{Post, Receive, Wake, Woken};
use crate::bench::settings::{Entry, Menu, Settings, Sizes, count, names};
use crate::harness::case::{Case, RunFn, Sample, Variant};
use crate::harness::claim::Claim;
use crate::harness::handover::ends;
use crate::harness::metric::Text;

const BENCH: &str = "task-work";
const CASES: [Entry<Setting, Option<Case>>; 4] = [
    ("wake", |it, name| Some(it.wake_by(name, "one item", 1, claims()))),
    ("wake-burst", |it, name| Some(it.wake_by(name, "32 items at once", BURST, Vec::new()))),
    ("service-8", |it, name| it.service(name, FEW_CLIENTS)),
    ("service-1024", |it, name| it.service(name, MANY_CLIENTS)),
];
pub const MENU: Menu = Menu { cases: &names(&CASES), peers: &peers::NAMES };

/// Options of `bench task-work`.
#[derive(Args, Clone, Debug, Default)]
pub struct TaskWorkArgs {
    /// Items in each run of the wake cases [default: depends on --quick]
    #[arg(long, value_name = "N", value_parser = count::<10_000_000>)]
    pub items: Option<usize>,
}

const WAIT_1: &str = "wait-1";
const WAIT_1_NO_SPIN: &str = "wait-1+no-spin";
const WAIT_8: &str = "wait-8";
const WAIT_32: &str = "wait-32";
const WAIT_8_CAP: &str = "wait-8+cap";
const WAIT_32_CAP: &str = "wait-32+cap";
const CAP_AND_WAKE: &str = "(cap+1 wake)";

const FIFO: &str = "mailbox";
const LIFO: &str = "mailbox+lifo";
const FIFO_STREAM: &str = "mailbox stream";
const LIFO_STREAM: &str = "mailbox+lifo stream";

const FEW_CLIENTS: usize = 8;
const MANY_CLIENTS: usize = 1024;

/// The bytes of a request. Larger messages would mostly be copied, smaller ones mostly sent.
const MESSAGE: usize = 4096;

/// The milliseconds of the warm-up and of the measurement.
const SERVED_MS: Sizes<[u64; 2]> = [[200, 800], [100, 300]];

/// The time between items, in which the owner of single items can fall asleep.
const GAP: Duration = Duration::from_micros(10);

/// The number of items in a burst, which is the largest number that an owner waits for.
const BURST: usize = 32;

/// The maximum wait of an owner with a cap. 32 items take longer to arrive, and 8 do not.
const CAP: Duration = Duration::from_micros(200);

const ONE_BY_ONE: Wait = Wait { count: 1, cap: None };

const LONE_GAP: Duration = Duration::from_micros(500);

const NR_LONE: usize = 200;

const NR_ITEMS: Sizes = [10_000, 5_000];

/// Without io_uring, prints a message and creates no service cases.
pub fn cases(args: &TaskWorkArgs, settings: &Settings) -> Vec<Case> {
    let items = settings.size(args.items, NR_ITEMS);
    let setting = Setting { settings: settings.clone(), items, ring: OnceCell::new() };
    settings.make(MENU, &CASES, &setting)
}

struct Setting {
    settings: Settings,
    items: usize,
    /// `true` if io_uring works here. It is tested for the first case that needs it.
    ring: OnceCell<bool>,
}

impl Setting {
    fn has_ring(&self) -> bool {
        let report = |error: &_| {
            say(format_args!("{BENCH} service: left out, there is no io_uring here: {error}"));
        };
        *self.ring.get_or_init(|| ring_works().inspect_err(report).is_ok())
    }

    fn wake_by(&self, name: Text, items: &str, burst: usize, claims: Vec<Claim>) -> Case {
        let gap = GAP * burst as u32;
        let wake = self.wake(burst, gap);
        let mut variants = self.waits(&wake);
        variants.extend((burst == 1).then(|| self.cap_and_wake()));
        variants.extend(self.channels(&wake));
        Case {
            about: format!(
                "{items} every {} us to an owner that waits; {} items; cap {} us",
                gap.as_micros(),
                self.items,
                CAP.as_micros()
            ),
            variants,
            claims,
            ..Case::new(BENCH, name, WAKE, OWNER_CPU.name)
        }
    }

    fn service(&self, name: Text, clients: usize) -> Option<Case> {
        if !self.has_ring() {
            return None;
        }
        let served_ms = self.settings.size(None, SERVED_MS);
        let [warm_up, measured] = served_ms.map(Duration::from_millis);
        let ways = [
            (FIFO, Backlog::Fifo, false),
            (LIFO, Backlog::Lifo, false),
            (FIFO_STREAM, Backlog::Fifo, true),
            (LIFO_STREAM, Backlog::Lifo, true),
        ];
        let variants = ways.map(|(name, backlog, streams)| {
            let service = Service {
                backlog,
                clients,
                streams,
                size: MESSAGE,
                warm_up,
                measured,
                interrupt: self.settings.interrupt.clone(),
            };
            let run = move || {
                Ok(Sample::beside(service.run()?, |ran| {
                    ran.map(|(served, posts)| served_sample(&served, &posts))
                }))
            };
            Variant::ours(name, run)
        });
        let claims = match clients {
            // With few clients there is little to reverse.
            FEW_CLIENTS => Vec::new(),
            _ => vec![
                // The LIFO list is walked twice, the first time with cache misses. The queue is
                // walked once.
                Claim::at_most(FIFO, SHARE, LIFO, 0.5),
                // The CPU time that task work saves is available for requests.
                Claim::at_least(FIFO, REQUESTS, LIFO, 1.0),
            ],
        };
        Some(Case {
            about: format!(
                "a TCP service on one io_uring thread; {clients} clients; {MESSAGE} bytes each way, or a stream of them"
            ),
            variants: variants.into(),
            claims,
            ..Case::new(BENCH, name, SERVICE, REQUESTS.name)
        })
    }

    fn wake(&self, burst: usize, gap: Duration) -> Wake {
        Wake {
            items: self.items,
            burst,
            gap,
            pins: ends(&self.settings.cpus),
            interrupt: self.settings.interrupt.clone(),
        }
    }

    fn waits(&self, wake: &Wake) -> Vec<Variant> {
        let way = |name: &str, count, cap| {
            let wait = Wait { count, cap };
            Variant::ours(name, woken(wake, move || wait.open(Mailbox::new())))
        };
        let no_spin = woken(wake, || ONE_BY_ONE.open(without_spin()));
        vec![
            way(WAIT_1, 1, None),
            Variant::ours(WAIT_1_NO_SPIN, no_spin),
            way(WAIT_8, 8, None),
            way(WAIT_32, 32, None),
            way(WAIT_8_CAP, 8, Some(CAP)),
            way(WAIT_32_CAP, 32, Some(CAP)),
        ]
    }

    /// Returns a variant that measures the limit for owners with a cap in the same repetition.
    fn cap_and_wake(&self) -> Variant {
        let lone = Wake { items: NR_LONE.min(self.items), ..self.wake(1, LONE_GAP) };
        let run = move || {
            let Some(woken) = lone.run(ONE_BY_ONE.open(without_spin()))? else { return Ok(None) };
            let mut sample = Sample::default();
            if let Some([p50, p99]) = woken.latencies.percentiles_ns([50.0, 99.0]) {
                let cap = CAP.as_nanos() as f64;
                sample.set(LATENCY_P50, cap + p50);
                sample.set(LATENCY_P99, cap + p99);
            }
            Ok(Some(sample))
        };
        Variant::ours(CAP_AND_WAKE, run)
    }

    fn channels(&self, wake: &Wake) -> [Variant; 5] {
        let tokio = tokio::sync::mpsc::unbounded_channel;
        [
            Variant::peer(peers::STD, woken(wake, std::sync::mpsc::channel)),
            Variant::peer(peers::TOKIO, woken(wake, tokio)),
            Variant::peer(peers::CROSSBEAM, woken(wake, crossbeam_channel::unbounded)),
            Variant::peer(peers::FLUME, woken(wake, flume::unbounded)),
            Variant::peer(peers::KANAL, woken(wake, kanal::unbounded)),
        ]
    }
}

fn claims() -> Vec<Claim> {
    let peers = [peers::STD, peers::TOKIO, peers::CROSSBEAM];
    let mut claims = Vec::new();
    // Most wake-ups are for 32 items. An owner of single items mostly sleeps and wakes.
    claims.extend(peers.map(|it| Claim::at_most(WAIT_32, WAKEUPS, it, 0.1)));
    claims.extend(peers.map(|it| Claim::at_most(WAIT_32, OWNER_CPU, it, 0.333)));
    let capped = [WAIT_8_CAP, WAIT_32_CAP];
    claims.extend(capped.map(|it| Claim::at_most(it, LATENCY_P99, CAP_AND_WAKE, 1.0)));
    claims.push(Claim::at_most(WAIT_1, LATENCY_P99, peers::STD, 1.0));
    claims
}

fn without_spin() -> Mailbox<u64> {
    Mailbox::builder().spin_limit(0).build()
}

fn woken<P: Post, R: Receive>(wake: &Wake, open: impl Fn() -> (P, R) + 'static) -> RunFn {
    let wake = wake.clone();
    Box::new(move || Ok(wake.run(open())?.map(woken_sample)))
}

fn woken_sample(woken: Woken) -> Sample {
    let items = woken.items as f64;
    let post_us = woken.post_cycles as f64 / cycles_per_us() as f64;
    Sample::of([
        (WAKEUPS, woken.owner.slept as f64 * 1000.0 / items),
        (OWNER_CPU, woken.owner.cpu_ns as f64 / items),
        (POST, post_us * 1000.0 / items),
    ])
    .with_percentiles(woken.latencies, [(50.0, LATENCY_P50), (99.0, LATENCY_P99)])
}

fn served_sample(served: &Served, posts: &Meter) -> Sample {
    const BITS: f64 = 8.0;
    const NS_PER_S: f64 = 1e9;
    let requests = served.requests as f64;
    let per_ns = requests / served.wall_ns as f64;
    let task_work_ns = served.task_work.ns();
    let post_ns = posts.ns() / posts.items as f64;
    let per_request_ns = served.spent.cpu_ns as f64 / requests;
    Sample::of([
        (REQUESTS, per_ns * NS_PER_S),
        (GBITS, per_ns * MESSAGE as f64 * BITS),
        (SHARE, task_work_ns / served.spent.cpu_ns as f64),
        (TASK_WORK, task_work_ns / requests),
        (POST, post_ns),
        (POST_SHARE, post_ns / per_request_ns),
        (WAKEUPS, served.rung as f64 * 1000.0 / requests),
        (PER_DRAIN, requests / served.drains as f64),
        (OWNER_CPU, per_request_ns),
        (LOST, served.task_work.lost as f64),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::case::tests::run_each;

    #[test]
    fn every_owner_of_the_wake_cases_receives_everything() {
        let args = TaskWorkArgs { items: Some(320) };
        let cases = cases(&args, &Settings::of_tests(&["wake", "wake-burst"]));
        run_each(cases, |case, variant, sample| {
            let metrics = match variant.name.as_str() {
                CAP_AND_WAKE => &[LATENCY_P50, LATENCY_P99][..],
                _ => &[LATENCY_P50, LATENCY_P99, OWNER_CPU, POST],
            };
            for metric in metrics {
                let value = sample.value(metric.name);
                assert!(value.unwrap() > 0.0, "{} in {}", variant.name, case.name);
            }
        });
    }
}
