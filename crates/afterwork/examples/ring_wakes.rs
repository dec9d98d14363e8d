//! Compares three ways to wake an owner that sleeps in an io_uring ring.
//!
//! | way | the owner | the poster |
//! |---|---|---|
//! | eventfd | polls the eventfd with one multishot request | writes to it if the owner has armed |
//! | MSG_RING | waits for any completion | sends a message from its own ring |
//! | futex | submits a wait on a shared word before each sleep | changes the word and wakes it |
//!
//! `cargo run --release --features io-uring --example ring_wakes`

use std::error::Error;
use std::hint;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use afterwork::mailbox::{Mailbox, uring};
use io_uring::{IoUring, opcode, types};
use rustix::thread::{CpuSet, futex, sched_setaffinity};

const NR_POSTS: usize = 5000;
/// The time between two posts, long enough for the owner to sleep again.
const GAP: Duration = Duration::from_micros(200);
/// `FUTEX2_SIZE_U32`. A private wait would be lost when the process starts its second thread.
const FUTEX_U32: u32 = 2;
/// `FUTEX_BITSET_MATCH_ANY`.
const ANY: u64 = 0xffff_ffff;

/// The costs of one way.
struct Costs {
    /// The times from before a post until the owner has the item.
    latency_ns: Vec<u64>,
    /// The durations of the calls that post.
    post_ns: Vec<u64>,
}

type Road = fn() -> io::Result<Costs>;

fn main() -> Result<(), Box<dyn Error>> {
    println!("{NR_POSTS} posts, {} µs apart, to an owner that sleeps in its ring", GAP.as_micros());
    println!(
        "{:<10} {:>16} {:>16} {:>12}",
        "road", "latency p50 µs", "latency p99 µs", "post p50 µs"
    );
    let roads: [(&str, Road); 3] =
        [("eventfd", by_eventfd), ("MSG_RING", by_message), ("futex", by_futex)];
    for (name, road) in roads {
        match road() {
            Ok(Costs { latency_ns, post_ns }) => println!(
                "{name:<10} {:>16.1} {:>16.1} {:>12.1}",
                percentile(latency_ns.clone(), 50) as f64 / 1e3,
                percentile(latency_ns, 99) as f64 / 1e3,
                percentile(post_ns, 50) as f64 / 1e3,
            ),
            Err(error) => println!("{name:<10} not here: {error}"),
        }
    }
    Ok(())
}

fn percentile(mut values: Vec<u64>, percent: usize) -> u64 {
    values.sort_unstable();
    values[(values.len() - 1) * percent / 100]
}

fn ns_since(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

/// Pins the thread, so that poster and owner have CPUs of their own if there are two.
fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // If pinning fails, the figures are those of an unpinned thread.
    let _ = sched_setaffinity(None, &set);
}

/// Posts from another thread at regular times. `post` receives the time before the call.
fn post_from_elsewhere(
    start: Instant,
    mut post: impl FnMut(u64) -> io::Result<()> + Send + 'static,
) -> thread::JoinHandle<io::Result<Vec<u64>>> {
    thread::spawn(move || {
        pin(0);
        let mut costs = Vec::with_capacity(NR_POSTS);
        let mut next = start.elapsed() + GAP;
        for _ in 0..NR_POSTS {
            while start.elapsed() < next {
                hint::spin_loop();
            }
            let before = ns_since(start);
            post(before)?;
            costs.push(ns_since(start) - before);
            next = start.elapsed() + GAP;
        }
        Ok(costs)
    })
}

fn joined(poster: thread::JoinHandle<io::Result<Vec<u64>>>) -> io::Result<Vec<u64>> {
    poster.join().map_err(|_| io::Error::other("the poster panicked"))?
}

