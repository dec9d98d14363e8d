//! Queueing on a chosen CPU or NUMA node.

use topology::CpuId;

use super::queue::Workqueue;
use crate::{
    execute::{join::JoinHandle, work::Work},
    pools::pwq::Pwq,
};

impl Workqueue {
    /// Queues `work` on the pool of `cpu`'s pod. Returns `false` in the cases of
    /// [`enqueue`](Self::enqueue).
    ///
    /// If the queue may not use the CPU, the item goes to the first pod. In the scope `Cpu` the
    /// item runs on that very CPU; only a [`strict`](crate::Builder::strict) queue
    /// guarantees this.
    ///
    /// Differs from Linux: there an unbound queue ignores the CPU within its node.
    ///
    /// # Blocking
    ///
    /// As [`enqueue`](Self::enqueue). A joiner that helps runs the item on its own thread.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{AffinityScope, CpuId, Work, Workqueue};
    /// let queue = Workqueue::builder("example").scope(AffinityScope::Cpu).build()?;
    /// let work = Work::new(|| ());
    /// assert!(queue.enqueue_on(CpuId::new(0), &work));
    /// work.flush()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "queue_work_on")]
    #[doc(alias = "schedule_work_on")]
    pub fn enqueue_on(&self, cpu: CpuId, work: &Work) -> bool {
        self.enqueue_at(self.at_cpu(cpu), work)
    }

    /// Queues `work` on a pool of the NUMA node `node`. Returns `false` in the cases of
    /// [`enqueue`](Self::enqueue).
    ///
    /// The item goes to the pool of the current CPU's pod if that pod is in the node, otherwise to
    /// the first pod of the node. If the node is unknown or the queue uses none of its CPUs, the
    /// item goes to the first pod. A pod that spans nodes belongs to each of them.
    ///
    /// # Blocking
    ///
    /// As [`enqueue`](Self::enqueue).
    #[doc(alias = "queue_work_node")]
    pub fn enqueue_node(&self, node: u32, work: &Work) -> bool {
        let home = self.inner.route_table.at_node(node).in_lane(self.lane);
        self.enqueue_at(home, work)
    }

    /// Queues `func` to run once on the pool of `cpu`'s pod, like [`enqueue_on`](Self::enqueue_on).
    pub fn spawn_on<T: Send + 'static>(
        &self,
        cpu: CpuId,
        func: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.spawn_at(self.at_cpu(cpu), func)
    }

    /// Queues `func` to run once on a pool of the NUMA node `node`, like
    /// [`enqueue_node`](Self::enqueue_node).
    ///
    /// # Blocking
    ///
    /// As [`spawn`](Self::spawn).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{AffinityScope, Workqueue};
    /// let queue = Workqueue::builder("example").scope(AffinityScope::Numa).build()?;
    /// let near_its_memory = queue.spawn_node(0, || vec![0u8; 4096].len());
    /// assert_eq!(near_its_memory.join()?, 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("queue_work_node", "async_schedule_node"))]
    pub fn spawn_node<T: Send + 'static>(
        &self,
        node: u32,
        func: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.spawn_at(self.inner.route_table.at_node(node), func)
    }

    /// Returns the pwq for an item that this thread queues.
    #[inline]
    pub(crate) fn here(&self) -> &Pwq {
        self.inner.route_table.here().in_lane(self.lane)
    }

    fn at_cpu(&self, cpu: CpuId) -> &Pwq {
        self.inner.route_table.at_cpu(cpu).in_lane(self.lane)
    }
}
