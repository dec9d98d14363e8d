//! Counters for display only. No decision depends on them.

use sync::atomic::Ordering;
use sync::unmodelled::{Arc, AtomicU64};

use super::image::Image;
use super::sources::{Joined, join};

/// A counter for display, read by itself and not as a snapshot. A model does not see it.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `more`. Costs a locked instruction.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Adds one with a plain load and store. Only one thread may ever call this.
    #[inline]
    pub fn add_alone(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts of one part, by index, shown for as long as the part exists.
#[derive(Debug)]
pub struct Tally<const N: usize> {
    counts: Arc<[Count; N]>,
    _shown: Joined,
}

impl<const N: usize> Tally<N> {
    /// `describe` writes the part's record, given the current counts.
    pub fn new(describe: impl Fn([u64; N], &mut Image) + Send + Sync + 'static) -> Self {
        let counts = Arc::new([const { Count::new() }; N]);
        let seen = counts.clone();
        let shown = join(move |image| describe(seen.each_ref().map(Count::read), image));
        Self { counts, _shown: shown }
    }
}

impl<const N: usize> std::ops::Index<usize> for Tally<N> {
    type Output = Count;

    #[inline(always)]
    fn index(&self, place: usize) -> &Count {
        &self.counts[place]
    }
}
