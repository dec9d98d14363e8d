//! The path of items to a sleeping owner. An item is the value of the cycle counter just before the
//! post, passed by value.

/// The poster's end. The path ends when it is dropped.
pub trait Post: Send {
    fn post(&mut self, item: u64);

    /// Posts an item that wakes the owner at once, even if it waits for more items.
    #[inline(always)]
    fn post_urgent(&mut self, item: u64) {
        self.post(item);
    }
}

pub trait Receive: Send {
    /// Sleeps until items arrive, and passes them to `take`. Returns `false` when the path ends.
    fn receive(&mut self, take: impl FnMut(u64)) -> bool;
}
