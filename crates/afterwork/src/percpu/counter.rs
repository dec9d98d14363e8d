//! A counter that each CPU keeps a part of.

use sync::atomic::{AtomicU64, Ordering};
use sync::unmodelled::Arc;
use topology::CpuId;

use super::absent::DrainedWhenAbsent;
use super::builder::{BuildError, Builder};
use super::remote::PerCpu;

/// Counts by parts, one for each CPU: cheap to add to, roughly right to read at once, exactly by a sum.
///
/// A CPU adds to its own part until that reaches a batch, which then goes to the common count. So CPUs meet there once for
/// each batch, and the common count is off by less than a batch for each CPU.
///
/// # Guarantees
///
/// - [`sum`](Self::sum) has all that was added before it began. Nothing is lost when CPUs come and go.
/// - [`rough`](Self::rough) differs from that by less than [`slop`](Self::slop).
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
pub struct SloppyCounter {
    parts: Arc<PerCpu<i64>>,
    /// A, in two's complement: what went from the parts to here.
    common: Arc<AtomicU64>,
    batch: u64,
    _watch: DrainedWhenAbsent,
}

impl SloppyCounter {
    /// Makes a counter of 0 whose parts stay below `batch`, which is 1 at least.
    ///
    /// # Blocking
    ///
    /// As [`Builder::build`].
    ///
    /// # Errors
    ///
    /// As of [`Builder::build`].
    pub fn new(builder: Builder, batch: u32) -> Result<Self, BuildError> {
        let parts = Arc::new(builder.build(|_| 0)?);
        let common = Arc::new(AtomicU64::new(0));
        let theirs = common.clone();
        let watch = parts.drain_when_absent(move |_, part| fold(part, &theirs));
        Ok(Self {
            parts,
            common,
            batch: u64::from(batch.max(1)),
            _watch: watch,
        })
    }

    /// Adds to this CPU's part; wraps around like an `i64`.
    ///
    /// Costs what [`PerCpu::with_current`] does, and an access of the common count for each batch.
    ///
    /// # Blocking
    ///
    /// As [`PerCpu::with_current`].
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

    /// Returns the common count: a load.
    ///
    /// # Blocking
    ///
    /// Never.
    pub fn rough(&self) -> i64 {
        self.common.load(Ordering::Relaxed) as i64
    }

    /// Returns what bounds the difference between [`rough`](Self::rough) and [`sum`](Self::sum).
    pub fn slop(&self) -> u64 {
        self.batch * self.parts.cpus().len() as u64
    }

    /// Brings all parts to the common count, and returns that.
    ///
    /// # Blocking
    ///
    /// As [`PerCpu::drain_all`].
    pub fn sum(&self) -> i64 {
        let common = &*self.common;
        self.parts.drain_all(|_: CpuId, part| fold(part, common));
        self.rough()
    }
}

/// Brings a part to the common count. Inside its slot, so that a sum finds it here or there.
fn fold(part: &mut i64, common: &AtomicU64) {
    // Relaxed: who sums has been inside every slot after whoever folded there.
    common.fetch_add(std::mem::take(part) as u64, Ordering::Relaxed);
}
