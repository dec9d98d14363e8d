//! Tests of a mailbox, on one thread and on several, and the tools of the other tests.

use std::future::Future;
use std::panic::panic_any;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use super::*;

/// A time that is long enough to notice a wait that is not woken. A correct wait never takes this
/// long.
pub(super) const FOR_EVER: Duration = Duration::from_secs(100);

/// Counts the drops of the values that it creates.
#[derive(Clone, Default)]
pub(super) struct Drops(Arc<AtomicUsize>);

/// A value of [`Drops`].
#[derive(Debug)]
pub(super) struct Life {
    nr_dropped: Arc<AtomicUsize>,
    panics: bool,
}

impl Drops {
    pub(super) fn life(&self) -> Life {
        Life { nr_dropped: self.0.clone(), panics: false }
    }

    /// Creates a value that panics when dropped.
    pub(super) fn bomb(&self) -> Life {
        Life { nr_dropped: self.0.clone(), panics: true }
    }

    pub(super) fn nr(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.nr_dropped.fetch_add(1, Ordering::Relaxed);
        if self.panics {
            panic_any("the drop of a value");
        }
    }
}

/// A waker that panics when it is woken, or when its last handle is dropped.
pub(super) struct Broken {
    pub(super) wake: bool,
    pub(super) drop: bool,
}

impl Wake for Broken {
    fn wake(self: Arc<Self>) {
        if self.wake {
            panic_any("a broken waker");
        }
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        if self.drop && !thread::panicking() {
            panic_any("the drop of a waker");
        }
    }
}

/// A waker that counts its wake-ups.
#[derive(Default)]
pub(super) struct WakeCounter(AtomicUsize);

impl WakeCounter {
    /// Returns a counter, and a waker that adds to it.
    pub(super) fn new() -> (Arc<Self>, Waker) {
        let wakes = Arc::new(Self::default());
        (wakes.clone(), wakes.into())
    }

    pub(super) fn nr(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Creates a mailbox and a poster.
pub(super) fn pair<T>() -> (Mailbox<T>, Poster<T>) {
    let mailbox = Mailbox::new();
    let poster = mailbox.poster();
    (mailbox, poster)
}

/// Does the same as [`pair`], with this capacity.
pub(super) fn pair_of<T>(capacity: usize) -> (Mailbox<T>, Poster<T>) {
    let mailbox = Mailbox::builder().capacity(capacity).build();
    let poster = mailbox.poster();
    (mailbox, poster)
}

/// Polls a future once with this waker.
pub(super) fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(waker))
}

/// Polls a future once with a waker that does nothing.
pub(super) fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_with(future, Waker::noop())
}

/// Returns the larger number, or a small one under Miri, which takes a thousand times as long.
pub(super) const fn miri_or<T: Copy>(few: T, many: T) -> T {
    if cfg!(miri) { few } else { many }
}

/// Returns the value that suits the back end: Miri, a simulated machine or a real one.
pub(super) const fn scaled<T: Copy>(miri: T, sim: T, real: T) -> T {
    if cfg!(sim) { sim } else { miri_or(miri, real) }
}

/// Creates mailboxes that differ in how they keep blocks and items.
pub(super) fn mailboxes<T>() -> [Mailbox<T>; 4] {
    [
        Mailbox::new(),
        Mailbox::builder().keep(0).build(),
        Mailbox::builder().capacity(1 << 20).build(),
        Mailbox::builder().backlog(Backlog::Lifo).build(),
    ]
}

