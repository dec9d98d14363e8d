//! The queues with which afterwork is compared. Each is used as its documentation recommends.

use std::cell::Cell;
use std::sync::mpsc;

use cordyceps::MpscQueue;
use cordyceps::mpsc_queue::Consumer;
use crossbeam_queue::SegQueue;
use lab_peers::CordycepsNode;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::fifo::{Fifo, Popper, Pusher, fifo, one_by_one, popper, pusher};
use super::item::{self, Tag};

pub const NAMES: [&str; 7] = [CORDYCEPS, SEG_QUEUE, CROSSBEAM, STD, FLUME, KANAL, TOKIO];

pub const CORDYCEPS: &str = "cordyceps";
pub const SEG_QUEUE: &str = "segqueue";
pub const CROSSBEAM: &str = "crossbeam";
pub const STD: &str = "std";
pub const FLUME: &str = "flume";
pub const KANAL: &str = "kanal";
pub const TOKIO: &str = "tokio";

pub struct Cordyceps(MpscQueue<Hung>);

impl Default for Cordyceps {
    fn default() -> Self {
        Self(MpscQueue::new_with_stub(CordycepsNode::stub(Cell::default())))
    }
}

type Hung = CordycepsNode<Cell<Tag>>;

fifo!(Cordyceps, item::Cordyceps, |it, count| (vec![&it.0; count], it.0.consume()));
pusher!(&MpscQueue<Hung>, |queue, item: item::Cordyceps| queue.enqueue(item));
popper!(Consumer<'_, Hung>, item::Cordyceps, |queue, max, take| {
    one_by_one(max, || queue.try_dequeue().ok(), take)
});

pub struct Seg<T>(SegQueue<T>);

impl<T> Default for Seg<T> {
    fn default() -> Self {
        Self(SegQueue::new())
    }
}

impl<T: Send> Fifo for Seg<T> {
    type Item = T;

    fn open(&mut self, count: usize) -> (Vec<impl Pusher<Self::Item>>, impl Popper<Self::Item>) {
        (vec![&self.0; count], &self.0)
    }
}

pusher!(&SegQueue<T>, |queue, item: T| SegQueue::push(queue, item), T);
popper!(&SegQueue<T>, T, |queue, max, take| one_by_one(max, || queue.pop(), take), T);

/// A channel. It has a receiver, and a sender that is cloned for each producer.
pub struct Channel<T, S, R> {
    sender: S,
    receiver: R,
    carries: std::marker::PhantomData<fn(T)>,
}

impl<T, S, R> Channel<T, S, R> {
    pub fn of((sender, receiver): (S, R)) -> Self {
        Self { sender, receiver, carries: std::marker::PhantomData }
    }
}

impl<T, S: Pusher<T> + Clone + Send, R: Popper<T>> Fifo for Channel<T, S, R> {
    type Item = T;

    fn open(&mut self, count: usize) -> (Vec<impl Pusher<Self::Item>>, impl Popper<Self::Item>) {
        (vec![self.sender.clone(); count], &mut self.receiver)
    }
}

macro_rules! channel {
    ($sender:ty, $receiver:ty, |$end:ident| $receive:expr) => {
        // Sending fails only if the receiver was dropped, and here it outlives all senders.
        pusher!($sender, |it, item: T| assert!(it.send(item).is_ok(), "the receiver is there"), T);
        popper!($receiver, T, |$end, max, take| one_by_one(max, || $receive, take), T);
    };
}

channel!(mpsc::Sender<T>, mpsc::Receiver<T>, |end| end.try_recv().ok());
channel!(flume::Sender<T>, flume::Receiver<T>, |end| end.try_recv().ok());
channel!(UnboundedSender<T>, UnboundedReceiver<T>, |end| end.try_recv().ok());
channel!(crossbeam_channel::Sender<T>, crossbeam_channel::Receiver<T>, |end| end.try_recv().ok());
channel!(kanal::Sender<T>, kanal::Receiver<T>, |end| end.try_recv().ok().flatten());
