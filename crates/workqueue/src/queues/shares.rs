//! The shares of CPU time that a queue and its group have in the queue's pools.

use sync::atomic::Ordering;

use super::queue::{Inner, Workqueue};
use crate::route::attrs::{BuildError, check_shares};

impl Workqueue {
    /// Sets the queue's share of its pools' CPU time while other queues compete for it; see
    /// [`Builder::shares`](crate::Builder::shares).
    ///
    /// The share also applies to items that are already waiting.
    ///
    /// # Blocking
    ///
    /// Briefly acquires the lock of each of its pools. The first call visits each pending item.
    ///
    /// # Errors
    ///
    /// Returns [`BuildError::Shares`] if `shares` is not between 1 and
    /// [`MAX_SHARES`](crate::MAX_SHARES), and [`BuildError::System`] for a process-wide queue.
    /// Nothing has changed in these cases.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let compaction = Workqueue::builder("compaction").shares(100).build()?;
    /// // The disk fills up: it must not fall behind now.
    /// compaction.set_shares(1000)?;
    /// assert_eq!(compaction.report().shares, Some(1000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "cpu_weight")]
    pub fn set_shares(&self, shares: u32) -> Result<(), BuildError> {
        check_shares(shares)?;
        self.inner.must_not_be_for_all()?;
        self.inner.must_be_at_home();
        // The lock ensures that a pwq created at the same time gets the shares, too.
        let plan = self.inner.plan.lock();
        self.inner.core.shares.store(shares, Ordering::Relaxed);
        for pwq in &plan.pwqs {
            pwq.pool.lock().set_shares(pwq.slot, shares);
        }
        Ok(())
    }
}

impl Inner {
    /// Sets the shares that the queue's group has in the CPU time of the queue's pools.
    pub(super) fn set_group_shares(&self, shares: u32) {
        // The lock has the same purpose as in `set_shares`.
        let plan = self.plan.lock();
        self.core.group_shares.store(shares, Ordering::Relaxed);
        for pwq in &plan.pwqs {
            pwq.pool.lock().set_group_shares(pwq.slot, shares);
        }
    }
}
