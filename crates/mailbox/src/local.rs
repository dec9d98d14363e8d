//! Futures that stay on the thread of a mailbox's owner, and are polled when it receives their
//! wake-ups.
//!
//! `target.rs` describes the protocol between wakers and the owner. Only the owner accesses the
//! set:
//!
//! - **User code never runs during a borrow.** A future is moved out of its place before it is
//!   polled or dropped, and moved back afterwards. It may therefore spawn other futures, cancel
//!   itself or others, and call the same set. If a future is woken while it is being polled further
//!   up the same stack, the wake-up is recorded at its place and posted again after that poll. The
//!   place of a late wake-up may have another future, or none, so the wake-up identifies its future
//!   by its target.
//! - **Waiting futures keep the mailbox open.** The set owns one counted poster while it has a
//!   future, so an owner that receives until no more items can arrive does not stop while a future
//!   waits.

use std::cell::RefCell;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use base::internal::panics;
use base::internal::panics::join_error::{JoinError, Outcome};
use sync::atomic::Ordering;
use sync::twin;
use sync::unmodelled::Arc;

use super::join::{JoinHandle, answer};
use super::mailbox::Mailbox;
use super::poster::Poster;
use super::reply::{ReplyTo, reply};
use super::target::{Post, Target, Wakes, Woken};

/// The number of unused places that a set keeps after a burst, which is about 50 KiB.
const KEPT_PLACES: usize = 1024;

sync::thread_local! {
    /// The set whose work this thread runs.
    static CURRENT: RefCell<Option<Rc<dyn Spawn>>> = RefCell::new(None)
}

/// A set of futures that need not be `Send`. The owner of a mailbox runs them among its other
/// items.
///
/// A wake-up of such a future is an item of the mailbox: `T` has a variant for it, and
/// `From<Woken>` creates it. The owner passes received wake-ups to [`poll`](Self::poll), which
/// polls that future once. The owner can therefore sleep in any of the ways that a
/// [mailbox](super::Mailbox) supports. It serves items and futures in a single order, and futures
/// wake it as other items do.
///
/// # Guarantees
///
/// - A future is polled and dropped on the thread that created the set. The set cannot leave it.
/// - A future has at most one wake-up in the mailbox, however often it is woken. Wake-ups do not
///   count toward the [capacity](super::Builder::capacity), so a waker neither blocks nor fails,
///   and futures never keep other items out.
/// - Wakers may be kept and called by any thread, even after the future, the set and the mailbox
///   were dropped.
/// - A panic in a future's poll or drop is caught and reported to the future's handle.
/// - While a future has not ended, the mailbox counts as having a poster. [`Mailbox::close`] still
///   closes it.
/// - Dropping the set drops its futures, and their handles return
///   [`Cancelled`](JoinError::Cancelled). Dropping only the mailbox ends no future: the futures are
///   no longer polled, and are dropped with the set.
///
/// # Cost
///
/// A future costs four allocations. A wake-up costs a locked instruction, plus a post if no wake-up
/// of the future is in the mailbox. If a future awaits a sleep of `workqueue`, the end of the sleep
/// starts a short-lived thread, because the future's waker is user code. On a
/// [`Worker`](super::Worker), no thread is started.
///
/// # Examples
///
/// An owner that answers each request in a future, with state that is not `Send`:
///
/// ```
/// use std::{cell::Cell, rc::Rc, time::Duration};
/// use afterwork::mailbox::{LocalSet, Mailbox, ReplyTo, Woken};
/// use afterwork::workqueue::sleep;
///
/// enum Mail {
///     Request(u32, ReplyTo<u32>),
///     Woken(Woken),
/// }
///
/// impl From<Woken> for Mail {
///     fn from(woken: Woken) -> Self {
///         Self::Woken(woken)
///     }
/// }
///
/// let mut mailbox = Mailbox::new();
/// let poster = mailbox.poster();
/// let owner = std::thread::spawn(move || {
///     let futures = LocalSet::new(&mailbox);
///     let nr_served = Rc::new(Cell::new(0));
///     // Ends when all posters were dropped, and all futures have ended.
///     while mailbox.wait(1).is_ok() {
///         for mail in mailbox.drain(32) {
///             match mail {
///                 Mail::Woken(woken) => _ = futures.poll(woken),
///                 Mail::Request(number, to) => {
///                     let nr_served = nr_served.clone();
///                     drop(futures.spawn_local(async move {
///                         sleep(Duration::from_millis(1)).await;
///                         nr_served.set(nr_served.get() + 1);
///                         to.reply(2 * number).ok();
///                     }));
///                 }
///             }
///         }
///     }
///     nr_served.get()
/// });
/// let answers: Vec<_> = (0..3).map(|n| poster.call(|to| Mail::Request(n, to)).unwrap()).collect();
/// let sum: u32 = answers.into_iter().map(|answer| answer.wait().unwrap()).sum();
/// drop(poster);
/// assert_eq!((sum, owner.join().unwrap()), (6, 3));
/// ```
#[must_use = "dropping it drops its futures"]
#[doc(alias("LocalExecutor", "LocalPool"))]
pub struct LocalSet<T> {
    inner: Rc<Inner<T>>,
}

