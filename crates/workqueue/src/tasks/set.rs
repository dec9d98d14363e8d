//! Items whose results are taken in the order in which they come.
//!
//! # The protocol
//!
//! The set keeps the handles, and nobody else touches them. Each handle has been polled once, with a waker that knows its place;
//! whoever ends the item fires it:
//!
//! ```text
//! end of an item:  lock: its place goes to the end of the list;  take the waiter     then wake the waiter
//! join_next:       lock: is a place in the list?  take it;  else leave the waiter
//! ```
//!
//! Either the end comes first, and `join_next` finds the place; or it finds the waiter. What must never happen is that the
//! waiter is looked for before the place is in the list. Twin `task set: looks for a waiter first`.
//!
//! So no wake-up looks at more than one handle. The list has room for all before they are spawned, so nothing is allocated
//! under its lock by who ends an item. A place may be there twice, where an item ends while it is cancelled, or after its
//! deadline; a place whose item has not ended, or that is empty, is passed over.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    iter, mem,
    task::{Context, Poll, Wake, Waker},
};

use base::internal::{
    panics::{Foreign, contain, join_error::JoinError},
    wake::{Maker, note_known},
};
use sync::{Mutex, fork::Process, twin, unmodelled::Arc};

use crate::{
    errands,
    execute::{
        block_on::block_on, current::is_blocking, dependency::reported, join::JoinHandle,
        wait::must_not_be_lost,
    },
    queues::queue::Workqueue,
};

/// Closures and futures of a queue, whose results are taken in the order in which they end.
///
/// # Guarantees
///
/// - Each result is taken once, in the order in which the items ended. Those that ended at the same moment on different
///   threads come in either order.
/// - To drop the set cancels all that is in it, as [`abort_all`](Self::abort_all) does. It does not wait: closures that have started go
///   on.
/// - The set is a handle of its queue.
///
/// # Cost
///
/// Two allocations an item beside the item itself. The end of an item takes a short lock, however many others there are.
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
    /// By place; none where it is unused.
    handles: Vec<Option<JoinHandle<T>>>,
    /// A place whose item could end while the waiter waits, as of the last search. The next search
    /// starts there, so that all searches together visit each place only a few times.
    able: usize,
    unused: Vec<usize>,
    ended: Arc<Ended>,
    /// I: where it was made.
    process: Process,
}

/// Which items have ended, and who waits for one.
#[derive(Default)]
struct Ended(Mutex<List>);

#[derive(Default)]
struct List {
    places: VecDeque<usize>,
    waiter: Option<Foreign<Waker>>,
}

/// Fired at the end of the item that has the place.
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

impl Ended {
    fn add(&self, place: usize) {
        let mut list = self.0.lock();
        let waiter = if twin::armed("task set: looks for a waiter first") {
            let waiter = list.waiter.take();
            drop(list);
            self.0.lock().places.push_back(place);
            waiter
        } else {
            list.places.push_back(place);
            let waiter = list.waiter.take();
            drop(list);
            waiter
        };
        if let Some(waiter) = waiter {
            errands::fire(waiter);
        }
    }

    fn take(&self) -> Option<usize> {
        self.0.lock().places.pop_front()
    }

    /// Leaves `waker` for the next item that ends; returns `false` if one has ended.
    fn wait(&self, waker: &Waker) -> bool {
        // FOREIGN(waker-clone): the clone of a user's waker, on the thread that polls, under no lock; it may unwind to there.
        let mut waker = Some(Foreign::new(waker.clone()));
        let mut list = self.0.lock();
        let waits = list.places.is_empty();
        if waits {
            mem::swap(&mut list.waiter, &mut waker);
        }
        drop(list);
        // FOREIGN(task-set-drop): the drop of a waker, the one before or this one, on the thread that polls, under no lock;
        // contained by `Foreign`.
        drop(waker);
        waits
    }
}

impl<T> TaskSet<T> {
    /// Makes an empty set of items of `queue`.
    pub fn new(queue: &Workqueue) -> Self {
        Self {
            queue: queue.clone(),
            handles: Vec::new(),
            able: 0,
            unused: Vec::new(),
            ended: Arc::default(),
            process: Process::this(),
        }
    }

    /// Adds an item that was spawned in any way, on any queue. If its result was already taken, its
    /// result in the set is [`JoinError::Taken`].
    ///
    /// # Panics
    ///
    /// In a child of `fork`, if the set or the item was made before.
    pub fn add(&mut self, mut handle: JoinHandle<T>) {
        self.must_be_here();
        let reused = self.unused.last().copied();
        let place = reused.unwrap_or(self.handles.len());
        let nr_places = self.handles.len().max(place + 1);
        {
            let mut list = self.ended.0.lock();
            let nr_more = nr_places.saturating_sub(list.places.len());
            list.places.reserve(nr_more);
        }
        let ended = self.ended.clone();
        let waker = Waker::from(Arc::new(AtEnd { place, ended }));
        note_known(Maker::TaskSet, waker.vtable());
        // It panics if the item is a parent's: the place is not taken before.
        let waits = handle.await_end(&waker);
        if reused.is_some() {
            self.unused.pop();
            self.handles[place] = Some(handle);
        } else {
            self.handles.push(Some(handle));
        }
        if !waits {
            self.ended.add(place);
        }
    }

