//! Calls: an item that carries a handle for its owner's answer.
//!
//! # States
//!
//! | state | means | ended by |
//! |---|---|---|
//! | `Asked` | no answer yet | the owner's end → `Given`, `Lost`; the caller → `Gone` |
//! | `Given` | the answer waits | the caller → `Gone` |
//! | `Lost` | the owner's end was dropped without an answer | the caller → `Gone` |
//! | `Gone` | the caller has the answer, or has dropped its end | never |
//!
//! One lock guards the state and the caller's wake-up. A caller that finds `Asked` has therefore
//! stored its wake-up before the owner's end can change the state, and the thread that changes
//! `Asked` finds the wake-up. The wake-up is fired, and values are dropped, with no lock held.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use base::internal::panics;
use base::internal::wake::sleeper::{self, OnTurn, Sleeper};
use base::internal::wake::{fire, report};
use sync::fork::Process;
use sync::unmodelled::Arc;
use sync::{Mutex, MutexGuard, twin};

use super::error::{CallError, PostError};
use super::poster::Poster;

pub(super) struct Slot<R> {
    state: Mutex<State<R>>,
    /// The process of both ends. In a child of `fork`, a thread that does not exist may hold the
    /// lock.
    process: Process,
}

enum State<R> {
    Asked(Option<OnTurn>),
    Given(R),
    Lost,
    Gone,
}

/// The owner's end of a call, which sends the answer. It is part of the item that [`Poster::call`]
/// posts.
///
/// If it is dropped without an answer, also with its item or with the mailbox, the caller gets an
/// error. The owner may move it to another thread, so any thread can answer.
#[must_use = "a caller waits for the answer"]
pub struct ReplyTo<R> {
    /// `None` once the answer was sent.
    slot: Option<Arc<Slot<R>>>,
}

/// The caller's end of a call, which receives the answer.
///
/// Tasks await it, and threads call [`wait`](Self::wait). Dropping it does not cancel the item, but
/// makes [`ReplyTo::reply`] return an error to the owner.
#[must_use = "an answer without a waiter is dropped"]
pub struct Reply<R> {
    pub(super) slot: Arc<Slot<R>>,
}

/// The reason why a call has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReplyError {
    /// The owner dropped the call without an answer, the mailbox was dropped with the call in it,
    /// or the answer was already taken.
    Lost,
    /// The timeout expired. The answer may still arrive.
    TimedOut,
}

base::internal::impl_error!(ReplyError {
    Lost => BrokenPipe, "the call was dropped without an answer";
    TimedOut => TimedOut, "no answer arrived in time";
});

impl<T> Poster<T> {
    /// Posts the item that `make` returns, and returns the handle for the owner's answer.
    ///
    /// Wakes the owner if it sleeps, as [`post`](Self::post) does. A full mailbox is an error. To
    /// wait for capacity first, use [`call_async`](Self::call_async) or
    /// [`call_blocking`](Self::call_blocking).
    ///
    /// # Blocking
    ///
    /// Never blocks, but allocates. Only a wait on the [`Reply`] blocks.
    ///
    /// # Errors
    ///
    /// Returns the same errors as `post`, with the item.
    ///
    /// # Panics
    ///
    /// Panics if `make` panics. In that case nothing was posted.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::mailbox::{Mailbox, ReplyError, ReplyTo};
    ///
    /// enum Request {
    ///     Double(u32, ReplyTo<u32>),
    ///     Name(ReplyTo<String>),
    /// }
    ///
    /// let mut mailbox = Mailbox::new();
    /// let poster = mailbox.poster();
    /// let owner = std::thread::spawn(move || {
    ///     while mailbox.wait(1).is_ok() {
    ///         for request in mailbox.drain(16) {
    ///             match request {
    ///                 Request::Double(number, to) => drop(to.reply(2 * number)),
    ///                 Request::Name(_not_answered) => {}
    ///             }
    ///         }
    ///     }
    /// });
    /// assert_eq!(poster.call(|to| Request::Double(21, to)).unwrap().wait(), Ok(42));
    /// assert_eq!(poster.call(Request::Name).unwrap().wait(), Err(ReplyError::Lost));
    /// drop(poster);
    /// owner.join().unwrap();
    /// ```
    pub fn call<R>(&self, make: impl FnOnce(ReplyTo<R>) -> T) -> Result<Reply<R>, PostError<T>> {
        let (to, reply) = reply();
        // FOREIGN(call): the caller's closure, before the post. A panic propagates to the caller.
        self.post(make(to)).map(|()| reply)
    }

