//! The cases: sizes and variants.

use std::cell::RefCell;
use std::rc::Rc;

use clap::Args;

use super::claims;
use super::fifo::Fifo;
use super::flow::Flow;
use super::item::{self, Item, Tag};
use super::metrics::{ALL, FLOWS, HEADLINE, MAX_PRODUCERS};
use super::ours::{Chained, Drained, Lifo, Mail, Single};
use super::peers::{self, Channel, Cordyceps, Seg};
use super::stock::{Layout, Stock};
use crate::bench::settings::{Menu, Settings, count};
use crate::harness::case::{Case, Sample, Variant};
use crate::harness::claim::Claim;

const BENCH: &str = "mpscq";
const PUSH_POP: &str = "push-pop";
const PUSH_POP_CONTIGUOUS: &str = "push-pop-contiguous";
const OWNED: &str = "owned";

/// The names of the cases and peers.
pub const MENU: Menu =
    Menu { cases: &[PUSH_POP, PUSH_POP_CONTIGUOUS, OWNED], peers: &peers::NAMES };

/// Options of `bench mpscq`.
#[derive(Args, Clone, Debug, Default)]
pub struct MpscqArgs {
    /// Items of each figure, all producers together [default: depends on --quick]
    #[arg(long, value_name = "N", value_parser = count::<100_000_000>)]
    pub items: Option<usize>,
}

/// The names of our variants.
pub const SINGLE: &str = "mpscq";
const DRAINED: &str = "mpscq+drain";
/// See [`SINGLE`].
pub const CHAINED: &str = "mpscq+chain";
/// See [`SINGLE`].
pub const LIFO: &str = "lifo";
/// See [`SINGLE`].
pub const MAIL: &str = "mailbox";

/// The number of items of a figure. It gives enough time slices for a mean if threads share CPUs.
/// `--quick` uses a quarter.
const NR_ITEMS: usize = 400_000;
const NR_ITEMS_QUICK: usize = 100_000;

/// The number of stocks of each kind of item, which repetitions use in turn. With a single stock,
/// its pages and cache sets would change the figures by 10 %, which would look like a difference
/// between queues.
const PLACES: usize = 4;

/// Creates the cases that `args` select.
#[must_use]
pub fn cases(args: &MpscqArgs, settings: &Settings) -> Vec<Case> {
    let items = settings.size(args.items, NR_ITEMS, NR_ITEMS_QUICK);
    let setting = Setting { settings, items };
    settings.make(MENU, |name| setting.case(name))
}

struct Setting<'a> {
    settings: &'a Settings,
    items: usize,
}

/// Stocks of one kind of item. They are created on first use and shared by all queues of that kind.
type Shared<I> = Rc<RefCell<Vec<Stock<I>>>>;

/// The items of one case.
struct Items {
    layout: Layout,
    ours: Shared<item::Ours>,
    cordyceps: Shared<item::Cordyceps>,
    boxed: Shared<item::Boxed>,
}

