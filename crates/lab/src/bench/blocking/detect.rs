//! Measures the time that an item waits behind one that sleeps.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use afterwork::params::Params;
use afterwork::workqueue::{self, AffinityScope, Builder};
use top::exit::Stop;
use top::interrupt::Interrupt;

use crate::bench::workqueue::ours::Ours;
use crate::bench::workqueue::subject::OneShotPool;
use crate::harness::fingerprint::find_cpus;
use crate::harness::latency::Latencies;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    Announced,
    Unannounced,
}

impl Sleep {
    pub fn sleep(self, span: Duration) {
        match self {
            Self::Announced => workqueue::blocking(|| thread::sleep(span)),
            Self::Unannounced => thread::sleep(span),
        }
    }
}

pub fn start(scope: AffinityScope) -> Result<Ours, Stop> {
    let set = |builder: Builder| builder.affinity(scope).help(false);
    Ours::build(&find_cpus()?, Params::default(), set)
}

/// The duration of an item's sleep, which is much longer than it takes to wake another worker.
const NAP: Duration = Duration::from_millis(12);

/// Lets `rounds` items sleep, one after another, while another item waits behind each of them.
/// Returns the times until the other items ran, or `None` if interrupted. The first round, in which
/// the threads start, is not timed.
pub fn detect(
    sleep: Sleep,
    rounds: usize,
    interrupt: &Interrupt,
) -> Result<Option<Latencies>, Stop> {
    let ours = start(AffinityScope::Cpu)?;
    let mut latencies = Latencies::with_capacity_for(rounds);
    let start = Instant::now();
    for round in 0..=rounds {
        if interrupt.requested() {
            return Ok(None);
        }
        let (send, ran) = mpsc::channel();
        let asleep = send.clone();
        ours.submit(move || {
            asleep.send(start.elapsed()).ok();
            sleep.sleep(NAP);
        });
        ours.submit(move || _ = send.send(start.elapsed()));
        let times: Vec<Duration> = ran.iter().collect();
        // The pause lets all workers park before the next round.
        ours.queue.drain().map_err(Stop::because("cannot drain"))?;
        thread::sleep(NAP / 6);
        if let ([first, second], true) = (times.as_slice(), round > 0) {
            latencies.push(first.as_nanos() as u64, second.as_nanos() as u64);
        }
    }
    Ok(Some(latencies))
}
