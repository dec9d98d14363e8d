//! Memory by the page, with some of it on each CPU.

use std::fmt;

use sync::Mutex;
use sync::unmodelled::Arc;

use super::absent::DrainedWhenAbsent;
use super::builder::{BuildError, Builder};
use super::remote::PerCpu;

/// A piece of memory of a fixed size.
pub type Page = Box<[u8]>;

/// Hands out pages, and keeps those that come back: some on each CPU, the others in a common reserve.
///
/// A CPU takes pages from the reserve and gives them back by the *batch*, under one short lock for each, so that CPUs that
/// allocate and free do not meet for every page. A CPU that has more than two batches gives the one up that it has not
/// used for longest.
///
/// Pages come as they were given back; new ones are zero. Nothing is returned to the system but by
/// [`shrink`](Self::shrink).
///
/// Differs from Linux: pages are boxed bytes of any size, and aligned to nothing.
///
/// # Examples
///
/// ```
/// use afterwork::percpu::{PageBatches, PerCpu, Qpw};
///
/// let buffers = PageBatches::new(PerCpu::builder().qpw(Qpw::EveryOp), 64 * 1024, 4)?;
/// let mut buffer = buffers.alloc();
/// buffer[0] = 1;
/// buffers.free(buffer);
/// assert_eq!(buffers.shrink(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PageBatches {
    lists: Arc<PerCpu<Vec<Page>>>,
    reserve: Arc<Mutex<Vec<Vec<Page>>>>,
    bytes: usize,
    batch: usize,
    _watch: DrainedWhenAbsent,
}

impl PageBatches {
    /// Makes a cache of pages of so many `bytes`, which travel by the `batch`, of 1 at least. It has none yet.
    ///
    /// # Blocking
    ///
    /// As [`Builder::build`].
    ///
    /// # Errors
    ///
    /// As of [`Builder::build`].
    pub fn new(builder: Builder, bytes: usize, batch: usize) -> Result<Self, BuildError> {
        let batch = batch.max(1);
        let lists = Arc::new(builder.build(|_| Vec::with_capacity(2 * batch + 1))?);
        let reserve = Arc::new(Mutex::new(Vec::new()));
        let theirs = reserve.clone();
        let watch = lists.drain_when_absent(move |_, list: &mut Vec<Page>| {
            if !list.is_empty() {
                theirs.lock().push(std::mem::take(list));
            }
        });
        Ok(Self {
            lists,
            reserve,
            bytes,
            batch,
            _watch: watch,
        })
    }

    /// Returns a page: of this CPU, or of the reserve, or a new one.
    ///
    /// # Blocking
    ///
    /// As [`PerCpu::with_current`], and for a short lock where this CPU has none.
    #[inline]
    pub fn alloc(&self) -> Page {
        let page = self.lists.with_current(Vec::pop);
        page.unwrap_or_else(|| self.refill())
    }

    #[cold]
    fn refill(&self) -> Page {
        let batch = self.reserve.lock().pop();
        let Some(mut batch) = batch else {
            return vec![0; self.bytes].into();
        };
        let page = batch.pop().expect("no batch is empty");
        // This may be another CPU by now; one is as good as the other.
        self.lists.with_current(move |list| list.append(&mut batch));
        page
    }

    /// Takes a page back.
    ///
    /// # Blocking
    ///
    /// As [`PerCpu::with_current`], and for a short lock where this CPU has enough.
    ///
    /// # Panics
    ///
    /// If it is of another size.
    #[inline]
    pub fn free(&self, page: Page) {
        assert_eq!(page.len(), self.bytes, "a page of another cache");
        let batch = self.batch;
        let oldest = self.lists.with_current(move |list| {
            list.push(page);
            (list.len() > 2 * batch).then(|| list.drain(..batch).collect())
        });
        if let Some(oldest) = oldest {
            self.reserve.lock().push(oldest);
        }
    }

    /// Drops all pages that nobody uses; returns how many.
    ///
    /// # Blocking
    ///
    /// As [`PerCpu::drain_all`].
    pub fn shrink(&self) -> usize {
        let all = Mutex::new(std::mem::take(&mut *self.reserve.lock()));
        self.lists
            .drain_all(|_, list| all.lock().push(std::mem::take(list)));
        let all = std::mem::take(&mut *all.lock());
        all.iter().map(Vec::len).sum()
    }
}

impl fmt::Debug for PageBatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageBatches")
            .field("lists", &self.lists)
            .field("bytes", &self.bytes)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}
