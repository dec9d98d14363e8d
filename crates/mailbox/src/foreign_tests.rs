//! Tests of user code that panics while the mailbox calls it, or that calls back into the mailbox.

use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use super::tests::*;
use super::*;

const NR_ITEMS: usize = miri_or(20, 100);

/// Returns items, of which every second one panics when dropped.
fn items(drops: &Drops) -> impl Iterator<Item = Life> {
    (0..NR_ITEMS).map(|number| if number % 2 == 0 { drops.bomb() } else { drops.life() })
}

#[test]
fn items_after_a_panicking_drop_are_dropped_with_the_mailbox() {
    let (mailbox, poster) = pair();
    let drops = Drops::default();
    items(&drops).for_each(|item| poster.post(item).unwrap());
    drop(mailbox);
    assert_eq!(drops.nr(), NR_ITEMS);
    assert!(poster.is_closed());
}

#[test]
fn batch_whose_drops_panic_releases_its_whole_capacity() {
    let (_mailbox, poster) = pair_of(NR_ITEMS);
    let mut batch = poster.batch();
    let drops = Drops::default();
    items(&drops).for_each(|item| batch.push(item).unwrap());
    drop(batch);
    assert_eq!(drops.nr(), NR_ITEMS);
    items(&drops).for_each(|item| poster.post(item).unwrap());
}

#[test]
fn panicking_waker_harms_no_poster() {
    let (mut mailbox, poster) = pair();
    let waker = Waker::from(Arc::new(Broken { wake: true, drop: false }));
    let cx = &mut Context::from_waker(&waker);
    assert_eq!(mailbox.poll_recv(cx), Poll::Pending);
    poster.post(1).unwrap();
    poster.post(2).unwrap();
    assert_eq!(mailbox.poll_recv(cx), Poll::Ready(Ok(1)));
    assert_eq!(mailbox.poll_recv(cx), Poll::Ready(Ok(2)));
    assert_eq!(mailbox.poll_recv(cx), Poll::Pending);
    drop(poster);
    assert_eq!(mailbox.poll_recv(cx), Poll::Ready(Err(Closed)));
}

#[test]
fn waker_whose_drop_panics_harms_no_other_thread() {
    let (mut mailbox, poster) = pair::<u8>();
    for _ in 0..2 {
        let waker = Waker::from(Arc::new(Broken { wake: false, drop: true }));
        assert_eq!(poll_with(&mut mailbox.recv(), &waker), Poll::Pending);
        // The mailbox then owns the last handle.
        drop(waker);
    }
    drop(mailbox);
    drop(poster);
}

#[test]
fn a_waker_is_cloned_and_dropped_with_no_lock_held() {
    const VTABLE: RawWakerVTable = RawWakerVTable::new(clone, touch, touch, touch);
    fn clone(_: *const ()) -> RawWaker {
        sync::lock::assert_none_held();
        RawWaker::new(ptr::null(), &VTABLE)
    }
    fn touch(_: *const ()) {
        sync::lock::assert_none_held();
    }
    /// A table that differs from `VTABLE`, so that the two wakers are not equal.
    const OTHER: RawWakerVTable = RawWakerVTable::new(clone, touch, touch, |_| ());
    let (mut mailbox, poster) = pair::<u8>();
    for vtable in [&VTABLE, &OTHER, &VTABLE] {
        // SAFETY: neither table uses the pointer, and both may be used on any thread.
        let waker = unsafe { Waker::from_raw(RawWaker::new(ptr::null(), vtable)) };
        assert!(poll_with(&mut mailbox.recv(), &waker).is_pending());
    }
    poster.post(1).unwrap();
    assert_eq!(mailbox.try_recv(), Ok(1));
}
