//! Keeps items in flight on crews, and times each item from queueing to completion.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sync::hint::spin_loop;
use sync::time::{cycles, cycles_per_us};
use top::exit::Stop;
use top::interrupt::Interrupt;

use super::gauge::Gauge;
use super::metrics::{CPU, ITEMS, LATENCY_P50, LATENCY_P99, MEMORY, SWITCHES, THREADS};
use crate::bench::workqueue::producers::{joined, spawn};
use crate::bench::workqueue::subject::OneShotPool;
use crate::harness::case::{Ran, Sample};
use crate::harness::latency::Latencies;
use crate::harness::switches::Usage;

pub type Job = Box<dyn FnOnce() + Send>;

/// A function that submits a job to threads, a limited number of which may run at once.
pub type Crew = Arc<dyn Fn(Job) + Send + Sync>;

pub fn crew<P: OneShotPool + Send + 'static>(pool: Result<P, Stop>) -> Result<Crew, Stop> {
    let pool = pool?;
    Ok(Arc::new(move |job| pool.submit(job)))
}

/// The body of the item with a number. After a failure, the crew gets no more items.
pub type Body = Arc<dyn Fn(usize) -> Result<(), Stop> + Send + Sync>;

#[derive(Clone, Debug)]
pub struct Drive {
    pub items: usize,
    pub on_their_way: usize,
    /// If `None`, each crew is kept full. Otherwise the first crew is flooded and not timed, and
    /// each other crew gets one item per interval.
    pub every: Option<Duration>,
    pub interrupt: Interrupt,
}

struct Traffic {
    state: Mutex<State>,
    moved: Condvar,
    most: usize,
}

struct State {
    nr_there: usize,
    latencies: Latencies,
    failed: Option<Stop>,
}

/// An item in flight. It is dropped after its body, during a panic in the body, or without having
/// run.
struct Item {
    traffic: Arc<Traffic>,
    start: u64,
    done: Result<(), Stop>,
}

impl Drive {
    /// Runs all items on the crews that `hire` creates. Each crew has its own driver thread.
    pub fn run(&self, hire: impl FnOnce() -> Result<Vec<Crew>, Stop>, body: &Body) -> Ran {
        let gauge = Gauge::start()?;
        let crews = hire()?;
        let usage = Usage::now();
        let start = Instant::now();
        // The flood ends when the other crews have finished.
        let (is_over, mut nr_flooded) = (AtomicBool::new(false), 0);
        let traffic: Vec<_> = thread::scope(|scope| {
            let (flooded, paced) = crews.split_at(usize::from(self.every.is_some()));
            let over = &is_over;
            let flood = |crew| spawn(scope, "flood", None, move || self.flood(crew, body, over));
            let drive = |crew| spawn(scope, "driver", None, move || self.drive(crew, body));
            let flooders: Vec<_> = flooded.iter().map(flood).collect();
            let drivers: Vec<_> = paced.iter().map(drive).collect();
            let driven: Vec<_> = drivers.into_iter().map(joined).collect();
            is_over.store(true, Ordering::Relaxed);
            nr_flooded = flooders.into_iter().map(joined).sum::<Result<u64, _>>()?;
            driven.into_iter().collect::<Result<_, _>>()
        })?;
        let seconds = start.elapsed().as_secs_f64();
        let spent = Usage::now().since(usage);
        let nr_drivers = crews.len() as u64;
        let grown = gauge.growth();
        drop(crews);
        if self.interrupt.requested() {
            return Ok(None);
        }
        let items = (self.items as u64 * traffic.len() as u64 + nr_flooded) as f64;
        let mut latencies = Latencies::default();
        traffic.iter().for_each(|one| latencies.absorb(one));
        Ok(Some(
            Sample::of([
                (ITEMS, items / seconds),
                (THREADS, grown.threads.saturating_sub(nr_drivers) as f64),
                (MEMORY, grown.resident as f64),
                (SWITCHES, spent.switches() as f64 / items),
                (CPU, spent.cpu_ns as f64 / items),
            ])
            .with_percentiles(latencies, [(50.0, LATENCY_P50), (99.0, LATENCY_P99)]),
        ))
    }

    fn drive(&self, crew: &Crew, body: &Body) -> Result<Latencies, Stop> {
        let numbers = (0..self.items).inspect(|_| self.every.into_iter().for_each(thread::sleep));
        self.send(crew, body, numbers)
    }

    fn flood(&self, crew: &Crew, body: &Body, is_over: &AtomicBool) -> Result<u64, Stop> {
        let mut nr_sent = 0;
        let goes_on = |_: &usize| !is_over.load(Ordering::Relaxed);
        let numbers = (0..).take_while(goes_on).inspect(|_| nr_sent += 1);
        self.send(crew, body, numbers)?;
        Ok(nr_sent)
    }

