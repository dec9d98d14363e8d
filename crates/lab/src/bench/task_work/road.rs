//! What is measured: the way of an item to a sleeping owner, seen through its two ends.
//!
//! An item is the cycle counter's reading of the moment before it was posted: 8 bytes, by value, on every road.

/// A poster's end. The road ends when it is dropped.
pub trait Post: Send {
    /// Posts an item as the road is meant to be used.
    fn post(&mut self, item: u64);

    /// Posts an item that the owner must see now, however many it would rather wait for.
    #[inline(always)]
    fn post_urgent(&mut self, item: u64) {
        self.post(item);
    }
}

/// The owner's end.
pub trait Receive: Send {
    /// Sleeps until there is something and hands it to `take`; false when nothing will come.
    fn receive(&mut self, take: impl FnMut(u64)) -> bool;
}
