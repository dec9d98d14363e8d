//! What is measured: a queue, seen through its two ends.
//!
//! Every call in a timed loop is static: a case is compiled once for each queue.

/// Items that a producer links before it publishes them.
pub const BURST: usize = 32;

/// A queue under measurement, in one of the ways in which it can be used.
pub trait Fifo {
    /// What goes in.
    type Item;

    /// A producer's end.
    type Pusher<'q>: Pusher<Self::Item> + Send
    where
        Self: 'q;

    /// The consumer's end.
    type Popper<'q>: Popper<Self::Item>
    where
        Self: 'q;

    /// Returns an end for each of `producers`, and the other one.
    fn open(&mut self, producers: usize) -> (Vec<Self::Pusher<'_>>, Self::Popper<'_>);
}

/// A producer's end.
pub trait Pusher<T> {
    /// Puts an item in, or gathers it.
    fn push(&mut self, item: T);

    /// Puts in what was gathered.
    #[inline(always)]
    fn flush(&mut self) {}
}

/// The consumer's end.
pub trait Popper<T> {
    /// Hands the oldest items to `take`, at most `max` of them, and returns how many there were.
    ///
    /// Fewer than `max` means that the queue was empty, or looked so.
    fn pop_up_to(&mut self, max: usize, take: impl FnMut(T)) -> usize;
}

/// Pops with something that gives one item at a time.
#[inline(always)]
pub fn one_by_one<T>(
    max: usize,
    mut pop: impl FnMut() -> Option<T>,
    mut take: impl FnMut(T),
) -> usize {
    for popped in 0..max {
        match pop() {
            Some(item) => take(item),
            None => return popped,
        }
    }
    max
}

impl<T, P: Popper<T>> Popper<T> for &mut P {
    #[inline(always)]
    fn pop_up_to(&mut self, max: usize, take: impl FnMut(T)) -> usize {
        P::pop_up_to(self, max, take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popping_one_by_one_stops_at_the_bound_and_at_the_end() {
        let mut left = vec![3, 2, 1];
        let mut taken = Vec::new();
        assert_eq!(one_by_one(2, || left.pop(), |item| taken.push(item)), 2);
        assert_eq!(one_by_one(2, || left.pop(), |item| taken.push(item)), 1);
        assert_eq!(taken, [1, 2, 3]);
    }
}