impl Setting<'_> {
    fn case(&self, name: &'static str) -> Case {
        match name {
            PUSH_POP => self.push_pop(name, Layout::Scattered, "far apart"),
            PUSH_POP_CONTIGUOUS => self.push_pop(name, Layout::Contiguous, "side by side"),
            _ => self.owned(),
        }
    }

    fn push_pop(&self, name: &'static str, layout: Layout, how: &str) -> Case {
        let items = Items::new(layout);
        let mut variants = vec![
            self.ours(SINGLE, &items, Single::default),
            self.ours(DRAINED, &items, Drained::default),
            self.ours(CHAINED, &items, Chained::default),
            self.ours(LIFO, &items, Lifo::default),
        ];
        variants.extend(self.intrusive_peers(&items));
        let about = format!("intrusive items, {how} in memory");
        self.described(name, about, variants, claims::push_pop())
    }

    fn owned(&self) -> Case {
        let layout = Layout::Contiguous;
        let values = Shared::<Tag>::default();
        let mail = || Mail::for_producers(MAX_PRODUCERS);
        let mut variants = vec![self.queue(MAIL, &values, layout, mail)];
        variants.extend(self.channels(&values, layout));
        let about = "messages of 8 bytes by value".into();
        self.described(OWNED, about, variants, claims::owned())
    }

    fn described(
        &self,
        name: &'static str,
        about: String,
        variants: Vec<Variant>,
        claims: Vec<Claim>,
    ) -> Case {
        Case {
            about: format!("{about}; ns an item, {} items", self.items),
            variants,
            claims,
            ..Case::new(BENCH, name, ALL, HEADLINE)
        }
    }

    fn ours<Q>(&self, name: &str, items: &Items, make: impl Fn() -> Q + 'static) -> Variant
    where
        Q: Fifo<Item = item::Ours> + 'static,
    {
        self.queue(name, &items.ours, items.layout, make)
    }

    fn intrusive_peers(&self, items: &Items) -> Vec<Variant> {
        let (layout, boxed, linked) = (items.layout, &items.boxed, &items.cordyceps);
        let cordyceps = self.queue(peers::CORDYCEPS, linked, layout, Cordyceps::default);
        let seg = self.queue(peers::SEG_QUEUE, boxed, layout, Seg::default);
        let mut all = vec![cordyceps.as_peer(), seg.as_peer()];
        all.extend(self.channels(boxed, layout));
        all
    }

    fn channels<I: Item>(&self, items: &Shared<I>, layout: Layout) -> [Variant; 5] {
        let crossbeam = || Channel::of(crossbeam_channel::unbounded());
        let std = || Channel::of(std::sync::mpsc::channel());
        let flume = || Channel::of(flume::unbounded());
        let kanal = || Channel::of(kanal::unbounded());
        let tokio = || Channel::of(tokio::sync::mpsc::unbounded_channel());
        [
            self.queue(peers::CROSSBEAM, items, layout, crossbeam),
            self.queue(peers::STD, items, layout, std),
            self.queue(peers::FLUME, items, layout, flume),
            self.queue(peers::KANAL, items, layout, kanal),
            self.queue(peers::TOKIO, items, layout, tokio),
        ]
        .map(Variant::as_peer)
    }

    /// Returns a variant whose runs measure each figure once, with a new queue for each.
    fn queue<Q>(
        &self,
        name: &str,
        items: &Shared<Q::Item>,
        layout: Layout,
        make: impl Fn() -> Q + 'static,
    ) -> Variant
    where
        Q: Fifo<Item: Item> + 'static,
    {
        let (items, nr_items, settings) = (Rc::clone(items), self.items, self.settings.clone());
        let mut place = 0;
        Variant::ours(name, move || {
            let mut stocks = items.borrow_mut();
            if stocks.len() <= place {
                stocks.push(Stock::new(MAX_PRODUCERS, layout));
            }
            let stock = &mut stocks[place];
            place = (place + 1) % PLACES;
            let mut sample = Sample::default();
            for figure in FLOWS {
                let flow = Flow {
                    producers: figure.producers,
                    items: nr_items,
                    polling: figure.polling,
                    pins: settings.pins.clone(),
                    interrupt: settings.interrupt.clone(),
                };
                let Some(ns) = flow.run(make(), stock)? else {
                    return Ok(None);
                };
                sample.set(figure.metric, ns);
            }
            Ok(Some(sample))
        })
    }
}

impl Items {
    fn new(layout: Layout) -> Self {
        Self { layout, ours: Rc::default(), cordyceps: Rc::default(), boxed: Rc::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number of items that gives each producer a few rounds.
    const FEW: usize = 30_000;

    /// Runs every queue of `case`. A debug build checks the order of all items.
    fn every_queue_keeps_every_item_in_order(case: &str) {
        let args = MpscqArgs { items: Some(FEW) };
        let mut cases = cases(&args, &Settings::of_tests(&[case]));
        for variant in &mut cases[0].variants {
            let sample = (variant.run)().unwrap().unwrap();
            for metric in ALL {
                let ns = sample.value(metric.name);
                assert!(ns.unwrap() > 0.0, "{} of {}", metric.name, variant.name);
            }
        }
    }

    #[test]
    fn every_intrusive_queue_keeps_every_item_in_order() {
        every_queue_keeps_every_item_in_order(PUSH_POP);
    }

    #[test]
    fn every_queue_of_values_keeps_every_item_in_order() {
        every_queue_keeps_every_item_in_order(OWNED);
    }
}