#[test]
fn items_arrive_in_the_order_of_their_posts_on_all_paths() {
    let nr_rounds = miri_or(10, 50);
    for mut mailbox in mailboxes() {
        let poster = mailbox.poster();
        let mut batch = poster.batch();
        let mut want = 0..;
        for _ in 0..nr_rounds {
            poster.post(want.next().unwrap()).unwrap();
            poster.post_lazy(want.next().unwrap()).unwrap();
            for _ in 0..3 {
                batch.push(want.next().unwrap()).unwrap();
            }
            assert_eq!(batch.len(), 3);
            batch.post().unwrap();
            assert!(batch.is_empty());
        }
        mailbox.wait(7).unwrap();
        assert_eq!(mailbox.drain(5).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(mailbox.try_recv(), Ok(5));
        assert!(!mailbox.is_empty());
        assert!(mailbox.drain(usize::MAX).eq(6..5 * nr_rounds));
        assert!(mailbox.is_empty());
        assert_eq!(mailbox.try_recv(), Err(TryRecvError::Empty));
    }
}

#[test]
fn an_eager_batch_is_eager_until_its_last_item() {
    let nr_items = miri_or(15, 60);
    let cx = &mut Context::from_waker(Waker::noop());
    for urgent in [false, true] {
        for mut mailbox in mailboxes() {
            let poster = match urgent {
                false => mailbox.poster(),
                true => mailbox.poster().urgent(),
            };
            let mut batch = poster.batch();
            (0..nr_items).for_each(|number| batch.push(number).unwrap());
            batch.post().unwrap();
            for number in 0..nr_items {
                assert!(mailbox.poll_ready(cx, 1000).is_ready(), "item {number}");
                assert_eq!(mailbox.try_recv(), Ok(number));
            }
            assert!(mailbox.poll_ready(cx, 1000).is_pending());
            // A lazy batch after the eager one stays lazy.
            batch.push(0).unwrap();
            batch.post_lazy().unwrap();
            assert!(mailbox.poll_ready(cx, 1000).is_pending());
        }
    }
}

#[test]
fn closed_mailbox_returns_the_item() {
    let (mut mailbox, poster) = pair();
    poster.post(1).unwrap();
    let mut batch = poster.batch();
    batch.push(7).unwrap();
    batch.push(8).unwrap();
    mailbox.close();
    assert!(poster.is_closed());
    assert_eq!(poster.post(2), Err(PostError::Closed(2)));
    assert_eq!(poster.post_lazy(3).unwrap_err().into_inner(), 3);
    assert_eq!(batch.post(), Err(PostError::Closed(())));
    assert_eq!(batch.by_ref().collect::<Vec<_>>(), [7, 8]);
    mailbox.wait(5).unwrap();
    assert_eq!(mailbox.try_recv(), Ok(1));
    assert_eq!(mailbox.try_recv(), Err(TryRecvError::Closed));
    assert_eq!(mailbox.wait(1), Err(Closed));
    assert_eq!(mailbox.wait_timeout(1, FOR_EVER), Err(Closed));
    drop(mailbox);
    assert_eq!(poster.post(4), Err(PostError::Closed(4)));
}

#[test]
fn full_mailbox_returns_the_item() {
    let (mut mailbox, poster) = pair_of(3);
    assert_eq!(mailbox.capacity(), Some(3));
    let mut batch = poster.batch();
    batch.push(0).unwrap();
    batch.push(1).unwrap();
    poster.post(2).unwrap();
    assert_eq!(poster.post(3), Err(PostError::Full(3)));
    assert_eq!(batch.push(3), Err(PostError::Full(3)));
    assert_eq!(batch.next(), Some(0), "and its capacity is free again");
    poster.post(4).unwrap();
    drop(batch);
    assert_eq!(mailbox.try_recv(), Ok(2));
    poster.post(5).unwrap();
    poster.post(6).unwrap();
    assert_eq!(poster.post(7), Err(PostError::Full(7)));
    assert!(mailbox.drain(9).eq([4, 5, 6]));
}

#[test]
fn queued_items_are_dropped_with_the_owner() {
    let dropped = Drops::default();
    let (mut mailbox, poster) = pair();
    (0..5).for_each(|_| poster.post(dropped.life()).unwrap());
    // Two items are counted, and one of them is received.
    mailbox.wait(2).unwrap();
    drop(mailbox.try_recv());
    assert_eq!(dropped.nr(), 1);
    let mut batch = poster.batch();
    batch.push(dropped.life()).unwrap();
    drop(mailbox);
    assert_eq!(dropped.nr(), 5);
    drop(batch);
    assert_eq!(dropped.nr(), 6);
    drop(poster.post(dropped.life()));
    assert_eq!(dropped.nr(), 7);
}

#[test]
fn the_last_poster_ends_the_wait() {
    let (mut mailbox, poster) = pair::<i32>();
    let other = poster.clone();
    assert!(poster.same_as(&other));
    let thread = thread::spawn(move || {
        drop(poster);
        other.post_lazy(1).unwrap();
    });
    // This thread waits for the item, and then for the end, with a count that is not reached.
    mailbox.wait(1).unwrap();
    assert_eq!(mailbox.try_recv(), Ok(1));
    assert_eq!(mailbox.wait(2), Err(Closed));
    thread.join().unwrap();
    let _again = mailbox.poster();
    let outcome = mailbox.try_recv();
    assert_eq!(outcome, Err(TryRecvError::Empty), "the next poster opens the mailbox again");
}

#[test]
fn lazy_posts_do_not_end_a_wait_before_they_are_enough() {
    let (mut mailbox, poster) = pair();
    (0..3).for_each(|number| poster.post_lazy(number).unwrap());
    assert_eq!(mailbox.wait_timeout(4, Duration::from_millis(1)), Ok(false));
    assert_eq!(mailbox.try_recv(), Ok(0), "what is there may be received");
    poster.post_lazy(3).unwrap();
    assert_eq!(mailbox.wait_timeout(4, Duration::from_millis(1)), Ok(false));
    poster.post_lazy(4).unwrap();
    assert_eq!(mailbox.wait_timeout(4, FOR_EVER), Ok(true));
    assert!(mailbox.drain(9).eq([1, 2, 3, 4]));
}

#[test]
fn one_eager_item_is_enough_even_if_it_arrived_first() {
    let (mut mailbox, poster) = pair();
    poster.post_lazy(0).unwrap();
    let mut batch = poster.batch();
    batch.push(1).unwrap();
    batch.push(2).unwrap();
    batch.post().unwrap();
    assert_eq!(mailbox.wait_timeout(32, FOR_EVER), Ok(true));
    assert_eq!(mailbox.drain(2).count(), 2, "an eager one among them");
    assert_eq!(mailbox.wait_timeout(32, FOR_EVER), Ok(true));
    assert_eq!(mailbox.try_recv(), Ok(2));
    assert_eq!(mailbox.wait_timeout(32, Duration::from_millis(1)), Ok(false));
}

const NR_SLEEPS: u32 = miri_or(10, 100);

#[test]
fn sleeping_owner_is_woken_by_the_post_that_completes_the_count() {
    let mut mailbox = Mailbox::builder().spin_limit(0).build();
    let poster = mailbox.poster();
    let thread = thread::spawn(move || {
        for number in 0..NR_SLEEPS {
            for _ in 0..10 {
                poster.post_lazy(number).unwrap();
            }
        }
        poster
    });
    for number in 0..NR_SLEEPS {
        mailbox.wait(10).unwrap();
        assert!(mailbox.drain(10).eq([number; 10]));
    }
    thread.join().unwrap();
}

#[test]
fn a_sleeping_owner_is_woken_by_eager_posts_and_by_batches() {
    const NR_ITEMS: usize = 3 * NR_SLEEPS as usize;
    let mut mailbox = Mailbox::builder().spin_limit(0).build();
    let poster = mailbox.poster();
    let thread = thread::spawn(move || {
        let mut batch = poster.batch();
        for number in 0..NR_SLEEPS {
            poster.post(number).unwrap();
            batch.push(number).unwrap();
            batch.push(number).unwrap();
            batch.post_lazy().unwrap();
        }
        drop(batch);
        poster
    });
    let mut nr_received = 0;
    while nr_received < NR_ITEMS {
        // The count is limited to the number of items that will still arrive.
        mailbox.wait(2.min(NR_ITEMS - nr_received)).unwrap();
        nr_received += mailbox.drain(8).count();
    }
    drop(thread.join().unwrap());
    assert_eq!(mailbox.wait(1), Err(Closed));
}

const NR_POSTS: usize = scaled(40, 1000, 20_000);

#[test]
fn every_item_of_four_posters_arrives_once_and_in_its_order() {
    const NR_POSTERS: usize = 4;
    let mut mailbox = Mailbox::new();
    let threads: Vec<_> = (0..NR_POSTERS)
        .map(|from| {
            let poster = mailbox.poster();
            thread::spawn(move || {
                let mut batch = poster.batch();
                for number in 0..NR_POSTS {
                    match (number + from) % 5 {
                        0 => {
                            batch.post_lazy().unwrap();
                            poster.post((from, number)).unwrap();
                        }
                        1 => {
                            batch.post().unwrap();
                            poster.post_lazy((from, number)).unwrap();
                        }
                        _ => batch.push((from, number)).unwrap(),
                    }
                }
                batch.post_lazy().unwrap();
            })
        })
        .collect();
    let mut next = [0; NR_POSTERS];
    while mailbox.wait(3).is_ok() {
        for (from, number) in mailbox.drain(8) {
            assert_eq!(next[from], number);
            next[from] += 1;
        }
    }
    assert_eq!(next, [NR_POSTS; NR_POSTERS]);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn threads_may_share_one_poster() {
    let (mut mailbox, poster) = pair();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..NR_POSTS).for_each(|number| poster.post(number).unwrap()));
        }
        let received = (0..3 * NR_POSTS).map(|_| mailbox.recv_blocking().unwrap());
        assert_eq!(received.sum::<usize>(), 3 * NR_POSTS * (NR_POSTS - 1) / 2);
    });
}

