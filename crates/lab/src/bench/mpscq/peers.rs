//! The queues with which afterwork is compared. Each is used as its documentation recommends.

use std::cell::Cell;
use std::sync::mpsc;

use cordyceps::MpscQueue;
use cordyceps::mpsc_queue::Consumer;
use crossbeam_queue::SegQueue;
use lab_peers::CordycepsNode;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::fifo::{Fifo, Popper, Pusher, one_by_one};
use super::item::{self, Tag};

pub const NAMES: [&str; 7] = [CORDYCEPS, SEG_QUEUE, CROSSBEAM, STD, FLUME, KANAL, TOKIO];

/// An intrusive queue, the peer most similar to ours.
pub const CORDYCEPS: &str = "cordyceps";
/// crossbeam's unbounded queue without a channel.
pub const SEG_QUEUE: &str = "segqueue";
pub const CROSSBEAM: &str = "crossbeam";
pub const STD: &str = "std";
pub const FLUME: &str = "flume";
pub const KANAL: &str = "kanal";
/// tokio's unbounded mpsc channel, without a runtime.
pub const TOKIO: &str = "tokio";

pub struct Cordyceps(MpscQueue<CordycepsNode<Cell<Tag>>>);

impl Default for Cordyceps {
    fn default() -> Self {
        Self(MpscQueue::new_with_stub(CordycepsNode::stub(Cell::default())))
    }
}

impl Fifo for Cordyceps {
    type Item = item::Cordyceps;

    fn open(&mut self, count: usize) -> (Vec<impl Pusher<Self::Item>>, impl Popper<Self::Item>) {
        (vec![&self.0; count], self.0.consume())
    }
}

impl Pusher<item::Cordyceps> for &MpscQueue<CordycepsNode<Cell<Tag>>> {
    #[inline(always)]
    fn push(&mut self, item: item::Cordyceps) {
        self.enqueue(item);
    }
}

impl Popper<item::Cordyceps> for Consumer<'_, CordycepsNode<Cell<Tag>>> {
    #[inline(always)]
    fn pop_up_to(&mut self, max: usize, take: impl FnMut(item::Cordyceps)) -> usize {
        one_by_one(max, || self.try_dequeue().ok(), take)
    }
}

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

impl<T: Send> Pusher<T> for &SegQueue<T> {
    #[inline(always)]
    fn push(&mut self, item: T) {
        SegQueue::push(self, item);
    }
}

impl<T> Popper<T> for &SegQueue<T> {
    #[inline(always)]
    fn pop_up_to(&mut self, max: usize, take: impl FnMut(T)) -> usize {
        one_by_one(max, || self.pop(), take)
    }
}

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
        impl<T: Send> Pusher<T> for $sender {
            #[inline(always)]
            fn push(&mut self, item: T) {
                // This fails only if the receiver was dropped, and here it outlives all senders.
                assert!(self.send(item).is_ok(), "the receiver is there");
            }
        }

        impl<T> Popper<T> for $receiver {
            #[inline(always)]
            fn pop_up_to(&mut self, max: usize, take: impl FnMut(T)) -> usize {
                let $end = self;
                one_by_one(max, || $receive, take)
            }
        }
    };
}

channel!(mpsc::Sender<T>, mpsc::Receiver<T>, |end| end.try_recv().ok());
channel!(flume::Sender<T>, flume::Receiver<T>, |end| end.try_recv().ok());
channel!(UnboundedSender<T>, UnboundedReceiver<T>, |end| end.try_recv().ok());
channel!(crossbeam_channel::Sender<T>, crossbeam_channel::Receiver<T>, |end| end.try_recv().ok());
channel!(kanal::Sender<T>, kanal::Receiver<T>, |end| end.try_recv().ok().flatten());
