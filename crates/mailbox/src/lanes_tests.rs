//! Tests that urgent items overtake ordinary ones, keep their order, starve no ordinary item, and
//! otherwise behave like ordinary items.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use super::tests::*;
use super::*;

#[test]
fn urgent_items_precede_waiting_ones_and_keep_their_order() {
    for mut mailbox in mailboxes() {
        let ordinary = mailbox.poster();
        (0..20).for_each(|number| ordinary.post_lazy(number).unwrap());
        assert!(mailbox.drain(3).eq(0..3));
        let urgent = ordinary.urgent();
        assert!(urgent.is_urgent() && urgent.clone().is_urgent() && !ordinary.is_urgent());
        assert!(urgent.same_as(&ordinary));
        urgent.post(100).unwrap();
        urgent.clone().post_lazy(101).unwrap();
        let mut batch = urgent.batch();
        (102..105).for_each(|number| batch.push(number).unwrap());
        batch.post().unwrap();
        assert_eq!(mailbox.len(), 17 + 5);
        assert!(mailbox.drain(5).eq(100..105));
        assert!(mailbox.drain(2).eq(3..5));
        urgent.post(105).unwrap();
        assert!(mailbox.drain(2).eq([105, 5]), "also in the middle of a block");
        assert!(mailbox.drain(usize::MAX).eq(6..20));
        assert!(mailbox.is_empty());
        assert_eq!(mailbox.try_recv(), Err(TryRecvError::Empty));
    }
}

#[test]
fn every_tenth_receipt_is_an_ordinary_one_while_both_wait() {
    let nr_posts: usize = miri_or(30, 100);
    for mut mailbox in mailboxes() {
        let ordinary = mailbox.poster();
        let urgent = ordinary.urgent();
        for number in 0..nr_posts {
            urgent.post_lazy(Some(number)).unwrap();
            ordinary.post_lazy(None).unwrap();
        }
        let received: Vec<_> = mailbox.drain(nr_posts).collect();
        for (at, item) in received.iter().enumerate() {
            assert_eq!(item.is_none(), at % 10 == 9, "receipt {at}");
        }
        assert!(received.into_iter().flatten().eq(0..nr_posts * 9 / 10));
        assert_eq!(mailbox.drain(usize::MAX).flatten().count(), nr_posts / 10);
    }
}

#[test]
fn an_urgent_item_counts_as_any_other_for_the_owners_sleep() {
    for mut mailbox in mailboxes() {
        let ordinary = mailbox.poster();
        let urgent = ordinary.urgent();
        let cx = &mut Context::from_waker(Waker::noop());
        urgent.post_lazy(1).unwrap();
        ordinary.post_lazy(2).unwrap();
        assert!(mailbox.poll_ready(cx, 3).is_pending());
        urgent.post_lazy(3).unwrap();
        assert!(mailbox.poll_ready(cx, 3).is_ready());
        assert!(mailbox.drain(9).eq([1, 3, 2]));
        urgent.post(4).unwrap();
        assert!(mailbox.poll_ready(cx, 3).is_ready(), "it is eager");
    }
}

#[test]
fn a_sleeping_owner_is_woken_by_urgent_posts() {
    let nr_items = miri_or(30, 200);
    for mut mailbox in mailboxes() {
        let urgent = mailbox.poster().urgent();
        let thread = thread::spawn(move || {
            for number in 0..nr_items {
                match number % 3 {
                    0 => urgent.post(number).unwrap(),
                    _ => urgent.post_lazy(number).unwrap(),
                }
            }
        });
        let mut next = 0;
        while let Ok(in_time) = mailbox.wait_timeout(2, FOR_EVER) {
            assert!(in_time);
            for number in mailbox.drain(2) {
                assert_eq!(number, next);
                next += 1;
            }
        }
        assert_eq!(next, nr_items);
        thread.join().unwrap();
    }
}

