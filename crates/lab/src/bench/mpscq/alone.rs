//! Push and pop on a single thread: what the instructions cost when nobody contends for a line.

use sync::time::cycles;
use top::exit::Stop;
use top::interrupt::Interrupt;

use super::fifo::{BURST, Fifo, Popper, Pusher};
use super::item::Item;
use super::stock::Stock;
use crate::harness::latency::Latencies;

/// Bursts that are timed together: as many as make the clock negligible.
const BURSTS: usize = 32;

/// Items of one sweep.
const SWEEP: usize = BURSTS * BURST;

/// Untimed sweeps before the timed ones: caches and branch predictors have seen it then.
const WARM_UP_SWEEPS: usize = 2;

/// Pushes [`BURST`] items and pops them, over and over; returns the nanoseconds an item, or `None` if SIGINT cut
/// it short.
///
/// They are always the same items, so all of it stays in the first cache. The median sweep is told: one that was
/// interrupted by another program does not count.
pub fn run<Q: Fifo<Item: Item>>(
    mut queue: Q,
    stock: &mut Stock<Q::Item>,
    items: usize,
    interrupt: &Interrupt,
) -> Result<Option<f64>, Stop> {
    let mut all = stock.take(1).remove(0);
    let mut burst: Vec<Q::Item> = all.drain(..BURST).collect();
    let ns = {
        let (mut pushers, mut popper) = queue.open(1);
        median_ns(&mut burst, items, interrupt, |burst| {
            for mut item in burst.drain(..) {
                item.fill();
                pushers[0].push(item);
            }
            pushers[0].flush();
            popper.pop_up_to(BURST, |item| burst.push(item));
        })
    };
    if !stock.put_back(all.into_iter().chain(burst)) {
        return Err(Stop::CouldNotRun(
            "a queue lost an item on one thread".into(),
        ));
    }
    Ok(ns)
}

/// Does the same without a queue: what the loop itself costs, which every figure of [`run`] contains.
#[must_use]
pub fn without_queue<I: Item>(items: usize, interrupt: &Interrupt) -> Option<f64> {
    let mut burst: Vec<I> = (0..BURST).map(|_| I::make()).collect();
    let mut other = Vec::with_capacity(BURST);
    median_ns(&mut burst, items, interrupt, |burst| {
        for mut item in burst.drain(..) {
            item.fill();
            other.push(item);
        }
        std::mem::swap(burst, &mut other);
    })
}

/// Times `go`, which takes a burst of items away and brings them back; returns the nanoseconds an item.
#[inline(always)]
fn median_ns<I>(
    burst: &mut Vec<I>,
    items: usize,
    interrupt: &Interrupt,
    mut go: impl FnMut(&mut Vec<I>),
) -> Option<f64> {
    let sweeps = items.div_ceil(SWEEP);
    let mut times = Latencies::with_room(sweeps);
    for done in 0..WARM_UP_SWEEPS + sweeps {
        if interrupt.requested() {
            return None;
        }
        let start = cycles();
        for _ in 0..BURSTS {
            go(burst);
        }
        if done >= WARM_UP_SWEEPS {
            times.push(start, cycles());
        }
    }
    let [ns] = times.percentiles_ns([50.0])?;
    Some(ns / SWEEP as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::mpscq::item::Ours;
    use crate::bench::mpscq::ours::Single;
    use crate::bench::mpscq::peers::Cordyceps;
    use crate::bench::mpscq::stock::Layout;

    #[test]
    fn one_thread_takes_time_and_loses_nothing() {
        let interrupt = Interrupt::default();
        let mut stock = Stock::new(1, Layout::Contiguous);
        for _ in 0..2 {
            let ns = run(Single::default(), &mut stock, 1, &interrupt).unwrap();
            assert!(ns.unwrap() > 0.0);
        }
        let mut stock = Stock::new(1, Layout::Scattered);
        let ns = run(Cordyceps::default(), &mut stock, 5000, &interrupt).unwrap();
        assert!(ns.unwrap() > 0.0);
    }

    #[test]
    fn an_interrupted_run_yields_no_figure() {
        let interrupt = Interrupt::default();
        interrupt.request();
        let mut stock = Stock::new(1, Layout::Contiguous);
        let ns = run(Single::default(), &mut stock, 1, &interrupt).unwrap();
        assert_eq!((ns, without_queue::<Ours>(1, &interrupt)), (None, None));
    }
}
