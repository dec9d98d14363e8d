//! Tests that each call gets an answer or an error.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use super::tests::*;
use super::*;

type Question = (u64, ReplyTo<u64>);

/// Lets three threads ask with `ask`, which returns the answer.
fn answer_three_callers(
    nr_calls: u64,
    mut mailbox: Mailbox<Question>,
    ask: impl Fn(&Poster<Question>, u64) -> u64 + Copy + Send,
) {
    thread::scope(|scope| {
        for from in 0..3 {
            let poster = mailbox.poster();
            scope.spawn(move || {
                for number in 0..nr_calls {
                    let question = from << 32 | number;
                    assert_eq!(ask(&poster, question), question + 1);
                }
            });
        }
        while mailbox.wait(1).is_ok() {
            for (question, to) in mailbox.drain(1) {
                to.reply(question + 1).unwrap();
            }
        }
    });
}

#[test]
fn every_call_gets_its_own_answer() {
    answer_three_callers(scaled(10, 200, 2000), Mailbox::new(), |poster, question| {
        poster.call(|to| (question, to)).unwrap().wait().unwrap()
    });
}

#[test]
fn a_task_is_woken_by_the_answer_and_by_its_loss() {
    for answers in [true, false] {
        let mut mailbox = Mailbox::<ReplyTo<u32>>::new();
        let mut reply = mailbox.poster().call(|to| to).unwrap();
        let (wakes, waker) = WakeCounter::new();
        for _ in 0..2 {
            assert_eq!(poll_with(&mut reply, &waker), Poll::Pending);
        }
        let to = mailbox.try_recv().unwrap();
        assert!(!to.is_abandoned());
        let expected = if answers {
            to.reply(7).unwrap();
            Ok(7)
        } else {
            drop(to);
            Err(ReplyError::Lost)
        };
        assert_eq!(wakes.nr(), 1);
        assert_eq!(poll(&mut reply), Poll::Ready(expected));
        let outcome = poll(&mut reply);
        assert_eq!(outcome, Poll::Ready(Err(ReplyError::Lost)), "taken");
    }
}

#[test]
fn call_is_dropped_with_its_mailbox() {
    let (mailbox, poster) = pair::<ReplyTo<u32>>();
    let reply = poster.call(|to| to).unwrap();
    let caller = thread::spawn(move || reply.wait());
    drop(mailbox);
    assert_eq!(caller.join().unwrap(), Err(ReplyError::Lost));
    let refused = poster.call(|to| to).unwrap_err();
    assert!(matches!(refused, PostError::Closed(_)));
    assert!(refused.into_inner().is_abandoned());
}

#[test]
fn full_mailbox_returns_the_call() {
    let (mut mailbox, poster) = pair_of(1);
    let mut first = poster.call(|to: ReplyTo<u32>| to).unwrap();
    let second = poster.call(|to| to).unwrap_err().into_inner();
    assert_eq!(second.reply(1), Err(1));
    mailbox.try_recv().unwrap().reply(2).unwrap();
    assert_eq!(first.wait_timeout(Duration::ZERO), Ok(2));
}

#[test]
fn answer_to_a_dropped_caller_returns_to_the_owner() {
    let (to, reply) = reply();
    drop(reply);
    assert!(to.is_abandoned());
    assert_eq!(to.reply("late"), Err("late"));
}

#[test]
fn a_wait_that_timed_out_may_be_repeated() {
    let (to, mut reply) = reply();
    let outcome = reply.wait_timeout(Duration::ZERO);
    assert_eq!(outcome, Err(ReplyError::TimedOut));
    let outcome = reply.wait_timeout(Duration::from_millis(1));
    assert_eq!(outcome, Err(ReplyError::TimedOut));
    let owner = thread::spawn(move || to.reply(1));
    assert_eq!(reply.wait_timeout(Duration::MAX), Ok(1));
    owner.join().unwrap().unwrap();
}