struct Inner<T> {
    post: Arc<Post<T>>,
    tasks: RefCell<Tasks<T>>,
}

struct Tasks<T> {
    places: Vec<Option<Entry<T>>>,
    unused: Vec<usize>,
    /// A counted poster, while there is a future.
    keeps_open: Option<Poster<T>>,
    is_closed: bool,
    /// The rejected futures that have not been dropped yet.
    refused: Vec<Box<dyn Task>>,
    /// `true` while an outer call on this stack drops `refused`.
    drops_refused: bool,
}

struct Entry<T> {
    target: Arc<Target<T>>,
    /// `None` while the future is polled.
    body: Option<Body>,
    /// `true` if a wake-up arrived while the future was being polled.
    is_woken: bool,
}

struct Body {
    task: Box<dyn Task>,
    waker: Waker,
}

pub(super) trait Task {
    /// Polls the future. Returns `true` if it has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool;
    fn end(&mut self, why: JoinError);
    /// Reports the rejection. [`end`](Self::end) drops the future later.
    fn refuse(&mut self);
}

struct Local<F: Future> {
    future: Option<Pin<Box<F>>>,
    to: Option<ReplyTo<Outcome<F::Output>>>,
}

trait Spawn {
    /// Returns `None` if the task was rejected.
    fn spawn(&self, task: Box<dyn Task>) -> Option<Arc<dyn Wakes>>;
}

/// Adds a future as [`LocalSet::spawn_local`] does, to the set whose work this thread is running: a
/// future of the set, or a closure of a [`Worker`](super::Worker). Never blocks.
///
/// # Panics
///
/// Panics if this thread is not running the work of a set. The future is then dropped.
///
/// # Examples
///
/// ```
/// use afterwork::mailbox::{Worker, spawn_local};
///
/// let worker = Worker::builder("example").build()?;
/// let sum = worker.spawn_local(|| async {
///     let parts = [1, 2, 3].map(|part| spawn_local(async move { part }));
///     let mut sum = 0;
///     for part in parts {
///         sum += part.await.unwrap();
///     }
///     sum
/// });
/// assert_eq!(sum.join()?, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn spawn_local<F: Future + 'static>(future: F) -> JoinHandle<F::Output> {
    let current = CURRENT.try_with(|set| set.borrow().clone()).ok().flatten();
    let set = current.expect("`spawn_local` was called outside of a local set or a worker");
    spawn_in(&*set, future)
}

fn spawn_in<F: Future + 'static>(set: &dyn Spawn, future: F) -> JoinHandle<F::Output> {
    let (to, reply) = reply();
    JoinHandle::new(reply, set.spawn(task(future, to)))
}

pub(super) fn task<F>(future: F, to: ReplyTo<Outcome<F::Output>>) -> Box<dyn Task>
where
    F: Future + 'static,
{
    Box::new(Local { future: Some(Box::pin(future)), to: Some(to) })
}

impl<F: Future> Task for Local<F> {
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(future) = &mut self.future else {
            return true;
        };
        // FOREIGN(local-poll): the future's poll, on the set's thread. A panic is its outcome.
        let outcome = match panics::guarded(|| future.as_mut().poll(cx)) {
            Ok(Poll::Pending) => return false,
            Ok(Poll::Ready(value)) => Ok(value),
            Err(payload) => Err(JoinError::panicked(payload)),
        };
        self.settle(outcome);
        true
    }

    fn end(&mut self, why: JoinError) {
        self.settle(Err(why));
    }

    fn refuse(&mut self) {
        if let Some(to) = self.to.take() {
            answer(to, Err(JoinError::Closed));
        }
    }
}

