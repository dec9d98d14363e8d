//! Tests that waiting senders are admitted in order, can give up without side effects, and are
//! never forgotten.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::task::{Poll, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;
use std::{ptr, thread};

use base::internal::admission::MAX_CAPACITY;

use super::tests::*;
use super::*;

#[test]
fn sends_are_admitted_in_order_and_posts_rejected_until_then() {
    let (mut mailbox, poster) = pair_of(1);
    let other = mailbox.poster();
    poster.post(0).unwrap();
    let mut sends = [poster.send(1), other.send(2), poster.send(3)];
    for send in &mut sends {
        assert_eq!(poll(send), Poll::Pending);
    }
    for number in 0..=3 {
        assert_eq!(poster.post(9), Err(PostError::Full(9)));
        assert_eq!(mailbox.len(), 1);
        assert_eq!(poster.nr_inside(), Some(1));
        assert_eq!(mailbox.try_recv(), Ok(number));
    }
    for send in &mut sends {
        assert_eq!(poll(send), Poll::Ready(Ok(())));
    }
    poster.post(4).unwrap();
    assert_eq!(mailbox.try_recv(), Ok(4));
}

#[test]
fn a_send_that_waits_is_woken_once_and_by_its_last_waker() {
    let (mut mailbox, poster) = pair_of(1);
    poster.post(0).unwrap();
    let mut send = poster.send(1);
    let wakes = [(); 2].map(|()| {
        let (wakes, waker) = WakeCounter::new();
        assert_eq!(poll_with(&mut send, &waker), Poll::Pending);
        wakes
    });
    assert_eq!(mailbox.drain(9).collect::<Vec<_>>(), [0, 1], "admitted before it is polled");
    assert_eq!(wakes.map(|wakes| wakes.nr()), [0, 1]);
    assert_eq!(poll(&mut send), Poll::Ready(Ok(())));
    assert_eq!(send.take_back(), None);
}

#[test]
fn cancelled_send_leaves_the_wait_queue_and_loses_nothing() {
    let drops = Drops::default();
    let item = |number| (number, drops.life());
    let (mut mailbox, poster) = pair_of(1);
    assert!(poster.post(item(0)).is_ok());
    let [mut first, mut second, mut third] = [1, 2, 3].map(|number| poster.send(item(number)));
    for send in [&mut first, &mut second, &mut third] {
        assert!(poll(send).is_pending());
    }
    drop(first);
    assert_eq!(drops.nr(), 1, "with its item");
    assert!(second.take_back().is_some_and(|item| item.0 == 2));
    assert_eq!(drops.nr(), 2);
    assert!(mailbox.try_recv().is_ok_and(|item| item.0 == 0));
    assert!(mailbox.try_recv().is_ok_and(|item| item.0 == 3), "moved up");
    assert!(third.take_back().is_none(), "received");
    assert!(mailbox.try_recv().is_err());
    assert_eq!(drops.nr(), 4);
    // This send was never polled.
    let mut fresh = poster.send(item(4));
    assert!(fresh.take_back().is_some() && fresh.take_back().is_none());
    drop(fresh);
    drop(poster.send(item(5)));
    assert_eq!(drops.nr(), 6);
}

#[test]
fn posts_are_accepted_again_when_no_sender_waits() {
    let (mut mailbox, poster) = pair_of(1);
    poster.post(0).unwrap();
    let mut send = poster.send(1);
    assert!(poll(&mut send).is_pending());
    drop(send);
    let refused = poster.send_timeout(2, Duration::ZERO);
    assert_eq!(refused, Err(PostError::Full(2)));
    let refused = poster.send_timeout(3, Duration::from_millis(1));
    assert_eq!(refused, Err(PostError::Full(3)));
    assert_eq!(mailbox.try_recv(), Ok(0));
    poster.post(4).unwrap();
    assert_eq!(mailbox.try_recv(), Ok(4));
}

