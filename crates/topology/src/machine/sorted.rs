//! A sorted vector, which compiles much faster than a `BTreeMap`. Keys are usually ascending.

use std::ops::{Index, IndexMut};

/// A map whose keys are in ascending order. An insertion moves all entries after its key.
#[derive(Clone, Debug)]
pub(crate) struct Sorted<K, V>(Vec<(K, V)>);

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> Sorted<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, (K, V)> {
        self.0.iter()
    }

    /// Returns the index of the key's entry, or else the index at which it can be inserted.
    fn position(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.cmp(key))
    }

    /// Returns the key's value, after inserting the result of `or` if there is none.
    pub(crate) fn or_insert_with(&mut self, key: K, or: impl FnOnce() -> V) -> &mut V {
        let at = self.position(&key).unwrap_or_else(|at| {
            self.0.insert(at, (key, or()));
            at
        });
        &mut self.0[at].1
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = V> {
        self.0.into_iter().map(|(_, value)| value)
    }
}

impl<K: Ord, V> Index<K> for Sorted<K, V> {
    type Output = V;

    /// Returns the value of `key`. Panics if the key has no value.
    fn index(&self, key: K) -> &V {
        &self.0[self.position(&key).expect("a key without a value")].1
    }
}

impl<K: Ord, V> IndexMut<K> for Sorted<K, V> {
    fn index_mut(&mut self, key: K) -> &mut V {
        let at = self.position(&key).expect("a key without a value");
        &mut self.0[at].1
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Sorted<K, V> {
    /// If a key occurs twice, its first value is kept.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut sorted = Self::default();
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
