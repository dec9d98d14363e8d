//! Values in insertion order, which can be found and removed by number. The code is small, because
//! it serves rare operations: a tree of the standard library compiles to much more. When more than
//! half of the slots are holes, all holes are removed.

use std::mem;

/// The number of slots whose memory is kept when all are empty. This is a guess.
const FEW: usize = 16;

/// The values, each found by the number that [`add`](Self::add) returned.
#[derive(Debug)]
pub struct Numbered<T> {
    next: u64,
    /// In ascending order of their numbers.
    places: Vec<(u64, Option<T>)>,
    /// The slots before this index are holes.
    first: usize,
    /// Excludes holes.
    len: usize,
}

impl<T> Numbered<T> {
    pub const fn new() -> Self {
        Self { next: 0, places: Vec::new(), first: 0, len: 0 }
    }

    pub fn add(&mut self, thing: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.places.push((number, Some(thing)));
        self.len += 1;
        number
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of slots, including holes.
    pub fn nr_places(&self) -> usize {
        self.places.len()
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let at = self.place_of(number)?;
        self.places[at].1.as_mut()
    }

    pub fn remove(&mut self, number: u64) -> Option<T> {
        let at = self.place_of(number)?;
        self.empty(at)
    }

    pub fn pop_first(&mut self) -> Option<T> {
        while self.places.get(self.first)?.1.is_none() {
            self.first += 1;
        }
        self.empty(self.first)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|(_, thing)| thing.as_ref())
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.places.iter_mut().filter_map(|(number, thing)| Some((*number, thing.as_mut()?)))
    }

    /// Removes all values. Later values have new numbers.
    pub fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        (self.first, self.len) = (0, 0);
        let places = mem::take(&mut self.places);
        places.into_iter().filter_map(|(_, thing)| thing)
    }

    fn place_of(&self, number: u64) -> Option<usize> {
        let place = self.places.binary_search_by_key(&number, |place| place.0);
        place.ok()
    }

    fn empty(&mut self, at: usize) -> Option<T> {
        let thing = self.places[at].1.take()?;
        self.len -= 1;
        if self.len < self.places.len() / 2 {
            self.places.retain(|(_, thing)| thing.is_some());
            self.places.shrink_to((2 * self.len).max(FEW));
            self.first = 0;
        }
        Some(thing)
    }
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Add,
        Remove(u64),
        PopFirst,
        TakeAll,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => Just(Step::Add),
            4 => (0_u64..40).prop_map(Step::Remove),
            3 => Just(Step::PopFirst),
            1 => Just(Step::TakeAll),
        ]
    }

    #[test]
    fn burst_returns_its_memory() {
        let mut numbered = Numbered::new();
        let numbers: Vec<_> = (0..1000).map(|thing| numbered.add(thing)).collect();
        for number in numbers {
            numbered.remove(number);
        }
        assert!(numbered.places.capacity() <= 2 * FEW);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 256 }, ..ProptestConfig::default() })]

        #[test]
        fn behaves_as_a_tree(steps in prop::collection::vec(step(), 0..80)) {
            let (mut numbered, mut tree, mut next) = (Numbered::new(), BTreeMap::new(), 0_u64);
            for step in steps {
                match step {
                    Step::Add => {
                        prop_assert_eq!(numbered.add(next * 3), next);
                        tree.insert(next, next * 3);
                        next += 1;
                    }
                    Step::Remove(number) => {
                        prop_assert_eq!(numbered.get_mut(number), tree.get_mut(&number));
                        prop_assert_eq!(numbered.remove(number), tree.remove(&number));
                    }
                    Step::PopFirst => {
                        prop_assert_eq!(numbered.pop_first(), tree.pop_first().map(|it| it.1));
                    }
                    Step::TakeAll => {
                        let all = mem::take(&mut tree).into_values();
                        prop_assert!(numbered.take_all().eq(all));
                    }
                }
                prop_assert!(numbered.iter().eq(tree.values()));
                let expected = tree.iter_mut().map(|(number, thing)| (*number, thing));
                prop_assert!(numbered.iter_mut().eq(expected));
                prop_assert_eq!((numbered.len(), numbered.is_empty()), (tree.len(), tree.is_empty()));
            }
        }
    }
}
