//! The items that are left in a queue.

use std::fmt;

/// The error returned if a drain does not complete in time. Lists the items that were left.
///
/// After a drain, the queue accepts items again, and the items that are left continue. After a
/// shutdown, it stays closed: see [`shutdown`](crate::Workqueue::shutdown).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StillBusy {
    /// The queue or the group.
    pub queue: String,
    /// The number of items, executing or pending. After a shutdown, it includes delayed items.
    ///
    /// It is 0 if the last items ended after the time limit, or if they are still running from
    /// another queue. Such an item is in no list until that run ends.
    pub nr_left: usize,
    /// The items, by state and function. Pools are read one after another, so an item that moves or
    /// ends at the same time may be listed twice, or not at all.
    pub left: Vec<LeftItems>,
    /// `"workqueue"` or `"group"`.
    kind: &'static str,
}

/// Items of one kind that are left in a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LeftItems {
    /// The state of the items.
    pub doing: Doing,
    /// The type of their function or future, as the compiler names it. `None` for three kinds:
    /// items that their joiners run, an item that waits in an ordered queue for its run from
    /// another queue, and futures of a queue that has had too many types of futures.
    pub func: Option<&'static str>,
    /// The number of items.
    pub count: usize,
}

/// The state of an item.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Doing {
    /// A thread is executing it.
    Runs,
    /// It is a future that has been polled and is not being polled: it sleeps, or waits for a poll.
    Waits,
    /// It is queued and has not started.
    IsQueued,
    /// It waited for its delay, or for its next period, when a shutdown cancelled it. A drain does
    /// not wait for such items, and does not list them.
    IsDelayed,
}

impl StillBusy {
    pub(crate) fn new(
        kind: &'static str,
        queue: &str,
        found: impl IntoIterator<Item = LeftItems>,
    ) -> Self {
        let mut left: Vec<LeftItems> = Vec::new();
        for new in found {
            match left.binary_search_by_key(&(new.doing, new.func), |it| (it.doing, it.func)) {
                Ok(at) => left[at].count += new.count,
                Err(at) => left.insert(at, new),
            }
        }
        Self { queue: queue.to_owned(), nr_left: left.iter().map(|it| it.count).sum(), left, kind }
    }
}

impl LeftItems {
    pub(crate) fn new(doing: Doing, func: Option<&'static str>, count: usize) -> Self {
        Self { doing, func, count }
    }
}

impl fmt::Display for StillBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nr_left == 0 {
            return write!(
                f,
                "{} {:?} was not drained in time: its last items have ended since, or are still running from other queues",
                self.kind, self.queue
            );
        }
        write!(
            f,
            "{} {:?} still has {} item{}",
            self.kind,
            self.queue,
            self.nr_left,
            if self.nr_left == 1 { "" } else { "s" }
        )?;
        for (index, left) in self.left.iter().enumerate() {
            write!(f, "{} {left}", if index == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

impl std::error::Error for StillBusy {}

base::internal::into_io_error!(StillBusy, |_| ErrorKind::TimedOut);

impl fmt::Display for LeftItems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let func = self.func.unwrap_or("an unnamed function");
        let (one, more) = match self.doing {
            Doing::Runs => ("runs", "run"),
            Doing::Waits => ("waits to be woken", "wait to be woken"),
            Doing::IsQueued => ("is queued", "are queued"),
            Doing::IsDelayed => ("is delayed", "are delayed"),
        };
        let doing = if self.count == 1 { one } else { more };
        write!(f, "{} of {func} {doing}", self.count)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn equal_items_are_grouped_and_running_ones_come_first() {
        let found = [
            LeftItems::new(Doing::IsDelayed, Some("a"), 3),
            LeftItems::new(Doing::IsQueued, Some("b"), 2),
            LeftItems::new(Doing::Waits, Some("c"), 1),
            LeftItems::new(Doing::IsQueued, Some("b"), 1),
            LeftItems::new(Doing::Runs, None, 1),
        ];
        assert_eq!(
            StillBusy::new("workqueue", "q", found).to_string(),
            "workqueue \"q\" still has 8 items: 1 of an unnamed function runs, 1 of c waits to be woken, 3 of b are queued, 3 of a are delayed"
        );
        assert_eq!(
            StillBusy::new("workqueue", "q", []).to_string(),
            "workqueue \"q\" was not drained in time: its last items have ended since, or are still running from other queues"
        );
    }
}
