//! Gives results back in the order of their numbers, in whatever order they come.

use std::collections::BTreeMap;

/// Holds results until those before them have come.
#[derive(Debug)]
pub struct InOrder<T> {
    next: u64,
    early: BTreeMap<u64, T>,
}

impl<T> InOrder<T> {
    /// Begins with number 0.
    pub fn new() -> Self {
        Self {
            next: 0,
            early: BTreeMap::new(),
        }
    }

    /// Takes the result with this number.
    pub fn put(&mut self, number: u64, result: T) {
        debug_assert!(number >= self.next);
        self.early.insert(number, result);
    }

    /// Returns the next result, if it has come.
    pub fn take(&mut self) -> Option<T> {
        let result = self.early.remove(&self.next)?;
        self.next += 1;
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_wait_for_those_before_them() {
        let mut order = InOrder::new();
        order.put(2, 'c');
        order.put(1, 'b');
        assert_eq!(order.take(), None);
        order.put(0, 'a');
        let taken: String = std::iter::from_fn(|| order.take()).collect();
        assert_eq!(taken, "abc");
    }
}
