//! Sockets driven by an io_uring ring, safe to use: the one place of the lab with unsafe code.
//!
//! A submission entry holds a raw pointer to the buffer that the kernel will read or write, so submitting one is
//! unsafe, and no wrapper of the crate `io-uring` makes it safe. Here a buffer is given up for the time of its request
//! and comes back with its end. What is never given back, because the ring was dropped, is leaked: the kernel
//! may still write to it.
//!
//! Miri knows no io_uring; the test below moves real bytes.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use afterwork::mailbox::{Mailbox, uring};
use io_uring::{IoUring, cqueue, opcode, squeue, types};

/// `user_data` of the mailbox's bell; requests have their connection's number there.
const BELL: u64 = u64::MAX;

/// The most entries that a ring is made with: the kernel's own limit is 32768.
const MAX_ENTRIES: usize = 4096;

/// A message's bytes.
pub type Buffer = Box<[u8]>;

/// A ring with the connections that it drives, at most one request on each.
pub struct Ring {
    ring: IoUring,
    connections: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    request: Option<Request>,
}

/// A request that the kernel may be at.
#[derive(Debug)]
struct Request {
    kind: Kind,
    /// From `Box::into_raw`; only the kernel touches what it points to.
    buffer: *mut [u8],
    /// How much of it is done.
    done: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Receive,
    Send,
}

/// What a ring tells.
#[derive(Debug)]
pub enum Event {
    /// A buffer is full; of this connection.
    Received(usize, Buffer),
    /// All of a buffer was sent.
    Sent(usize, Buffer),
    /// The other side is gone.
    Ended(usize),
    /// The mailbox's bell was rung; `over` asks for another [`Ring::watch`].
    Bell {
        /// Whether this was the last that will be told.
        over: bool,
    },
}

impl Ring {
    /// Makes a ring for these connections.
    ///
    /// # Errors
    ///
    /// What the system says: there may be no io_uring, or none for this process.
    pub fn new(streams: Vec<TcpStream>) -> io::Result<Self> {
        let entries = (streams.len() + 1).next_power_of_two().min(MAX_ENTRIES);
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .setup_single_issuer()
            .build(entries as u32)?;
        let connections = streams.into_iter().map(|stream| Connection {
            stream,
            request: None,
        });
        Ok(Self {
            ring,
            connections: connections.collect(),
        })
    }

    /// Fills `buffer` from a connection.
    ///
    /// # Errors
    ///
    /// What the system says.
    ///
    /// # Panics
    ///
    /// When the connection has a request already.
    pub fn receive(&mut self, connection: usize, buffer: Buffer) -> io::Result<()> {
        self.begin(connection, Kind::Receive, buffer)
    }

    /// Sends `buffer` to a connection.
    ///
    /// # Errors
    ///
    /// What the system says.
    ///
    /// # Panics
    ///
    /// When the connection has a request already.
    pub fn send(&mut self, connection: usize, buffer: Buffer) -> io::Result<()> {
        self.begin(connection, Kind::Send, buffer)
    }

