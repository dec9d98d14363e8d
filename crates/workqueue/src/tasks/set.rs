//! Items whose results are taken in the order in which the items end.
//!
//! # The protocol
//!
//! Only the set uses its handles. It polls each handle once, with a waker that knows the handle's
//! index. The thread that ends the item fires the waker:
//!
//! ```text
//! end of an item:  lock: append its index to the list;  take the waiter;  unlock: wake the waiter
//! join_next:       lock: is an index in the list?  take it;  otherwise register the waiter
//! ```
//!
//! If the end comes first, `join_next` finds the index. Otherwise the ending thread finds the
//! waiter. The ending thread must never check for a waiter before the index is in the list. Twin
//! `task set: checks for a waiter first`.
//!
//! A wake-up therefore examines only one handle. The list has capacity for all items before they
//! are spawned, so that the ending thread does not allocate under the lock. An index may be in the
//! list twice, if an item ends while it is cancelled or after its deadline. An index whose item has
//! left, or has not ended, is skipped.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::task::{Context, Poll, Wake, Waker};
use std::{iter, mem};

use base::internal::panics::join_error::JoinError;
use base::internal::panics::{Foreign, contain};
use base::internal::wake::{Maker, note_known};
use item::internal::cleanups;
use sync::fork::Process;
use sync::unmodelled::Arc;
use sync::{Mutex, twin};

use crate::execute::block_on::block_on;
use crate::execute::join::JoinHandle;
use crate::execute::run::is_blocking;
use crate::execute::wait::{must_not_be_lost, reported};
use crate::queues::queue::Workqueue;

/// Closures and futures of a queue, whose results are taken in the order in which they end.
///
/// # Guarantees
///
/// - Each result is taken once, in the order in which the items ended. The results of items that
///   end at the same time on different threads may be taken in either order.
/// - Dropping the set cancels all items in it, as [`cancel_all`](Self::cancel_all) does. The drop
///   does not wait: closures that have started continue.
/// - The set keeps its queue open, as a handle to the queue does.
///
/// # Cost
///
/// Each item takes two allocations in addition to its own. When an item ends, it briefly holds a
/// lock. The time hardly depends on the number of items.
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::{TaskSet, Workqueue, block_on};
///
/// let queue = Workqueue::builder("example").build()?;
/// let mut set = TaskSet::new(&queue);
/// for number in 0..4 {
///     set.spawn(move || number * number);
/// }
/// set.spawn_async(async { 100 });
/// let mut sum = 0;
/// block_on(async {
///     while let Some(square) = set.join_next().await {
///         sum += square.unwrap();
///     }
/// });
/// assert_eq!(sum, 114);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("JoinSet", "FuturesUnordered", "TaskTracker"))]
#[must_use = "dropping it cancels what is in it"]
pub struct TaskSet<T> {
    queue: Workqueue,
    /// Handles by index, in the order in which they were added.
    handles: BTreeMap<usize, JoinHandle<T>>,
    next: usize,
    /// The index of an item that can end while the waiter waits, found by the last search. The next
    /// search starts there, so that all searches together examine each index only a few times.
    able: usize,
    ended: Arc<Ended>,
    /// I: the process that created the set.
    process: Process,
}

/// The indices of items that have ended, and the waiter for the next one.
#[derive(Default)]
struct Ended(Mutex<List>);

#[derive(Default)]
struct List {
    places: VecDeque<usize>,
    waiter: Option<Foreign<Waker>>,
}

/// The waker that is fired at the end of the item with this index.
struct AtEnd {
    place: usize,
    ended: Arc<Ended>,
}

impl Wake for AtEnd {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ended.add(self.place);
    }
}

/// Fires a waker of [`AtEnd`]. Returns it, because it may own the last reference to a waiter.
fn wake_ours(waker: Waker) -> Option<Box<dyn Send>> {
    // FOREIGN(task-set-wake): our own waker, which may own the last reference to another one.
    waker.wake_by_ref();
    Some(Box::new(Foreign::new(waker)))
}

impl Ended {
    fn add(&self, place: usize) {
        let check = || self.0.lock().waiter.take();
        let early = twin::armed("task set: checks for a waiter first").then(check);
        let mut list = self.0.lock();
        list.places.push_back(place);
        let waiter = early.unwrap_or_else(|| list.waiter.take());
        drop(list);
        if let Some(waiter) = waiter {
            cleanups::fire(waiter);
        }
    }

