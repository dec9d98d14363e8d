//! Mailboxes: work for *one thread that owns a resource*, such as an event loop or a ring.
//!
//! ```
//! use afterwork::mailbox::Mailbox;
//!
//! let mut mailbox = Mailbox::new();
//! let poster = mailbox.poster();
//! std::thread::spawn(move || {
//!     for number in 0..32 {
//!         poster.post_lazy(number).unwrap();
//!     }
//! });
//! mailbox.wait(32).unwrap(); // one wake-up for 32 items
//! assert_eq!(mailbox.drain(32).sum::<i32>(), 496);
//! ```
//!
//! Any thread can post items to the owner's [`Mailbox`]. The owner receives them in order, in
//! bounded batches, and sleeps in between. Posters wake it once for the number of items that it
//! requested, and never while it is awake.
//!
//! # Eager and lazy posts
//!
//! | post | the owner sleeps in `wait(n)` | the owner is awake |
//! |---|---|---|
//! | [`Poster::post`] | wakes it | costs no more than a lazy one |
//! | [`Poster::post_lazy`], [`Poster::call_lazy`] | counts; the `n`th wakes it | no wake-up |
//!
//! A wake-up costs the poster a few microseconds and the owner tens of microseconds. An owner that
//! waits for 32 items, or for the items that arrive within a millisecond of the first one
//! ([`Mailbox::wait_linger`]), pays for one or two wake-ups per 32 items, and for none while there
//! are no items.
//!
//! # Urgent items
//!
//! Items of a [`Poster::urgent`] are received before waiting ordinary items. While both kinds wait,
//! ordinary items still get a tenth of the receipts.
//!
//! # Bounds and calls
//!
//! If a mailbox with a [capacity](Builder::capacity) is full, it returns the item to its poster
//! ([`Poster::post`]) or makes the sender wait ([`Poster::send`], [`Poster::send_blocking`]).
//! Waiting senders are admitted in order of arrival. [`Poster::call`] posts an item to be answered,
//! and returns a handle for the answer. If the item is dropped without an answer, or with its
//! mailbox, the caller gets an error.
//!
//! # Local futures and dedicated workers
//!
//! A [`LocalSet`] runs futures that need not be `Send` on the owner's thread. To the owner, each
//! wake-up is one more item. A [`Worker`] is a library thread with its own mailbox, which runs
//! closures and such futures. It corresponds to the kernel's `kthread_worker`.
//!
//! # Kinds of owners
//!
//! - A thread sleeps in [`Mailbox::wait`], [`Mailbox::wait_timeout`] or [`Mailbox::wait_linger`],
//!   and is woken by a futex, after a short spin.
//! - An event loop, such as epoll, has [`Mailbox::eventfd`] in its set. It sleeps after
//!   [`Mailbox::arm`], and is woken by the eventfd.
//! - An owner that waits in io_uring for both posts and completions sleeps in the ring, which polls
//!   the eventfd (the module `uring`, with the feature `io-uring`). It is woken by a completion.
//! - An async task waits in [`Mailbox::recv`], [`Mailbox::poll_recv`] or [`Mailbox::ready`], and is
//!   woken by its waker.
//!
//! Differs from Linux: there *task work* belongs to a kernel task and runs when the task returns to
//! user space; here the owner receives it. `post` and `post_lazy` correspond to io_uring's forced
//! and lazy wake-ups.

// A post passes through the files as follows. In `poster.rs`, the item is added to the poster's
// block (`block.rs`) if possible. Otherwise it starts another block, an emptied one if there is any
// (`recycle.rs`), which is pushed onto the queue of its lane (`inbox.rs`). In `wait.rs`, the post
// is counted against the owner's armed count. At most one poster claims the wake-up and fires the
// owner waker (`owner_waker.rs`). In `mailbox.rs`, the owner drains a bounded batch. `shared.rs`
// describes the end of either side. An item that finds no free capacity waits in the wait queue of
// `crates/base/src/admission.rs`, through `send.rs`. `reply.rs` contains both ends of a call. A
// local future (`local.rs`) is woken by its target (`target.rs`), and reports to its handle
// (`join.rs`) through a reply. `worker.rs` contains a thread that owns a mailbox.

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod batch;
mod block;
mod builder;
mod error;
#[cfg(not(any(loom, shuttle)))]
mod event_loop;
#[cfg(all(test, not(any(loom, shuttle))))]
mod foreign_tests;
#[cfg(all(test, not(any(loom, shuttle))))]
mod fork_tests;
mod inbox;
mod join;
#[cfg(all(test, not(any(loom, shuttle))))]
mod lanes_tests;
mod local;
#[cfg(all(test, not(any(loom, shuttle))))]
mod local_tests;
mod mailbox;
mod owner_waker;
mod poster;
mod recv;
mod recycle;
mod reply;
#[cfg(all(test, not(any(loom, shuttle))))]
mod reply_tests;
mod send;
#[cfg(all(test, not(any(loom, shuttle))))]
mod send_tests;
#[cfg(feature = "rcu")]
mod serve;
mod shared;
mod tally;
mod target;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(all(feature = "io-uring", not(any(loom, shuttle))))]
pub mod uring;
mod wait;
mod worker;
#[cfg(all(test, not(any(loom, shuttle))))]
mod worker_tests;

pub use base::internal::panics::join_error::{JoinError, PanicPayload};
pub use batch::Batch;
pub use builder::Builder;
pub use error::{CallError, Closed, PostError, TryRecvError};
#[cfg(feature = "baselines")]
pub use inbox::Backlog;
pub use join::JoinHandle;
pub use local::{LocalSet, spawn_local};
pub use mailbox::{Drain, DrainWhile, Mailbox};
pub use poster::Poster;
pub use reply::{Reply, ReplyError, ReplyTo, reply};
pub use send::Sending;
pub use target::Woken;
pub use worker::{Worker, WorkerBuilder, WorkerError};

base::internal::impl_debug! {
    impl[T] Batch<'_, T>;
    impl[T, B] DrainWhile<'_, T, B>;
    impl[R] JoinHandle<R>;
    impl[T] LocalSet<T>;
    impl[R] Reply<R>;
    impl[R] ReplyTo<R>;
    impl[T] Sending<'_, T>;
    impl[] Woken;
    impl[] Worker;
}