    /// Posts a call as [`call`](Self::call) does, but wakes the owner only if the item completes
    /// the count for which it sleeps, as [`post_lazy`](Self::post_lazy) does.
    ///
    /// If the owner gathers items with [`Mailbox::wait_linger`](super::Mailbox::wait_linger), the
    /// call joins its batch, and the caller waits for as long as the owner lingers. If the owner
    /// waits for more items without a timeout, the answer may never arrive.
    ///
    /// # Blocking
    ///
    /// The same as [`call`](Self::call).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`call`](Self::call).
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`call`](Self::call).
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::mailbox::{Mailbox, ReplyTo};
    /// use std::time::Duration;
    ///
    /// let mut mailbox = Mailbox::new();
    /// let poster = mailbox.poster();
    /// let replies = [1, 2, 3].map(|number| poster.call_lazy(|to| (number, to)).unwrap());
    /// mailbox.wait_linger(1, 32, Duration::from_millis(1)).unwrap();
    /// mailbox.drain(32).for_each(|(number, to): (u32, ReplyTo<u32>)| {
    ///     to.reply(2 * number).unwrap();
    /// });
    /// assert_eq!(replies.map(|reply| reply.wait()), [Ok(2), Ok(4), Ok(6)]);
    /// ```
    pub fn call_lazy<R>(
        &self,
        make: impl FnOnce(ReplyTo<R>) -> T,
    ) -> Result<Reply<R>, PostError<T>> {
        let (to, reply) = reply();
        // FOREIGN(call): as above.
        self.post_lazy(make(to)).map(|()| reply)
    }

    /// Sends the item that `make` returns as soon as there is capacity, and waits for the owner's
    /// answer.
    ///
    /// This is equivalent to [`send`](Self::send) followed by a wait for the [`Reply`]. If the
    /// future is dropped while the item waits for capacity, the item is removed. If it is dropped
    /// later, [`ReplyTo::reply`] returns an error to the owner.
    ///
    /// # Blocking
    ///
    /// Never blocks. It returns a future, which does nothing until it is polled.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    ///
    /// # Panics
    ///
    /// Panics if `make` panics, in the first poll. In that case nothing was sent.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::mailbox::{CallError, Mailbox, ReplyTo};
    /// use afterwork::workqueue::block_on;
    ///
    /// let mut mailbox = Mailbox::builder().capacity(1).build();
    /// let poster = mailbox.poster();
    /// let owner = std::thread::spawn(move || {
    ///     while mailbox.wait(1).is_ok() {
    ///         for (number, to) in mailbox.drain(1) {
    ///             let to: ReplyTo<u32> = to;
    ///             to.reply(2 * number).unwrap();
    ///         }
    ///     }
    /// });
    /// assert_eq!(block_on(poster.call_async(|to| (21, to)))?, 42);
    /// drop(poster);
    /// owner.join().unwrap();
    /// # Ok::<(), CallError<(u32, ReplyTo<u32>)>>(())
    /// ```
    pub async fn call_async<R>(
        &self,
        make: impl FnOnce(ReplyTo<R>) -> T,
    ) -> Result<R, CallError<T>> {
        let (to, reply) = reply();
        // FOREIGN(call): as above, in the first poll.
        self.send(make(to)).await?;
        reply.await.map_err(|_| CallError::Lost)
    }

    /// Sends the item that `make` returns as [`send_blocking`](Self::send_blocking) does, and waits
    /// for the owner's answer.
    ///
    /// # Blocking
    ///
    /// Blocks while the mailbox is full, and until the owner answers. An owner that calls itself
    /// waits forever.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    ///
    /// # Panics
    ///
    /// Panics if `make` or `send_blocking` panics. In that case nothing was sent.
    pub fn call_blocking<R>(&self, make: impl FnOnce(ReplyTo<R>) -> T) -> Result<R, CallError<T>> {
        let (to, reply) = reply();
        // FOREIGN(call): as above.
        self.send_blocking(make(to))?;
        reply.wait().map_err(|_| CallError::Lost)
    }
}

/// Creates both ends of a call whose item is posted without [`Poster::call`].
///
/// # Examples
///
/// ```
/// use afterwork::mailbox::{Mailbox, reply};
///
/// let mut mailbox = Mailbox::builder().capacity(1).build();
/// let (to, answer) = reply();
/// mailbox.poster().send_blocking((20, to)).unwrap();
/// let (number, to) = mailbox.try_recv().unwrap();
/// to.reply(number + 1).unwrap();
/// assert_eq!(answer.wait(), Ok(21));
/// ```
#[doc(alias("wait_for_completion", "completion"))]
pub fn reply<R>() -> (ReplyTo<R>, Reply<R>) {
    let slot = Arc::new(Slot { state: Mutex::new(State::Asked(None)), process: Process::this() });
    let to = ReplyTo { slot: Some(slot.clone()) };
    (to, Reply { slot })
}

