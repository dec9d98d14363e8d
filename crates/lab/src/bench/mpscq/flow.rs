//! Items that circulate between producer threads and one consumer.
//!
//! ```text
//! producer ──push──► queue ──pop──► consumer
//!     ▲                                │ in groups
//!     └───────────── home ◄────────────┘
//! ```
//!
//! Each producer has a fixed number of items, and pushes those that have returned to its home. The
//! run is therefore in a steady state: the queue has a realistic length, and only the queue itself
//! allocates memory. Items return to their homes in the same way for all queues.

use std::sync::Barrier;
use std::thread;

use crossbeam_utils::CachePadded;
use sync::Mutex;
use sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use sync::time::now_ns;
use top::exit::Stop;
use top::interrupt::Interrupt;
use topology::CpuId;

use super::fifo::{Fifo, Popper, Pusher};
use super::item::Item;
use super::polling::{Backoff, Polling};
use super::stock::{ITEMS, Stock};
use crate::bench::workqueue::producers::{WARM_UP_SHARE, joined, spawn};

/// The number of items that the consumer collects before it returns them. With fewer items, the
/// mutex of the home would affect the figure. With more, producers would run out of items.
const RETURN: usize = 128;

const POP: usize = 128;

#[derive(Clone, Debug)]
pub struct Flow {
    pub producers: usize,
    /// The number of timed items of all producers together.
    pub items: usize,
    pub polling: Polling,
    pub pins: Vec<CpuId>,
    pub interrupt: Interrupt,
}

struct Ground<I> {
    start: Barrier,
    homes: Vec<CachePadded<Home<I>>>,
    stop: AtomicBool,
    nr_pushing: CachePadded<AtomicUsize>,
}

struct Home<I> {
    /// A hint that saves acquiring the lock. It is set if there are items.
    filled: AtomicBool,
    items: Mutex<Vec<I>>,
}

impl Flow {
    /// Circulates the items, and returns the nanoseconds per popped item, or `None` after SIGINT.
    /// Panics in a debug build if the items of a producer are popped out of order.
    pub fn run<Q: Fifo<Item: Item>>(
        &self,
        queue: Q,
        stock: &mut Stock<Q::Item>,
    ) -> Result<Option<f64>, Stop> {
        // Each has its own cache lines. Otherwise they would share lines with the locals of the
        // consumer, and the layout of this stack would affect the figures.
        let mut queue = CachePadded::new(queue);
        let ground = CachePadded::new(Ground::new(self.producers));
        let stocks = stock.take(self.producers);
        let (pushers, mut popper) = queue.open(self.producers);
        let (items, ns_per_item) = thread::scope(|scope| {
            // This stops the producers even if the consumer panics.
            let stop = scopeguard::guard((), |()| ground.stop.store(true, Ordering::Relaxed));
            let ends = pushers.into_iter().zip(stocks).enumerate();
            let start = |(index, (pusher, items))| {
                let pin = self.pins.iter().cycle().nth(index).copied();
                let ground = &ground;
                let body = move || ground.produce(index, pusher, items);
                spawn(scope, &format!("producer-{index}"), pin, body)
            };
            let handles: Vec<_> = ends.map(start).collect();
            let mut returns = Returns::new(&ground.homes);
            ground.start.wait();
            let ns_per_item = self.consume(&mut popper, &mut returns);
            drop(stop);
            ground.pop_the_rest(&mut popper, &mut returns);
            let mut items = returns.left();
            for handle in handles {
                items.extend(joined(handle));
            }
            (items, ns_per_item)
        });
        let homes = ground.homes.iter();
        let at_home = homes.flat_map(|home| std::mem::take(&mut *home.items.lock()));
        if !stock.put_back(items.into_iter().chain(at_home)) {
            let lost = format!("a queue lost an item of {} producers", self.producers);
            return Err(Stop::CouldNotRun(lost));
        }
        Ok(ns_per_item)
    }

    fn consume<I: Item>(
        &self,
        popper: &mut impl Popper<I>,
        returns: &mut Returns<'_, I>,
    ) -> Option<f64> {
        let warm_up = self.items / WARM_UP_SHARE;
        let mut backoff = Backoff::new(self.polling);
        let mut pop_until = |goal: usize| {
            let mut popped = 0;
            while popped < goal {
                let found = popper.pop_up_to(POP, |item| returns.take(item));
                popped += found;
                if found > 0 {
                    backoff.hit();
                } else {
                    backoff.miss();
                }
                if self.interrupt.requested() {
                    return None;
                }
            }
            Some(popped)
        };
        pop_until(warm_up)?;
        let start_ns = now_ns();
        let popped = pop_until(self.items)?;
        Some((now_ns() - start_ns) as f64 / popped as f64)
    }
}

impl<I: Item> Ground<I> {
    fn new(producers: usize) -> Self {
        let homes = (0..producers).map(|_| CachePadded::new(Home::new()));
        Self {
            start: Barrier::new(producers + 1),
            homes: homes.collect(),
            stop: AtomicBool::new(false),
            nr_pushing: CachePadded::new(AtomicUsize::new(producers)),
        }
    }

