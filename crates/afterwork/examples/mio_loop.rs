//! A single-threaded mio server that queues long work and receives the answers in a mailbox.
//!
//! A single call waits for both the sockets and the answers. The mailbox signals an eventfd only
//! while the loop sleeps, and once for any number of answers. Nothing in the loop blocks. The queue
//! has capacity for a few questions. If it is full, the client gets *busy* and asks again.
//!
//! `cargo run --release --example mio_loop -- [CLIENTS [QUESTIONS OF EACH]]`

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{self, SocketAddr};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use afterwork::mailbox::{Mailbox, Poster};
use afterwork::workqueue::Workqueue;
use mio::net::{TcpListener, TcpStream};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

type Failure = Box<dyn Error + Send + Sync>;

/// Tokens of the sources that are not clients.
const LISTENER: Token = Token(usize::MAX);
const BELL: Token = Token(usize::MAX - 1);
/// The number of questions that may wait, next to the `MAX_ACTIVE` that are being answered.
const CAPACITY: usize = 16;
const MAX_ACTIVE: u32 = 2;
/// The number of answers that are sent before the loop polls its sockets again.
const BATCH: usize = 32;
/// The answer to a question that was rejected.
const BUSY: u64 = u64::MAX;

fn main() -> Result<(), Failure> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse());
    let nr_clients = numbers.next().transpose()?.unwrap_or(64);
    let nr_questions = numbers.next().transpose()?.unwrap_or(1000);
    run(nr_clients, nr_questions)
}

/// Serves `nr_clients` clients, which ask `nr_questions` questions each and check the answers.
pub fn run(nr_clients: u32, nr_questions: u32) -> Result<(), Failure> {
    let mut server = Server::new()?;
    let address = server.listener.local_addr()?;
    let clients: Vec<_> =
        (0..nr_clients).map(|_| thread::spawn(move || ask(address, nr_questions))).collect();
    server.serve(nr_clients)?;
    let mut nr_busy = 0;
    for client in clients {
        nr_busy += client.join().expect("a client panicked")?;
    }
    assert_eq!(server.nr_taken, (nr_clients * nr_questions) as usize);
    assert_eq!(server.nr_refused, nr_busy);
    println!(
        "{} answers and {nr_busy} times busy; {} wake-ups by the eventfd",
        server.nr_taken, server.nr_rung
    );
    Ok(())
}

struct Server {
    poll: Poll,
    listener: TcpListener,
    /// The clients by token; `None` once a client has disconnected.
    clients: Vec<Option<TcpStream>>,
    queue: Workqueue,
    /// The answers, with the client of each.
    answers: Mailbox<(Token, u64)>,
    /// Kept because `arm` does not let the loop sleep if no poster exists.
    poster: Poster<(Token, u64)>,
    nr_taken: usize,
    nr_refused: usize,
    nr_rung: usize,
}

impl Server {
    fn new() -> Result<Self, Failure> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let answers = Mailbox::new();
        let registry = poll.registry();
        registry.register(&mut listener, LISTENER, Interest::READABLE)?;
        // mio is edge-triggered: it reports each signal once, and the eventfd need not be read.
        let bell = answers.eventfd()?.as_raw_fd();
        registry.register(&mut SourceFd(&bell), BELL, Interest::READABLE)?;
        let questions = Workqueue::builder("questions").max_active(MAX_ACTIVE);
        Ok(Self {
            poll,
            listener,
            clients: Vec::new(),
            queue: questions.capacity(CAPACITY).build()?,
            poster: answers.poster(),
            answers,
            nr_taken: 0,
            nr_refused: 0,
            nr_rung: 0,
        })
    }

    /// Serves until `nr_clients` clients have connected and disconnected.
    fn serve(&mut self, nr_clients: u32) -> io::Result<()> {
        let mut events = Events::with_capacity(128);
        let mut nr_gone = 0;
        while nr_gone < nr_clients {
            // If this is `false`, there are answers already, so the poll must not sleep.
            let may_sleep = self.answers.arm(1)?;
            let backoff = (!may_sleep).then_some(Duration::ZERO);
            match self.poll.poll(&mut events, backoff) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => outcome?,
            }
            self.answers.disarm();
            for event in &events {
                match event.token() {
                    LISTENER => self.accept()?,
                    BELL => self.nr_rung += 1,
                    client => nr_gone += u32::from(!self.read(client)?),
                }
            }
            for (client, answer) in self.answers.drain(BATCH) {
                reply(&mut self.clients, client, answer)?;
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((mut stream, _)) => {
                    let token = Token(self.clients.len());
                    let registry = self.poll.registry();
                    registry.register(&mut stream, token, Interest::READABLE)?;
                    self.clients.push(Some(stream));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a client's questions. Returns `false` if the client has just disconnected.
    fn read(&mut self, client: Token) -> io::Result<bool> {
        loop {
            let Some(stream) = &mut self.clients[client.0] else {
                return Ok(true);
            };
            let mut question = [0; 4];
            match stream.read(&mut question) {
                Ok(0) => {
                    self.clients[client.0] = None;
                    return Ok(false);
                }
                // A client asks one question at a time, so a read returns a whole one.
                Ok(_) => self.take(client, u32::from_ne_bytes(question))?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self, client: Token, question: u32) -> io::Result<()> {
        let poster = self.poster.clone();
        // The post fails only if the server has ended, and then the answer is not needed.
        let answer = move || _ = poster.post((client, answer_to(question)));
        if self.queue.try_spawn(answer).is_err() {
            self.nr_refused += 1;
            return reply(&mut self.clients, client, BUSY);
        }
        // The answer arrives in the mailbox.
        self.nr_taken += 1;
        Ok(())
    }
}

/// Sends an answer, unless the client has disconnected.
fn reply(clients: &mut [Option<TcpStream>], client: Token, answer: u64) -> io::Result<()> {
    match &mut clients[client.0] {
        // The socket buffer has space for the one answer that the client waits for.
        Some(stream) => stream.write_all(&answer.to_ne_bytes()),
        None => Ok(()),
    }
}

/// A placeholder for a computation.
fn answer_to(question: u32) -> u64 {
    (0..20_000).fold(u64::from(question), |sum, number| (sum ^ number) + 1)
}

/// Asks the questions and checks the answers. Returns the number of *busy* answers.
fn ask(address: SocketAddr, nr_questions: u32) -> io::Result<usize> {
    let mut stream = net::TcpStream::connect(address)?;
    let mut nr_busy = 0;
    for question in 0..nr_questions {
        let answer = loop {
            stream.write_all(&question.to_ne_bytes())?;
            let mut answer = [0; 8];
            stream.read_exact(&mut answer)?;
            match u64::from_ne_bytes(answer) {
                BUSY => nr_busy += 1,
                answer => break answer,
            }
            thread::sleep(Duration::from_micros(100));
        };
        assert_eq!(answer, answer_to(question));
    }
    Ok(nr_busy)
}