impl<F: Future> Local<F> {
    fn settle(&mut self, mut outcome: Outcome<F::Output>) {
        let future = self.future.take();
        // FOREIGN(local-drop): the future's drop, on the set's thread. A panic becomes its outcome.
        if let Err(payload) = panics::guarded(|| drop(future)) {
            let before = mem::replace(&mut outcome, Err(JoinError::panicked(payload)));
            // FOREIGN(future-outcome): the drop of the result or the payload. A panic is caught.
            panics::contain(|| drop(before));
        }
        match self.to.take() {
            Some(to) => answer(to, outcome),
            // FOREIGN(future-outcome): the drop of a payload, as above.
            None => _ = panics::contain(|| drop(outcome)),
        }
    }
}

impl<T: From<Woken> + Send + 'static> LocalSet<T> {
    /// Creates an empty set on this thread. Items of `mailbox` wake its futures. A mailbox may have
    /// several sets if its items distinguish them.
    pub fn new(mailbox: &Mailbox<T>) -> Self {
        let post = Arc::new(Post::new(mailbox));
        post.settle();
        Self::with(post)
    }

    pub(super) fn with(post: Arc<Post<T>>) -> Self {
        Self {
            inner: Rc::new(Inner {
                post,
                tasks: RefCell::new(Tasks {
                    places: Vec::new(),
                    unused: Vec::new(),
                    keeps_open: None,
                    is_closed: false,
                    refused: Vec::new(),
                    drops_refused: false,
                }),
            }),
        }
    }

    /// Adds a future, and posts a wake-up for it. The future is first polled when the owner
    /// receives this wake-up.
    ///
    /// If the mailbox is closed, or in a child of `fork`, the future is dropped, and its handle
    /// returns [`Closed`](JoinError::Closed).
    ///
    /// # Blocking
    ///
    /// Never blocks.
    pub fn spawn_local<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        spawn_in(&*self.inner, future)
    }

    /// Polls the woken future once. Returns `false` if it has ended, or does not belong to this
    /// set.
    ///
    /// # Blocking
    ///
    /// The same as the future's poll.
    pub fn poll(&self, woken: Woken) -> bool {
        let Some((place, mut body)) = self.inner.take(&woken) else {
            return false;
        };
        let mark = woken.0.mark();
        let clears_late = twin::armed("local: cleared after the poll");
        let is_cancelled = !clears_late && mark.receive();
        let has_ended = self.within(|| {
            if is_cancelled {
                body.task.end(JoinError::Cancelled);
            }
            is_cancelled || body.task.poll(&mut Context::from_waker(&body.waker))
        });
        if clears_late {
            mark.receive();
        }
        if has_ended {
            mark.end();
            self.inner.remove(place);
        } else {
            self.inner.put_back(place, body);
        }
        true
    }

    /// Adds a task and polls it at once. Its wake-up counts as posted.
    pub(super) fn start(&self, target: Arc<Target<T>>, task: Box<dyn Task>) {
        if self.inner.insert(&target, task) {
            self.poll(Woken(target));
        }
    }

    /// Calls `body`, which must not unwind, with this set as the current one.
    pub(super) fn within<R>(&self, body: impl FnOnce() -> R) -> R {
        let this: Rc<dyn Spawn> = self.inner.clone();
        let before = CURRENT.try_with(|set| set.replace(Some(this)));
        let result = body();
        if let Ok(before) = before {
            _ = CURRENT.try_with(|set| set.replace(before));
        }
        result
    }

    /// Cancels all futures. Each is dropped when the owner receives the wake-up that this posts.
    ///
    /// # Blocking
    ///
    /// Never blocks.
    pub fn cancel_all(&self) {
        let targets: Vec<_> = {
            let tasks = self.inner.tasks.borrow();
            let entries = tasks.places.iter().flatten();
            entries.map(|entry| entry.target.clone()).collect()
        };
        for target in targets {
            target.cancel();
        }
    }
}

impl<T> LocalSet<T> {
    /// Returns the number of futures that have not ended.
    pub fn len(&self) -> usize {
        self.inner.tasks.borrow().len()
    }

