//! The channels with which afterwork is compared. The owner blocks in the receive call of the
//! channel, which is `blocking_recv` in tokio. The channels of crossbeam and kanal busy-poll before
//! they sleep.

use std::sync::mpsc;

use tokio::sync::mpsc::UnboundedReceiver;

use super::wake::{Post, Receive};
use crate::bench::mpscq::fifo::Pusher;
pub use crate::bench::mpscq::peers::{CROSSBEAM, FLUME, KANAL, STD, TOKIO};

pub const NAMES: [&str; 5] = [STD, TOKIO, CROSSBEAM, FLUME, KANAL];

impl<S: Pusher<u64> + Send> Post for S {
    #[inline(always)]
    fn post(&mut self, item: u64) {
        self.push(item);
    }
}

macro_rules! channel {
    ($receiver:ty, |$end:ident| $receive:expr) => {
        impl Receive for $receiver {
            #[inline(always)]
            fn receive(&mut self, take: impl FnMut(u64)) -> bool {
                let $end = self;
                $receive.map(take).is_some()
            }
        }
    };
}

channel!(mpsc::Receiver<u64>, |end| end.recv().ok());
channel!(UnboundedReceiver<u64>, |end| end.blocking_recv());
channel!(crossbeam_channel::Receiver<u64>, |end| end.recv().ok());
channel!(flume::Receiver<u64>, |end| end.recv().ok());
channel!(kanal::Receiver<u64>, |end| end.recv().ok());
