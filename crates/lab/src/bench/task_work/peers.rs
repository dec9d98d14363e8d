//! The channels that we measure ourselves against: the owner blocks in each one's own receive.

use std::sync::mpsc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::road::{Post, Receive};

/// As `--peers` and tables spell them.
pub const NAMES: [&str; 5] = [STD, TOKIO, CROSSBEAM, FLUME, KANAL];

/// The standard library's unbounded channel.
pub const STD: &str = "std";
/// tokio's unbounded mpsc channel, received from with `blocking_recv`.
pub const TOKIO: &str = "tokio";
/// crossbeam's unbounded channel; spins before it sleeps.
pub const CROSSBEAM: &str = "crossbeam";
/// flume's unbounded channel.
pub const FLUME: &str = "flume";
/// kanal's unbounded channel; spins before it sleeps.
pub const KANAL: &str = "kanal";

macro_rules! channel {
    ($sender:ty, $receiver:ty, |$end:ident| $receive:expr) => {
        impl Post for $sender {
            #[inline(always)]
            fn post(&mut self, item: u64) {
                // Fails only when the receiver is gone, which lives longer than every sender here.
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

channel!(mpsc::Sender<u64>, mpsc::Receiver<u64>, |end| end
    .recv()
    .ok());
channel!(UnboundedSender<u64>, UnboundedReceiver<u64>, |end| end
    .blocking_recv());
channel!(
    crossbeam_channel::Sender<u64>,
    crossbeam_channel::Receiver<u64>,
    |end| end.recv().ok()
);
channel!(flume::Sender<u64>, flume::Receiver<u64>, |end| end
    .recv()
    .ok());
channel!(kanal::Sender<u64>, kanal::Receiver<u64>, |end| end
    .recv()
    .ok());