    /// Pushes all returned items until `stop` is set. Returns the items that it owns at that point.
    fn produce(&self, index: usize, mut pusher: impl Pusher<I>, mut items: Vec<I>) -> Vec<I> {
        self.start.wait();
        let home = &self.homes[index];
        let mut backoff = Backoff::new(Polling::Paused);
        while !self.stop.load(Ordering::Relaxed) {
            if items.is_empty() && !home.fetch(&mut items) {
                backoff.miss();
                continue;
            }
            backoff.hit();
            for mut item in items.drain(..) {
                item.fill();
                pusher.push(item);
            }
            pusher.flush();
        }
        drop(pusher);
        // ORDER(pushed): publish and consume, other end in `pop_the_rest`.
        //   here:     last push;                    nr_pushing -= 1   Release
        //   consumer: nr_pushing == 0   Acquire;    the last pop
        // If our decrement comes first, the last pop finds our items. If the load comes first, it
        // reads a count above zero, and the consumer pops again.
        // Test: every_item_returns_and_time_passes.
        self.nr_pushing.fetch_sub(1, Ordering::Release);
        items
    }

    fn pop_the_rest(&self, popper: &mut impl Popper<I>, returns: &mut Returns<'_, I>) {
        let mut backoff = Backoff::new(Polling::Paused);
        loop {
            // ORDER(pushed): the acquire end; see `produce`. The load must come before the pop.
            // Test: every_item_returns_and_time_passes.
            let over = self.nr_pushing.load(Ordering::Acquire) == 0;
            if popper.pop_up_to(POP, |item| returns.take(item)) == 0 {
                if over {
                    return;
                }
                backoff.miss();
            }
        }
    }
}

impl<I> Home<I> {
    fn new() -> Self {
        Self { filled: AtomicBool::new(false), items: Mutex::new(Vec::with_capacity(ITEMS)) }
    }

    /// Moves the returned items into the empty `items`, and returns `true` if there were any.
    fn fetch(&self, items: &mut Vec<I>) -> bool {
        // Relaxed is sufficient, because this is a hint, and the lock publishes the items.
        if !self.filled.load(Ordering::Relaxed) {
            return false;
        }
        let mut inside = self.items.lock();
        self.filled.store(false, Ordering::Relaxed);
        std::mem::swap(&mut *inside, items);
        !items.is_empty()
    }

    fn deliver(&self, items: &mut Vec<I>) {
        let mut inside = self.items.lock();
        inside.append(items);
        self.filled.store(true, Ordering::Relaxed);
    }
}

struct Returns<'g, I> {
    ways: Vec<CachePadded<Way<'g, I>>>,
}

struct Way<'g, I> {
    home: &'g Home<I>,
    items: Vec<I>,
    next: usize,
}

impl<'g, I: Item> Returns<'g, I> {
    fn new(homes: &'g [CachePadded<Home<I>>]) -> Self {
        let way = |home| Way { home, items: Vec::with_capacity(RETURN), next: 0 };
        Self { ways: homes.iter().map(|home| CachePadded::new(way(home))).collect() }
    }

    #[inline(always)]
    fn take(&mut self, item: I) {
        let tag = item.tag();
        let way = &mut self.ways[tag.home()];
        debug_assert_eq!(tag.number(), way.next, "first in, first out");
        if cfg!(debug_assertions) {
            way.next = (way.next + 1) % ITEMS;
        }
        way.items.push(item);
        if way.items.len() == RETURN {
            way.home.deliver(&mut way.items);
        }
    }

    fn left(self) -> Vec<I> {
        self.ways.into_iter().flat_map(|way| way.into_inner().items).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::mpscq::fifo::one_by_one;
    use crate::bench::mpscq::item::Tag;
    use crate::bench::mpscq::stock::Layout;

    fn flow(producers: usize, polling: Polling) -> Flow {
        let (items, interrupt) = (4 * producers * ITEMS, Interrupt::default());
        Flow { producers, items, polling, pins: Vec::new(), interrupt }
    }

    /// A simple, correct queue that can be set to lose items.
    #[derive(Default)]
    struct Plain {
        items: Mutex<std::collections::VecDeque<Tag>>,
        loses: Option<usize>,
    }

    impl Fifo for Plain {
        type Item = Tag;

        fn open(&mut self, count: usize) -> (Vec<impl Pusher<Tag>>, impl Popper<Tag>) {
            (vec![&*self; count], &*self)
        }
    }

    impl Pusher<Tag> for &Plain {
        fn push(&mut self, item: Tag) {
            self.items.lock().push_back(item);
        }
    }

    impl Popper<Tag> for &Plain {
        fn pop_up_to(&mut self, max: usize, take: impl FnMut(Tag)) -> usize {
            let mut items = self.items.lock();
            let pop = || items.pop_front().filter(|item| Some(item.home()) != self.loses);
            one_by_one(max, pop, take)
        }
    }

    #[test]
    fn every_item_returns_and_time_passes() {
        let mut stock = Stock::new(3, Layout::Contiguous);
        for polling in [Polling::Tight, Polling::Paused] {
            for producers in 1..=3 {
                let flow = flow(producers, polling);
                let ns = flow.run(Plain::default(), &mut stock).unwrap();
                assert!(ns.unwrap() > 0.0);
            }
        }
    }

    #[test]
    fn lost_item_is_reported() {
        let mut stock = Stock::new(2, Layout::Contiguous);
        let queue = Plain { loses: Some(1), ..Plain::default() };
        let flow = flow(2, Polling::Paused);
        assert!(flow.run(queue, &mut stock).is_err());
    }

    #[test]
    fn an_interrupted_run_yields_no_figure_and_keeps_its_items() {
        let mut stock = Stock::new(2, Layout::Contiguous);
        let flow = flow(2, Polling::Paused);
        flow.interrupt.request();
        assert_eq!(flow.run(Plain::default(), &mut stock).unwrap(), None);
    }
}