    /// Registers `waker` for the next item that ends; returns `false` if one has ended.
    fn wait(&self, waker: &Waker) -> bool {
        // FOREIGN(waker-clone): the clone of a user's waker, on the polling thread, with no lock
        // held; it may unwind to the caller.
        let mut waker = Some(Foreign::new(waker.clone()));
        let mut list = self.0.lock();
        let waits = list.places.is_empty();
        if waits {
            mem::swap(&mut list.waiter, &mut waker);
        }
        drop(list);
        // FOREIGN(task-set-drop): the drop of a waker, the previous one or this one, on the polling
        // thread, with no lock held; a panic is contained by `Foreign`.
        drop(waker);
        waits
    }
}

impl<T> TaskSet<T> {
    /// Creates an empty set of items of `queue`.
    ///
    /// [`add`](Self::add) does not use the queue. For a set whose items all come from `add`, pass
    /// the queue of any of them, or [`system`](crate::system).
    pub fn new(queue: &Workqueue) -> Self {
        Self {
            queue: queue.clone(),
            handles: BTreeMap::new(),
            next: 0,
            able: 0,
            ended: Arc::default(),
            process: Process::this(),
        }
    }

    /// Adds an item spawned by any function, on any queue, even with [options](Workqueue::task). If
    /// its result has already been taken, its result in the set is [`JoinError::Taken`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{TaskSet, Workqueue};
    /// use std::time::{Duration, Instant};
    ///
    /// let queue = Workqueue::builder("example").capacity(2).build()?;
    /// let mut set = TaskSet::new(&queue);
    /// let soon = Instant::now() + Duration::from_secs(60);
    /// for number in 0..10 {
    ///     set.add(queue.task().deadline(soon).wait_for_capacity().spawn(move || number));
    /// }
    /// assert_eq!(set.results().count(), 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if called in a child of `fork` and the set or the item was created before the fork.
    pub fn add(&mut self, mut handle: JoinHandle<T>) {
        self.must_be_here();
        let place = self.next;
        {
            let mut list = self.ended.0.lock();
            let nr_more = (self.handles.len() + 1).saturating_sub(list.places.len());
            list.places.reserve(nr_more);
        }
        let ended = self.ended.clone();
        let waker = Waker::from(Arc::new(AtEnd { place, ended }));
        note_known(Maker::TaskSet, waker.vtable(), wake_ours);
        // This panics in a child of `fork` if the item is the parent's, so the handle is added
        // later.
        let waits = handle.await_end(&waker);
        self.handles.insert(place, handle);
        self.next += 1;
        if !waits {
            self.ended.add(place);
        }
    }