#[test]
fn closing_or_dropping_a_mailbox_returns_waiting_items() {
    for drops in [false, true] {
        let (mut mailbox, poster) = pair_of(1);
        poster.post(0).unwrap();
        let mut sends = [1, 2].map(|item| poster.send(item));
        let (wakes, waker) = WakeCounter::new();
        for send in &mut sends {
            assert!(poll_with(send, &waker).is_pending());
        }
        if drops {
            drop(mailbox);
        } else {
            mailbox.close();
            assert_eq!(mailbox.try_recv(), Ok(0));
            let next = mailbox.try_recv();
            assert_eq!(next, Err(TryRecvError::Closed), "no sender is admitted");
        }
        assert_eq!(wakes.nr(), 2);
        for (send, item) in sends.iter_mut().zip([1, 2]) {
            assert_eq!(poll(send), Poll::Ready(Err(PostError::Closed(item))));
        }
        assert_eq!(poster.send_blocking(3), Err(PostError::Closed(3)));
        let late = poll(&mut poster.send(4));
        assert_eq!(late, Poll::Ready(Err(PostError::Closed(4))));
    }
}

#[test]
fn unbounded_mailbox_always_has_capacity() {
    let (mut mailbox, poster) = pair();
    assert_eq!((poster.capacity(), poster.nr_inside()), (None, None));
    assert_eq!(poll(&mut poster.send(1)), Poll::Ready(Ok(())));
    poster.send_blocking(2).unwrap();
    poster.send_timeout(3, Duration::ZERO).unwrap();
    assert!(mailbox.drain(9).eq([1, 2, 3]));
}

#[test]
#[should_panic = "polled after it had ended"]
fn a_send_is_not_polled_after_its_end() {
    let (_mailbox, poster) = pair();
    let mut send = poster.send(1);
    assert_eq!(poll(&mut send), Poll::Ready(Ok(())));
    let _ = poll(&mut send);
}

#[test]
fn a_capacity_is_from_one_to_its_maximum() {
    for wrong in [0, MAX_CAPACITY + 1, usize::MAX] {
        let build = || Mailbox::<u8>::builder().capacity(wrong).build();
        let refused = catch_unwind(AssertUnwindSafe(build)).unwrap_err();
        let text = refused.downcast::<String>().unwrap();
        assert!(text.contains("capacity") && text.contains(&wrong.to_string()), "{text}");
    }
    let mailbox = Mailbox::<u8>::builder().capacity(MAX_CAPACITY).build();
    mailbox.poster().post(1).unwrap();
}

#[test]
fn owner_waiting_for_more_than_the_capacity_gets_all_items() {
    let (mut mailbox, poster) = pair_of(2);
    poster.post_lazy(0).unwrap();
    poster.post_lazy(1).unwrap();
    mailbox.wait(32).unwrap();
    assert_eq!(mailbox.wait_timeout(32, FOR_EVER), Ok(true));
    assert_eq!(mailbox.drain(9).count(), 2);
}

#[test]
fn owner_does_not_sleep_while_a_sender_waits() {
    let (mut mailbox, poster) = pair_of(2);
    // This item reserves capacity and is not posted.
    let mut held = poster.batch();
    held.push(9).unwrap();
    poster.post_lazy(0).unwrap();
    thread::scope(|scope| {
        let sender = scope.spawn(|| poster.send_blocking(1));
        mailbox.wait(2).unwrap();
        assert_eq!(mailbox.try_recv(), Ok(0));
        sender.join().unwrap().unwrap();
    });
    assert_eq!(mailbox.try_recv(), Ok(1));
    drop(held);
    assert_eq!(poster.nr_inside(), Some(0));
}

#[test]
fn batch_that_releases_capacity_admits_waiters() {
    let (mut mailbox, poster) = pair_of(1);
    let mut held = poster.batch();
    held.push(0).unwrap();
    let mut send = poster.send(1);
    assert!(poll(&mut send).is_pending());
    drop(held);
    assert_eq!(mailbox.try_recv(), Ok(1));
    assert_eq!(poll(&mut send), Poll::Ready(Ok(())));
}

