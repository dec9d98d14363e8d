//! A counter with a part on each CPU.

use sync::atomic::{AtomicU64, Ordering};
use sync::unmodelled::Arc;
use topology::CpuId;

use super::absent::DrainedWhenAbsent;
use super::builder::{BuildError, Builder};
use super::remote::PerCpu;

/// A counter with a part for each CPU. Adding and reading an approximate value are cheap; reading
/// the exact value is slower.
///
/// A CPU adds to its own part. When the part reaches the batch size, it is moved to the common
/// count. That count is therefore off by less than a batch per CPU.
///
/// # Guarantees
///
/// - [`sum`](Self::sum) includes everything that was added before it began. Nothing is lost when
///   CPUs go offline or online.
/// - [`rough`](Self::rough) differs from the sum by less than [`slop`](Self::slop).
///
/// # Examples
///
/// ```
/// use afterwork::percpu::{PerCpu, Qpw, SloppyCounter};
///
/// let bytes = SloppyCounter::new(PerCpu::builder().qpw(Qpw::EveryOp), 4096)?;
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| (0..1000).for_each(|_| bytes.add(1500)));
///     }
/// });
/// bytes.add(-1500);
/// assert_eq!(bytes.sum(), 5_998_500);
/// assert!(bytes.rough().abs_diff(5_998_500) < bytes.slop());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[doc(alias = "percpu_counter")]
pub struct SloppyCounter {
    parts: Arc<PerCpu<i64>>,
    /// A: the amount moved here from the parts, in two's complement.
    common: Arc<AtomicU64>,
    batch: u64,
    _watch: DrainedWhenAbsent,
}

impl SloppyCounter {
    /// Creates a counter of value 0 whose parts stay below `batch`. A `batch` of 0 counts as 1.
    ///
    /// # Blocking
    ///
    /// The same as [`Builder::build`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Builder::build`].
    pub fn new(builder: Builder, batch: u32) -> Result<Self, BuildError> {
        let parts = Arc::new(builder.build(|_| 0)?);
        let common = Arc::new(AtomicU64::new(0));
        let theirs = common.clone();
        let watch = parts.drain_when_absent(move |_, part| fold(part, &theirs));
        Ok(Self { parts, common, batch: u64::from(batch.max(1)), _watch: watch })
    }

    /// Adds to this CPU's part. The counter wraps around like an `i64`.
    ///
    /// Costs as much as [`PerCpu::with_current`], plus an access to the common count for each
    /// batch.
    ///
    /// # Blocking
    ///
    /// The same as [`PerCpu::with_current`].
    #[inline]
    pub fn add(&self, amount: i64) {
        let (common, batch) = (&*self.common, self.batch);
        self.parts.with_current(move |part| {
            *part = part.wrapping_add(amount);
            if part.unsigned_abs() >= batch {
                fold(part, common);
            }
        });
    }

    /// Returns the common count.
    ///
    /// # Blocking
    ///
    /// Never blocks. Costs one load.
    pub fn rough(&self) -> i64 {
        self.common.load(Ordering::Relaxed) as i64
    }

    /// Returns the bound on the difference between [`rough`](Self::rough) and [`sum`](Self::sum).
    pub fn slop(&self) -> u64 {
        self.batch * self.parts.cpus().len() as u64
    }

    /// Moves all parts to the common count, and returns it.
    ///
    /// # Blocking
    ///
    /// The same as [`PerCpu::drain_all`].
    pub fn sum(&self) -> i64 {
        let common = &*self.common;
        self.parts.drain_all(|_: CpuId, part| fold(part, common));
        self.rough()
    }
}

/// Moves a part to the common count, inside the part's slot, so that a sum finds the amount in
/// exactly one of the two places.
fn fold(part: &mut i64, common: &AtomicU64) {
    // Relaxed is sufficient: a sum enters each slot after the operations that moved its part.
    common.fetch_add(std::mem::take(part) as u64, Ordering::Relaxed);
}
