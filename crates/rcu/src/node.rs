//! The tree through which holdouts report. Its shape follows the machine's topology.
//!
//! With a single counter, every reporting CPU would contend for one cache line. Instead, a holdout
//! counts down the *leaf* of its CPU, which represents the CPUs that share a cache. The thread that
//! brings a node to zero counts down the node's parent. The thread that brings the root to zero has
//! made the last report, and wakes the driver.
//!
//! # Report against init
//!
//! Holdouts are marked one by one, and one may report before the next is marked. Its leaf must not
//! count as empty at that point. Each leaf therefore starts with a count of its own, the *bias*,
//! which the driver removes after it has marked all holdouts. An inner node starts with one count
//! for each child.
//!
//! A leaf reaches zero exactly once: its count cannot reach zero while the bias is included, and
//! after that it only falls. Each child therefore counts down its parent exactly once. The root
//! reaches zero exactly once, when the bias of every leaf is removed and every marked holdout has
//! reported. Twin: `node: no bias`.

use sync::{
    atomic::{AtomicU32, Ordering},
    twin,
};
use topology::CpuId;
#[cfg(feature = "machine")]
use topology::{AffinityScope, ShardParams, Topology};

use crossbeam_utils::CachePadded;

/// The maximum number of children of an inner node. Corresponds to the kernel's `RCU_FANOUT`.
const FAN_OUT: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// Counts missing reports on a tree of counters.
#[derive(Debug)]
pub(super) struct Tree {
    /// I: the nodes, in the order leaves, parents, root.
    nodes: Box<[CachePadded<Node>]>,
    nr_leaves: usize,
    /// I: the leaf of each CPU.
    leaf_of: Box<[u16]>,
}

#[derive(Debug)]
struct Node {
    /// A: the number of missing reports. It is set by the driver, and decremented by all threads
    /// that report.
    nr_pending: AtomicU32,
    /// I: the index of the parent in `nodes`. The root stores its own index.
    parent: usize,
    /// I: the number of nodes that have this one as their parent.
    nr_children: u32,
}

impl Tree {
    /// Creates the tree of this machine, with leaves that follow its caches.
    #[cfg(feature = "machine")]
    pub(super) fn of_this_machine() -> Self {
        match sync::cpu::topology() {
            Ok(machine) => Self::for_machine(&machine),
            Err(_) => Self::new(1, Box::new([])),
        }
    }

    /// Creates the tree of this machine, with leaves that follow the numbers of its CPUs.
    #[cfg(not(feature = "machine"))]
    pub(super) fn of_this_machine() -> Self {
        Self::by_number(sync::cpu::nr_configured())
    }

    /// Creates a tree with one leaf for each set of CPUs that share a cache, at most 8 cores per
    /// leaf.
    #[cfg(feature = "machine")]
    pub(super) fn for_machine(topology: &Topology) -> Self {
        let pods = topology.pods(AffinityScope::CacheShard, &ShardParams::default());
        let last = topology.possible().last().map_or(0, CpuId::index);
        let leaf_of = (0..=last).map(|cpu| {
            let pod = pods.pod_of(CpuId::new(cpu as u32));
            pod.unwrap_or(cpu % pods.len().max(1)) as u16
        });
        Self::new(pods.len().max(1), leaf_of.collect())
    }

    /// Creates a tree with one leaf for each 16 CPUs, the kernel's `RCU_FANOUT_LEAF`.
    #[cfg(any(test, not(feature = "machine")))]
    fn by_number(nr_cpus: usize) -> Self {
        let leaf_of = (0..nr_cpus).map(|cpu| (cpu / 16) as u16);
        Self::new(nr_cpus.div_ceil(16), leaf_of.collect())
    }

    pub(super) fn new(nr_leaves: usize, leaf_of: Box<[u16]>) -> Self {
        let nodes = shape(nr_leaves, FAN_OUT).into_iter();
        let nodes = nodes.map(|(parent, nr_children)| {
            CachePadded::new(Node { nr_pending: AtomicU32::new(0), parent, nr_children })
        });
        Self { nodes: nodes.collect(), nr_leaves, leaf_of }
    }

    /// Returns the leaf that represents `cpu`.
    pub(super) fn leaf_of(&self, cpu: CpuId) -> usize {
        let leaf = self.leaf_of.get(cpu.index()).copied();
        leaf.map_or(cpu.index() % self.nr_leaves, usize::from)
    }

    /// Begins a count. All reports of the previous count must have been made.
    pub(super) fn init(&self) {
        // Relaxed is sufficient, because a reader reports only after it has acquired COUNTED
        // (`Slot::count_on`), which is set after this.
        for (place, node) in self.nodes.iter().enumerate() {
            let bias = u32::from(place < self.nr_leaves && !twin::armed("node: no bias"));
            node.nr_pending.store(node.nr_children + bias, Ordering::Relaxed);
        }
    }