    /// Tells of the mailbox's bell from here on. The mailbox outlives the watching or ends it.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn watch<T>(&mut self, mailbox: &Mailbox<T>) -> io::Result<()> {
        let entry = uring::poll_entry(mailbox, BELL)?;
        // SAFETY: the entry polls a file descriptor and names no memory.
        unsafe { self.push(&entry) }
    }

    /// Hands new requests to the kernel, and with `sleep` waits until one of all has ended.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn submit(&mut self, sleep: bool) -> io::Result<()> {
        match self.ring.submit_and_wait(usize::from(sleep)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            submitted => submitted.map(|_| ()),
        }
    }

    /// Returns something that happened, if anything did.
    ///
    /// # Errors
    ///
    /// What the system says, to the request or to its continuation.
    pub fn event(&mut self) -> io::Result<Option<Event>> {
        loop {
            let completion = self.ring.completion().next();
            let Some(completion) = completion else {
                return Ok(None);
            };
            if completion.user_data() == BELL {
                let over = uring::ended(&completion);
                return Ok(Some(Event::Bell { over }));
            }
            if let Some(event) = self.completed(&completion)? {
                return Ok(Some(event));
            }
        }
    }

    fn begin(&mut self, index: usize, kind: Kind, buffer: Buffer) -> io::Result<()> {
        let connection = &mut self.connections[index];
        assert!(connection.request.is_none(), "one request at a time");
        connection.request = Some(Request {
            kind,
            buffer: Box::into_raw(buffer),
            done: 0,
        });
        self.go_on(index)
    }

    /// Asks for what is left of a connection's request.
    fn go_on(&mut self, index: usize) -> io::Result<()> {
        let connection = &self.connections[index];
        let request = connection.request.as_ref().expect("the caller has one");
        let fd = types::Fd(connection.stream.as_raw_fd());
        let left = (request.buffer.len() - request.done) as u32;
        // Inside the buffer: a request goes on only while some of it is left. Arithmetic alone, nothing is read.
        let start = request.buffer.cast::<u8>().wrapping_add(request.done);
        let entry = match request.kind {
            Kind::Receive => opcode::Recv::new(fd, start, left).build(),
            Kind::Send => opcode::Send::new(fd, start, left).build(),
        };
        // SAFETY: the buffer was given up by `Box::into_raw` and is freed by nobody but `completed`, which takes the
        // request out of its connection when the kernel has ended it; before that, `begin` refuses another one. The
        // descriptor is that of a stream which this ring owns.
        unsafe { self.push(&entry.user_data(index as u64)) }
    }

    /// Appends an entry; when there is no room, those before it are submitted.
    ///
    /// # Safety
    ///
    /// 1. Memory that the entry names stays valid, and is touched by nobody else, until the request has completed.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: by the caller's 1.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }

    fn completed(&mut self, completion: &cqueue::Entry) -> io::Result<Option<Event>> {
        let index = completion.user_data() as usize;
        let request = self.connections[index].request.as_mut();
        let request = request.expect("only requests of connections complete with their number");
        // A connection that was reset has ended as one that was closed has.
        let moved = usize::try_from(completion.result()).unwrap_or(0);
        request.done += moved;
        if moved > 0 && request.done < request.buffer.len() {
            self.go_on(index)?;
            return Ok(None);
        }
        let Request { kind, buffer, .. } = self.connections[index]
            .request
            .take()
            .expect("looked at just now");
        // SAFETY: it came from `Box::into_raw` in `begin`; the request that used it has completed, is not repeated,
        // and was taken out of its connection, so this happens once.
        let buffer = unsafe { Box::from_raw(buffer) };
        Ok(Some(match kind {
            _ if moved == 0 => Event::Ended(index),
            Kind::Receive => Event::Received(index, buffer),
            Kind::Send => Event::Sent(index, buffer),
        }))
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn next(ring: &mut Ring) -> Event {
        loop {
            if let Some(event) = ring.event().unwrap() {
                return event;
            }
            ring.submit(true).unwrap();
        }
    }

    #[test]
    fn a_buffer_comes_back_full_however_its_bytes_arrive() {
        let (mut near, far) = pair();
        let mut ring = match Ring::new(vec![far]) {
            Ok(ring) => ring,
            Err(error) => {
                return top::talk::say(format_args!("not tested, no io_uring: {error}"));
            }
        };
        ring.receive(0, vec![0; 4].into()).unwrap();
        ring.submit(false).unwrap();
        near.write_all(b"ab").unwrap();
        near.write_all(b"cd").unwrap();
        let Event::Received(0, buffer) = next(&mut ring) else {
            panic!("not received");
        };
        assert_eq!(*buffer, *b"abcd");

        ring.send(0, buffer).unwrap();
        assert!(matches!(next(&mut ring), Event::Sent(0, _)));
        let mut back = [0; 4];
        near.read_exact(&mut back).unwrap();
        assert_eq!(back, *b"abcd");

        ring.receive(0, vec![0; 4].into()).unwrap();
        drop(near);
        assert!(matches!(next(&mut ring), Event::Ended(0)));
    }
}