#[test]
fn items_are_dropped_once_when_the_owner_ends_in_the_middle() {
    for _ in 0..scaled(3, 3, 200) {
        let dropped = Drops::default();
        let mut mailbox = Mailbox::new();
        let start = Arc::new(Barrier::new(3));
        let threads = [(); 2].map(|()| {
            let (poster, dropped, start) = (mailbox.poster(), dropped.clone(), start.clone());
            thread::spawn(move || {
                start.wait();
                // The item that is rejected is dropped here.
                (0..).take_while(|_| poster.post(dropped.life()).is_ok()).count() + 1
            })
        });
        start.wait();
        mailbox.wait(1).unwrap();
        drop(mailbox.drain(3).collect::<Vec<_>>());
        drop(mailbox);
        let made: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(dropped.nr(), made);
    }
}

/// The number of items in a block.
const SLOTS: usize = super::block::nr_slots::<usize>();

#[test]
fn steady_flow_reuses_the_same_blocks() {
    // The blocks go back and forth, and every block that returns was the poster's before.
    let (mut mailbox, poster) = pair();
    for _ in 0..miri_or(10, 100) {
        (0..64).for_each(|number: usize| poster.post(number).unwrap());
        assert_eq!(mailbox.drain(64).count(), 64);
    }
    // Every block that exists is available or on the free list. If a post of a later round had
    // allocated, there would be more blocks than two rounds fill.
    let nr_free = mailbox.shared.free.take_all().count();
    assert!(nr_free + poster.count_spare() <= 2 * 64_usize.div_ceil(SLOTS) + 1);
}

