//! Posting to an owner: the wait protocol, and the end of either side.
//!
//! A model here finds every bug that the protocol's documentation names.

use crate::support::*;

#[derive(Clone, Copy)]
enum Post {
    Lazy,
    Eager,
    /// Posts two items with one swap.
    Batch,
}

impl Post {
    fn nr_items(self) -> usize {
        match self {
            Self::Lazy | Self::Eager => 1,
            Self::Batch => 2,
        }
    }

    fn run(self, poster: &Poster<usize>, from: usize) {
        match self {
            Self::Lazy => poster.post_lazy(from).unwrap(),
            Self::Eager => poster.post(from).unwrap(),
            Self::Batch => {
                let mut batch = poster.batch();
                batch.push(from).unwrap();
                batch.push(from).unwrap();
                batch.post_lazy().unwrap();
            }
        }
    }
}

/// Starts a thread for each post. The threads return their posters, so the mailbox stays open.
fn start(mailbox: &Mailbox<usize>, posts: &[Post]) -> Vec<loom::thread::JoinHandle<Poster<usize>>> {
    let threads = posts.iter().copied().enumerate().map(|(from, post)| {
        let poster = mailbox.poster();
        spawn(move || {
            post.run(&poster, from);
            poster
        })
    });
    threads.collect()
}

/// The owner receives all items, `count` at a time. A lost wake-up is a deadlock.
fn all_are_received(posts: &'static [Post], count: usize) {
    let mut mailbox = Careful::new(Mailbox::builder().keep(0).build());
    let mut threads = Careful::new(start(&mailbox, posts));
    receive_all(&mut mailbox, posts.iter().map(|post| post.nr_items()).sum(), count);
    threads.drain(..).for_each(|it| drop(it.join().unwrap()));
}

pub fn receive_all(mailbox: &mut Mailbox<usize>, mut left: usize, count: usize) {
    while left > 0 {
        mailbox.wait(count.min(left)).unwrap();
        let nr_received = mailbox.drain(left).count();
        assert!(nr_received > 0, "woken without an item");
        left -= nr_received;
    }
}

/// A claim of the second arming wakes an owner that armed first as a task that never runs.
fn two_kinds_of_sleep() {
    let mut mailbox = Mailbox::builder().keep(0).build();
    let threads = start(&mailbox, &[Post::Eager, Post::Eager]);
    let _ = mailbox.poll_ready(&mut Context::from_waker(Waker::noop()), 1);
    for _ in 0..2 {
        mailbox.wait(1).unwrap();
        mailbox.try_recv().unwrap();
    }
    threads.into_iter().for_each(|it| drop(it.join().unwrap()));
}

/// Two posters post to an owner that is a task on an executor with one parked thread.
fn a_task_receives() {
    let mut parker = Parker::new();
    let waker = foreign_waker(parker.unparker());
    let mut mailbox = Mailbox::builder().keep(0).build();
    let threads = start(&mailbox, &[Post::Eager, Post::Lazy]);
    for _ in 0..2 {
        while mailbox.poll_recv(&mut Context::from_waker(&waker)).is_pending() {
            // As an executor does, this loop runs other tasks before a task that woke itself.
            loom::thread::yield_now();
            parker.park();
        }
    }
    threads.into_iter().for_each(|it| drop(it.join().unwrap()));
}

fn posters_end(nr_posters: usize) {
    let mailbox = Mailbox::builder().keep(0).build();
    for from in 0..nr_posters {
        let poster = mailbox.poster();
        spawn(move || poster.post_lazy(from).unwrap());
    }
    assert_eq!(nr_received_until_closed(mailbox), nr_posters, "closed with a post inside");
}

fn nr_received_until_closed(mut mailbox: Mailbox<usize>) -> usize {
    let mut nr_received = 0;
    while mailbox.wait(2).is_ok() {
        nr_received += mailbox.drain(2).count();
    }
    nr_received
}

fn a_poster_closes() {
    let mailbox = Mailbox::builder().keep(0).build();
    let (poster, other) = (mailbox.poster(), mailbox.poster());
    spawn(move || {
        poster.post_lazy(1).unwrap();
        poster.close();
    });
    assert_eq!(nr_received_until_closed(mailbox), 1, "closed with a post inside");
    assert_eq!(other.post(2), Err(PostError::Closed(2)));
}

/// The owner polls, so that no wake-up orders it after the post.
fn a_poster_closes_and_the_owner_polls() {
    let mut mailbox = Mailbox::builder().keep(0).build();
    let poster = mailbox.poster();
    spawn(move || {
        poster.post_lazy(1).unwrap();
        poster.close();
    });
    let mut nr_received = 0;
    for _ in 0..2 {
        match mailbox.try_recv() {
            Ok(_) => nr_received += 1,
            Err(TryRecvError::Closed) => {
                assert_eq!(nr_received, 1, "closed with a post inside");
                return;
            }
            Err(_) => {}
        }
    }
}

