//! Batches of small items. A producer waits for all items of a batch together. Batches are created
//! once for all runs.

use crossbeam_utils::CachePadded;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::time::cycles;

use super::completion::Latch;
use crate::harness::latency::Latencies;

/// The sampling interval: reading the clock delays the other items.
pub const SAMPLE_EVERY: usize = 16;

/// The number of adjacent items that share a counter, whose last item decrements the batch's latch.
/// A single counter would dominate: two CPUs need 25 ns for each decrement.
const GROUP: usize = 1000;

/// An item. Its work is to decrement its group's counter, and to read the clock if it is sampled.
#[derive(Clone, Copy)]
pub struct Item {
    group: &'static Group,
    probe: Option<&'static Probe>,
}

struct Group {
    missing: CachePadded<AtomicUsize>,
    items: usize,
    latch: &'static Latch,
}

#[derive(Debug, Default)]
struct Probe {
    queued: AtomicU64,
    ran: AtomicU64,
}

/// A batch of items, with their counters. It is leaked, so that pools can hold `'static` items.
pub struct Batch {
    items: Vec<Item>,
    groups: &'static [Group],
    probes: &'static [CachePadded<Probe>],
    latch: &'static Latch,
}

impl Item {
    #[inline]
    pub fn run(self) {
        if let Some(probe) = self.probe {
            probe.ran.store(cycles(), Ordering::Relaxed);
        }
        // ORDER(group): publish and consume along one word, both ends on this line. If our
        // decrement is the last one, we acquire the writes by all other items. Otherwise the last
        // one acquires ours.
        // Test: a_batch_is_done_when_every_item_ran.
        if self.group.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.group.latch.arrive();
        }
    }
}

impl Batch {
    /// Creates `items` items, or one if that is 0, and never frees them.
    pub fn leak(items: usize) -> &'static Self {
        let latch: &'static Latch = Box::leak(Box::default());
        let groups = (0..items.div_ceil(GROUP)).map(|index| Group {
            missing: CachePadded::default(),
            items: GROUP.min(items - index * GROUP),
            latch,
        });
        let groups: &'static [Group] = Vec::leak(groups.collect());
        let probes = (0..items.div_ceil(SAMPLE_EVERY)).map(|_| CachePadded::<Probe>::default());
        let probes: &'static [CachePadded<Probe>] = Vec::leak(probes.collect());
        let items = (0..items).map(|index| Item {
            group: &groups[index / GROUP],
            probe: index.is_multiple_of(SAMPLE_EVERY).then(|| &*probes[index / SAMPLE_EVERY]),
        });
        Box::leak(Box::new(Self { items: items.collect(), groups, probes, latch }))
    }

    pub fn items(&'static self) -> &'static [Item] {
        &self.items
    }

    pub fn nr_sampled(&self) -> usize {
        self.probes.len()
    }

    /// Queues every item once with `queue(index)`, and records the times of the sampled items. If
    /// `stop`, called once per group, returns `true`, runs the remaining items on this thread, so
    /// that [`wait`](Self::wait) still returns. Returns `true` if all items were queued.
    #[inline]
    pub fn queue_all(
        &self,
        mut queue: impl FnMut(usize),
        stop: impl Fn() -> bool,
        enqueue: &mut Latencies,
    ) -> bool {
        self.latch.arm(self.groups.len());
        for group in self.groups {
            group.missing.store(group.items, Ordering::Relaxed);
        }
        let mut next = 0;
        for (group, members) in self.groups.iter().enumerate() {
            if stop() {
                self.items[next..].iter().for_each(|item| item.run());
                return false;
            }
            let end = group * GROUP + members.items;
            while next < end {
                // Only multiples of `SAMPLE_EVERY` are sampled, so the inner loop has none.
                let run_end = (next + 1).next_multiple_of(SAMPLE_EVERY).min(end);
                if let Some(probe) = self.items[next].probe {
                    let start = cycles();
                    probe.queued.store(start, Ordering::Relaxed);
                    queue(next);
                    enqueue.push(start, cycles());
                } else {
                    queue(next);
                }
                (next + 1..run_end).for_each(&mut queue);
                next = run_end;
            }
        }
        true
    }

    pub fn wait(&self) {
        self.latch.wait();
    }

    /// Adds the time from queueing to running of every sampled item, after [`wait`](Self::wait).
    pub fn harvest(&self, completion: &mut Latencies) {
        for probe in self.probes {
            completion
                .push(probe.queued.load(Ordering::Relaxed), probe.ran.load(Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_batch_is_done_when_every_item_ran() {
        let batch = Batch::leak(2 * GROUP + 7);
        let (sender, receiver) = mpsc::channel::<usize>();
        thread::scope(|scope| {
            scope.spawn(move || receiver.iter().for_each(|index| batch.items()[index].run()));
            for _ in 0..3 {
                let mut enqueue = Latencies::default();
                let all =
                    batch.queue_all(|index| sender.send(index).unwrap(), || false, &mut enqueue);
                batch.wait();
                assert!(all && batch.groups.iter().all(|g| g.missing.load(Ordering::Relaxed) == 0));
                let mut completion = Latencies::default();
                batch.harvest(&mut completion);
                assert!(completion.percentiles_ns([50.0]).is_some());
            }
            drop(sender);
        });
    }

    #[test]
    fn a_stopped_batch_still_completes() {
        let batch = Batch::leak(5 * GROUP);
        let asked = std::cell::Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) == 2;
        let mut queued = 0;
        let queue = |index: usize| {
            queued += 1;
            batch.items()[index].run();
        };
        assert!(!batch.queue_all(queue, stop, &mut Latencies::default()));
        batch.wait();
        assert_eq!(queued, 2 * GROUP);
    }

    proptest! {
        #[test]
        fn every_item_is_queued_once_in_order(items in 1..3 * GROUP) {
            let batch = Batch::leak(items);
            let mut queued = Vec::new();
            batch.queue_all(|index| queued.push(index), || false, &mut Latencies::default());
            prop_assert_eq!(queued, (0..items).collect::<Vec<_>>());
        }
    }
}
