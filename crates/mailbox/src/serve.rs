//! A loop for owners that only serve their mailbox and that are readers of RCU.

use rcu::qsbr::Reader;

use super::mailbox::Mailbox;

impl<T> Mailbox<T> {
    /// Calls `serve` for each item, until the mailbox is empty and no more items will arrive.
    ///
    /// `serve` also receives an online [`Reader`], with which reading RCU-protected data costs
    /// nothing. The owner reports a quiescent state after at most `max` items (at least 1), and is
    /// offline while it sleeps. A grace period therefore waits for at most `max` calls to `serve`.
    /// Requires the feature `rcu`.
    ///
    /// # Blocking
    ///
    /// Blocks until no more items will arrive. Sleeps as [`wait`](Self::wait) does.
    ///
    /// # Panics
    ///
    /// Panics if `serve` panics. The other items stay in the mailbox.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::{rcu::Rcu, mailbox::Mailbox};
    /// use std::sync::Arc;
    ///
    /// let routes = Arc::new(Rcu::new(vec![1, 2]));
    /// let mut mailbox = Mailbox::new();
    /// let poster = mailbox.poster();
    /// let owner = std::thread::spawn({
    ///     let routes = routes.clone();
    ///     move || {
    ///         let mut sum = 0;
    ///         mailbox.serve(16, |request: usize, reader| sum += routes.load(reader)[request]);
    ///         sum
    ///     }
    /// });
    /// poster.post(0).unwrap();
    /// routes.replace_sync(vec![1, 3]);
    /// poster.post(1).unwrap();
    /// drop(poster);
    /// assert_eq!(owner.join().unwrap(), 1 + 3);
    /// ```
    pub fn serve(&mut self, max: usize, mut serve: impl FnMut(T, &Reader)) {
        let mut reader = Reader::new();
        loop {
            let mut nr_served = 0;
            for item in self.drain(max.max(1)) {
                // FOREIGN(serve): the owner's closure, on the owner. A panic propagates to it.
                serve(item, &reader);
                nr_served += 1;
            }
            if nr_served > 0 {
                reader.quiescent();
            } else if reader.offline(|| self.wait(1)).is_err() {
                return;
            }
        }
    }
}