impl<R> Slot<R> {
    fn lock(&self) -> Option<MutexGuard<'_, State<R>>> {
        self.process.is_this().then(|| self.state.lock())
    }

    /// Ends the call with `outcome`, and wakes the caller if it waits. Returns `outcome` if the
    /// caller has dropped its end.
    fn end(&self, outcome: State<R>) -> Result<(), State<R>> {
        let Some(mut state) = self.lock() else {
            return Err(outcome);
        };
        if !matches!(*state, State::Asked(_)) {
            return Err(outcome);
        }
        let asked = mem::replace(&mut *state, outcome);
        drop(state);
        if let State::Asked(Some(on_turn)) = asked
            && !twin::armed("reply: given without a wake-up")
        {
            fire(on_turn.into_inner());
        }
        Ok(())
    }

    /// Takes the answer, or stores the wake-up of the caller, if it has one.
    pub(super) fn take(&self, mut on_turn: Option<OnTurn>) -> Poll<Result<R, ReplyError>> {
        let Some(mut state) = self.lock() else {
            return Poll::Ready(Err(ReplyError::Lost));
        };
        if let State::Asked(place) = &mut *state {
            // The previous wake-up is dropped after the lock is released, because it was declared
            // before the lock.
            if on_turn.is_some() {
                mem::swap(place, &mut on_turn);
            }
            return Poll::Pending;
        }
        match mem::replace(&mut *state, State::Gone) {
            State::Given(value) => Poll::Ready(Ok(value)),
            _ => Poll::Ready(Err(ReplyError::Lost)),
        }
    }
}

impl<R> ReplyTo<R> {
    /// Sends the answer, and wakes the caller if it waits.
    ///
    /// # Blocking
    ///
    /// Never sleeps, but holds a lock for a few instructions. Makes a system call if it wakes a
    /// thread.
    ///
    /// # Errors
    ///
    /// Returns the value if the caller has dropped its end, or if the call belongs to the parent of
    /// this child of `fork`.
    #[doc(alias = "complete")]
    pub fn reply(mut self, value: R) -> Result<(), R> {
        let slot = self.slot.take().expect("it answers once");
        slot.end(State::Given(value)).map_err(|back| match back {
            State::Given(value) => value,
            _ => unreachable!("the same value is returned"),
        })
    }

    /// Returns `true` if the caller has dropped its end. After `false`, it may still do so at any
    /// time.
    pub fn is_abandoned(&self) -> bool {
        let state = self.slot.as_ref().and_then(|slot| slot.lock());
        state.is_none_or(|state| matches!(*state, State::Gone))
    }
}

impl<R> Reply<R> {
    /// Waits for the answer.
    ///
    /// # Blocking
    ///
    /// Blocks until the owner answers or drops its end. An owner that waits for its own answer
    /// waits forever.
    ///
    /// # Errors
    ///
    /// Returns [`ReplyError::Lost`] if there is no answer. In a child of `fork`, this is the error
    /// of every call that belongs to the parent.
    ///
    /// # Panics
    ///
    /// Panics if called in an item of a bottom-half queue, even if the answer has arrived.
    pub fn wait(mut self) -> Result<R, ReplyError> {
        self.wait_within(None)
    }

    /// Waits for the answer for at most `timeout`. It may be called again after it has timed out.
    ///
    /// # Blocking
    ///
    /// Blocks for at most `timeout`, plus the system's delay. In a model it never times out.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`wait`](Self::wait), and [`ReplyError::TimedOut`].
    ///
    /// # Panics
    ///
    /// Panics in the same cases as `wait`.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<R, ReplyError> {
        self.wait_within(Some(timeout))
    }

    pub(super) fn wait_within(&mut self, timeout: Option<Duration>) -> Result<R, ReplyError> {
        report::must_be_free_to_sleep();
        let mut sleeper = Sleeper::new(timeout);
        let mut in_time = true;
        loop {
            if let Poll::Ready(answer) = self.slot.take(Some(sleeper.on_turn())) {
                return answer;
            }
            if !in_time {
                return Err(ReplyError::TimedOut);
            }
            in_time = sleeper.sleep();
        }
    }

    /// Returns `true` if a wait would not block.
    pub(super) fn is_ready(&self) -> bool {
        let state = self.slot.lock();
        state.is_none_or(|state| !matches!(*state, State::Asked(_)))
    }
}

impl<R> Future for Reply<R> {
    type Output = Result<R, ReplyError>;

    /// Returns `Lost` if polled after completion.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.slot.take(Some(sleeper::on_turn_of_task(cx)))
    }
}

sync::on_drop!(ReplyTo[R], it => if let Some(slot) = it.slot.take()
    && !twin::armed("reply: a drop does not notify")
{
    let _ = slot.end(State::Lost);
});

sync::on_drop!(Reply[R], it => {
    let state = it.slot.lock();
    if let Some(unread) = state.map(|mut state| mem::replace(&mut *state, State::Gone)) {
        // FOREIGN(reply-unread): the drop of an answer that was not taken, on the caller. A panic
        // is caught.
        panics::contain(|| drop(unread));
    }
});