    /// Counts a holdout on `leaf` that will [`report`](Self::report). Call it between
    /// [`init`](Self::init) and [`all_marked`](Self::all_marked).
    pub(super) fn mark(&self, leaf: usize) {
        self.nodes[leaf].nr_pending.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes the bias. Returns `true` if no report is missing.
    pub(super) fn all_marked(&self) -> bool {
        if twin::armed("node: no bias") {
            return self.is_empty();
        }
        // Every leaf must be counted down, so `any`, which would stop at the first one, is not
        // usable.
        let nr_last = (0..self.nr_leaves).filter(|&leaf| self.report(leaf)).count();
        nr_last == 1
    }

    /// Counts down `leaf`. Returns `true` if this was the last report.
    pub(super) fn report(&self, leaf: usize) -> bool {
        let mut place = leaf;
        loop {
            let node = &self.nodes[place];
            // ORDER(report): publish and consume along the way up, other end in `is_empty`.
            //   holdout: end of its section;  nr_pending -= 1  AcqRel, up to the root
            //   driver:  root's nr_pending == 0  Acquire;      the section is over
            // If another report of this node comes first, ours acquires its sections and releases
            // them to the parent. If ours comes first, the other report does this with our
            // sections. Everything in those sections therefore happens before the driver reads zero
            // at the root.
            // Test: reports_climb_to_the_root_once, reports_carry_the_section_with_them
            let order = twin::order("node: relaxed report", Ordering::AcqRel);
            if node.nr_pending.fetch_sub(1, order) != 1 {
                return false;
            }
            if node.parent == place {
                return true;
            }
            place = node.parent;
        }
    }

    /// Returns `true` if the last report has reached the root.
    pub(super) fn is_empty(&self) -> bool {
        let root = self.nodes.last().expect("a tree has a root");
        // ORDER(report): the other end; see `report`.
        // Test: reports_climb_to_the_root_once, reports_carry_the_section_with_them
        root.nr_pending.load(Ordering::Acquire) == 0
    }
}

/// Returns each node's parent and number of children, leaves first and the root last.
fn shape(nr_leaves: usize, fan_out: usize) -> Vec<(usize, u32)> {
    let mut nodes = vec![(0, 0); nr_leaves];
    let (mut first, mut len) = (0, nr_leaves);
    while len > 1 {
        let nr_parents = len.div_ceil(fan_out);
        let parents = first + len;
        nodes.resize(parents + nr_parents, (0, 0));
        for place in 0..len {
            let parent = parents + place / fan_out;
            nodes[first + place].0 = parent;
            nodes[parent].1 += 1;
        }
        (first, len) = (parents, nr_parents);
    }
    nodes[first].0 = first;
    nodes
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn every_leaf_reaches_the_one_root() {
        for nr_leaves in 1..40 {
            for fan_out in 2..6 {
                let nodes = shape(nr_leaves, fan_out);
                let root = nodes.len() - 1;
                assert_eq!(nodes.iter().map(|node| node.1 as usize).sum::<usize>(), root);
                for leaf in 0..nr_leaves {
                    let mut place = leaf;
                    while nodes[place].0 != place {
                        assert!(nodes[place].0 > place && nodes[place].1 as usize <= fan_out);
                        place = nodes[place].0;
                    }
                    assert_eq!(place, root);
                }
            }
        }
    }

    #[test]
    fn last_report_of_a_large_tree_is_returned_once() {
        let tree = Tree::new(200, Box::new([]));
        for nr_holdouts in [0, 1, 7, 500] {
            tree.init();
            let leaves: Vec<_> = (0..nr_holdouts).map(|holdout| holdout * 37 % 200).collect();
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
    fn by_number_a_leaf_represents_16_cpus() {
        let tree = Tree::by_number(40);
        assert_eq!(tree.nr_leaves, 3);
        let leaves = [0, 15, 16, 39].map(|cpu| tree.leaf_of(CpuId::new(cpu)));
        assert_eq!(leaves, [0, 0, 1, 2]);
        assert!(tree.leaf_of(CpuId::new(5000)) < 3, "a CPU that came later");
    }

    #[test]
    fn leaf_represents_the_cpus_that_share_a_cache() {
        let machine = Topology::synthetic("2 numa x 4 llc x 8 core x 2 smt").unwrap();
        let tree = Tree::for_machine(&machine);
        assert_eq!(tree.nr_leaves, 8);
        for llc in machine.llcs() {
            let leaves: Vec<_> = llc.cpus.iter().map(|cpu| tree.leaf_of(cpu)).collect();
            assert!(leaves.iter().all(|&leaf| leaf == leaves[0]));
        }
        assert!(tree.leaf_of(CpuId::new(5000)) < 8, "a CPU that came later");
    }
}
