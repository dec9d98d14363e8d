//! The items of the producers, and how they lie in memory.

use super::item::{Item, Tag};

/// Items of one producer: what can be in flight. A guess: a request for each of a thousand clients. Fewer make
/// producers wait for the consumer more often, more leave the caches.
pub const ITEMS: usize = 1024;

/// Of so many items allocated, one is used where items are to be scattered. The allocator spends at least 24 bytes
/// on each, so two that are used share no line, nor a pair of lines that is fetched together.
const SPREAD: usize = 8;

/// Decides where scattered items lie; the same in every run of every queue.
const SHUFFLE_SEED: u64 = 0x5ca7;

/// How items lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Side by side, pushed in that order: two or more share a cache line, and so do producer and consumer.
    Contiguous,
    /// Each on lines of its own, pushed in an order that no prefetcher guesses.
    Scattered,
}

/// The items of several producers, used by one run after the other.
#[derive(Debug)]
pub struct Stock<I> {
    homes: Vec<Vec<I>>,
    /// Keep others out of the memory between scattered items.
    _spacers: Vec<I>,
}

impl<I: Item> Stock<I> {
    /// Makes [`ITEMS`] items for each of `producers`.
    #[must_use]
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
                // Each producer's among themselves: strewn over all of the memory they would measure the TLB.
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
        Self {
            homes: homes.collect(),
            _spacers: spacers,
        }
    }

    /// Takes out the items of the first `producers`.
    pub fn take(&mut self, producers: usize) -> Vec<Vec<I>> {
        self.homes[..producers]
            .iter_mut()
            .map(std::mem::take)
            .collect()
    }

    /// Puts items back, in any order, and says whether none was lost.
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
            tags.map(|tag| (tag.home(), tag.number()))
                .eq((0..ITEMS).map(|number| (home, number)))
        })
    }
}

/// Makes items, in the order of their addresses.
fn by_address<I: Item>(count: usize) -> Vec<I> {
    let mut items: Vec<I> = (0..count).map(|_| I::make()).collect();
    items.sort_by_key(Item::address);
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::mpscq::item::{Boxed, Cordyceps, Ours};

    /// Of most machines.
    const LINE: usize = 64;

    /// The median distance between an item and the one pushed after it.
    fn distance<I: Item>(layout: Layout) -> usize {
        let stock = Stock::<I>::new(2, layout);
        let addresses: Vec<usize> = stock.homes[0].iter().map(Item::address).collect();
        let pairs = addresses.windows(2);
        let mut distances: Vec<usize> = pairs.map(|pair| pair[0].abs_diff(pair[1])).collect();
        distances.sort_unstable();
        distances[distances.len() / 2]
    }

    fn lies_as_asked<I: Item>() {
        assert!(distance::<I>(Layout::Contiguous) <= LINE);
        assert!(distance::<I>(Layout::Scattered) > 2 * LINE);
    }

    /// In a process of its own, as a bench has: in the heap that other tests have left, nothing lies side by side.
    #[test]
    fn items_lie_as_asked() {
        const KEY: &str = "AFTERWORK_TEST_ITEMS_LIE";
        const NAME: &str = "bench::mpscq::stock::tests::items_lie_as_asked";
        if std::env::var_os(KEY).is_some() {
            lies_as_asked::<Boxed>();
            lies_as_asked::<Ours>();
            return lies_as_asked::<Cordyceps>();
        }
        let mut own = std::process::Command::new(std::env::current_exe().unwrap());
        let told = own.args([NAME, "--exact"]).env(KEY, "1").output().unwrap();
        assert!(
            told.status.success(),
            "{}",
            String::from_utf8_lossy(&told.stdout)
        );
    }

    #[test]
    fn what_comes_back_in_any_order_is_whole_and_what_is_missing_is_told() {
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
    }

    #[test]
    fn what_came_twice_is_told() {
        let mut stock = Stock::<Tag>::new(1, Layout::Contiguous);
        let out = stock.take(1).remove(0);
        let twice = out[3];
        assert!(!stock.put_back(out.into_iter().chain([twice])));
    }
}
