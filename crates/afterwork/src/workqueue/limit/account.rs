//! What a queue has used of the workers of a pool in which queues have shares, as plain functions.
//!
//! # The rule
//!
//! Each link has an account in *virtual time*: the time that its items took, divided by its queue's shares. Of the links that
//! wait for a worker, that which has used least goes next. So links that always have work get time by their shares, and the
//! pool never waits for a link that has none.
//!
//! - *It is paid in advance*, by what the link's items took on average, and settled by what they did take. So several workers
//!   that come at once do not all go to the same link.
//! - *Nothing is saved up.* A link that comes to wait begins where the pool's clock is, if it has used less: the clock is what
//!   the link had used that went last. So one that was idle for an hour goes next, once, and then by its share.
//! - *Nothing is owed for time that nobody else wanted.* When the pool has nothing to do, the clock goes to where the link is
//!   that has used most.
//! - *What is owed is owed by the present shares.* Where they change, what a link is ahead of the clock changes with them: else
//!   one that ran by few shares would wait for as long, however many it is given then.
//!
//! This is stride scheduling (Waldspurger and Weihl, 1995), with the clock of start-time fair queueing (Goyal, Vin and Cheng, 1996).

use sync::twin;

/// The shares of a queue that has set none, in a pool in which others have. The default of `cpu.weight`.
const DEFAULT_SHARES: u32 = 100;

/// Time divided by shares. Of a link with the most shares a nanosecond still counts; a hundred years fit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct VirtualTime(u128);

/// What one link has used.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// 0 for those that are not set.
    shares: u32,
    used: VirtualTime,
    /// What an item takes on average; 0 before the first.
    item_ns: u64,
}

impl Account {
    /// Sets the shares, when the pool's clock is at `clock`, and what workers have `paid` for it; returns `true` if none were
    /// set before.
    pub(crate) fn set_shares<'a>(
        &mut self,
        shares: u32,
        clock: VirtualTime,
        paid: impl Iterator<Item = &'a mut VirtualTime>,
    ) -> bool {
        let before = self.weight();
        let is_first = std::mem::replace(&mut self.shares, shares) == 0;
        let convert = |time: u128| time.saturating_mul(before) / self.weight();
        for paid in paid {
            paid.0 = convert(paid.0);
        }
        let ahead = self.used.0.saturating_sub(clock.0);
        self.used.0 = self.used.0 - ahead + convert(ahead);
        is_first
    }

    /// Forgets what was used: nobody has shares any more.
    pub(crate) fn close(&mut self) {
        self.used = VirtualTime::default();
    }

    /// Returns `true` if shares were set.
    pub(crate) fn has_shares(&self) -> bool {
        self.shares > 0
    }

    pub(crate) fn used(&self) -> VirtualTime {
        self.used
    }

    /// Returns what an item takes on average, if any has been run.
    pub(crate) fn item_ns(&self) -> Option<u64> {
        (self.item_ns > 0).then_some(self.item_ns)
    }

    /// Takes note that the link comes to wait, at `clock`.
    pub(crate) fn wait_from(&mut self, clock: VirtualTime) {
        if !twin::armed("shares: idle time is saved up") {
            self.used = self.used.max(clock);
        }
    }

    /// Pays for so many items in advance; returns what was paid.
    pub(crate) fn pay(&mut self, nr_items: u64) -> VirtualTime {
        let paid = self.price(self.item_ns.saturating_mul(nr_items));
        self.used.0 += paid.0;
        paid
    }

    /// Pays for so many items what they took, in place of what was `paid`.
    pub(crate) fn settle(&mut self, paid: VirtualTime, nr_items: u64, took_ns: u64) {
        self.used.0 = self.used.0.saturating_sub(paid.0);
        let Some(each) = took_ns.checked_div(nr_items) else {
            return;
        };
        // Also where the clock did not move: who pays nothing has every turn.
        self.used.0 += self.price(took_ns.max(1)).0;
        let each = each.max(1);
        self.item_ns = match self.item_ns {
            0 => each,
            before => (before - before / 8 + each / 8).max(1),
        };
    }

    fn price(&self, ns: u64) -> VirtualTime {
        VirtualTime((u128::from(ns) << 32) / self.weight())
    }

    fn weight(&self) -> u128 {
        u128::from(match self.shares {
            0 => DEFAULT_SHARES,
            shares => shares,
        })
    }
}

