//! A safe interface to sockets that are driven by an io_uring ring. It contains the only unsafe
//! code of the lab: a submission entry contains a raw pointer to the buffer that the kernel reads
//! or writes. A request therefore owns its buffer until it completes. If the ring is dropped before
//! that, the buffer is leaked. Miri does not support io_uring, so the test below uses real sockets.
#![allow(unsafe_code)]

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use afterwork::mailbox::{Mailbox, uring};
use io_uring::{IoUring, cqueue, opcode, squeue, types};

/// The `user_data` of the mailbox's owner waker. Requests use the number of their connection.
const BELL: u64 = u64::MAX;

/// The maximum number of entries of a ring. The kernel's limit is 32768.
const MAX_ENTRIES: usize = 4096;

pub type Buffer = Box<[u8]>;

/// A ring and its connections, each with at most one request.
pub struct Ring {
    ring: IoUring,
    connections: Vec<Connection>,
}

struct Connection {
    stream: TcpStream,
    request: Option<Request>,
}

struct Request {
    kind: Kind,
    /// The result of `Box::into_raw`. Only the kernel accesses the memory.
    buffer: *mut [u8],
    done: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Receive,
    Send,
}

pub enum Event {
    /// The buffer of this connection is full.
    Received(usize, Buffer),
    Sent(usize, Buffer),
    Ended,
    /// The owner waker was notified. If `over` is `true`, call [`Ring::watch`] again.
    Bell {
        over: bool,
    },
}

impl Ring {
    /// Creates a ring for `streams`. Fails if io_uring is missing or not permitted.
    pub fn new(streams: Vec<TcpStream>) -> io::Result<Self> {
        let entries = (streams.len() + 1).next_power_of_two().min(MAX_ENTRIES);
        let ring =
            IoUring::builder().setup_coop_taskrun().setup_single_issuer().build(entries as u32)?;
        let connections = streams.into_iter().map(|stream| Connection { stream, request: None });
        Ok(Self { ring, connections: connections.collect() })
    }

    /// Starts reporting notifications of the mailbox's owner waker. Dropping the mailbox stops
    /// this.
    pub fn watch<T>(&mut self, mailbox: &Mailbox<T>) -> io::Result<()> {
        let entry = uring::poll_entry(mailbox, BELL)?;
        // SAFETY: (1): the entry polls a file descriptor and refers to no memory.
        unsafe { self.push(&entry) }
    }

    /// Submits new requests to the kernel. If `sleep` is `true`, waits until a request completes.
    pub fn submit(&mut self, sleep: bool) -> io::Result<()> {
        match self.ring.submit_and_wait(usize::from(sleep)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            submitted => submitted.map(|_| ()),
        }
    }

    pub fn event(&mut self) -> io::Result<Option<Event>> {
        loop {
            let completion = self.ring.completion().next();
            let Some(completion) = completion else { return Ok(None) };
            if completion.user_data() == BELL {
                let over = uring::ended(&completion);
                return Ok(Some(Event::Bell { over }));
            }
            if let Some(event) = self.completed(&completion)? {
                return Ok(Some(event));
            }
        }
    }

    /// Receives until `buffer` is full, or sends it. Panics if the connection has a request.
    pub fn begin(&mut self, index: usize, kind: Kind, buffer: Buffer) -> io::Result<()> {
        let connection = &mut self.connections[index];
        assert!(connection.request.is_none(), "one request at a time");
        connection.request = Some(Request { kind, buffer: Box::into_raw(buffer), done: 0 });
        self.go_on(index)
    }

    /// Submits a request for the remaining bytes of a connection's request.
    fn go_on(&mut self, index: usize) -> io::Result<()> {
        let connection = &self.connections[index];
        let request = connection.request.as_ref().expect("the caller has one");
        let fd = types::Fd(connection.stream.as_raw_fd());
        let left = (request.buffer.len() - request.done) as u32;
        // The address is in bounds, because bytes of the buffer remain. This only computes an
        // address and reads nothing.
        let start = request.buffer.cast::<u8>().wrapping_add(request.done);
        let entry = match request.kind {
            Kind::Receive => opcode::Recv::new(fd, start, left).build(),
            Kind::Send => opcode::Send::new(fd, start, left).build(),
        };
        // SAFETY: (1): `Box::into_raw` gave up the buffer, and only `completed` frees it, after the
        // kernel has completed the request. Until then, `begin` rejects other requests on this
        // connection. The ring owns the stream that the descriptor belongs to.
        unsafe { self.push(&entry.user_data(index as u64)) }
    }

    /// Appends an entry. If the queue is full, submits the earlier entries first.
    ///
    /// # Safety
    ///
    /// 1. Until the request completes, the entry's memory is valid and not used by other code.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: (1) is guaranteed by the caller.
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
        // A connection that was reset has also ended.
        let moved = usize::try_from(completion.result()).unwrap_or(0);
        request.done += moved;
        if moved > 0 && request.done < request.buffer.len() {
            self.go_on(index)?;
            return Ok(None);
        }
        let Request { kind, buffer, .. } =
            self.connections[index].request.take().expect("it was checked above");
        // SAFETY: `begin` created the pointer with `Box::into_raw`. Its request has completed, is
        // not submitted again, and was removed from its connection, so the buffer is freed once.
        let buffer = unsafe { Box::from_raw(buffer) };
        Ok(Some(match kind {
            _ if moved == 0 => Event::Ended,
            Kind::Receive => Event::Received(index, buffer),
            Kind::Send => Event::Sent(index, buffer),
        }))
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
    fn buffer_is_returned_full_for_any_split_of_its_bytes() {
        let (mut near, far) = pair();
        let mut ring = match Ring::new(vec![far]) {
            Ok(ring) => ring,
            Err(error) => {
                return top::talk::say(format_args!("not tested, no io_uring: {error}"));
            }
        };
        ring.begin(0, Kind::Receive, vec![0; 4].into()).unwrap();
        ring.submit(false).unwrap();
        near.write_all(b"ab").unwrap();
        near.write_all(b"cd").unwrap();
        let Event::Received(0, buffer) = next(&mut ring) else {
            panic!("not received");
        };
        assert_eq!(*buffer, *b"abcd");

        ring.begin(0, Kind::Send, buffer).unwrap();
        assert!(matches!(next(&mut ring), Event::Sent(0, _)));
        let mut back = [0; 4];
        near.read_exact(&mut back).unwrap();
        assert_eq!(back, *b"abcd");

        ring.begin(0, Kind::Receive, vec![0; 4].into()).unwrap();
        drop(near);
        assert!(matches!(next(&mut ring), Event::Ended));
    }
}
