//! Tests of user code that panics while the mailbox calls it, or that calls back into the mailbox.

use std::panic::panic_any;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};

use super::tests::*;
use super::*;

/// An item that counts its drop, and panics in it if `panics` is set.
struct Item {
    dropped: Arc<AtomicUsize>,
    panics: bool,
}

impl Drop for Item {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        if self.panics {
            panic_any("the drop of an item");
        }
    }
}

const NR_ITEMS: usize = if cfg!(miri) { 20 } else { 100 };

/// Returns items and the count of their drops. Every second item panics when dropped.
fn items(nr_items: usize) -> (impl Iterator<Item = Item>, Arc<AtomicUsize>) {
    let dropped = Arc::new(AtomicUsize::new(0));
    let theirs = dropped.clone();
    let item = move |number| Item { dropped: theirs.clone(), panics: number % 2 == 0 };
    ((0..nr_items).map(item), dropped)
}

#[test]
fn items_after_a_panicking_drop_are_dropped_with_the_mailbox() {
    let (mailbox, poster) = pair();
    let (items, dropped) = items(NR_ITEMS);
    items.for_each(|item| poster.post(item).unwrap());
    drop(mailbox);
    assert_eq!(dropped.load(Ordering::Relaxed), NR_ITEMS);
    assert!(poster.is_closed());
}

#[test]
fn batch_whose_drops_panic_releases_its_whole_capacity() {
    let (_mailbox, poster) = pair_of(NR_ITEMS);
    let mut batch = poster.batch();
    let (items, dropped) = items(NR_ITEMS);
    items.for_each(|item| batch.push(item).unwrap());
    drop(batch);
    assert_eq!(dropped.load(Ordering::Relaxed), NR_ITEMS);
    let (items, _) = self::items(NR_ITEMS);
    items.for_each(|item| poster.post(item).unwrap());
}

/// A waker that panics when it wakes.
struct Broken;

impl Wake for Broken {
    fn wake(self: Arc<Self>) {
        panic_any("a broken waker");
    }
}

#[test]
fn panicking_waker_harms_no_poster() {
    let (mut mailbox, poster) = pair();
    let waker = Waker::from(Arc::new(Broken));
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
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic_any("the drop of a waker");
        }
    }
    let (mut mailbox, poster) = pair::<u8>();
    let poll = |mailbox: &mut Mailbox<u8>, waker: Waker| {
        assert_eq!(poll_with(&mut mailbox.recv(), &waker), Poll::Pending);
        // The mailbox then owns the last handle.
        drop(waker);
    };
    poll(&mut mailbox, Arc::new(Bomb).into());
    poll(&mut mailbox, Arc::new(Bomb).into());
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