/// Returns whose turn it is of those that wait, given what each has used: of several that have used the same, the first.
pub(crate) fn next_by_use(used: impl Iterator<Item = VirtualTime>) -> Option<usize> {
    let (at, _) = used.enumerate().min_by_key(|&(_, used)| used)?;
    Some(at)
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    /// Links that always have work, of such shares, whose items take so long.
    struct Pool {
        links: Vec<(Account, u64)>,
        clock: VirtualTime,
        /// What each link has had.
        had_ns: Vec<u64>,
    }

    impl Pool {
        fn new(links: &[(u32, u64)]) -> Self {
            let account = |&(shares, item_ns): &(u32, u64)| {
                let mut account = Account::default();
                account.set_shares(shares, VirtualTime::default(), iter::empty());
                (account, item_ns)
            };
            Self {
                links: links.iter().map(account).collect(),
                clock: VirtualTime::default(),
                had_ns: vec![0; links.len()],
            }
        }

        /// Takes an item, of the first `among` links.
        fn take(&mut self, among: usize) -> (usize, VirtualTime) {
            let waiting = self.links[..among].iter();
            let at = next_by_use(waiting.map(|it| it.0.used())).unwrap();
            let account = &mut self.links[at].0;
            self.clock = self.clock.max(account.used());
            let paid = account.pay(1);
            account.wait_from(self.clock);
            (at, paid)
        }

        fn end(&mut self, (at, paid): (usize, VirtualTime)) {
            let (account, item_ns) = &mut self.links[at];
            account.settle(paid, 1, *item_ns);
            self.had_ns[at] += *item_ns;
        }

        fn run(&mut self, among: usize, nr_items: usize) {
            for _ in 0..nr_items {
                let taken = self.take(among);
                self.end(taken);
            }
        }
    }

    #[test]
    fn links_get_time_by_their_shares() {
        let mut pool = Pool::new(&[(100, 1000), (200, 1000), (700, 1000)]);
        pool.run(3, 1000);
        for (had, due) in pool.had_ns.iter().zip([100_000, 200_000, 700_000]) {
            assert!(had.abs_diff(due) <= 2000, "{had} of {due}");
        }
    }

    #[test]
    fn long_items_get_no_more_time_than_short_ones() {
        let mut pool = Pool::new(&[(100, 1_000_000), (100, 1000)]);
        pool.run(2, 100_000);
        let [long, short] = pool.had_ns[..] else {
            unreachable!()
        };
        assert!(long.abs_diff(short) <= 1_000_000, "{long}, {short}");
    }

    #[test]
    fn who_was_idle_goes_next_and_has_nothing_saved_up() {
        let mut pool = Pool::new(&[(100, 1000), (100, 1000)]);
        pool.run(1, 10_000);
        pool.links[1].0.wait_from(pool.clock);
        let first = pool.take(2);
        assert_eq!(first.0, 1);
        pool.end(first);
        pool.had_ns.fill(0);
        pool.run(2, 1000);
        assert!(pool.had_ns[0].abs_diff(pool.had_ns[1]) <= 2000);
    }

    #[test]
    fn several_workers_do_not_go_to_the_same_link() {
        let mut pool = Pool::new(&[(100, 1000), (100, 1000), (100, 1000)]);
        pool.run(3, 30);
        let mut taken: Vec<_> = (0..3).map(|_| pool.take(3)).collect();
        taken.sort_by_key(|it| it.0);
        assert!(taken.iter().map(|it| it.0).eq(0..3));
    }

    #[test]
    fn what_was_taken_back_is_not_paid_for() {
        let mut account = Account::default();
        account.settle(VirtualTime::default(), 1, 1000);
        let before = account.used();
        let paid = account.pay(5);
        assert!(account.used() > before);
        account.settle(paid, 0, 0);
        assert_eq!(account.used(), before);
    }

    #[test]
    fn what_is_owed_is_owed_by_the_present_shares() {
        let mut pool = Pool::new(&[(1, 1_000_000), (1000, 1000)]);
        let long = pool.take(2);
        assert_eq!(long.0, 0);
        pool.end(long);
        let clock = pool.clock;
        let account = &mut pool.links[0].0;
        account.set_shares(1000, clock, iter::empty());
        pool.had_ns.fill(0);
        pool.run(2, 2000);
        assert!(pool.had_ns[0] >= 1_000_000, "{:?}", pool.had_ns);
    }

    #[test]
    fn what_was_paid_by_other_shares_is_given_back_by_these() {
        let mut account = Account::default();
        account.settle(VirtualTime::default(), 1, 1000);
        let clock = account.used();
        let mut paid = account.pay(5);
        account.set_shares(1000, clock, iter::once(&mut paid));
        account.settle(paid, 0, 0);
        assert_eq!(account.used(), clock);
    }

    #[test]
    fn nothing_overflows() {
        let mut account = Account::default();
        account.set_shares(1, VirtualTime::default(), iter::empty());
        for _ in 0..1000 {
            let paid = account.pay(u64::MAX);
            account.settle(paid, 1, u64::MAX);
        }
        let least = account.used();
        account.settle(VirtualTime::default(), 1, 0);
        assert!(account.used() >= least);
    }
}
