//! The cases: sizes and variants.

use std::cell::RefCell;
use std::rc::Rc;

use afterwork::mailbox::Mailbox;
use clap::Args;

use super::fifo::Fifo;
use super::flow::Flow;
use super::item::{self, Item, Tag};
use super::metrics::{ALL, MAX_PRODUCERS, flows};
use super::ours::{Chained, Drained, Lifo, Mail, Single};
use super::peers::{self, Channel, Cordyceps, Seg};
use super::stock::{ITEMS, Layout, Stock};
use crate::bench::settings::{Entry, Menu, Settings, Sizes, count, names};
use crate::harness::case::{Case, Sample, Variant};
use crate::harness::claim::{Against, Claim};
use crate::harness::metric::{Metric, Text};

const BENCH: &str = "mpscq";
const CASES: [Entry<Setting>; 3] = [
    ("push-pop", |it, name| it.push_pop(name, Layout::Scattered, "far apart")),
    ("push-pop-contiguous", |it, name| it.push_pop(name, Layout::Contiguous, "side by side")),
    ("owned", Setting::owned),
];
pub const MENU: Menu = Menu { cases: &names(&CASES), peers: &peers::NAMES };

/// Options of `bench mpscq`.
#[derive(Args, Clone, Debug, Default)]
pub struct MpscqArgs {
    /// Items of each figure, all producers together [default: depends on --quick]
    #[arg(long, value_name = "N", value_parser = count::<100_000_000>)]
    pub items: Option<usize>,
}

const SINGLE: &str = "mpscq";
const DRAINED: &str = "mpscq+drain";
const CHAINED: &str = "mpscq+chain";
const LIFO: &str = "lifo";
const MAIL: &str = "mailbox";

/// The number of items of a figure, which gives enough time slices if threads share CPUs.
const NR_ITEMS: Sizes = [400_000, 100_000];

/// The stocks of a kind of item, used in turn: the pages of one would change figures by 10 %.
const PLACES: usize = 4;

pub fn cases(args: &MpscqArgs, settings: &Settings) -> Vec<Case> {
    let items = settings.size(args.items, NR_ITEMS);
    settings.make(MENU, &CASES, &Setting { settings: settings.clone(), items })
}

struct Setting {
    settings: Settings,
    items: usize,
}

/// The layout and the stocks of one kind of item, which all queues of that kind share.
type Shared<I> = (Layout, Rc<RefCell<Vec<Stock<I>>>>);

impl Setting {
    fn push_pop(&self, name: Text, layout: Layout, how: &str) -> Case {
        let ours = (layout, Rc::default());
        let boxed = (layout, Rc::default());
        let linked = (layout, Rc::default());
        let mut variants = vec![
            self.queue(SINGLE, &ours, Single::default),
            self.queue(DRAINED, &ours, Drained::default),
            self.queue(CHAINED, &ours, Chained::default),
            self.queue(LIFO, &ours, Lifo::default),
            self.queue(peers::CORDYCEPS, &linked, Cordyceps::default).into_peer(),
            self.queue(peers::SEG_QUEUE, &boxed, Seg::<item::Boxed>::default).into_peer(),
        ];
        variants.extend(self.channels(&boxed));
        let about = format!("intrusive items, {how} in memory");
        // The most similar peer: 2 % is the tolerance of two medians.
        let claim = |it: &Metric| Claim::at_most(SINGLE, *it, peers::CORDYCEPS, 1.02);
        self.described(name, about, variants, claim)
    }

    fn owned(&self, name: Text) -> Case {
        let values: Shared<Tag> = (Layout::Contiguous, Rc::default());
        let mail = || Mail(Mailbox::builder().keep(MAX_PRODUCERS * ITEMS).build());
        let mut variants = vec![self.queue(MAIL, &values, mail)];
        variants.extend(self.channels(&values));
        let about = "messages of 8 bytes by value".into();
        // Mailboxes recycle blocks, and their posters share no cache lines.
        let claim = |it: &Metric| Claim::at_most(MAIL, *it, Against::BestPeer, 0.8);
        self.described(name, about, variants, claim)
    }

    fn described(
        &self,
        name: Text,
        about: String,
        variants: Vec<Variant>,
        claim: fn(&Metric) -> Claim,
    ) -> Case {
        Case {
            about: format!("{about}; ns an item, {} items", self.items),
            variants,
            claims: ALL.iter().map(claim).collect(),
            ..Case::new(BENCH, name, ALL, ALL[1].name)
        }
    }

    fn channels<I: Item>(&self, items: &Shared<I>) -> [Variant; 5] {
        let crossbeam = || Channel::of(crossbeam_channel::unbounded());
        let std = || Channel::of(std::sync::mpsc::channel());
        let flume = || Channel::of(flume::unbounded());
        let kanal = || Channel::of(kanal::unbounded());
        let tokio = || Channel::of(tokio::sync::mpsc::unbounded_channel());
        [
            self.queue(peers::CROSSBEAM, items, crossbeam),
            self.queue(peers::STD, items, std),
            self.queue(peers::FLUME, items, flume),
            self.queue(peers::KANAL, items, kanal),
            self.queue(peers::TOKIO, items, tokio),
        ]
        .map(Variant::into_peer)
    }

    /// Returns a variant whose runs measure each figure once, with a new queue for each.
    fn queue<Q>(
        &self,
        name: &str,
        (layout, stocks): &Shared<Q::Item>,
        make: impl Fn() -> Q + 'static,
    ) -> Variant
    where
        Q: Fifo<Item: Item> + 'static,
    {
        let (layout, stocks, items) = (*layout, Rc::clone(stocks), self.items);
        let Settings { pins, interrupt, .. } = self.settings.clone();
        let mut place = 0;
        Variant::ours(name, move || {
            let mut stocks = stocks.borrow_mut();
            if stocks.len() <= place {
                stocks.push(Stock::new(MAX_PRODUCERS, layout));
            }
            let stock = &mut stocks[place];
            place = (place + 1) % PLACES;
            let mut sample = Sample::default();
            for (metric, polling, producers) in flows() {
                let (pins, interrupt) = (pins.clone(), interrupt.clone());
                let flow = Flow { producers, items, polling, pins, interrupt };
                let Some(ns) = flow.run(make(), stock)? else { return Ok(None) };
                sample.set(metric, ns);
            }
            Ok(Some(sample))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::case::tests::run_each;

    /// A number of items that gives each producer a few rounds.
    const FEW: usize = 30_000;

    /// A debug build checks the order of all items.
    #[test]
    fn every_queue_keeps_every_item_in_order() {
        let args = MpscqArgs { items: Some(FEW) };
        let cases = cases(&args, &Settings::of_tests(&["push-pop", "owned"]));
        run_each(cases, |_, variant, sample| {
            for metric in ALL {
                let ns = sample.value(metric.name);
                assert!(ns.unwrap() > 0.0, "{} of {}", metric.name, variant.name);
            }
        });
    }
}