const NR_POSTS: usize = scaled(8, 200, 5_000);

#[test]
fn waiting_items_arrive_once_in_order_within_the_capacity() {
    const NR_POSTERS: usize = 4;
    for capacity in [1, 3] {
        let mut mailbox = Mailbox::builder().capacity(capacity).build();
        thread::scope(|scope| {
            for from in 0..NR_POSTERS {
                let poster = mailbox.poster();
                scope.spawn(move || {
                    for number in 0..NR_POSTS {
                        let item = (from, number);
                        match (number + from) % 4 {
                            0 => poster.send_timeout(item, FOR_EVER).unwrap(),
                            1 => {
                                if let Err(refused) = poster.post_lazy(item) {
                                    poster.send_blocking(refused.into_inner()).unwrap();
                                }
                            }
                            _ => poster.send_blocking(item).unwrap(),
                        }
                    }
                });
            }
            let (mut next, watch) = ([0; NR_POSTERS], mailbox.poster());
            while next != [NR_POSTS; NR_POSTERS] {
                mailbox.wait(1 + next[0] % 5).unwrap();
                assert!(watch.nr_inside().unwrap() <= capacity);
                assert!(mailbox.len() <= capacity);
                for (from, number) in mailbox.drain(2) {
                    assert_eq!(next[from], number);
                    next[from] += 1;
                }
            }
            assert_eq!(watch.nr_inside(), Some(0));
        });
    }
}

#[test]
fn panicking_waker_clone_leaves_the_item_queued() {
    const VTABLE: RawWakerVTable =
        RawWakerVTable::new(|_| panic_any("a broken clone"), |_| (), |_| (), |_| ());
    let (_mailbox, poster) = pair_of(1);
    poster.post(0).unwrap();
    // SAFETY: the table does not use the pointer, and may be used on any thread.
    let broken = unsafe { Waker::from_raw(RawWaker::new(ptr::null(), &VTABLE)) };
    let mut send = poster.send(1);
    let poll_broken =
        |send: &mut Sending<'_, i32>| catch_unwind(AssertUnwindSafe(|| poll_with(send, &broken)));
    for _ in 0..2 {
        assert!(poll_broken(&mut send).is_err());
    }
    assert!(!poster.shared.is_awaited());
    assert!(poll(&mut send).is_pending());
    assert!(poll_broken(&mut send).is_err());
    assert_eq!(send.take_back(), Some(1));
}

#[test]
fn panicking_wakers_harm_no_other_thread() {
    let (mut mailbox, poster) = pair_of(1);
    poster.post(0).unwrap();
    let [mut first, mut second] = [1, 2].map(|number| poster.send(number));
    for send in [&mut first, &mut second] {
        // The second poll replaces the waker of the first, which is then dropped.
        for _ in 0..2 {
            let waker = Waker::from(Arc::new(Broken { wake: true, drop: true }));
            assert!(poll_with(send, &waker).is_pending());
            // The wait queue then owns the last handle.
            drop(waker);
        }
    }
    drop(second);
    assert!(mailbox.drain(9).eq([0, 1]));
    assert_eq!(poll(&mut first), Poll::Ready(Ok(())));
    poster.post(3).unwrap();
    assert_eq!(mailbox.try_recv(), Ok(3));
}

#[test]
fn item_of_a_leaked_send_is_dropped_and_its_panic_caught() {
    for owner_first in [true, false] {
        let drops = Drops::default();
        let (mailbox, poster) = pair_of(1);
        poster.post(drops.bomb()).unwrap();
        for _ in 0..2 {
            let mut sending = poster.send(drops.bomb());
            assert!(poll(&mut sending).is_pending());
            std::mem::forget(sending);
        }
        if owner_first {
            drop((mailbox, poster));
        } else {
            drop((poster, mailbox));
        }
        assert_eq!(drops.nr(), 3);
    }
}