/// Posters post while the owner ends. Every item must be dropped although the posters remain.
fn the_owner_ends(nr_posters: usize) {
    let alive = Arc::new(());
    let mailbox = Mailbox::builder().keep(0).build();
    let post = |_| {
        // The mailbox rejects the item or accepts it.
        spawn_with((mailbox.poster(), alive.clone()), |(poster, item)| {
            drop(poster.post_lazy(item));
            poster
        })
    };
    let threads: Vec<_> = (0..nr_posters).map(post).collect();
    drop(mailbox);
    let posters: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(Arc::strong_count(&alive), 1, "an item remains in a dead queue");
    drop(posters);
}

/// Two threads share one poster that a third thread owns, and recycle its emptied nodes.
fn one_poster_of_three_threads() {
    let mut mailbox = Mailbox::builder().keep(2).build();
    let poster = Arc::new(mailbox.poster());
    // This thread now owns the poster's private store; other threads use the shared one.
    poster.post_lazy(0).unwrap();
    assert_eq!(mailbox.try_recv(), Ok(0));
    let threads = [1, 2]
        .map(|number| spawn_with(poster.clone(), move |poster| poster.post_lazy(number).unwrap()));
    threads.into_iter().for_each(|it| it.join().unwrap());
    assert_eq!(mailbox.drain(9).sum::<usize>(), 3);
}

fn node_is_returned() {
    let mut mailbox = Mailbox::builder().keep(2).build();
    let thread = spawn_with(mailbox.poster(), |poster| {
        (0..3).for_each(|number| poster.post_lazy(number).unwrap());
        poster
    });
    let mut next = 0;
    for _ in 0..2 {
        if let Ok(number) = mailbox.try_recv() {
            assert_eq!(number, next);
            next += 1;
        }
    }
    drop(thread.join().unwrap());
    assert!(mailbox.drain(9).eq(next..3));
}

models! {
    fn owners_check_for_a_close_needs_its_acquire() =
        must_fail("close: relaxed check", || bounded(3, a_poster_closes_and_the_owner_polls));
    fn node_is_reused_by_owner_and_poster() = bounded(3, node_is_returned);
    fn no_post_is_missed_by_a_sleeping_owner() =
        exhaustive(|| all_are_received(&[Post::Eager], 1))
            .detects(["wait: no fence when arming", "wait: no fence after posting"]),
        exhaustive(|| all_are_received(&[Post::Lazy], 1)),
        bounded(3, || all_are_received(&[Post::Eager, Post::Lazy], 2)),
        must_fail("wait: no check after arming",
            || bounded(2, || all_are_received(&[Post::Lazy, Post::Lazy], 1))),
        must_deadlock("wait: claim by compare-exchange",
            || bounded(3, || all_are_received(&[Post::Lazy, Post::Eager], 2))),
        must_deadlock("empty: no check of the tail",
            || bounded(3, || all_are_received(&[Post::Lazy, Post::Lazy], 2)));
    fn three_lazy_posts_wake_an_owner_that_wants_three() =
        bounded(2, || all_are_received(&[Post::Lazy, Post::Lazy, Post::Lazy], 3));
    fn three_posters_of_every_kind_wake_an_owner_that_wants_two() =
        bounded(1, || all_are_received(&[Post::Lazy, Post::Eager, Post::Lazy], 2));
    fn a_batch_counts_all_of_its_items() =
        bounded(2, || all_are_received(&[Post::Batch, Post::Lazy], 3)),
        bounded(1, || all_are_received(&[Post::Batch, Post::Eager], 2));
    /// The first poster may still be claiming when its item is received and the owner arms again.
    fn late_claim_wakes_early() =
        bounded(2, || all_are_received(&[Post::Eager, Post::Eager], 1))
            .deadlocks_with(["park: no token"]);
    fn claim_wakes_the_owner_of_the_claimed_arming() =
        bounded(2, two_kinds_of_sleep).detects(["wait: relaxed claim"]);
    fn a_task_is_woken_for_every_post() = bounded(2, a_task_receives);
    fn last_poster_notifies_the_owner() =
        bounded(3, || posters_end(1)),
        bounded(1, || posters_end(2)),
        must_fail("posters: relaxed read", || bounded(2, || posters_end(2)));
    fn poster_that_closes_has_posted_before() =
        bounded(3, a_poster_closes).detects(["close: wakes no owner"]);
    fn a_post_that_overlaps_the_owners_end_is_dropped() =
        exhaustive(|| the_owner_ends(1)).detects(["life: no fence in orphan"]),
        bounded(2, || the_owner_ends(2));
    fn two_threads_may_share_a_poster() =
        exhaustive(one_poster_of_three_threads)
            .detects(["cache: relaxed take", "cache: relaxed leave"]);
}
