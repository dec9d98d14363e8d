//! A map for the few hundred entries of a machine: a sorted vector. It compiles much faster than a
//! `BTreeMap`, and keys are usually inserted in ascending order.

use std::ops::Index;

/// A map whose keys are in ascending order. An insertion moves all entries after its key.
#[derive(Clone, Debug)]
pub(crate) struct Sorted<K, V>(Vec<(K, V)>);

impl<K: Ord, V> Sorted<K, V> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, (K, V)> {
        self.0.iter()
    }

    /// Returns the key's value, after inserting the result of `or` if there is none.
    pub(crate) fn or_insert_with(&mut self, key: K, or: impl FnOnce() -> V) -> &mut V {
        let at = self.0.partition_point(|(other, _)| *other < key);
        if self.0.get(at).is_none_or(|(other, _)| *other != key) {
            self.0.insert(at, (key, or()));
        }
        &mut self.0[at].1
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = V> {
        self.0.into_iter().map(|(_, value)| value)
    }
}

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> Index<K> for Sorted<K, V> {
    type Output = V;

    /// Returns the value of `key`. Panics if the key has no value.
    fn index(&self, key: K) -> &V {
        let at = self.0.partition_point(|(other, _)| *other < key);
        match self.0.get(at) {
            Some((other, value)) if *other == key => value,
            _ => panic!("a key without a value"),
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Sorted<K, V> {
    /// If a key occurs twice, its first value is kept.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut sorted = Self::new();
        for (key, value) in entries {
            sorted.or_insert_with(key, || value);
        }
        sorted
    }
}

impl<K, V> IntoIterator for Sorted<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
