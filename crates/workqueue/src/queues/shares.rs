//! What a queue gets of the CPU time of the pools that it shares with others.

use sync::atomic::Ordering;

use super::queue::Workqueue;
use crate::route::attrs::{BuildError, check_shares};

impl Workqueue {
    /// Sets what the queue gets of its pools' CPU time when others want it too; see
    /// [`Builder::shares`](crate::Builder::shares).
    ///
    /// It holds for what waits already.
    ///
    /// # Blocking
    ///
    /// Takes the lock of each of the queue's pools for a moment; the first time for one look at each item that waits in it.
    ///
    /// # Errors
    ///
    /// [`BuildError::Shares`] outside of 1 to [`MAX_SHARES`](crate::MAX_SHARES);
    /// [`BuildError::System`] for a process-wide queue. Nothing has changed then.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let compaction = Workqueue::builder("compaction").shares(100).build()?;
    /// // The disk fills up: it must not fall behind now.
    /// compaction.set_shares(1000)?;
    /// assert_eq!(compaction.shares(), Some(1000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "cpu_weight")]
    pub fn set_shares(&self, shares: u32) -> Result<(), BuildError> {
        check_shares(shares)?;
        self.inner.must_not_be_for_all()?;
        self.inner.must_be_at_home();
        // So that a link which is made meanwhile has them, too.
        let plan = self.inner.plan.lock();
        self.inner.core.shares.store(shares, Ordering::Relaxed);
        for link in plan.links() {
            link.pool.lock().set_shares(link.slot, shares);
        }
        Ok(())
    }

    /// Returns the queue's shares, if any were set.
    pub fn shares(&self) -> Option<u32> {
        let shares = self.inner.core.shares.load(Ordering::Relaxed);
        (shares > 0).then_some(shares)
    }
}
