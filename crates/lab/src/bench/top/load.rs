//! A busy queue, in stretches that are looked at and stretches that are not, by turns.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use afterwork::observe;
use afterwork::params::Params;
use afterwork::workqueue::{Registry, Workqueue};
use topology::Topology;

use crate::exit::Stop;
use crate::measure::interrupt::Interrupt;
use crate::top::Watched;

/// How long a stretch is. Two looks fall into it.
const STRETCH: Duration = Duration::from_millis(200);
/// Between two looks: ten a second.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// Items that are queued and waited for together; the clock is read once for all.
const BATCH: usize = 200;

/// What is done in every other stretch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Nothing.
    Never,
    /// The page is there.
    Page,
    /// Somebody looks.
    Watched,
}

/// What a run yields.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Throughput of the stretches that were shown, by that of the others: the median of the pairs.
    pub kept: f64,
    /// How long the process took to gather its figures: the median of the looks.
    pub gather_ns: Option<f64>,
}

/// Measures `nr_pairs` pairs of stretches; nothing if the user interrupts.
///
/// # Errors
///
/// The pools, the page or the looks fail.
pub fn measure(
    shown: Shown,
    nr_pairs: usize,
    interrupt: &Interrupt,
) -> Result<Option<Measured>, Stop> {
    let cannot = |error: &dyn std::fmt::Display| Stop::because("cannot start our pools", error);
    let topology = Topology::detect().map_err(|error| cannot(&error))?;
    let registry = Registry::new(topology, Params::default()).map_err(|error| cannot(&error))?;
    let queue = Workqueue::builder("load")
        .build_in(&registry)
        .map_err(|error| cannot(&error))?;
    // Also if the environment published it.
    observe::unpublish();
    work(&queue);
    let (mut kept, mut gather_ns) = (Vec::new(), Vec::new());
    for pair in 0..nr_pairs {
        let mut rates = [0.0; 2];
        // Who comes first takes turns: the machine may slow down or speed up.
        for is_shown in [pair.is_multiple_of(2), !pair.is_multiple_of(2)] {
            if interrupt.requested() {
                return Ok(None);
            }
            rates[usize::from(is_shown)] = if is_shown {
                stretch(&queue, shown, &mut gather_ns)?
            } else {
                work(&queue)
            };
        }
        kept.push(rates[1] / rates[0]);
    }
    Ok(median(&mut kept).map(|kept| Measured {
        kept,
        gather_ns: median(&mut gather_ns),
    }))
}

fn stretch(queue: &Workqueue, shown: Shown, gather_ns: &mut Vec<f64>) -> Result<f64, Stop> {
    if shown == Shown::Never {
        return Ok(work(queue));
    }
    let path = observe::publish().map_err(|error| Stop::because("cannot publish", error))?;
    let rate = if shown == Shown::Page {
        Ok(work(queue))
    } else {
        let cannot = |reason: &str| Stop::because("cannot look at ourselves", reason);
        let mut watched = Watched::open(&path).map_err(|no_look| cannot(no_look.reason()))?;
        let (stop, stopped) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let looker = scope.spawn(move || {
                let mut seen = Vec::new();
                while stopped.recv_timeout(LOOK_PERIOD / 2) == Err(RecvTimeoutError::Timeout) {
                    seen.push(watched.look());
                    if stopped.recv_timeout(LOOK_PERIOD / 2) != Err(RecvTimeoutError::Timeout) {
                        break;
                    }
                }
                seen
            });
            let rate = work(queue);
            drop(stop);
            for look in looker.join().expect("looking does not panic") {
                let look = look.map_err(|no_look| cannot(no_look.reason()))?;
                gather_ns.push(look.page.took_ns as f64);
            }
            Ok(rate)
        })
    };
    observe::unpublish();
    rate
}

/// Queues and runs items for a stretch; returns how many a second.
fn work(queue: &Workqueue) -> f64 {
    let (start, mut nr_done) = (Instant::now(), 0);
    loop {
        let items: Vec<_> = (0..BATCH).map(|_| queue.spawn(|| ())).collect();
        for item in items {
            item.join().expect("an empty item does not panic");
        }
        nr_done += BATCH;
        let elapsed = start.elapsed();
        if elapsed >= STRETCH {
            return nr_done as f64 / elapsed.as_secs_f64();
        }
    }
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values.get(values.len().saturating_sub(1) / 2)?;
    Some((upper + lower) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut []), None);
    }
}
