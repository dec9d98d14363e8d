//! The client ends of the connections. A few threads keep one request in progress on each
//! connection, or send without a pause.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use rustix::event::epoll;
use rustix::time::Timespec;

use super::worker::answer;
use crate::harness::beside::{Attendant, Attended};

/// The maximum wait for a response. After that, the service is considered to be hung.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// The maximum wait for space in a buffer, so short that a client shows that it gets its CPU.
const FULL: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

const NR_EVENTS: usize = 128;

struct Client {
    stream: TcpStream,
    received: usize,
}

/// Sends bytes on all `streams` as fast as the service receives them, until `attendant` is done.
/// Then closes the connections.
pub fn stream(
    streams: Vec<TcpStream>,
    size: usize,
    mut attendant: Attendant<'_>,
) -> io::Result<Attended> {
    let epoll = watched(&streams, epoll::EventFlags::OUT)?;
    let bytes = vec![0; size];
    let mut events = Vec::with_capacity(NR_EVENTS);
    while attendant.goes_on() {
        let ready = match wait(&epoll, &mut events, &FULL) {
            // All buffers are full, because the service is slower.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => continue,
            ready => ready?,
        };
        for index in ready {
            match (&streams[index]).write(&bytes) {
                Err(error) if !is_passing(&error) => return Err(error),
                _ => {}
            }
        }
    }
    Ok(attendant.leave())
}

/// Returns an epoll set that reports the number of each stream that is ready.
fn watched(streams: &[TcpStream], flags: epoll::EventFlags) -> io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (index, stream) in streams.iter().enumerate() {
        stream.set_nonblocking(true)?;
        epoll::add(&epoll, stream, epoll::EventData::new_u64(index as u64), flags)?;
    }
    Ok(epoll)
}

/// Waits for events at most for `limit`, and returns the numbers of their connections.
fn wait<'e>(
    epoll: &impl AsFd,
    events: &'e mut Vec<epoll::Event>,
    limit: &Timespec,
) -> io::Result<impl Iterator<Item = usize> + 'e> {
    events.clear();
    let spare = rustix::buffer::spare_capacity(events);
    match epoll::wait(epoll, spare, Some(limit)) {
        Err(rustix::io::Errno::INTR) => {}
        Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "no response")),
        waited => {
            waited?;
        }
    }
    Ok(events.iter().map(|event| event.data.u64() as usize))
}

/// Sends requests of `size` bytes on all `streams`, each after the response to the previous one,
/// until `attendant` is done. Fails if a response is wrong, or does not arrive for ten seconds.
pub fn ask(
    streams: Vec<TcpStream>,
    size: usize,
    mut attendant: Attendant<'_>,
) -> io::Result<Attended> {
    let epoll = watched(&streams, epoll::EventFlags::IN)?;
    let mut clients = Vec::with_capacity(streams.len());
    for (index, stream) in streams.into_iter().enumerate() {
        stream.set_nodelay(true)?;
        let mut client = Client { stream, received: 0 };
        client.send(&vec![index as u8; size])?;
        clients.push(Some(client));
    }
    let mut open = clients.len();
    attendant.goes_on();
    let mut bytes = vec![0; size];
    let mut events = Vec::with_capacity(NR_EVENTS);
    while open > 0 {
        for index in wait(&epoll, &mut events, &PATIENCE)? {
            let Some(client) = &mut clients[index] else { continue };
            if !client.receive(&mut bytes, index as u8)? {
                continue;
            }
            if attendant.goes_on() {
                bytes.fill(index as u8);
                client.send(&bytes)?;
            } else {
                clients[index] = None;
                open -= 1;
            }
        }
    }
    Ok(attendant.leave())
}

impl Client {
    /// Sends the only request in progress, for which the socket buffer has, or will have, space.
    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8], asked: u8) -> io::Result<bool> {
        let missing = &mut bytes[self.received..];
        match self.stream.read(missing) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                check(&missing[..read], asked)?;
                self.received += read;
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        let whole = self.received == bytes.len();
        if whole {
            self.received = 0;
        }
        Ok(whole)
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Checks only two bytes, because checking all would take as long as the service.
fn check(bytes: &[u8], asked: u8) -> io::Result<()> {
    let mut wanted = asked;
    answer(&mut wanted);
    let ends = [bytes.first(), bytes.last()];
    if ends.into_iter().flatten().all(|byte| *byte == wanted) {
        Ok(())
    } else {
        let reason = "a response is not the answer to its request";
        Err(io::Error::new(io::ErrorKind::InvalidData, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_answer_is_reported() {
        assert!(check(&[8, 8], 7).is_ok());
        assert!(check(&[8, 7], 7).is_err());
        assert!(check(&[0], 255).is_ok());
    }
}