#[test]
fn capacity_has_one_wait_queue_for_both_lanes() {
    let (mut mailbox, ordinary) = pair_of(2);
    let urgent = ordinary.urgent();
    ordinary.post(0).unwrap();
    urgent.post(10).unwrap();
    assert_eq!(urgent.post(11), Err(PostError::Full(11)));
    let mut sends = [ordinary.send(1), urgent.send(11)];
    for send in &mut sends {
        assert!(poll(send).is_pending());
    }
    assert_eq!(mailbox.try_recv(), Ok(10));
    // The first waiter, which is an ordinary one, was admitted.
    assert!(matches!(poll(&mut sends[0]), Poll::Ready(Ok(()))));
    assert!(poll(&mut sends[1]).is_pending());
    assert_eq!(mailbox.try_recv(), Ok(0));
    assert!(matches!(poll(&mut sends[1]), Poll::Ready(Ok(()))));
    assert!(mailbox.drain(9).eq([11, 1]), "once inside, it goes first");
    assert_eq!(ordinary.nr_inside(), Some(0));
}

#[test]
fn send_of_an_urgent_item_can_be_cancelled() {
    let mut mailbox = Mailbox::builder().capacity(1).build();
    let urgent = mailbox.poster().urgent();
    urgent.post(1).unwrap();
    let mut send = urgent.send(2);
    assert!(poll(&mut send).is_pending());
    assert_eq!(send.take_back(), Some(2));
    drop(urgent.send(3));
    assert!(mailbox.drain(9).eq([1]));
    urgent.post(4).unwrap();
}

#[test]
fn a_call_by_an_urgent_poster_is_answered_first() {
    let (mut mailbox, ordinary) = pair();
    let first = ordinary.call(|to| (1, to)).unwrap();
    let second = ordinary.urgent().call(|to| (2, to)).unwrap();
    for expected in [2, 1] {
        let (number, to) = mailbox.try_recv().unwrap();
        assert_eq!(number, expected);
        to.reply(number).unwrap();
    }
    assert_eq!((first.wait(), second.wait()), (Ok(1), Ok(2)));
}

#[test]
fn closed_mailbox_rejects_both_lanes_and_yields_its_items() {
    for mut mailbox in mailboxes() {
        let ordinary = mailbox.poster();
        let urgent = ordinary.urgent();
        ordinary.post(1).unwrap();
        urgent.post(2).unwrap();
        mailbox.close();
        assert_eq!(urgent.post(3), Err(PostError::Closed(3)));
        let mut batch = urgent.batch();
        batch.push(4).unwrap();
        assert_eq!(batch.post(), Err(PostError::Closed(())));
        assert!(batch.eq([4]));
        assert!(mailbox.drain(9).eq([2, 1]));
        assert_eq!(mailbox.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(mailbox.wait(1), Err(Closed));
    }
}

#[test]
fn the_last_urgent_poster_ends_the_wait_as_any_other() {
    for mut mailbox in mailboxes() {
        let urgent = mailbox.poster().urgent();
        let thread = thread::spawn(move || urgent.post_lazy(1).unwrap());
        mailbox.wait(2).unwrap();
        assert_eq!(mailbox.try_recv(), Ok(1));
        assert_eq!(mailbox.wait(1), Err(Closed));
        thread.join().unwrap();
    }
}

#[test]
fn items_of_both_lanes_are_dropped_with_the_mailbox() {
    for mut mailbox in mailboxes() {
        let item = Arc::new(());
        let ordinary = mailbox.poster();
        let urgent = ordinary.urgent();
        for _ in 0..30 {
            ordinary.post(item.clone()).unwrap();
            urgent.post(item.clone()).unwrap();
        }
        drop(mailbox.try_recv());
        drop(mailbox);
        assert_eq!(Arc::strong_count(&item), 1);
        assert!(urgent.post(item.clone()).is_err());
        drop((ordinary, urgent));
        assert_eq!(Arc::strong_count(&item), 1);
    }
}

#[test]
fn emptied_blocks_are_reused_by_both_lanes() {
    let (mut mailbox, ordinary) = pair();
    let urgent = ordinary.urgent();
    for round in 0..miri_or(5, 50) {
        for number in 0..40 {
            ordinary.post_lazy(number + round).unwrap();
        }
        assert_eq!(mailbox.drain(usize::MAX).count(), 40);
        for number in 0..40 {
            urgent.post_lazy(number + round).unwrap();
        }
        assert!(mailbox.drain(usize::MAX).eq(round..round + 40));
    }
}
