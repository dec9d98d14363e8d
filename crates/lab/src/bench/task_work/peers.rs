//! The channels with which afterwork is compared. The owner blocks in the receive call of the
//! channel.

use std::sync::mpsc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::road::{Post, Receive};

/// The names of the peers, as `--peers` and tables spell them.
pub const NAMES: [&str; 5] = [STD, TOKIO, CROSSBEAM, FLUME, KANAL];

/// The standard library's unbounded channel.
pub const STD: &str = "std";
/// tokio's unbounded mpsc channel, from which the owner receives with `blocking_recv`.
pub const TOKIO: &str = "tokio";
/// crossbeam's unbounded channel, which busy-polls before it sleeps.
pub const CROSSBEAM: &str = "crossbeam";
/// flume's unbounded channel.
pub const FLUME: &str = "flume";
/// kanal's unbounded channel, which busy-polls before it sleeps.
pub const KANAL: &str = "kanal";

macro_rules! channel {
    ($sender:ty, $receiver:ty, |$end:ident| $receive:expr) => {
        impl Post for $sender {
            #[inline(always)]
            fn post(&mut self, item: u64) {
                // This fails only if the receiver was dropped, and here it outlives all senders.
                assert!(self.send(item).is_ok(), "the receiver is there");
            }
        }

        impl Receive for $receiver {
            #[inline(always)]
            fn receive(&mut self, take: impl FnMut(u64)) -> bool {
                let $end = self;
                $receive.map(take).is_some()
            }
        }
    };
}

channel!(mpsc::Sender<u64>, mpsc::Receiver<u64>, |end| end.recv().ok());
channel!(UnboundedSender<u64>, UnboundedReceiver<u64>, |end| end.blocking_recv());
channel!(crossbeam_channel::Sender<u64>, crossbeam_channel::Receiver<u64>, |end| end.recv().ok());
channel!(flume::Sender<u64>, flume::Receiver<u64>, |end| end.recv().ok());
channel!(kanal::Sender<u64>, kanal::Receiver<u64>, |end| end.recv().ok());
