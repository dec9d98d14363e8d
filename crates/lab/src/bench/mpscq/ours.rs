//! Queues of afterwork, in the different ways of using them.

use std::cell::Cell;

use afterwork::mailbox::{Mailbox, Poster};
use mpscq::{Chain, Consumer, Node, Pop, Queue, Stack};

use super::fifo::{BURST, Fifo, Popper, Pusher, fifo, one_by_one, popper, pusher};
use super::item::{self, Tag};

type Hung = Node<Cell<Tag>>;

#[derive(Debug, Default)]
pub struct Single(Queue<Hung>);

#[derive(Debug, Default)]
pub struct Drained(Queue<Hung>);

#[derive(Debug, Default)]
pub struct Chained(Queue<Hung>);

/// The list that the FIFO replaces. Items are pushed with a compare-exchange, and the list is taken
/// as a whole and reversed.
#[derive(Debug, Default)]
pub struct Lifo(Stack<Hung>);

pub struct Mail(pub Mailbox<Tag>);

pub struct ChainPusher<'q> {
    queue: &'q Queue<Hung>,
    chain: Chain<Hung>,
}

pub struct DrainPopper<'q>(Consumer<'q, Hung>);

pub struct LifoPopper<'q> {
    list: &'q Stack<Hung>,
    taken: Chain<Hung>,
}

fifo!(Single, item::Ours, |it, count| (vec![&it.0; count], consumer(&it.0)));
fifo!(Drained, item::Ours, |it, count| (vec![&it.0; count], DrainPopper(consumer(&it.0))));
fifo!(Chained, item::Ours, |it, count| {
    let queue = &it.0;
    let pushers = (0..count).map(|_| ChainPusher { queue, chain: Chain::new() });
    (pushers.collect(), DrainPopper(consumer(queue)))
});
fifo!(Lifo, item::Ours, |it, count| {
    (vec![&it.0; count], LifoPopper { list: &it.0, taken: Chain::new() })
});
fifo!(Mail, Tag, |it, count| ((0..count).map(|_| it.0.poster()).collect(), &mut it.0));

pusher!(&Queue<Hung>, |queue, item: item::Ours| Queue::push(queue, item));
pusher!(&Stack<Hung>, |list, item: item::Ours| Stack::push(list, item));
pusher!(Poster<Tag>, |it, item: Tag| it.post(item).expect("the owner is there"));

popper!(Consumer<'_, Hung>, item::Ours, |queue, max, take| {
    one_by_one(max, || found(queue.pop()), take)
});
popper!(DrainPopper<'_>, item::Ours, |it, max, take| handed_out(it.0.drain(max), take));
popper!(LifoPopper<'_>, item::Ours, |it, max, take| {
    if it.taken.is_empty() {
        it.taken = it.list.take_all_fifo();
    }
    one_by_one(max, || it.taken.pop_front(), take)
});
popper!(Mailbox<Tag>, Tag, |mailbox, max, take| handed_out(mailbox.drain(max), take));

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