    /// Returns the number of items whose results have not been taken.
    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// Returns `true` if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// Waits for the next item to end, and returns its result; `None` if the set is empty.
    ///
    /// Dropping this future loses no result.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`JoinHandle::join`]. [`JoinError::OwnItem`] and
    /// [`JoinError::OwnQueue`] occur only inside [`block_on`](crate::block_on), and only if no
    /// other item is in the set. The item that caused the error leaves the set and stays queued.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|context| self.poll_join_next(context)).await
    }

    /// Polls [`join_next`](Self::join_next), without waiting. Use it in a hand-written future.
    pub fn poll_join_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<T, JoinError>>> {
        loop {
            if self.is_empty() {
                return Poll::Ready(None);
            }
            if let Some(result) = self.try_join_next() {
                return Poll::Ready(Some(result));
            }
            if self.ended.wait(context.waker()) {
                return match self.refuse_one() {
                    Some(error) => Poll::Ready(Some(Err(error))),
                    None => Poll::Pending,
                };
            }
        }
    }

    /// If no item can end while this thread waits, removes one of them and returns the reason.
    fn refuse_one(&mut self) -> Option<JoinError> {
        if !is_blocking() {
            return None;
        }
        let mut refused = None;
        let handles = &self.handles;
        for (&place, handle) in handles.range(self.able..).chain(handles.range(..self.able)) {
            let Some(error) = handle.refusal_of_a_poll() else {
                self.able = place;
                return None;
            };
            refused = Some((place, error));
        }
        let (place, error) = refused?;
        // The item stays queued, like any item whose handle is dropped.
        self.handles.remove(&place);
        Some(reported(error))
    }

    /// Returns the result of an item that has ended, if there is one. Never waits. The errors are
    /// those of [`join_next`](Self::join_next).
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.must_be_here();
        loop {
            let place = self.ended.0.lock().places.pop_front()?;
            let Some(handle) = self.handles.get_mut(&place) else { continue };
            // Without a result, the deadline of the item passed after it had started.
            if let Some(result) = handle.try_join() {
                self.handles.remove(&place);
                return Some(result);
            }
        }
    }

    /// Waits for the next item to end, and returns its result; `None` if the set is empty.
    ///
    /// Blocks as [`block_on`](crate::block_on) does: this thread runs none of the items. The errors
    /// are those of [`join_next`](Self::join_next). Panics if called in an item of a bottom-half
    /// queue.
    pub fn join_next_blocking(&mut self) -> Option<Result<T, JoinError>> {
        block_on(self.join_next())
    }

    /// Returns the results in the order in which the items end, until the set is empty. Blocks as
    /// [`join_next_blocking`](Self::join_next_blocking) does, for each result.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{TaskSet, Workqueue};
    /// let queue = Workqueue::builder("example").build()?;
    /// let mut set = TaskSet::new(&queue);
    /// (1..=3).for_each(|number| set.spawn(move || number));
    /// let sum: i32 = set.results().map(|result| result.unwrap()).sum();
    /// assert_eq!(sum, 6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn results(&mut self) -> impl Iterator<Item = Result<T, JoinError>> {
        iter::from_fn(|| self.join_next_blocking())
    }

    /// Cancels all items in the set as [`JoinHandle::cancel`] does. [`join_next`](Self::join_next)
    /// returns [`JoinError::Cancelled`] for each cancelled item.
    ///
    /// If dropping a closure or future panics here, the panic is caught.
    pub fn cancel_all(&mut self) {
        self.must_be_here();
        for (&place, handle) in &mut self.handles {
            // The waker of an ended item has reported it or is reporting it now. A second
            // `cancel_all` must not report it again.
            if handle.is_finished() {
                continue;
            }
            // FOREIGN(cancel-drop): the closure or future, on the canceller; a panic is contained
            // here, so that all items are cancelled.
            contain(|| {
                handle.cancel();
            });
            // Only the waker of a future reports a cancel. A second report is harmless.
            if handle.is_finished() {
                self.ended.add(place);
            }
        }
    }

    /// Removes all items from the set, without waiting. They continue independently.
    pub fn detach_all(&mut self) {
        // The wakers of these items keep the old list, so they report their ends there.
        // FOREIGN(task-set-drop): the drop of a waker, on the caller; a panic is contained by
        // `Foreign`.
        self.ended = Arc::default();
        drop(mem::take(&mut self.handles));
    }

    fn must_be_here(&self) {
        // In a child of `fork`, a thread of the parent may hold the lock.
        must_not_be_lost(!self.process.is_this());
    }
}

impl<T: Send + 'static> TaskSet<T> {
    /// Spawns `func` on the set's queue, as [`Workqueue::spawn`] does.
    pub fn spawn(&mut self, func: impl FnOnce() -> T + Send + 'static) {
        self.must_be_here();
        let handle = self.queue.spawn(func);
        self.add(handle);
    }

    /// Spawns `future` on the set's queue, as [`Workqueue::spawn_async`] does.
    pub fn spawn_async(&mut self, future: impl Future<Output = T> + Send + 'static) {
        self.must_be_here();
        let handle = self.queue.spawn_async(future);
        self.add(handle);
    }
}

sync::on_drop!(TaskSet[T], it => if it.process.is_this() {
    it.cancel_all();
});

base::internal::impl_debug!(TaskSet[T], it => queue: it.queue.name(), len: it.len());

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "reads sysfs")]
    fn aborted_item_is_listed_once() {
        let queue = Workqueue::builder("set").build().unwrap();
        queue.pause();
        let mut set = TaskSet::new(&queue);
        (0..10).for_each(|_| set.spawn(|| ()));
        (0..100).for_each(|_| set.cancel_all());
        assert_eq!(set.ended.0.lock().places.len(), 10);
        assert_eq!(set.results().count(), 10);
        queue.resume();
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads sysfs")]
    fn ends_of_detached_items_are_not_listed() {
        let queue = Workqueue::builder("set").build().unwrap();
        queue.pause();
        let mut set = TaskSet::new(&queue);
        for _ in 0..10 {
            set.spawn(|| ());
            set.detach_all();
        }
        set.spawn(|| ());
        queue.resume();
        queue.flush().unwrap();
        assert_eq!(set.ended.0.lock().places.len(), 1);
        assert!(matches!(set.join_next_blocking(), Some(Ok(()))));
    }

    /// A debug build asserts that no lock is held when a waker is dropped.
    #[test]
    fn a_waker_that_is_not_needed_is_dropped_under_no_lock() {
        let ended = Ended::default();
        ended.add(0);
        assert!(!ended.wait(Waker::noop()));
        assert_eq!(ended.0.lock().places.pop_front(), Some(0));
        assert!(ended.wait(Waker::noop()));
        assert!(ended.wait(Waker::noop()));
    }
}
