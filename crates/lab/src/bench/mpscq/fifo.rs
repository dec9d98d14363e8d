//! The interface that the cases use to measure a queue.
//!
//! All calls in timed loops are static, because each case is compiled once for each queue.

pub const BURST: usize = 32;

/// A queue that is measured, in one particular way of using it.
pub trait Fifo {
    type Item;

    fn open(&mut self, count: usize) -> (Vec<impl Pusher<Self::Item>>, impl Popper<Self::Item>);
}

pub trait Pusher<T>: Send {
    /// Pushes an item, or adds it to a chain that [`flush`](Self::flush) pushes.
    fn push(&mut self, item: T);

    #[inline(always)]
    fn flush(&mut self) {}
}

pub trait Popper<T> {
    /// Pops at most `max` of the oldest items and passes each to `take`. Returns their number.
    ///
    /// If fewer than `max` items were popped, the queue was empty or appeared empty.
    fn pop_up_to(&mut self, max: usize, take: impl FnMut(T)) -> usize;
}

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

/// Implements [`Fifo`] for a type. `$ends` opens the ends of `$queue` for `$count` producers.
macro_rules! fifo {
    ($type:ty, $item:ty, |$queue:ident, $count:ident| $ends:expr) => {
        impl Fifo for $type {
            type Item = $item;

            fn open(&mut self, $count: usize) -> (Vec<impl Pusher<$item>>, impl Popper<$item>) {
                let $queue = self;
                $ends
            }
        }
    };
}

/// Implements [`Pusher`] for an end, which may have a generic parameter. `$push` pushes an item.
macro_rules! pusher {
    ($type:ty, |$end:ident, $item:ident: $item_type:ty| $push:expr $(, $param:ident)?) => {
        impl$(<$param: Send>)? Pusher<$item_type> for $type {
            #[inline(always)]
            fn push(&mut self, $item: $item_type) {
                let $end = self;
                $push;
            }
        }
    };
}

/// Implements [`Popper`] for an end. `$pop` pops at most `$max` items and passes each to
/// `$take`.
macro_rules! popper {
    ($type:ty, $item:ty, |$end:ident, $max:ident, $take:ident| $pop:expr $(, $param:ident)?) => {
        impl$(<$param>)? Popper<$item> for $type {
            #[inline(always)]
            fn pop_up_to(&mut self, $max: usize, $take: impl FnMut($item)) -> usize {
                let $end = self;
                $pop
            }
        }
    };
}

pub(super) use fifo;
pub(super) use popper;
pub(super) use pusher;

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
