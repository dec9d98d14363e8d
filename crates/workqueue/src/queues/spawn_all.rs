//! Queueing many closures by chains.

use std::ptr::NonNull;

use base::internal::panics::contain;
use sync::atomic::Ordering;

use super::queue::{Admission, Workqueue};
use crate::{
    execute::join,
    item::{head::Head, list::set_fresh_next, remains::Remains},
};

/// How many closures a chain has at most, as many as a worker takes at once. A guess: with longer ones the workers begin later.
const CHAIN: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// Closures that are pushed together, at the latest when this is dropped: also when what gives the next one panics.
struct Gathered<'a> {
    queue: &'a Workqueue,
    items: [NonNull<Head>; CHAIN],
    len: usize,
    nr_queued: usize,
}

impl Workqueue {
    /// Queues each of `funcs` to run once, in their order, as [`spawn_detached`](Self::spawn_detached) does; returns how many were
    /// queued, and not refused.
    ///
    /// They are handed over in chains of up to 64: a step of what producers share for each chain, instead of one for each closure.
    /// So one may not have been queued yet when the next is asked for; all have been on return, and when `funcs` panics all that
    /// it gave. Where the queue is closed meanwhile, those that have not been queued are refused.
    ///
    /// # Blocking
    ///
    /// As [`spawn`](Self::spawn). On a queue with a [capacity](crate::Builder::capacity) they go one by one.
    ///
    /// # Panics
    ///
    /// When `funcs` does, and in a child of `fork` (see [`Workqueue`]).
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
    /// assert_eq!(queue.spawn_detached_all((1..=100).map(add)), 100);
    /// queue.drain()?;
    /// assert_eq!(SUM.load(Ordering::Relaxed), 5050);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_detached_all<F>(&self, funcs: impl IntoIterator<Item = F>) -> usize
    where
        F: FnOnce() + Send + 'static,
    {
        let mut gathered = Gathered {
            queue: self,
            items: [NonNull::dangling(); CHAIN],
            len: 0,
            nr_queued: 0,
        };
        for func in funcs {
            match self.place() {
                // FOREIGN(refused-drop): a closure that is refused, on the caller; the caller's.
                None => drop(func),
                Some(false) => gathered.add(join::detached(func, std::ptr::null_mut())),
                Some(true) => {
                    gathered.push();
                    self.spawn_counted_detached(func);
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
        // What gives them may have taken its time, or have closed the queue.
        if matches!(self.queue.admission(), Admission::Closed) {
            return refuse(self.queue, items);
        }
        self.nr_queued += items.len();
        let home = self.queue.here();
        let mut older = std::ptr::null_mut();
        for &item in items {
            // SAFETY: it was made for this, and nobody else knows it.
            let head = unsafe { item.as_ref() };
            head.home.store(home.as_home(), Ordering::Relaxed);
            // SAFETY: as above.
            unsafe { home.tell_queued(item) };
            set_fresh_next(item, older);
            older = item.as_ptr();
        }
        home.pool.push_chain(newest, oldest);
    }
}

/// Drops closures that had been admitted, by a queue that takes none any more.
#[cold]
fn refuse(queue: &Workqueue, items: &[NonNull<Head>]) {
    let mut remains = Remains::default();
    for (at, &item) in items.iter().enumerate() {
        if at > 0 {
            // The first was counted by who asked.
            queue.inner.note_refused();
        }
        // SAFETY: it was made for this, and nobody else knows it.
        unsafe { (item.as_ref().vtable().cancel)(item, &mut remains) };
    }
    for func in remains.dropped {
        // FOREIGN(refused-drop): a closure that is refused, on the caller; contained, for there are others.
        contain(|| drop(func));
    }
}

impl Drop for Gathered<'_> {
    fn drop(&mut self) {
        // In a child of a fork that what gives them made they are the parent's.
        if self.queue.inner.is_at_home() {
            self.push();
        }
    }
}
