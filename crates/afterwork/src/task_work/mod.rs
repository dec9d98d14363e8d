//! Task work: deferring work to *one thread that owns something*, such as an event loop or a ring.
//!
//! Any thread posts items to the owner's [`Mailbox`]. The owner receives them in order, a bounded batch at a time,
//! and sleeps meanwhile; posters wake it once for as many items as it asked for, and not at all while it is awake.
//!
//! # Urgent and lazy posts
//!
//! | post | the owner sleeps in `wait(n)` | the owner is awake |
//! |---|---|---|
//! | [`Poster::post`] | wakes it | costs no more than a lazy one |
//! | [`Poster::post_lazy`] | counts; the `n`th wakes it | no wake-up |
//!
//! A wake-up costs its poster microseconds and the owner tens of them. An owner that asks for 32 items, or what there
//! is after a millisecond ([`Mailbox::wait_timeout`]), pays for it once in 32.
//!
//! # Owners of every kind
//!
//! | the owner sleeps | by | is woken by |
//! |---|---|---|
//! | as a thread | [`Mailbox::wait`], [`Mailbox::wait_timeout`] | a futex, after a short spin |
//! | in epoll or another event loop | [`Mailbox::arm`], with [`Mailbox::eventfd`] in its set | the eventfd |
//! | in io_uring, for posts and completions at once | the same, with the eventfd polled by the ring (feature `io-uring`: the module `uring`) | a completion |
//! | as an async task | [`Mailbox::recv`], [`Mailbox::poll_recv`], [`Mailbox::ready`] | its waker |
//!
//! # Who does what
//!
//! 1. `poster.rs`: the item is added to the poster's block (`block.rs`), or starts another one, an emptied one if there
//!    is any (`recycle.rs`), which is pushed onto the queue (`inbox.rs`, over the crate `mpscq`).
//! 2. `wait.rs`: the post counts against what the owner armed; at most one poster claims the wake-up, and rings
//!    (`bell.rs`).
//! 3. `mailbox.rs`: the owner drains a bounded batch; what is left stays queued.
//! 4. `shared.rs`: what happens when either side ends.
//!
//! Differs from Linux: task work there is bound to a kernel task and runs on its return to user space; here the
//! owner calls for it. `post` and `post_lazy` are io_uring's forced and lazy wake-ups.

mod batch;
mod bell;
mod block;
mod builder;
mod error;
#[cfg(not(any(loom, shuttle)))]
mod event_loop;
#[cfg(all(test, not(any(loom, shuttle))))]
mod foreign_tests;
mod inbox;
mod mailbox;
mod poster;
mod recv;
mod recycle;
mod room;
mod serve;
mod shared;
mod tally;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(all(feature = "io-uring", not(any(loom, shuttle))))]
pub mod uring;
mod wait;

pub use batch::Batch;
pub use builder::Builder;
pub use error::{Closed, PostError, TryRecvError};
pub use inbox::Backlog;
pub use mailbox::{Drain, Mailbox};
pub use poster::Poster;
pub use recv::{Ready, Recv};
