//! Queues of afterwork, in the different ways of using them.

use std::cell::Cell;

use afterwork::mailbox::{Mailbox, Poster};
use mpscq::{Chain, Consumer, Node, Pop, Queue, Stack};

use super::fifo::{BURST, Fifo, Popper, Pusher, one_by_one};
use super::item::{self, Tag};
use super::stock;

type Hung = Node<Cell<Tag>>;

/// A queue that is pushed to and popped from one item at a time.
#[derive(Debug, Default)]
pub struct Single(Queue<Hung>);

/// A queue that is pushed to one item at a time, and popped from with a drain.
#[derive(Debug, Default)]
pub struct Drained(Queue<Hung>);

/// A queue to which chains of [`BURST`] items are pushed, and which is popped from with a drain.
#[derive(Debug, Default)]
pub struct Chained(Queue<Hung>);

/// The list that the FIFO replaces. Items are pushed with a compare-exchange, and the list is taken
/// as a whole and reversed.
#[derive(Debug, Default)]
pub struct Lifo(Stack<Hung>);

/// A mailbox that carries tags by value and recycles its blocks.
pub struct Mail(Mailbox<Tag>);

pub struct ChainPusher<'q> {
    queue: &'q Queue<Hung>,
    chain: Chain<Hung>,
}

pub struct DrainPopper<'q>(Consumer<'q, Hung>);

/// A consumer's end that pops from the reversed list, and takes the next list when that one is
/// empty.
pub struct LifoPopper<'q> {
    list: &'q Stack<Hung>,
    taken: Chain<Hung>,
}

impl Fifo for Single {
    type Item = item::Ours;

    fn open(&mut self, count: usize) -> (Vec<impl Pusher<Self::Item>>, impl Popper<Self::Item>) {
        (vec![&self.0; count], consumer(&self.0))
    }
}

impl Pusher<item::Ours> for &Queue<Hung> {
    #[inline(always)]
    fn push(&mut self, item: item::Ours) {
        Queue::push(self, item);
    }
}

impl Popper<item::Ours> for Consumer<'_, Hung> {
    #[inline(always)]
    fn pop_up_to(&mut self, max: usize, take: impl FnMut(item::Ours)) -> usize {
        one_by_one(max, || found(self.pop()), take)
    }
}

impl Fifo for Drained {
    type Item = item::Ours;

    fn open(&mut self, count: usize) -> (Vec<impl Pusher<Self::Item>>, impl Popper<Self::Item>) {
        (vec![&self.0; count], DrainPopper(consumer(&self.0)))
    }
}

impl Popper<item::Ours> for DrainPopper<'_> {
    #[inline(always)]
    fn pop_up_to(&mut self, max: usize, take: impl FnMut(item::Ours)) -> usize {
        handed_out(self.0.drain(max), take)
    }
}

impl Fifo for Chained {
    type Item = item::Ours;

    fn open(&mut self, count: usize) -> (Vec<impl Pusher<Self::Item>>, impl Popper<Self::Item>) {
        let queue = &self.0;
        let pushers = (0..count).map(|_| ChainPusher { queue, chain: Chain::new() });
        (pushers.collect(), DrainPopper(consumer(queue)))
    }
}

impl Pusher<item::Ours> for ChainPusher<'_> {
    #[inline(always)]
    fn push(&mut self, item: item::Ours) {
        self.chain.push_back(item);
        if self.chain.len() == BURST {
            self.flush();
        }
    }

    #[inline(always)]
    fn flush(&mut self) {
        self.queue.push_chain(std::mem::take(&mut self.chain));
    }
}

impl Fifo for Lifo {
    type Item = item::Ours;

    fn open(&mut self, count: usize) -> (Vec<impl Pusher<Self::Item>>, impl Popper<Self::Item>) {
        let list = &self.0;
        let taken = Chain::new();
        (vec![list; count], LifoPopper { list, taken })
    }
}

impl Pusher<item::Ours> for &Stack<Hung> {
    #[inline(always)]
    fn push(&mut self, item: item::Ours) {
        Stack::push(self, item);
    }
}

impl Popper<item::Ours> for LifoPopper<'_> {
    #[inline(always)]
    fn pop_up_to(&mut self, max: usize, take: impl FnMut(item::Ours)) -> usize {
        if self.taken.is_empty() {
            self.taken = self.list.take_all_fifo();
        }
        one_by_one(max, || self.taken.pop_front(), take)
    }
}

impl Mail {
    /// Creates a mailbox that keeps enough blocks for all items of `producers`.
    pub fn for_producers(producers: usize) -> Self {
        Self(Mailbox::builder().keep(producers * stock::ITEMS).build())
    }
}

impl Fifo for Mail {
    type Item = Tag;

    fn open(&mut self, count: usize) -> (Vec<impl Pusher<Self::Item>>, impl Popper<Self::Item>) {
        let posters = (0..count).map(|_| self.0.poster());
        (posters.collect(), &mut self.0)
    }
}

impl Pusher<Tag> for Poster<Tag> {
    #[inline(always)]
    fn push(&mut self, item: Tag) {
        self.post(item).expect("the owner is there");
    }
}

impl Popper<Tag> for Mailbox<Tag> {
    #[inline(always)]
    fn pop_up_to(&mut self, max: usize, take: impl FnMut(Tag)) -> usize {
        handed_out(self.drain(max), take)
    }
}

fn consumer<T: mpscq::Linked>(queue: &Queue<T>) -> Consumer<'_, T> {
    queue.try_consumer().expect("a new queue has no consumer")
}

/// Treats a push in progress as an empty queue, because peers cannot distinguish the two.
#[inline(always)]
fn found<T>(pop: Pop<T>) -> Option<T> {
    match pop {
        Pop::Item(item) => Some(item),
        Pop::Empty | Pop::MidPush => None,
    }
}

#[inline(always)]
fn handed_out<T>(items: impl Iterator<Item = T>, take: impl FnMut(T)) -> usize {
    items.map(take).count()
}