    /// Returns `true` if all futures have ended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
impl<T> LocalSet<T> {
    pub(super) fn nr_places(&self) -> usize {
        self.inner.tasks.borrow().places.len()
    }
}

impl<T> Tasks<T> {
    fn len(&self) -> usize {
        self.places.len() - self.unused.len()
    }
}

impl<T: From<Woken> + Send + 'static> Inner<T> {
    fn insert(&self, target: &Arc<Target<T>>, task: Box<dyn Task>) -> bool {
        let is_open = self.post.is_at_home() && !self.post.poster.is_closed();
        if !is_open || self.tasks.borrow().is_closed {
            self.refuse(task);
            return false;
        }
        let entry = Entry {
            target: target.clone(),
            body: Some(Body { task, waker: (self.post.waker)(target.clone()) }),
            is_woken: false,
        };
        let mut tasks = self.tasks.borrow_mut();
        if tasks.keeps_open.is_none() {
            tasks.keeps_open = Some(self.post.poster.clone());
        }
        let place = tasks.unused.pop().unwrap_or_else(|| {
            tasks.places.push(None);
            tasks.places.len() - 1
        });
        target.mark().place.store(place, Ordering::Relaxed);
        tasks.places[place] = Some(entry);
        true
    }

    /// Rejects a task and drops its future. The drop may spawn another future, which is also
    /// rejected. An outer call on this stack then drops it, so that a chain of such futures does
    /// not nest calls.
    #[cold]
    fn refuse(&self, mut task: Box<dyn Task>) {
        task.refuse();
        let mut tasks = self.tasks.borrow_mut();
        tasks.refused.push(task);
        if mem::replace(&mut tasks.drops_refused, true) {
            return;
        }
        while let Some(mut task) = tasks.refused.pop() {
            drop(tasks);
            task.end(JoinError::Closed);
            tasks = self.tasks.borrow_mut();
        }
        tasks.drops_refused = false;
    }

    fn take(&self, woken: &Woken) -> Option<(usize, Body)> {
        let place = woken.0.mark().place.load(Ordering::Relaxed);
        let mut tasks = self.tasks.borrow_mut();
        let entry = tasks.places.get_mut(place)?.as_mut()?;
        let is_its = Arc::as_ptr(&entry.target).addr() == Arc::as_ptr(&woken.0).addr();
        if !is_its || !self.post.is_at_home() {
            return None;
        }
        let body = entry.body.take();
        entry.is_woken |= body.is_none();
        Some((place, body?))
    }

    fn put_back(&self, place: usize, body: Body) {
        let mut tasks = self.tasks.borrow_mut();
        let entry = tasks.places[place].as_mut();
        let entry = entry.expect("a future that is polled keeps its entry");
        entry.body = Some(body);
        let woken = mem::take(&mut entry.is_woken).then(|| entry.target.clone());
        drop(tasks);
        if let Some(target) = woken {
            target.post();
        }
    }

    fn remove(&self, place: usize) {
        let mut tasks = self.tasks.borrow_mut();
        let entry = tasks.places[place].take();
        tasks.unused.push(place);
        let is_last = tasks.len() == 0;
        let poster = is_last.then(|| tasks.keeps_open.take());
        let burst = is_last && tasks.places.len() > KEPT_PLACES;
        let burst = burst.then(|| (mem::take(&mut tasks.places), mem::take(&mut tasks.unused)));
        drop(tasks);
        // This may drop the last poster, which wakes the owner.
        drop((entry, poster, burst));
    }
}

impl<T: From<Woken> + Send + 'static> Spawn for Inner<T> {
    fn spawn(&self, task: Box<dyn Task>) -> Option<Arc<dyn Wakes>> {
        let target = Target::new(&self.post, 0);
        if !self.insert(&target, task) {
            return None;
        }
        target.wake_with(0);
        Some(target)
    }
}

sync::on_drop!(LocalSet[T], it => {
    let mut tasks = it.inner.tasks.borrow_mut();
    tasks.is_closed = true;
    tasks.unused.clear();
    let entries = mem::take(&mut tasks.places);
    let poster = tasks.keeps_open.take();
    drop(tasks);
    // All futures are marked first, so that dropping one future does not wake another.
    entries.iter().flatten().for_each(|entry| _ = entry.target.mark.end());
    for mut body in entries.into_iter().flatten().filter_map(|entry| entry.body) {
        body.task.end(JoinError::Cancelled);
    }
    drop(poster);
});
