//! Runs a case in the same way for all of its variants.

use top::interrupt::Interrupt;
use topology::CpuId;

use super::batch::Batch;
use super::completion::Completion;
use super::metrics;
use super::producers::{self, WARM_UP_SHARE, Window};
use super::subject::Subject;
use crate::bench::settings::Settings;
use crate::harness::case::{Ran, Sample};
use crate::harness::latency::Latencies;

/// The sampling interval of one-at-a-time: reading the clock costs as much as an item.
const LONE_SAMPLE_EVERY: usize = 8;

#[derive(Clone)]
pub struct Shape {
    pub task: Task,
    pub pins: Vec<CpuId>,
    pub interrupt: Interrupt,
}

/// The task of each producer. Its completions and batches are created once for all runs.
#[derive(Clone)]
pub enum Task {
    /// Each producer, one per completion, queues items one at a time and waits for each.
    OneAtATime { items: usize, completions: Vec<&'static Completion> },
    /// Each producer, one per batch, repeatedly queues its batch and waits for all items.
    Batches { rounds: usize, batches: Vec<&'static Batch> },
}

struct Harvest {
    items: usize,
    enqueue: Latencies,
    completion: Latencies,
    whole: bool,
}

impl Task {
    pub fn one_at_a_time(producers: usize, items: usize) -> Self {
        let completions = (0..producers).map(|_| &*Box::leak(Box::default())).collect();
        Self::OneAtATime { items: items.next_multiple_of(LONE_SAMPLE_EVERY), completions }
    }

    pub fn batches(producers: usize, size: usize, rounds: usize) -> Self {
        Self::Batches { rounds, batches: (0..producers).map(|_| Batch::leak(size)).collect() }
    }
}

impl Shape {
    pub fn new(task: Task, Settings { pins, interrupt, .. }: &Settings) -> Self {
        Self { task, pins: pins.clone(), interrupt: interrupt.clone() }
    }

    pub fn run<S: Subject>(&self, subject: &S) -> Ran {
        let counts = || subject.counts();
        let (harvests, window) = match &self.task {
            Task::OneAtATime { items, completions } => {
                producers::run(completions.len(), &self.pins, counts, |index, gate| {
                    let (mut queue, mut wait) = subject.lone(completions[index]);
                    self.lone((&mut queue, &mut wait), items / WARM_UP_SHARE);
                    gate.pass(|| self.lone((&mut queue, &mut wait), *items))
                })
            }
            Task::Batches { rounds, batches } => {
                producers::run(batches.len(), &self.pins, counts, |index, gate| {
                    let batch = batches[index];
                    let mut load = subject.load(batch.items());
                    // At least one whole batch, so that pools that grow on demand have grown.
                    self.batches(batch, &mut load, rounds.div_ceil(WARM_UP_SHARE));
                    gate.pass(|| self.batches(batch, &mut load, *rounds))
                })
            }
        };
        Ok(sample(harvests, &window))
    }

    fn lone<H>(
        &self,
        (queue, wait): (&mut impl FnMut() -> H, &mut impl FnMut(H)),
        items: usize,
    ) -> Harvest {
        let mut harvest = Harvest::with_capacity_for(items / LONE_SAMPLE_EVERY);
        for _ in 0..items / LONE_SAMPLE_EVERY {
            if self.interrupt.requested() {
                harvest.whole = false;
                break;
            }
            let start = sync::time::cycles();
            let handle = queue();
            harvest.enqueue.push(start, sync::time::cycles());
            wait(handle);
            harvest.completion.push(start, sync::time::cycles());
            for _ in 1..LONE_SAMPLE_EVERY {
                wait(queue());
            }
            harvest.items += LONE_SAMPLE_EVERY;
        }
        harvest
    }

    fn batches(
        &self,
        batch: &'static Batch,
        load: &mut impl FnMut(usize),
        rounds: usize,
    ) -> Harvest {
        let mut harvest = Harvest::with_capacity_for(rounds * batch.nr_sampled());
        for _ in 0..rounds {
            let stop = || self.interrupt.requested();
            harvest.whole &= batch.queue_all(&mut *load, stop, &mut harvest.enqueue);
            batch.wait();
            if !harvest.whole {
                break;
            }
            batch.harvest(&mut harvest.completion);
            harvest.items += batch.items().len();
        }
        harvest
    }
}

impl Harvest {
    fn with_capacity_for(samples: usize) -> Self {
        Self {
            items: 0,
            enqueue: Latencies::with_capacity_for(samples),
            completion: Latencies::with_capacity_for(samples),
            whole: true,
        }
    }
}

fn sample(harvests: Vec<Harvest>, window: &Window) -> Option<Sample> {
    let (mut enqueue, mut completion) = (Latencies::default(), Latencies::default());
    let mut items = 0;
    for harvest in harvests {
        if !harvest.whole {
            return None;
        }
        items += harvest.items;
        enqueue.absorb(&harvest.enqueue);
        completion.absorb(&harvest.completion);
    }
    Some(metrics::sample(items, window, enqueue, completion))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workqueue::completion::Waiting;
    use crate::bench::workqueue::peers::{Crossbeam, Peer};
    use crate::bench::workqueue::subject::OneShot;

    fn shape(task: Task) -> Shape {
        Shape { task, pins: Vec::new(), interrupt: Interrupt::default() }
    }

    fn both() -> [Shape; 2] {
        [Task::one_at_a_time(2, 40), Task::batches(2, 100, 3)].map(shape)
    }

    #[test]
    fn both_tasks_measure_throughput_and_both_latencies() {
        for shape in both() {
            let sample =
                shape.run(&OneShot(Crossbeam::start(2).unwrap(), Waiting::Parks)).unwrap().unwrap();
            for metric in [metrics::ITEMS_PER_S, "enqueue_p50", metrics::COMPLETION_P95] {
                assert!(sample.value(metric).unwrap() > 0.0, "{metric}");
            }
        }
    }

    #[test]
    fn an_interrupted_run_yields_no_sample() {
        for shape in both() {
            shape.interrupt.request();
            let pool = OneShot(Crossbeam::start(2).unwrap(), Waiting::Parks);
            let sample = shape.run(&pool).unwrap();
            assert!(sample.is_none());
        }
    }
}