#[test]
fn posters_that_take_turns_use_the_blocks_that_they_left_again() {
    let mut mailbox = Mailbox::new();
    let posters = [mailbox.poster(), mailbox.poster()];
    let nr_items = miri_or(100, 1000);
    for number in 0..nr_items {
        posters[number % 2].post(number).unwrap();
        assert_eq!(mailbox.try_recv(), Ok(number));
    }
    assert!(posters.iter().all(|poster| poster.count_left() <= 2));
    assert_eq!(mailbox.shared.free.take_all().count(), 0);
}

#[test]
fn alternating_posters_keep_few_blocks() {
    let mut mailbox = Mailbox::builder().keep(100).build();
    let posters = [mailbox.poster(), mailbox.poster()];
    let nr_items: usize = miri_or(110, 10_000);
    let assert_few_left =
        || assert!(posters.iter().all(|poster| poster.count_left() <= 64), "{posters:?}");
    for number in 0..nr_items {
        posters[number % 2].post(number).unwrap();
    }
    assert!(mailbox.drain(nr_items).eq(0..nr_items));
    assert_few_left();
    assert!(mailbox.shared.free.take_all().count() <= 100_usize.div_ceil(SLOTS));
    // Posts and receipts continue as before.
    for number in 0..nr_items {
        posters[number % 2].post(number).unwrap();
        assert_eq!(mailbox.try_recv(), Ok(number));
    }
    assert_few_left();
}

