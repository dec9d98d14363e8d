//! Tests of a mailbox's properties as a channel. `crates/mailbox/src/tests.rs` tests the others.

#![cfg(not(any(loom, shuttle)))]

mod children;

use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use afterwork::mailbox::{Mailbox, PostError, Poster, TryRecvError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

#[test]
fn a_mailbox_may_travel_in_a_mailbox() {
    struct Link(Option<Box<Mailbox<Link>>>);
    let mut mailbox = Mailbox::<Link>::new();
    let poster = mailbox.poster();
    let sender = thread::spawn(move || {
        let mut poster = poster;
        for _ in 0..1000 {
            let next = Mailbox::new();
            let to_next = next.poster();
            poster.post(Link(Some(Box::new(next)))).unwrap();
            poster = to_next;
        }
        poster.post(Link(None)).unwrap();
    });
    let mut nr_links = 0;
    loop {
        mailbox.wait(1).unwrap();
        match mailbox.try_recv() {
            Ok(Link(Some(next))) => mailbox = *next,
            Ok(Link(None)) => break,
            Err(error) => assert!(matches!(error, TryRecvError::MidPush), "{error}"),
        }
        nr_links += 1;
    }
    assert_eq!(nr_links, 1000);
    sender.join().unwrap();
}

#[test]
fn an_item_may_post_to_its_own_mailbox_as_it_is_dropped() {
    struct Last(Option<Poster<Last>>);
    sync::on_drop!(Last, this => if let Some(poster) = this.0.take() {
        let _ = poster.post(Last(None));
    });
    let mut mailbox = Mailbox::new();
    let poster = mailbox.poster();
    for _ in 0..100 {
        poster.post(Last(Some(poster.clone()))).unwrap();
    }
    drop(mailbox.try_recv().ok());
    drop(mailbox);
    assert!(matches!(poster.post(Last(None)), Err(PostError::Closed(_))));
}

#[test]
fn wait_may_be_longer_than_the_clock_range() {
    for timeout in [Duration::MAX, Duration::from_secs(u64::MAX)] {
        let mut mailbox = Mailbox::builder().spin_limit(0).build();
        let poster = mailbox.poster();
        let owner = thread::spawn(move || mailbox.wait_timeout(1, timeout));
        poster.post(()).unwrap();
        assert_eq!(owner.join().unwrap(), Ok(true));
    }
}

/// This holds for any sequence of eager and lazy posts.
#[test]
fn each_arming_is_notified_at_most_once() {
    let mut mailbox = Mailbox::new();
    let fd = mailbox.eventfd().unwrap().try_clone_to_owned().unwrap();
    let (mut nr_armed, mut nr_rings, mut nr_received) = (0_u64, 0_u64, 0);
    let mut read_bell = || {
        let mut count = [0; 8];
        // The owner's eventfd does not block.
        if rustix::io::read(&fd, &mut count).is_ok() {
            nr_rings += u64::from_ne_bytes(count);
        }
    };
    let posters = [(); 2].map(|()| mailbox.poster());
    thread::scope(|scope| {
        for (nth, poster) in posters.into_iter().enumerate() {
            scope.spawn(move || {
                for number in 0..500 {
                    let is_lazy = (number + nth).is_multiple_of(2);
                    let post = if is_lazy { Poster::post_lazy } else { Poster::post };
                    post(&poster, number).unwrap();
                    if number.is_multiple_of(7) {
                        thread::yield_now();
                    }
                }
            });
        }
        loop {
            // If `arm` finds items, a poster may still wake the owner before the arming ends.
            nr_armed += 1;
            if mailbox.arm(2).unwrap() {
                let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
                let nr_ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit));
                assert_eq!(nr_ready, Ok(1), "a wake-up was lost");
                mailbox.disarm();
                read_bell();
            }
            nr_received += mailbox.drain(64).count();
            match mailbox.try_recv() {
                Err(TryRecvError::Closed) => break,
                other => nr_received += usize::from(other.is_ok()),
            }
        }
    });
    read_bell();
    assert_eq!(nr_received, 1000);
    assert!(nr_rings <= nr_armed, "{nr_rings} rings for {nr_armed} armings");
}

fn nr_sleeps() -> usize {
    children::number_in("/proc/thread-self/status", "voluntary_ctxt_switches:").unwrap()
}

/// With a timer of 1 ms the owner would sleep about a hundred times.
#[test]
fn a_lingering_owner_without_items_is_not_woken() {
    let mut mailbox = Mailbox::builder().spin_limit(0).build();
    let poster = mailbox.poster();
    let (ready, is_ready) = mpsc::channel();
    let owner = thread::spawn(move || {
        ready.send(()).unwrap();
        let before = nr_sleeps();
        let lingered = mailbox.wait_linger(1, 2, Duration::from_millis(1));
        (lingered, nr_sleeps() - before)
    });
    is_ready.recv().unwrap();
    thread::sleep(Duration::from_millis(100));
    poster.post(()).unwrap();
    let (lingered, nr_sleeps) = owner.join().unwrap();
    assert_eq!(lingered, Ok(true));
    assert!(nr_sleeps <= 2, "{nr_sleeps} sleeps for one item");
}

#[test]
fn a_post_does_not_touch_a_file_with_the_eventfds_number() {
    let mut mailbox = Mailbox::new();
    let poster = mailbox.poster();
    let number = mailbox.eventfd().unwrap().as_raw_fd();
    let (mut reader, writer) = std::io::pipe().unwrap();
    assert!(mailbox.arm(1).unwrap());
    // SAFETY: the call takes two numbers. A program that closes unknown descriptors does the same.
    assert!(unsafe { libc::dup2(writer.as_raw_fd(), number) } >= 0);
    poster.post(1).unwrap();
    assert!(mailbox.disarm(), "a poster has claimed the wake-up");
    assert_eq!(mailbox.try_recv(), Ok(1));
    assert_eq!(mailbox.eventfd().unwrap_err().kind(), ErrorKind::NotFound);
    mailbox.clear();
    drop((mailbox, poster, writer));
    // SAFETY: the call takes a number. It fails if the mailbox has closed the descriptor.
    assert_eq!(unsafe { libc::close(number) }, 0);
    let mut written = Vec::new();
    reader.read_to_end(&mut written).unwrap();
    assert_eq!(written, [0; 0]);
}

#[test]
fn item_count_never_exceeds_the_capacity() {
    const NR_POSTERS: usize = 4;
    const NR_POSTS: usize = 5000;
    let mut mailbox = Mailbox::builder().capacity(16).build();
    // Number of accepted items. Each poster may have posted one more item that is not counted yet.
    let nr_inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        for from in 0..NR_POSTERS {
            let (poster, nr_inside) = (mailbox.poster(), &nr_inside);
            scope.spawn(move || {
                for number in 0..NR_POSTS {
                    let mut item = (from, number);
                    while let Err(refused) = poster.post(item) {
                        assert!(matches!(refused, PostError::Full(_)));
                        item = refused.into_inner();
                        thread::yield_now();
                    }
                    nr_inside.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let (mut next, mut nr_received) = ([0; NR_POSTERS], 0);
        while mailbox.wait(1).is_ok() {
            for (from, number) in mailbox.drain(7) {
                assert_eq!(number, next[from]);
                next[from] += 1;
                nr_received += 1;
            }
            // Capacity is released no later than at the end of the drain.
            assert!(nr_inside.load(Ordering::SeqCst) <= nr_received + 16 + 7);
        }
        assert_eq!(next, [NR_POSTS; NR_POSTERS]);
    });
}