    fn send(
        &self,
        crew: &Crew,
        body: &Body,
        numbers: impl Iterator<Item = usize>,
    ) -> Result<Latencies, Stop> {
        let traffic = Arc::new(Traffic {
            state: Mutex::new(State {
                nr_there: 0,
                latencies: Latencies::with_capacity_for(self.items),
                failed: None,
            }),
            moved: Condvar::new(),
            most: self.on_their_way,
        });
        for number in numbers {
            if self.interrupt.requested() || !traffic.enter() {
                break;
            }
            let (body, item) = (body.clone(), Item::begin(&traffic));
            crew(Box::new(move || item.run(&body, number)));
        }
        traffic.wait_for_all()
    }
}

impl Item {
    fn begin(traffic: &Arc<Traffic>) -> Self {
        Self {
            traffic: traffic.clone(),
            start: cycles(),
            done: Err(Stop::CouldNotRun("an item panicked, or was dropped".into())),
        }
    }

    fn run(mut self, body: &Body, number: usize) {
        self.done = body(number);
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        let done = std::mem::replace(&mut self.done, Ok(()));
        self.traffic.leave(self.start, done);
    }
}

impl Traffic {
    /// Waits until there is capacity. Returns `false`, without adding an item, if an item failed.
    fn enter(&self) -> bool {
        let state = self.state.lock().expect("no thread panics under it");
        let full = |state: &mut State| state.nr_there >= self.most;
        let mut state = self.moved.wait_while(state, full).expect("no panic here");
        let goes_on = state.failed.is_none();
        state.nr_there += usize::from(goes_on);
        goes_on
    }

    fn leave(&self, start: u64, done: Result<(), Stop>) {
        let mut state = self.state.lock().expect("no thread panics under it");
        state.nr_there -= 1;
        state.latencies.push(start, cycles());
        state.failed = state.failed.take().or(done.err());
        // The driver is notified when a quarter is free, not after each item.
        let notifies = state.nr_there == 0 || state.nr_there == self.most - self.most.div_ceil(4);
        drop(state);
        if notifies {
            self.moved.notify_one();
        }
    }

    fn wait_for_all(&self) -> Result<Latencies, Stop> {
        let state = self.state.lock().expect("no thread panics under it");
        let busy = |state: &mut State| state.nr_there > 0;
        let mut state = self.moved.wait_while(state, busy).expect("no panic here");
        match state.failed.take() {
            Some(failed) => Err(failed),
            None => Ok(std::mem::take(&mut state.latencies)),
        }
    }
}

pub fn burn(us: u64) {
    let end = cycles() + us * cycles_per_us();
    while cycles() < end {
        spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::bench::workqueue::peers::{Peer, Rayon, SpawnBlocking, ThreadPool};

    /// Runs items on the given crews, with up to seven in flight.
    fn run(
        (items, every): (usize, Option<Duration>),
        crews: impl FnOnce() -> Vec<Result<Crew, Stop>>,
        body: &Body,
    ) -> Result<Sample, Stop> {
        let drive = Drive { items, on_their_way: 7, every, interrupt: Interrupt::default() };
        let sample = drive.run(|| crews().into_iter().collect(), body)?;
        Ok(sample.expect("nothing interrupts it"))
    }

    #[test]
    fn every_item_is_run_and_timed_on_every_crew() {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let body: Body = Arc::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let crews = || {
            vec![crew(ThreadPool::start(2)), crew(Rayon::start(2)), crew(SpawnBlocking::start(3))]
        };
        let sample = run((500, None), crews, &body).unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 1500);
        assert!(sample.value(ITEMS.name).unwrap() > 0.0);
        assert!(sample.value(LATENCY_P99.name).unwrap() > 0.0);
    }

    #[test]
    fn an_item_that_fails_or_panics_ends_the_run_with_its_reason() {
        let nr_run = Arc::new(AtomicUsize::new(0));
        let counted = |fails: fn()| -> Body {
            let nr_run = nr_run.clone();
            Arc::new(move |number| {
                nr_run.fetch_add(1, Ordering::Relaxed);
                match number {
                    20 => fails(),
                    _ => return Ok(()),
                }
                Err(Stop::CouldNotRun("no capacity".into()))
            })
        };
        let fails = counted(|| ());
        let panics = counted(|| panic!("requested by the test"));
        for (body, expected) in [(fails, "no capacity"), (panics, "an item panicked")] {
            nr_run.store(0, Ordering::Relaxed);
            // Each crew has only one thread, so no other item runs while one fails.
            let crews = || vec![crew(ThreadPool::start(1)), crew(SpawnBlocking::start(1))];
            let Err(Stop::CouldNotRun(reason)) = run((500, None), crews, &body) else {
                panic!("the error is {expected}");
            };
            assert!(reason.starts_with(expected), "{reason}");
            // Each crew has also run the items that were in flight when the 21st failed.
            assert!(nr_run.load(Ordering::Relaxed) <= 2 * (21 + 7));
        }
    }

    #[test]
    fn the_first_crew_is_flooded_until_the_others_are_done() {
        let crews = || vec![crew(ThreadPool::start(1)), crew(ThreadPool::start(1))];
        let body: Body = Arc::new(|_| Ok(()));
        let sample = run((3, Some(Duration::from_millis(1))), crews, &body).unwrap();
        assert!(sample.value(LATENCY_P99.name).unwrap() > 0.0);
    }
}