#[test]
fn at_most_the_stated_number_of_blocks_is_retained() {
    let mut mailbox = Mailbox::builder().keep(100).build();
    let poster = mailbox.poster();
    let nr_items: usize = miri_or(200, 1000);
    (0..nr_items).for_each(|number| poster.post(number).unwrap());
    assert_eq!(mailbox.drain(nr_items).count(), nr_items);
    let nr_free = mailbox.shared.free.take_all().count();
    let most = 100_usize.div_ceil(SLOTS);
    assert!((32 / SLOTS..=most).contains(&nr_free), "{nr_free}");
}

#[test]
fn items_of_any_size_are_received_unchanged() {
    fn round<T: Clone + PartialEq + std::fmt::Debug>(item: T) {
        let (mut mailbox, poster) = pair();
        let many = miri_or(60, 200);
        for nr_items in [1, 2, many] {
            (0..nr_items).for_each(|_| poster.post(item.clone()).unwrap());
            let received: Vec<T> = mailbox.drain(usize::MAX).collect();
            assert_eq!(received, vec![item.clone(); nr_items]);
        }
    }
    round(());
    round(7_u8);
    round([1_u64; 5]);
    round([2_u64; 100]);
    round(String::from("on the heap"));
    #[derive(Clone, PartialEq, Debug)]
    #[repr(align(256))]
    struct Aligned(u8);
    round(Aligned(3));
}

#[test]
fn task_is_woken_once_for_the_count_that_it_awaits() {
    let (mut mailbox, poster) = pair();
    let (wakes, waker) = WakeCounter::new();
    let cx = &mut Context::from_waker(&waker);
    assert_eq!(mailbox.poll_ready(cx, 3), Poll::Pending);
    poster.post_lazy(1).unwrap();
    poster.post_lazy(2).unwrap();
    assert_eq!(wakes.nr(), 0);
    assert_eq!(mailbox.poll_ready(cx, 3), Poll::Pending, "polled for another reason");
    poster.post_lazy(3).unwrap();
    assert_eq!(wakes.nr(), 1);
    poster.post(4).unwrap();
    assert_eq!(wakes.nr(), 1, "it is awake");
    assert_eq!(mailbox.poll_ready(cx, 3), Poll::Ready(Ok(())));
    for number in 1..=4 {
        assert_eq!(mailbox.poll_recv(cx), Poll::Ready(Ok(number)));
    }
    assert_eq!(pin!(mailbox.recv()).poll(cx), Poll::Pending);
    drop(poster);
    assert_eq!(wakes.nr(), 2, "the last poster is gone");
    assert_eq!(poll(&mut mailbox.recv()), Poll::Ready(Err(Closed)));
    assert_eq!(poll(&mut mailbox.ready(1)), Poll::Ready(Err(Closed)));
}

#[test]
fn the_kind_of_sleep_may_change_from_one_to_the_next() {
    let (mut mailbox, poster) = pair();
    let (_, waker) = WakeCounter::new();
    assert!(poll_with(&mut mailbox.recv(), &waker).is_pending());
    let thread = thread::spawn(move || poster.post(1).map(|()| poster));
    // The wait ends whether the post wakes the task or the thread.
    mailbox.wait(1).unwrap();
    assert_eq!(mailbox.try_recv(), Ok(1));
    assert!(thread.join().unwrap().is_ok());
}

#[test]
fn eventfd_is_written_only_while_armed() {
    let is_rung =
        |mailbox: &Mailbox<i32>| mailbox.shared.owner.owner_waker.eventfd().unwrap().clear();
    let (mut mailbox, poster) = pair();
    mailbox.eventfd().unwrap();
    poster.post(1).unwrap();
    assert!(!mailbox.arm(1).unwrap(), "one is there");
    assert_eq!(mailbox.try_recv(), Ok(1));
    assert!(mailbox.arm(2).unwrap());
    poster.post_lazy(2).unwrap();
    assert!(!is_rung(&mailbox));
    poster.post_lazy(3).unwrap();
    poster.post(4).unwrap();
    assert!(mailbox.disarm(), "rung");
    assert!(is_rung(&mailbox));
    assert_eq!(mailbox.drain(9).count(), 3);
    assert!(mailbox.arm(1).unwrap());
    assert!(!mailbox.disarm(), "not notified");
    poster.post(5).unwrap();
    assert!(!is_rung(&mailbox));
    mailbox.clear();
}