    /// Returns how many items have been added whose results have not been taken.
    pub fn len(&self) -> usize {
        self.handles.len() - self.unused.len()
    }

    /// Returns `true` if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits for the next item to end, and returns what it returned; `None` if the set is empty.
    ///
    /// To drop this future loses no result.
    ///
    /// # Errors
    ///
    /// Those of [`JoinHandle::join`]. [`JoinError::OwnItem`] and [`JoinError::OwnQueue`] occur only
    /// inside [`block_on`](crate::block_on), and only if every other item has left the
    /// set. The item that caused the error is removed from the set and stays queued.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|context| self.poll_join_next(context)).await
    }

    /// As [`join_next`](Self::join_next), for who implements a future.
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

    /// If no item of the set can end while this thread waits, removes one of them and returns the
    /// reason.
    fn refuse_one(&mut self) -> Option<JoinError> {
        if !is_blocking() {
            return None;
        }
        let nr_places = self.handles.len();
        let mut refused = None;
        for ahead in 0..nr_places {
            let place = (self.able + ahead) % nr_places;
            let Some(handle) = &self.handles[place] else {
                continue;
            };
            let Some(error) = handle.refusal_of_a_poll() else {
                self.able = place;
                return None;
            };
            refused = Some((place, error));
        }
        let (place, error) = refused?;
        // The item stays queued, like any item whose handle is dropped.
        self.handles[place] = None;
        self.unused.push(place);
        Some(reported(error))
    }

    /// Returns what an item returned that has ended, if there is one.
    ///
    /// # Errors
    ///
    /// As of [`join_next`](Self::join_next).
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.must_be_here();
        loop {
            let place = self.ended.take()?;
            let handle = self.handles.get_mut(place).and_then(Option::take);
            match handle.map(JoinHandle::try_join) {
                Some(Ok(result)) => {
                    self.unused.push(place);
                    return Some(result);
                }
                // It ended and was cancelled: seen before. Or its deadline came when it had started.
                Some(Err(handle)) => self.handles[place] = Some(handle),
                None => {}
            }
        }
    }

    /// Waits for the next item to end, and returns what it returned; `None` if the set is empty.
    ///
    /// # Blocking
    ///
    /// Until then, as [`block_on`](crate::block_on): it runs none of the items itself.
    ///
    /// # Errors
    ///
    /// As of [`join_next`](Self::join_next).
    ///
    /// # Panics
    ///
    /// In an item of a bottom-half queue.
    pub fn join_next_blocking(&mut self) -> Option<Result<T, JoinError>> {
        block_on(self.join_next())
    }

    /// Returns the results as they come, until the set is empty.
    ///
    /// # Blocking
    ///
    /// As [`join_next_blocking`](Self::join_next_blocking), for each.
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

    /// Cancels all that is in the set: [`JoinHandle::cancel`] says what becomes of each. What was cancelled still comes
    /// out of [`join_next`](Self::join_next), as [`JoinError::Cancelled`].
    ///
    /// A panic of a closure or future that is dropped here is dropped, too.
    pub fn abort_all(&mut self) {
        self.must_be_here();
        for (place, handle) in self.handles.iter_mut().enumerate() {
            let Some(handle) = handle else { continue };
            // Its waker tells of that, or has told; a second call of this is to add nothing.
            if handle.is_finished() {
                continue;
            }
            // FOREIGN(cancel-drop): the closure or future, on the thread that cancels; contained here, so that all are cancelled.
            contain(|| {
                handle.cancel();
            });
            // The waker of a closure does not report a cancel, that of a future does. A second report does no harm.
            if handle.is_finished() {
                self.ended.add(place);
            }
        }
    }

    /// Lets all that is in the set go on by itself, and empties it.
    pub fn detach_all(&mut self) {
        self.unused.clear();
        // Their ends are told to a list that goes with the last of them: nobody takes them out of ours.
        // FOREIGN(task-set-drop): the drop of a waker that was left before, on the thread that detaches; contained by `Foreign`.
        self.ended = Arc::default();
        drop(mem::take(&mut self.handles));
    }

    fn must_be_here(&self) {
        // Whoever has the lock may not be in this process.
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

impl<T> Drop for TaskSet<T> {
    fn drop(&mut self) {
        if !twin::torn_down() && self.process.is_this() {
            self.abort_all();
        }
    }
}

impl<T> fmt::Debug for TaskSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskSet")
            .field("queue", &self.queue.name())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "reads sysfs")]
    fn what_was_aborted_takes_one_place_in_the_list_however_often() {
        let queue = Workqueue::builder("set").build().unwrap();
        queue.pause();
        let mut set = TaskSet::new(&queue);
        (0..10).for_each(|_| set.spawn(|| ()));
        (0..100).for_each(|_| set.abort_all());
        assert_eq!(set.ended.0.lock().places.len(), 10);
        assert_eq!(set.results().count(), 10);
        queue.resume();
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads sysfs")]
    fn the_ends_of_what_was_detached_take_no_place_in_the_list() {
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

    /// That no lock is held is asserted where a waker is dropped.
    #[test]
    fn a_waker_that_is_not_needed_is_dropped_under_no_lock() {
        let ended = Ended::default();
        ended.add(0);
        assert!(!ended.wait(Waker::noop()));
        assert_eq!(ended.take(), Some(0));
        assert!(ended.wait(Waker::noop()));
        assert!(ended.wait(Waker::noop()));
    }
}
