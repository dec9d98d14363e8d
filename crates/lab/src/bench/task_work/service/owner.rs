//! The loop of the owner: one thread and one sleep for all sockets and for task work.

use std::io;
use std::net::TcpStream;

use afterwork::mailbox::{Mailbox, Poster};
use sync::atomic::{AtomicU8, Ordering};
use sync::time::now_ns;

use super::meter::Meter;
use super::ring::{Event, Kind, Ring};
use super::worker::Message;
use crate::harness::switches::Usage;

const DRAIN: usize = 256;

pub const WARMING_UP: u8 = 0;
pub const MEASURING: u8 = 1;
pub const ENDING: u8 = 2;

/// The owner's results between [`MEASURING`] and [`ENDING`].
#[derive(Clone, Copy, Default)]
pub struct Served {
    pub requests: u64,
    /// The time to drain (and reverse) the mailbox, and to arm, disarm and check the owner waker.
    pub task_work: Meter,
    pub spent: Usage,
    pub rung: u64,
    pub drains: u64,
    pub wall_ns: u64,
}

/// Serves `streams` until the clients have closed all of them. Receives `size` bytes at a time, and
/// sends a response if `answers` is `true`.
pub fn serve(
    streams: Vec<TcpStream>,
    (size, answers): (usize, bool),
    mut home: Mailbox<Message>,
    workers: &[Poster<Message>],
    phase: &AtomicU8,
) -> io::Result<Option<Served>> {
    let mut open = streams.len();
    let mut ring = Ring::new(streams)?;
    for connection in 0..open {
        ring.begin(connection, Kind::Receive, vec![0; size].into())?;
    }
    ring.watch(&home)?;
    let mut counts = Served::default();
    let mut finished = Vec::with_capacity(DRAIN);
    let (mut begun, mut served) = (None, None);
    while open > 0 {
        let may_sleep = counts.task_work.time(|| (0, home.arm(1)))?;
        ring.submit(may_sleep)?;
        let rung = counts.task_work.time(|| (0, home.disarm()));
        counts.rung += u64::from(may_sleep && rung);

        match phase.load(Ordering::Relaxed) {
            MEASURING if begun.is_none() => {
                counts = Served::default();
                begun = Some((Usage::of_thread(), now_ns()));
            }
            ENDING if served.is_none() => {
                served = begun.map(|(usage, ns)| Served {
                    spent: Usage::of_thread().since(usage),
                    wall_ns: now_ns() - ns,
                    ..counts
                });
            }
            _ => {}
        }
        while let Some(event) = ring.event()? {
            match event {
                Event::Received(connection, bytes) => {
                    let worker = &workers[connection % workers.len()];
                    let request = Message { connection, bytes };
                    let gone = |_| io::Error::other("a worker ended before its requests did");
                    worker.post(request).map_err(gone)?;
                }
                Event::Sent(connection, buffer) => ring.begin(connection, Kind::Receive, buffer)?,
                Event::Ended => open -= 1,
                Event::Bell { over: true } => ring.watch(&home)?,
                Event::Bell { over: false } => {}
            }
        }
        counts.task_work.time(|| {
            finished.extend(home.drain(DRAIN));
            (finished.len(), ())
        });
        counts.drains += u64::from(!finished.is_empty());
        counts.requests += finished.len() as u64;
        for Message { connection, bytes } in finished.drain(..) {
            ring.begin(connection, if answers { Kind::Send } else { Kind::Receive }, bytes)?;
        }
    }
    Ok(served)
}