#[test]
fn a_wait_that_times_out_takes_about_that_long() {
    let mut mailbox = Mailbox::<()>::new();
    let _poster = mailbox.poster();
    let start_ns = sync::time::now_ns();
    assert_eq!(mailbox.wait_timeout(1, Duration::from_millis(5)), Ok(false));
    assert!(sync::time::now_ns() - start_ns >= 5_000_000);
}

#[test]
fn poster_dropped_by_a_panic_notifies_the_owner() {
    let (mut mailbox, poster) = pair();
    let thread = thread::spawn(move || {
        poster.post(1).unwrap();
        let mut batch = poster.batch();
        batch.push(2).unwrap();
        panic!("on purpose");
    });
    mailbox.wait(9).unwrap();
    assert_eq!(mailbox.try_recv(), Ok(1));
    assert_eq!(mailbox.wait(1), Err(Closed), "the batch was never posted");
    assert!(thread.join().is_err());
}

#[test]
fn linger_ends_at_the_count_an_eager_item_or_the_timeout() {
    let (mut mailbox, poster) = pair();
    poster.post_lazy(0).unwrap();
    assert_eq!(mailbox.wait_linger(1, 3, Duration::from_millis(1)), Ok(false));
    (1..3).for_each(|number| poster.post_lazy(number).unwrap());
    assert_eq!(mailbox.wait_linger(0, 3, FOR_EVER), Ok(true));
    assert_eq!(mailbox.wait_linger(2, 1, FOR_EVER), Ok(true));
    poster.post(3).unwrap();
    assert_eq!(mailbox.wait_linger(9, 32, FOR_EVER), Ok(true));
    assert!(mailbox.drain(9).eq(0..4));
    poster.post_lazy(4).unwrap();
    drop(poster);
    assert_eq!(mailbox.wait_linger(2, 32, FOR_EVER), Ok(true), "the last ones");
    assert_eq!(mailbox.try_recv(), Ok(4));
    assert_eq!(mailbox.wait_linger(1, 32, FOR_EVER), Err(Closed));
}

#[test]
fn a_drain_ends_with_its_budget_and_leaves_the_rest() {
    for mut mailbox in mailboxes() {
        let poster = mailbox.poster();
        (0..10).for_each(|number| poster.post(number).unwrap());
        let mut budget = 3;
        let drained = mailbox.drain_while(|| {
            budget -= 1;
            budget >= 0
        });
        assert!(drained.eq(0..3));
        let mut panics = mailbox.drain_while(|| panic!("a budget"));
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| panics.next()));
        assert!(caught.is_err());
        let mut none = mailbox.drain_while(|| false);
        assert_eq!((none.next(), none.next()), (None, None));
        assert!(mailbox.drain_while(|| true).eq(3..10));
    }
}

#[test]
fn the_length_counts_all_that_is_inside_eager_or_not() {
    let nr_posts = miri_or(15, 40_usize);
    let nr_items = nr_posts + nr_posts.div_ceil(7);
    for mut mailbox in mailboxes() {
        let poster = mailbox.poster();
        let other = mailbox.poster();
        assert_eq!(mailbox.len(), 0);
        for number in 0..nr_posts {
            poster.post_lazy(number).unwrap();
            if number % 7 == 0 {
                other.post(number).unwrap();
            }
        }
        let mut batch = poster.batch();
        batch.push(1).unwrap();
        for left in (0..=nr_items).rev() {
            assert_eq!(mailbox.len(), left);
            assert_eq!(mailbox.try_recv().is_ok(), left > 0);
        }
        batch.post().unwrap();
        assert_eq!(mailbox.len(), 1);
    }
}
