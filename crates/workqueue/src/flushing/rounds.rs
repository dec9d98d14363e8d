//! Counts the rounds of a drain.
//!
//! A *round* is a flush: it ends when all items that were in flight at its start have ended. If
//! items queue other items, or themselves, a drain takes many rounds; if they never stop, the drain
//! never ends. The drain itself (`drain.rs`) does not depend on rounds. They are counted only so
//! that a long drain can be reported.

use super::flush::Flush;
use crate::{
    observe::report::{ItemName, Report},
    queues::queue::Inner,
};

/// A drain that has not yet found the queue empty.
pub(crate) struct Rounds<'a> {
    inner: &'a Inner,
    round: Option<Flush<'a>>,
    nr_rounds: u64,
}

/// Returns `true` if a drain is to be reported after `nr_rounds` rounds. As in the kernel, the
/// reported rounds are the tenth and every hundredth up to the thousandth.
fn is_worth_reporting(nr_rounds: u64) -> bool {
    nr_rounds == 10 || (1..=10).contains(&(nr_rounds / 100)) && nr_rounds.is_multiple_of(100)
}

impl<'a> Rounds<'a> {
    pub(crate) fn new(inner: &'a Inner) -> Self {
        Self { inner, round: None, nr_rounds: 0 }
    }

    /// Returns `true` if the queue is drained. Otherwise the queue's `settled` notifies its waiters
    /// when to check again. Call it with no lock held, because it may report the drain.
    pub(crate) fn have_ended(&mut self) -> bool {
        while !self.inner.is_drained() {
            if !self.go_on() {
                return false;
            }
            self.report();
        }
        true
    }

    /// Counts the rounds. Returns `true` if the drain is to be reported.
    fn go_on(&mut self) -> bool {
        let before = self.nr_rounds;
        if let Some(round) = &mut self.round {
            if !round.has_ended() {
                return false;
            }
            self.nr_rounds += 1;
        }
        let next = self.round.insert(Flush::new(self.inner));
        // If the round has already ended, the drain check itself gets the notification.
        next.has_ended();
        self.nr_rounds > before && is_worth_reporting(self.nr_rounds)
    }

    fn report(&self) {
        let pwqs = self.inner.plan.lock().pwqs.clone();
        let Some(manager) = pwqs.first().map(|pwq| &pwq.pool.manager) else {
            return;
        };
        let queue = &self.inner.core.name;
        let mut comers = pwqs.iter().filter_map(|pwq| pwq.pool.lock().name_one(pwq.slot));
        manager.report(&[Report::LongDrain {
            queue: queue.to_string(),
            rounds: self.nr_rounds,
            item: comers.next().map(|func| ItemName { queue: queue.to_string(), func }),
        }]);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn drain_is_reported_at_rounds_10_and_100_to_1000() {
        let reported: Vec<_> = (0..5000).filter(|&count| is_worth_reporting(count)).collect();
        let expected = [10, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000];
        assert_eq!(reported, expected);
    }
}
