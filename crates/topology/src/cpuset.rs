//! A set of CPUs, as bits.

use std::fmt;

use crate::cpu_id::CpuId;

const BITS: usize = u64::BITS as usize;

/// A set of CPUs, with one bit for each number up to its highest CPU. It parses and prints the
/// kernel's list format; see [`FromStr`](#impl-FromStr-for-CpuSet).
///
/// # Examples
///
/// ```
/// use afterwork_topology::{CpuId, CpuSet};
///
/// let mut cpus: CpuSet = "0-3,8".parse()?;
/// cpus.insert(CpuId::new(9));
/// assert_eq!(cpus.len(), 6);
/// assert_eq!(cpus.to_string(), "0-3,8-9");
/// # Ok::<(), afterwork_topology::ParseCpuListError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet {
    /// Bit `i % 64` of word `i / 64` is CPU `i`. The last word is not zero, so `==` works.
    words: Vec<u64>,
}

impl CpuSet {
    /// Creates an empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// Adds a CPU. Returns `true` if it was not in the set. The set then uses one bit for each
    /// number up to `cpu`.
    pub fn insert(&mut self, cpu: CpuId) -> bool {
        let (word, bit) = split(cpu);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        is_new
    }

    /// Removes a CPU. Returns `true` if it was in the set.
    pub fn remove(&mut self, cpu: CpuId) -> bool {
        if !self.contains(cpu) {
            return false;
        }
        let (word, bit) = split(cpu);
        self.words[word] &= !bit;
        self.trim();
        true
    }

    /// Returns `true` if a CPU is in the set.
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        let (word, bit) = split(cpu);
        self.words.get(word).is_some_and(|&bits| bits & bit != 0)
    }

    /// Returns the number of CPUs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns `true` if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the lowest CPU.
    #[must_use]
    pub fn first(&self) -> Option<CpuId> {
        self.iter().next()
    }

    /// Returns the highest CPU.
    #[must_use]
    pub fn last(&self) -> Option<CpuId> {
        let word = self.words.last()?;
        let index = self.words.len() * BITS - 1 - word.leading_zeros() as usize;
        Some(cpu_at(index))
    }

    /// Returns the CPUs in ascending order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter { words: &self.words, word: 0, bits: self.words.first().copied().unwrap_or(0) }
    }

    /// Returns the CPUs that are in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) =
            if self.words.len() >= other.words.len() { (self, other) } else { (other, self) };
        let mut words = long.words.clone();
        for (word, bits) in words.iter_mut().zip(&short.words) {
            *word |= bits;
        }
        Self { words }
    }

    /// Returns the CPUs that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self::trimmed(self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect())
    }

    /// Returns the CPUs that are in this set and not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let others = other.words.iter().copied().chain(std::iter::repeat(0));
        Self::trimmed(self.words.iter().zip(others).map(|(a, b)| a & !b).collect())
    }

    /// Returns `true` if every CPU of this set is in the other.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        let others = other.words.iter().copied().chain(std::iter::repeat(0));
        self.words.iter().zip(others).all(|(a, b)| a & !b == 0)
    }

    /// Returns `true` if no CPU is in both sets.
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & b == 0)
    }

    fn trimmed(words: Vec<u64>) -> Self {
        let mut set = Self { words };
        set.trim();
        set
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

/// Prints the kernel's list format, such as `0-3,8,10-11`. The empty set prints nothing.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().map(CpuId::as_u32).peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl Extend<CpuId> for CpuSet {
    fn extend<I: IntoIterator<Item = CpuId>>(&mut self, cpus: I) {
        for cpu in cpus {
            self.insert(cpu);
        }
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut set = Self::new();
        set.extend(cpus);
        set
    }
}

impl<'a> IntoIterator for &'a CpuSet {
    type Item = CpuId;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The iterator of [`CpuSet::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    words: &'a [u64],
    /// Index of the word that `bits` is from.
    word: usize,
    /// The bits of that word that have not been returned yet.
    bits: u64,
}

impl Iterator for Iter<'_> {
    type Item = CpuId;

    fn next(&mut self) -> Option<CpuId> {
        while self.bits == 0 {
            self.word += 1;
            self.bits = *self.words.get(self.word)?;
        }
        let bit = self.bits.trailing_zeros() as usize;
        self.bits &= self.bits - 1;
        Some(cpu_at(self.word * BITS + bit))
    }
}

impl std::iter::FusedIterator for Iter<'_> {}

fn split(cpu: CpuId) -> (usize, u64) {
    (cpu.index() / BITS, 1 << (cpu.index() % BITS))
}

fn cpu_at(index: usize) -> CpuId {
    // This does not truncate, because `insert` takes CPU numbers as `u32`.
    CpuId::new(index as u32)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn set(cpus: &BTreeSet<u32>) -> CpuSet {
        cpus.iter().copied().map(CpuId::new).collect()
    }

    fn model(cpus: &CpuSet) -> BTreeSet<u32> {
        cpus.iter().map(CpuId::as_u32).collect()
    }

    #[test]
    fn iteration_of_empty_set_ends_at_once_and_stays_ended() {
        let empty = CpuSet::new();
        let mut iter = empty.iter();
        assert_eq!((iter.next(), iter.next()), (None, None));
    }

    #[test]
    fn removing_highest_cpu_leaves_set_equal_to_one_without_it() {
        let low: CpuSet = [CpuId::new(3)].into_iter().collect();
        let mut both = low.clone();
        assert!(both.insert(CpuId::new(8191)));
        assert!(!both.insert(CpuId::new(8191)));
        assert_ne!(both, low);
        assert!(both.remove(CpuId::new(8191)));
        assert!(!both.remove(CpuId::new(8191)));
        assert_eq!(both, low);
    }

    proptest! {
        #[test]
        fn set_agrees_with_a_tree_of_numbers(
            a in prop::collection::btree_set(0u32..9000, 0..80),
            b in prop::collection::btree_set(0u32..300, 0..80),
        ) {
            let (x, y) = (set(&a), set(&b));
            prop_assert_eq!(model(&x), a.clone());
            prop_assert_eq!(x.len(), a.len());
            prop_assert_eq!(x.is_empty(), a.is_empty());
            prop_assert_eq!(x.first().map(CpuId::as_u32), a.first().copied());
            prop_assert_eq!(x.last().map(CpuId::as_u32), a.last().copied());
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
            for (ours, theirs) in [
                (x.union(&y), &a | &b),
                (x.intersection(&y), &a & &b),
                (x.difference(&y), &a - &b),
                (y.difference(&x), &b - &a),
            ] {
                prop_assert_eq!(&ours, &set(&theirs));
                prop_assert_eq!(model(&ours), theirs);
            }
        }
    }
}
