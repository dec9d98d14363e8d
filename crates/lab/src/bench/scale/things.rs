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

const OPEN: &str = "both ends are here";

/// Returns the cost of a post to each of `count` mailboxes and of its receipt, and the bytes per
/// mailbox.
pub fn mailboxes(count: usize) -> Result<Cost, Stop> {
    let open = || {
        let mailbox = Mailbox::new();
        (mailbox.poster(), mailbox)
    };
    one_by_one(count, open, |(poster, mailbox), number| {
        poster.post(number).expect(OPEN);
        mailbox.try_recv().expect(OPEN)
    })
}

/// The same for unbounded channels of std.
pub fn std_channels(count: usize) -> Result<Cost, Stop> {
    one_by_one(count, std::sync::mpsc::channel, |(sender, receiver), number| {
        sender.send(number).expect(OPEN);
        receiver.try_recv().expect(OPEN)
    })
}

/// The same for unbounded channels of crossbeam.
pub fn crossbeam_channels(count: usize) -> Result<Cost, Stop> {
    one_by_one(count, crossbeam_channel::unbounded, |(sender, receiver), number| {
        sender.send(number).expect(OPEN);
        receiver.try_recv().expect(OPEN)
    })
}

/// Passes a number through each of `count` pairs of ends, all on this thread.
fn one_by_one<E>(
    count: usize,
    open: impl Fn() -> E,
    pass: impl Fn(&mut E, u64) -> u64,
) -> Result<Cost, Stop> {
    let before = Size::now()?;
    let mut pairs: Vec<E> = std::iter::repeat_with(open).take(count).collect();
    let all = |pairs: &mut [E]| {
        for (number, ends) in pairs.iter_mut().enumerate() {
            std::hint::black_box(pass(ends, number as u64));
        }
    };
    all(&mut pairs);
    let grown = Size::now()?.resident.saturating_sub(before.resident);
    Ok(Cost { ns: ns_of_one(count, || all(&mut pairs)), bytes: Some(grown as f64 / count as f64) })
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
