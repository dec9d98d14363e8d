//! One measurement of the service: set-up, warm-up, measurement, tear-down.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;
use std::{io, thread};

use afterwork::mailbox::{Backlog, Mailbox};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sync::atomic::{AtomicU8, Ordering};
use top::exit::Stop;
use top::interrupt::Interrupt;

use super::clients::{ask, stream};
use super::meter::Meter;
use super::owner::{ENDING, MEASURING, Served, WARMING_UP, serve};
use super::ring::Ring;
use super::worker::work;
use crate::harness::beside::{Beside, Span};

const NR_WORKERS: usize = 2;

const NR_CLIENT_THREADS: usize = 2;

/// The number of messages that the buffers of a connection without responses hold at each end.
const BUFFERED: usize = 4;

const STEP: Duration = Duration::from_millis(50);

/// The descriptors besides two per connection: rings, epoll sets, eventfds, standard streams.
const SPARE_FDS: u64 = 64;

#[derive(Clone, Debug)]
pub struct Service {
    pub backlog: Backlog,
    pub clients: usize,
    /// `true` if clients send without a pause and get no response. Otherwise each connection has
    /// one request in progress.
    pub streams: bool,
    pub size: usize,
    pub warm_up: Duration,
    pub measured: Duration,
    pub interrupt: Interrupt,
}

pub fn ring_works() -> io::Result<()> {
    let mut home = Mailbox::<()>::new();
    let poster = home.poster();
    let mut ring = Ring::new(Vec::new())?;
    ring.watch(&home)?;
    home.arm(1)?;
    poster.post(()).map_err(io::Error::other)?;
    ring.submit(true)
}

impl Service {
    /// Serves, and returns the owner's results and the workers' cost of posting. Returns `None` if
    /// interrupted, and [`Absent`](crate::harness::beside::Absent) if clients paused for too long.
    pub fn run(&self) -> Result<Beside<Option<(Served, Meter)>>, Stop> {
        let failed = Stop::because("the loopback service failed");
        allow_descriptors(2 * self.clients as u64 + SPARE_FDS).map_err(&failed)?;
        let (near, far) = self.connect().map_err(&failed)?;
        let ran = self.run_on(near, far).map_err(&failed)?;
        Ok(ran.map(|ran| ran.filter(|_| !self.interrupt.requested())))
    }

    fn run_on(
        &self,
        mut near: Vec<TcpStream>,
        far: Vec<TcpStream>,
    ) -> io::Result<Beside<Option<(Served, Meter)>>> {
        let home = Mailbox::builder().backlog(self.backlog).keep(self.clients).build();
        let (phase, span) = (AtomicU8::new(WARMING_UP), Span::default());
        let (phase, span) = (&phase, &span);
        thread::scope(|scope| {
            let mut workers = Vec::with_capacity(NR_WORKERS);
            let mut posters = Vec::with_capacity(NR_WORKERS);
            for _ in 0..NR_WORKERS {
                let requests = Mailbox::builder().keep(self.clients).build();
                posters.push(requests.poster());
                let home = home.poster();
                workers.push(scope.spawn(move || work(requests, &home)));
            }
            let (size, streams_only) = (self.size, self.streams);
            // The owner's exit drops its posters and connections, which ends workers and clients.
            let owner =
                scope.spawn(move || serve(far, (size, !streams_only), home, &posters, phase));
            let share = near.len().div_ceil(NR_CLIENT_THREADS).max(1);
            let mut clients = Vec::with_capacity(NR_CLIENT_THREADS);
            while !near.is_empty() {
                let rest = near.split_off(share.min(near.len()));
                let streams = std::mem::replace(&mut near, rest);
                clients.push(scope.spawn(move || match streams_only {
                    true => stream(streams, size, span.attend()),
                    false => ask(streams, size, span.attend()),
                }));
            }
            self.sleep(self.warm_up);
            phase.store(MEASURING, Ordering::Relaxed);
            span.begin();
            self.sleep(self.measured);
            phase.store(ENDING, Ordering::Relaxed);
            // This lets the owner run its loop once more, so that it sees the end first.
            thread::sleep(STEP);
            span.end();

            let panicked = |_| io::Error::other("a thread of the service panicked");
            let clients: Vec<_> = clients.into_iter().map(thread::ScopedJoinHandle::join).collect();
            // The owner's error is checked first, because its exit makes the clients fail too.
            let served = owner.join().map_err(panicked)??;
            let mut attended = Vec::with_capacity(NR_CLIENT_THREADS);
            for client in clients {
                attended.push(client.map_err(panicked)??);
            }
            let mut posts = Meter::default();
            for worker in workers {
                posts.absorb(&worker.join().map_err(panicked)?);
            }
            let beside = span.judge(&attended);
            Ok(beside.map(|()| served.map(|served| (served, posts))))
        })
    }

    fn sleep(&self, duration: Duration) {
        let mut left = duration;
        while !left.is_zero() && !self.interrupt.requested() {
            thread::sleep(left.min(STEP));
            left = left.saturating_sub(STEP);
        }
    }

    fn connect(&self) -> io::Result<(Vec<TcpStream>, Vec<TcpStream>)> {
        let count = self.clients;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let mut pairs = (Vec::with_capacity(count), Vec::with_capacity(count));
        for _ in 0..count {
            let near = TcpStream::connect(address)?;
            let (far, from) = listener.accept()?;
            // Any program on this machine may connect to the port. Such a connection is an error.
            if from != near.local_addr()? {
                return Err(io::Error::other("a stranger connected to the service"));
            }
            far.set_nodelay(true)?;
            if self.streams {
                // Otherwise each connection buffers megabytes, which the owner receives at the end.
                set_socket_send_buffer_size(&near, BUFFERED * self.size)?;
                set_socket_recv_buffer_size(&far, BUFFERED * self.size)?;
            }
            pairs.0.push(near);
            pairs.1.push(far);
        }
        Ok(pairs)
    }
}

/// Raises the soft limit on open descriptors, if permitted.
fn allow_descriptors(wanted: u64) -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    if maximum.is_some_and(|maximum| maximum < wanted) {
        let reason =
            format!("{wanted} descriptors are needed, and no more than {maximum:?} allowed");
        return Err(io::Error::other(reason));
    }
    let raised = Rlimit { current: Some(wanted), maximum };
    Ok(setrlimit(Resource::Nofile, raised)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_streams_are_served_by_either_backlog() {
        if let Err(error) = ring_works() {
            return top::talk::say(format_args!("not tested, no io_uring: {error}"));
        }
        let kinds = [Backlog::Fifo, Backlog::Lifo].map(|it| [(it, false), (it, true)]);
        for (backlog, streams) in kinds.into_iter().flatten() {
            let mut service = Service {
                backlog,
                clients: 12,
                streams,
                size: 64,
                warm_up: Duration::ZERO,
                measured: STEP,
                interrupt: Interrupt::default(),
            };
            // On a busy machine, the owner or the clients may not run during a short measurement.
            let (served, posts) = loop {
                match service.run().unwrap() {
                    Ok(Some((served, posts))) if served.requests > 0 => break (served, posts),
                    _ => service.measured *= 2,
                }
            };
            assert!(served.wall_ns > 0);
            assert_eq!(served.task_work.items, served.requests);
            assert!(posts.items >= served.requests);
        }
    }
}
