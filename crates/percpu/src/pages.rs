//! Memory in pages, with some of the pages on each CPU.

use std::fmt;

use sync::Mutex;
use sync::unmodelled::Arc;

use super::absent::DrainedWhenAbsent;
use super::builder::{BuildError, Builder};
use super::remote::PerCpu;

/// A piece of memory of a fixed size.
pub type Page = Box<[u8]>;

/// Allocates pages, and caches freed pages: some on each CPU, the others in a common reserve.
///
/// A CPU moves pages from and to the reserve in *batches*, under one short lock for each, so that
/// CPUs that allocate and free do not contend for every page. A CPU with more than two batches
/// returns the batch that has been unused for longest.
///
/// Allocated pages have the contents that they were freed with; new pages are zero. Memory is
/// returned to the system only by [`shrink`](Self::shrink).
///
/// Differs from Linux: pages are boxed bytes of any size, without alignment.
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
    /// Creates an empty cache of pages of `bytes` bytes, which are moved in batches of `batch`, at
    /// least 1.
    ///
    /// # Blocking
    ///
    /// As [`Builder::build`].
    ///
    /// # Errors
    ///
    /// As [`Builder::build`].
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

    /// Returns a page from this CPU or from the reserve, or a new one.
    ///
    /// # Blocking
    ///
    /// As [`PerCpu::with_current`], and for a short lock if this CPU has no page.
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
        // The thread may have moved to another CPU, which does no harm.
        self.lists.with_current(move |list| list.append(&mut batch));
        page
    }

    /// Returns a page to the cache.
    ///
    /// # Blocking
    ///
    /// As [`PerCpu::with_current`], and for a short lock if this CPU has more than two batches.
    ///
    /// # Panics
    ///
    /// If the page has another size.
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

    /// Drops all cached pages. Returns their number.
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
