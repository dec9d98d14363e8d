//! The items of the producers, and their layout in memory.

use super::item::{Item, Tag};

/// The number of items of one producer. This is a guess: one request from each of a thousand
/// clients. With fewer, producers wait more often. More do not fit into the caches.
pub const ITEMS: usize = 1024;

/// The number of allocated items for each item that is used in the scattered layout. Each takes at
/// least 24 bytes, so that used items share neither a cache line nor a pair of lines that is
/// fetched together.
const SPREAD: usize = 8;

/// The seed for the order of scattered items. It is the same in all runs of all queues.
const SHUFFLE_SEED: u64 = 0x5ca7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The items are next to each other, in push order, and share cache lines.
    Contiguous,
    /// The items are on separate cache lines, in an order that no prefetcher predicts.
    Scattered,
}

/// The items of several producers, used by one run after another.
pub struct Stock<I> {
    homes: Vec<Vec<I>>,
    _spacers: Vec<I>,
}

impl<I: Item> Stock<I> {
    pub fn new(producers: usize, layout: Layout) -> Self {
        let wanted = producers * ITEMS;
        let (used, spacers): (Vec<I>, _) = match layout {
            Layout::Contiguous => (by_address(wanted), Vec::new()),
            Layout::Scattered => {
                let (mut used, mut spacers) = (Vec::with_capacity(wanted), Vec::new());
                for (index, item) in by_address(wanted * SPREAD).into_iter().enumerate() {
                    if index % SPREAD == 0 {
                        used.push(item);
                    } else {
                        spacers.push(item);
                    }
                }
                // An order across all memory would measure the TLB.
                let mut rng = fastrand::Rng::with_seed(SHUFFLE_SEED);
                used.chunks_mut(ITEMS).for_each(|home| rng.shuffle(home));
                (used, spacers)
            }
        };
        let mut used = used.into_iter();
        let homes = (0..producers).map(|home| {
            let mine = used.by_ref().take(ITEMS).enumerate();
            mine.map(|(number, mut item)| {
                item.set_tag(Tag::new(home, number));
                item
            })
            .collect()
        });
        Self { homes: homes.collect(), _spacers: spacers }
    }

    pub fn take(&mut self, producers: usize) -> Vec<Vec<I>> {
        self.homes[..producers].iter_mut().map(std::mem::take).collect()
    }

    /// Puts items back, in any order. Returns `true` if no item was lost.
    pub fn put_back(&mut self, items: impl IntoIterator<Item = I>) -> bool {
        for item in items {
            self.homes[item.tag().home()].push(item);
        }
        for home in &mut self.homes {
            home.sort_unstable_by_key(|item| item.tag().number());
        }
        self.is_whole()
    }

    fn is_whole(&self) -> bool {
        self.homes.iter().enumerate().all(|(home, items)| {
            let tags = items.iter().map(Item::tag);
            tags.map(|tag| (tag.home(), tag.number())).eq((0..ITEMS).map(|number| (home, number)))
        })
    }
}

fn by_address<I: Item>(count: usize) -> Vec<I> {
    let mut items: Vec<I> = (0..count).map(|_| I::make()).collect();
    items.sort_by_key(Item::address);
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::mpscq::item::{Boxed, Cordyceps, Ours};

    const LINE: usize = 64;

    fn distance<I: Item>(layout: Layout) -> usize {
        let stock = Stock::<I>::new(2, layout);
        let addresses: Vec<usize> = stock.homes[0].iter().map(Item::address).collect();
        let pairs = addresses.windows(2);
        let mut distances: Vec<usize> = pairs.map(|pair| pair[0].abs_diff(pair[1])).collect();
        distances.sort_unstable();
        distances[distances.len() / 2]
    }

    fn has_requested_layout<I: Item>() {
        assert!(distance::<I>(Layout::Contiguous) <= LINE);
        assert!(distance::<I>(Layout::Scattered) > 2 * LINE);
    }

    /// This runs in a process of its own, because the heap of this one is too fragmented for
    /// adjacent items.
    #[test]
    fn items_have_the_requested_layout() {
        const KEY: &str = "AFTERWORK_TEST_ITEMS_LIE";
        const NAME: &str = "bench::mpscq::stock::tests::items_have_the_requested_layout";
        if std::env::var_os(KEY).is_some() {
            has_requested_layout::<Boxed>();
            has_requested_layout::<Ours>();
            return has_requested_layout::<Cordyceps>();
        }
        let mut own = std::process::Command::new(std::env::current_exe().unwrap());
        let output = own.args([NAME, "--exact"]).env(KEY, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    #[test]
    fn stock_accepts_any_order_and_finds_lost_or_repeated_items() {
        let mut stock = Stock::<Boxed>::new(3, Layout::Scattered);
        let before: Vec<usize> = stock.homes[1].iter().map(Item::address).collect();
        let mut out: Vec<Boxed> = stock.take(2).into_iter().flatten().collect();
        assert!(!stock.is_whole());
        fastrand::Rng::with_seed(1).shuffle(&mut out);
        let lost = out.pop().unwrap();
        assert!(!stock.put_back(out));
        assert!(stock.put_back([lost]));
        let after: Vec<usize> = stock.homes[1].iter().map(Item::address).collect();
        assert_eq!(before, after);
        let twice = stock.homes[0][3].clone();
        assert!(!stock.put_back([twice]));
    }
}