fn by_eventfd() -> io::Result<Costs> {
    let start = Instant::now();
    let mut mailbox = Mailbox::new();
    let to_owner = mailbox.poster();
    let poster = post_from_elsewhere(start, move |now| {
        to_owner.post(now).map_err(|error| io::Error::other(error.to_string()))
    });
    pin(1);
    let mut ring = IoUring::new(8)?;
    let entry = uring::poll_entry(&mailbox, 0)?;
    // SAFETY: the entry has an eventfd and no memory. The ring is dropped before the mailbox.
    unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
    let mut latency_ns = Vec::with_capacity(NR_POSTS);
    while latency_ns.len() < NR_POSTS {
        let may_sleep = mailbox.arm(1)?;
        ring.submit_and_wait(usize::from(may_sleep))?;
        mailbox.disarm();
        ring.completion().for_each(drop);
        latency_ns.extend(mailbox.drain(NR_POSTS).map(|posted| ns_since(start) - posted));
    }
    Ok(Costs { latency_ns, post_ns: joined(poster)? })
}

fn by_message() -> io::Result<Costs> {
    let start = Instant::now();
    let mut ring = IoUring::new(8)?;
    let owner = types::Fd(ring.as_raw_fd());
    let mut own: IoUring = IoUring::new(8)?;
    let poster = post_from_elsewhere(start, move |now| {
        let entry = opcode::MsgRingData::new(owner, 0, now, None).build();
        // SAFETY: the entry has no memory. The owner's ring outlives this thread.
        unsafe { own.submission().push(&entry) }.map_err(io::Error::other)?;
        own.submit_and_wait(1)?;
        let sent = own.completion().next().map_or(0, |sent| sent.result());
        if sent < 0 { Err(io::Error::from_raw_os_error(-sent)) } else { Ok(()) }
    });
    pin(1);
    let mut latency_ns = Vec::with_capacity(NR_POSTS);
    // A timeout, because a poster that fails sends nothing.
    let backoff = types::Timespec::from(Duration::from_secs(1));
    let backoff = types::SubmitArgs::new().timespec(&backoff);
    while latency_ns.len() < NR_POSTS && !poster.is_finished() {
        match ring.submitter().submit_with_args(1, &backoff) {
            Err(error) if error.raw_os_error() != Some(rustix::io::Errno::TIME.raw_os_error()) => {
                return Err(error);
            }
            _ => {}
        }
        latency_ns.extend(ring.completion().map(|message| ns_since(start) - message.user_data()));
    }
    Ok(Costs { latency_ns, post_ns: joined(poster)? })
}

fn by_futex() -> io::Result<Costs> {
    let start = Instant::now();
    let words = Arc::new((AtomicU32::new(0), AtomicU64::new(0)));
    let theirs = words.clone();
    let poster = post_from_elsewhere(start, move |now| {
        let (word, posted) = &*theirs;
        posted.store(now, Ordering::Relaxed);
        word.fetch_add(1, Ordering::Release);
        futex::wake(word, futex::Flags::empty(), 1)?;
        Ok(())
    });
    pin(1);
    let (word, posted) = &*words;
    let mut ring = IoUring::new(8)?;
    let mut seen = 0;
    let mut latency_ns = Vec::with_capacity(NR_POSTS);
    while latency_ns.len() < NR_POSTS {
        let entry = opcode::FutexWait::new(word.as_ptr(), u64::from(seen), ANY, FUTEX_U32).build();
        // SAFETY: the word outlives the ring, which is dropped first. The kernel only compares it.
        unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
        ring.submit_and_wait(1)?;
        let now = ns_since(start);
        for waited in ring.completion() {
            let result = -waited.result();
            if result != 0 && result != rustix::io::Errno::AGAIN.raw_os_error() {
                return Err(io::Error::from_raw_os_error(result));
            }
        }
        let present = word.load(Ordering::Acquire);
        // A post before the sleep ends the next wait. `posted` may be the time of a later post.
        let posted = posted.load(Ordering::Relaxed);
        latency_ns.extend((seen != present).then(|| now.saturating_sub(posted)));
        seen = present;
        if present as usize >= NR_POSTS {
            break;
        }
    }
    Ok(Costs { latency_ns, post_ns: joined(poster)? })
}
