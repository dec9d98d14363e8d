//! The tree through which holdouts report: counters for groups of CPUs, and a root.
//!
//! With a single counter, every reporting CPU would contend for one cache line. Instead, a holdout
//! counts down the *leaf* of its CPU. The thread that brings a leaf to zero counts down the root.
//! The thread that brings the root to zero wakes the driver.
//!
//! # Report against init
//!
//! A holdout may report before the next one is marked. Its leaf must not count as empty at that
//! point. Each leaf therefore starts with a count of its own, the *bias*, which the driver removes
//! after it has marked all holdouts. The root starts with one count for each leaf.
//!
//! A leaf reaches zero exactly once, after its bias is removed. The root therefore reaches zero
//! exactly once: when the bias of every leaf is removed and every marked holdout has reported.
//! Twin: `node: no bias`.

use crossbeam_utils::CachePadded;
use sync::atomic::{AtomicU32, Ordering};
use sync::twin;

/// The number of leaves. A grace period with holdouts writes all of them, and at most one CPU for
/// each of them contends for the root.
const NR_LEAVES: usize = if cfg!(any(loom, shuttle)) { 2 } else { 16 };
/// The number of neighboring CPUs that share a leaf, the kernel's `RCU_FANOUT_LEAF`. On machines
/// with more than 256 CPUs, several such groups share one.
const CPUS_PER_LEAF: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

/// Counts the holdouts of a grace period.
pub struct Tree<const N: usize = NR_LEAVES> {
    /// A: the number of missing reports, and the bias.
    leaves: [CachePadded<AtomicU32>; N],
    /// A: the number of leaves that have not been counted down to zero.
    root: CachePadded<AtomicU32>,
}

impl<const N: usize> Tree<N> {
    sync::const_unless_model! {
        /// Creates a tree without holdouts.
        pub fn new() -> Self {
            Self {
                leaves: sync::array_of![CachePadded::new(AtomicU32::new(0)); N],
                root: CachePadded::new(AtomicU32::new(0)),
            }
        }
    }

    pub(super) fn leaf_of(&self, cpu: usize) -> usize {
        cpu / CPUS_PER_LEAF % N
    }

    /// Begins a count. All reports of the previous count must have been made.
    pub fn init(&self) {
        // Relaxed is sufficient, because a reader reports only after it has acquired COUNTED
        // (`Slot::count_on`), which is set after this.
        let bias = u32::from(!twin::armed("node: no bias"));
        self.leaves.iter().for_each(|leaf| leaf.store(bias, Ordering::Relaxed));
        self.root.store(N as u32, Ordering::Relaxed);
    }

    /// Counts a holdout on `leaf`, between [`init`](Self::init) and
    /// [`all_marked`](Self::all_marked).
    pub fn mark(&self, leaf: usize) {
        self.leaves[leaf].fetch_add(1, Ordering::Relaxed);
    }

    /// Removes the bias. Returns `true` if no report is missing.
    pub fn all_marked(&self) -> bool {
        if twin::armed("node: no bias") {
            return self.is_empty();
        }
        // `any` would stop at the first leaf, and every leaf must be counted down.
        let nr_last = (0..N).filter(|&leaf| self.report(leaf)).count();
        nr_last == 1
    }

    /// Counts down `leaf`. Returns `true` if this was the last report.
    pub fn report(&self, leaf: usize) -> bool {
        let ends = |count: &AtomicU32| {
            // ORDER(report): publish and consume along the way up, other end in `is_empty`.
            //   holdout: end of its section;  leaf -= 1, root -= 1  AcqRel
            //   driver:  root == 0  Acquire;  the section is over
            // If another report of this leaf comes first, ours acquires its sections and releases
            // them to the root. If ours comes first, the other report does this with our sections.
            // Test: reports_climb_to_the_root_once
            let order = twin::order("node: relaxed report", Ordering::AcqRel);
            count.fetch_sub(1, order) == 1
        };
        ends(&self.leaves[leaf]) && ends(&self.root)
    }

    /// Returns `true` if no report is missing.
    pub fn is_empty(&self) -> bool {
        // ORDER(report): the other end; see `report`.
        self.root.load(Ordering::Acquire) == 0
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn last_report_is_returned_once() {
        let tree = Tree::<16>::new();
        for nr_holdouts in [0, 1, 7, 500] {
            tree.init();
            let leaves: Vec<_> = (0..nr_holdouts).map(|holdout| holdout * 37 % 16).collect();
            leaves.iter().for_each(|&leaf| tree.mark(leaf));
            let mut nr_last = u32::from(tree.all_marked());
            for leaf in leaves {
                assert!(!tree.is_empty());
                nr_last += u32::from(tree.report(leaf));
            }
            assert!(tree.is_empty() && nr_last == 1, "{nr_holdouts} holdouts");
        }
    }

    #[test]
    fn a_leaf_represents_16_cpus() {
        let leaves = [0, 15, 16, 255, 256].map(|cpu| Tree::<16>::new().leaf_of(cpu));
        assert_eq!(leaves, [0, 0, 1, 15, 0]);
    }
}
