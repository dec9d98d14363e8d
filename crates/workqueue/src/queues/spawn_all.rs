//! Queues many closures in chains.

use std::ptr::NonNull;

use base::internal::panics::contain;
use item::internal::{deferred_drops::DeferredDrops, head::Head, list::set_fresh_next};
use sync::atomic::Ordering;

use super::{queue::Workqueue, task::TaskOptions};
use crate::execute::join;

/// The maximum length of a chain, equal to the size of a worker's batch. The value is a guess: with
/// longer chains the workers start later.
const CHAIN: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// Closures that are pushed together. If the iterator panics, dropping this value pushes them.
struct Gathered<'a> {
    options: TaskOptions<'a>,
    items: [NonNull<Head>; CHAIN],
    len: usize,
    nr_queued: usize,
}

impl TaskOptions<'_> {
    /// Queues each of `funcs` to run once, in order, as [`spawn_detached`](Self::spawn_detached)
    /// does, on the options' CPU and in their lane. Returns the number of closures that were queued
    /// and not rejected.
    ///
    /// The closures are pushed in chains of up to 64, with one atomic update to shared memory for
    /// each chain instead of each closure. A closure may therefore still be waiting to be queued
    /// when the iterator is asked for the next one. On return, all closures are queued. If `funcs`
    /// panics, all closures that it has returned are queued. If the queue is closed during the
    /// call, the remaining closures are rejected.
    ///
    /// # Blocking
    ///
    /// The same as [`Workqueue::spawn`]. On a queue with a [capacity](crate::Builder::capacity)
    /// closures are pushed one by one.
    ///
    /// # Panics
    ///
    /// If `funcs` panics, or if called in a child of `fork` (see [`Workqueue`]).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// static SUM: AtomicU64 = AtomicU64::new(0);
    /// let queue = Workqueue::builder("example").build()?;
    /// let add = |number| move || _ = SUM.fetch_add(number, Ordering::Relaxed);
    /// assert_eq!(queue.task().spawn_detached_all((1..=100).map(add)), 100);
    /// queue.drain()?;
    /// assert_eq!(SUM.load(Ordering::Relaxed), 5050);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_detached_all<F>(self, funcs: impl IntoIterator<Item = F>) -> usize
    where
        F: FnOnce() + Send + 'static,
    {
        let mut gathered =
            Gathered { options: self, items: [NonNull::dangling(); CHAIN], len: 0, nr_queued: 0 };
        for func in funcs {
            match gathered.options.queue.try_permit() {
                // FOREIGN(refused-drop): a rejected closure, on the caller; it may unwind.
                Err(_) => drop(func),
                Ok(false) => gathered.add(join::detached(func, std::ptr::null_mut())),
                Ok(true) => {
                    gathered.push();
                    gathered.options.home().push_detached(func, true);
                    gathered.nr_queued += 1;
                }
            }
        }
        gathered.push();
        gathered.nr_queued
    }
}

impl Gathered<'_> {
    #[inline]
    fn add(&mut self, item: NonNull<Head>) {
        self.items[self.len] = item;
        self.len += 1;
        if self.len == CHAIN {
            self.push();
        }
    }

    fn push(&mut self) {
        let items = &self.items[..std::mem::take(&mut self.len)];
        let (Some(&oldest), Some(&newest)) = (items.first(), items.last()) else {
            return;
        };
        // The iterator may have taken a long time, or may have closed the queue.
        if !self.options.queue.admits() {
            return refuse(self.options.queue, items);
        }
        self.nr_queued += items.len();
        let home = self.options.home();
        let mut older = std::ptr::null_mut();
        for &item in items {
            // SAFETY: the item was just created, and no other thread knows it.
            let head = unsafe { item.as_ref() };
            head.home.store(home.as_home(), Ordering::Relaxed);
            // SAFETY: as above.
            unsafe { home.emit_queued(item) };
            set_fresh_next(item, older);
            older = item.as_ptr();
        }
        home.pool.push_chain(newest, oldest);
    }
}

/// Drops closures that were admitted before the queue was closed.
#[cold]
fn refuse(queue: &Workqueue, items: &[NonNull<Head>]) {
    let mut deferred_drops = DeferredDrops::default();
    for (at, &item) in items.iter().enumerate() {
        if at > 0 {
            // The caller's check already counted the first one.
            queue.inner.note_refused();
        }
        // SAFETY: the item was just created, and no other thread knows it.
        unsafe { (item.as_ref().vtable().cancel)(item, &mut deferred_drops) };
    }
    for func in deferred_drops.dropped {
        // FOREIGN(refused-drop): each rejected closure, on the calling thread; a panic is
        // contained.
        contain(|| drop(func));
    }
}

// If the iterator forked, the closures in the child belong to the parent.
sync::on_drop!(Gathered<'_>, it => if it.options.queue.inner.is_at_home() {
    it.push();
});