#[test]
fn unread_answer_is_dropped_once_even_if_its_drop_panics() {
    let drops = Drops::default();
    let (to, reply) = reply();
    to.reply(drops.bomb()).unwrap();
    assert_eq!(drops.nr(), 0);
    drop(reply);
    assert_eq!(drops.nr(), 1);
}

#[test]
fn a_waker_that_panics_does_not_reach_the_owner() {
    let (to, mut reply) = reply();
    let waker = Waker::from(Arc::new(Broken { wake: true, drop: false }));
    assert!(poll_with(&mut reply, &waker).is_pending());
    to.reply(1).unwrap();
    assert_eq!(poll(&mut reply), Poll::Ready(Ok(1)));
}

#[test]
fn call_of_a_task_waits_for_capacity_and_then_for_the_answer() {
    let (mut mailbox, poster) = pair_of::<Question>(1);
    let cx = &mut Context::from_waker(Waker::noop());
    let first = poster.call(|to| (1, to)).unwrap();
    let mut second = pin!(poster.call_async(|to| (2, to)));
    assert!(second.as_mut().poll(cx).is_pending(), "no capacity");
    let (number, to) = mailbox.try_recv().unwrap();
    to.reply(10 * number).unwrap();
    assert_eq!(first.wait(), Ok(10));
    assert!(second.as_mut().poll(cx).is_pending(), "no answer");
    let (number, to) = mailbox.try_recv().unwrap();
    to.reply(10 * number).unwrap();
    assert!(matches!(second.as_mut().poll(cx), Poll::Ready(Ok(20))));
    // A call that is dropped while it waits drops its item.
    let held = poster.call(|to| (3, to)).unwrap();
    {
        let mut dropped = pin!(poster.call_async(|to| (4, to)));
        assert!(dropped.as_mut().poll(cx).is_pending());
    }
    let (number, to) = mailbox.try_recv().unwrap();
    assert_eq!((number, mailbox.try_recv().is_err()), (3, true));
    drop(to);
    assert_eq!(held.wait(), Err(ReplyError::Lost));
    drop(mailbox);
    let mut closed = pin!(poster.call_async(|to| (5, to)));
    let outcome = closed.as_mut().poll(cx);
    assert!(matches!(outcome, Poll::Ready(Err(CallError::Closed(_)))));
    let outcome = poster.call_blocking(|to| (6, to));
    assert!(matches!(outcome, Err(CallError::Closed((6, _)))));
}

#[test]
fn lazy_calls_join_the_batch_of_an_owner_that_lingers() {
    let (mut mailbox, poster) = pair::<Question>();
    let (batch, long) = (8, Duration::from_secs(3600));
    let replies: Vec<_> =
        (0..3 * batch).map(|number| poster.call_lazy(|to| (number, to)).unwrap()).collect();
    for _ in 0..3 {
        // An eager item among them would end the wait at once.
        assert_eq!(mailbox.wait_linger(1, batch as usize, long), Ok(true));
        let taken: Vec<_> = mailbox.drain(batch as usize).collect();
        assert_eq!(taken.len(), batch as usize);
        for (number, to) in taken {
            to.reply(2 * number).unwrap();
        }
    }
    for (number, reply) in (0_u64..).zip(replies) {
        assert_eq!(reply.wait(), Ok(2 * number));
    }
    // A lazy call does not complete a count of two. An eager call ends any wait.
    let lazy = poster.call_lazy(|to| (1, to)).unwrap();
    assert_eq!(mailbox.wait_timeout(2, Duration::ZERO), Ok(false));
    let eager = poster.call(|to| (2, to)).unwrap();
    assert_eq!(mailbox.wait_timeout(3, Duration::ZERO), Ok(true));
    drop(mailbox);
    assert_eq!(lazy.wait(), Err(ReplyError::Lost));
    assert_eq!(eager.wait(), Err(ReplyError::Lost));
}

#[test]
fn callers_of_a_full_mailbox_wait_and_get_their_own_answers() {
    let mailbox = Mailbox::builder().capacity(1).build();
    answer_three_callers(scaled(5, 100, 500), mailbox, |poster, question| {
        poster.call_blocking(|to| (question, to)).unwrap()
    });
}
