//! The costs of things other than pools: readers, mailboxes, domains and sleeps.

use std::future::Future;
use std::pin::Pin;
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use afterwork::mailbox::Mailbox;
use afterwork::rcu::srcu::Domain;
use lab_peers::reclaim::Flavor;
use top::exit::Stop;

use super::axis::Cost;
use super::pools::ns_of_one;
use crate::bench::max_active::gauge::Size;

/// The stack size of a thread that reads a number and then blocks.
const STACK: usize = 128 * 1024;

/// The maximum number of replacements at each number of readers, and their maximum duration.
const NR_REPLACED: usize = 200;
const REPLACE_FOR: Duration = Duration::from_millis(300);

/// A time that is longer than any run. Sleeps of this length are cancelled.
pub const FAR: Duration = Duration::from_secs(3600);

/// Returns the cost of a replacement while `count` registered readers block. Returns `None` if the
/// system cannot run this number of threads.
pub fn readers(flavor: &dyn Flavor, count: usize) -> Option<Cost> {
    let (are_there, is_over) = (Barrier::new(count + 1), Barrier::new(count + 1));
    let (are_there, is_over) = (&are_there, &is_over);
    if !has_room_for(count) {
        return None;
    }
    thread::scope(|scope| {
        for _ in 0..count {
            let reader = move || {
                let mut reader = flavor.reader();
                std::hint::black_box(reader.read(1));
                reader.rest();
                are_there.wait();
                is_over.wait();
            };
            let thread = thread::Builder::new().stack_size(STACK);
            // This panics on failure, because readers at the barrier could not be released.
            let started = thread.spawn_scoped(scope, reader);
            started.expect("the registry has an entry for each thread");
        }
        are_there.wait();
        flavor.replace(0);
        let (begun, mut nr_done) = (Instant::now(), 0);
        while nr_done < NR_REPLACED && begun.elapsed() < REPLACE_FOR {
            flavor.replace(nr_done as u64);
            nr_done += 1;
        }
        let ns = begun.elapsed().as_nanos() as f64 / nr_done as f64;
        is_over.wait();
        Some(Cost { ns, bytes: None })
    })
}

/// Returns `true` if `count` idle threads can exist at the same time.
fn has_room_for(count: usize) -> bool {
    let mut threads = Vec::with_capacity(count);
    for _ in 0..count {
        let thread = thread::Builder::new().stack_size(STACK);
        match thread.spawn(thread::park) {
            Ok(thread) => threads.push(thread),
            Err(_) => break,
        }
    }
    let has_room = threads.len() == count;
    for thread in threads {
        thread.thread().unpark();
        // The thread does not panic.
        let _ = thread.join();
    }
    has_room
}

/// A mailbox or channel with both ends on one thread.
pub trait Letterbox {
    /// Creates a mailbox or channel.
    fn open() -> Self;
    /// Posts a number and receives it.
    fn send_and_receive(&mut self, number: u64) -> u64;
}

/// A mailbox with a poster.
pub type Ours = (Mailbox<u64>, afterwork::mailbox::Poster<u64>);
/// The standard library's channel.
pub type Std = (std::sync::mpsc::Receiver<u64>, std::sync::mpsc::Sender<u64>);
/// crossbeam's unbounded channel.
pub type Crossbeam = (crossbeam_channel::Receiver<u64>, crossbeam_channel::Sender<u64>);

const OPEN: &str = "both ends are here";

impl Letterbox for Ours {
    fn open() -> Self {
        let mailbox = Mailbox::new();
        let poster = mailbox.poster();
        (mailbox, poster)
    }

    fn send_and_receive(&mut self, number: u64) -> u64 {
        self.1.post(number).expect(OPEN);
        self.0.try_recv().expect(OPEN)
    }
}

impl Letterbox for Std {
    fn open() -> Self {
        let (sender, receiver) = std::sync::mpsc::channel();
        (receiver, sender)
    }

    fn send_and_receive(&mut self, number: u64) -> u64 {
        self.1.send(number).expect(OPEN);
        self.0.try_recv().expect(OPEN)
    }
}

impl Letterbox for Crossbeam {
    fn open() -> Self {
        let (sender, receiver) = crossbeam_channel::unbounded();
        (receiver, sender)
    }

    fn send_and_receive(&mut self, number: u64) -> u64 {
        self.1.send(number).expect(OPEN);
        self.0.try_recv().expect(OPEN)
    }
}

/// Returns the cost of a post to each of `count` mailboxes and of its receipt, and the bytes per
/// mailbox.
pub fn mailboxes<B: Letterbox>(count: usize) -> Result<Cost, Stop> {
    let before = Size::now()?;
    let mut boxes: Vec<B> = std::iter::repeat_with(B::open).take(count).collect();
    let all = |boxes: &mut [B]| {
        for (number, each) in boxes.iter_mut().enumerate() {
            std::hint::black_box(each.send_and_receive(number as u64));
        }
    };
    all(&mut boxes);
    let grown = Size::now()?.resident.saturating_sub(before.resident);
    Ok(Cost { ns: ns_of_one(count, || all(&mut boxes)), bytes: Some(grown as f64 / count as f64) })
}

/// Returns the time and bytes per domain to create `count` SRCU domains, queue a callback to each,
/// and wait until all have run.
pub fn domains(count: usize) -> Result<Cost, Stop> {
    let before = Size::now()?;
    let begun = Instant::now();
    let domains: Vec<Domain> = std::iter::repeat_with(Domain::new).take(count).collect();
    domains.iter().for_each(|domain| domain.call(|| ()));
    domains.iter().for_each(Domain::barrier);
    let ns = begun.elapsed().as_nanos() as f64 / count as f64;
    let grown = Size::now()?.resident.saturating_sub(before.resident);
    Ok(Cost { ns, bytes: Some(grown as f64 / count as f64) })
}

/// Returns the cost of starting and cancelling a sleep, and its size in bytes, while there are
/// `count` sleeps.
pub fn timers<F: Future>(count: usize, mut sleep: impl FnMut() -> F) -> Result<Cost, Stop> {
    let mut context = Context::from_waker(Waker::noop());
    let mut begin_all = || {
        let begin = || {
            let mut sleep = Box::pin(sleep());
            let polled = sleep.as_mut().poll(&mut context);
            assert!(matches!(polled, Poll::Pending), "a sleep ended too early");
            sleep
        };
        let sleeps: Vec<Pin<Box<F>>> = std::iter::repeat_with(begin).take(count).collect();
        sleeps
    };
    let before = Size::now()?;
    let sleeps = begin_all();
    let grown = Size::now()?.resident.saturating_sub(before.resident);
    drop(sleeps);
    Ok(Cost {
        ns: ns_of_one(count, || drop(begin_all())),
        bytes: Some(grown as f64 / count as f64),
    })
}
