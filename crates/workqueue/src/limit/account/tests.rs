use std::iter;

use super::*;

/// Pwqs that always have work, with their shares and the times that their items take.
struct Pool {
    pwqs: Vec<(Account, u64)>,
    clock: Clock,
    /// The time that each pwq received.
    had_ns: Vec<u64>,
}

impl Pool {
    fn new(pwqs: &[(u32, u64)]) -> Self {
        let account = |&(shares, item_ns): &(u32, u64)| {
            let mut account = Account::default();
            account.set_shares(shares, &Clock::default(), iter::empty());
            (account, item_ns)
        };
        Self {
            pwqs: pwqs.iter().map(account).collect(),
            clock: Clock::default(),
            had_ns: vec![0; pwqs.len()],
        }
    }

    /// Takes an item of one of the first `among` pwqs.
    fn take(&mut self, among: usize) -> (usize, VirtualTime) {
        let waiting = self.pwqs[..among].iter();
        let at = next_by_use(waiting.map(|it| it.0.used())).unwrap();
        let account = &mut self.pwqs[at].0;
        self.clock.pick(account.used());
        let paid = account.pay(1);
        account.wait_from(&self.clock);
        (at, paid)
    }

    fn end(&mut self, (at, paid): (usize, VirtualTime)) {
        let (account, item_ns) = &mut self.pwqs[at];
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
fn pwqs_get_time_by_their_shares() {
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
    let [long, short] = pool.had_ns[..] else { unreachable!() };
    assert!(long.abs_diff(short) <= 1_000_000, "{long}, {short}");
}

#[test]
fn idle_pwq_is_next_and_has_no_saved_time() {
    let mut pool = Pool::new(&[(100, 1000), (100, 1000)]);
    pool.run(1, 10_000);
    pool.pwqs[1].0.wait_from(&pool.clock);
    let first = pool.take(2);
    assert_eq!(first.0, 1);
    pool.end(first);
    pool.had_ns.fill(0);
    pool.run(2, 1000);
    assert!(pool.had_ns[0].abs_diff(pool.had_ns[1]) <= 2000);
}

#[test]
fn several_workers_do_not_choose_the_same_link() {
    let mut pool = Pool::new(&[(100, 1000), (100, 1000), (100, 1000)]);
    pool.run(3, 30);
    let mut taken: Vec<_> = (0..3).map(|_| pool.take(3)).collect();
    taken.sort_by_key(|it| it.0);
    assert!(taken.iter().map(|it| it.0).eq(0..3));
}

#[test]
fn returned_items_are_not_charged() {
    let mut account = Account::default();
    account.settle(VirtualTime::default(), 1, 1000);
    let before = account.used();
    let paid = account.pay(5);
    assert!(account.used() > before);
    account.settle(paid, 0, 0);
    assert_eq!(account.used(), before);
}

#[test]
fn debts_are_converted_to_the_present_shares() {
    let mut pool = Pool::new(&[(1, 1_000_000), (1000, 1000)]);
    let long = pool.take(2);
    assert_eq!(long.0, 0);
    pool.end(long);
    let account = &mut pool.pwqs[0].0;
    account.set_shares(1000, &pool.clock, iter::empty());
    pool.had_ns.fill(0);
    pool.run(2, 2000);
    assert!(pool.had_ns[0] >= 1_000_000, "{:?}", pool.had_ns);
}

#[test]
fn payments_are_converted_when_shares_change() {
    let mut account = Account::default();
    account.settle(VirtualTime::default(), 1, 1000);
    let before = account.used();
    let mut clock = Clock::default();
    clock.pick(before);
    let mut paid = account.pay(5);
    account.set_shares(1000, &clock, iter::once(&mut paid));
    account.settle(paid, 0, 0);
    assert_eq!(account.used(), before);
}

#[test]
fn nothing_overflows() {
    let mut account = Account::default();
    account.set_shares(1, &Clock::default(), iter::empty());
    for _ in 0..1000 {
        let paid = account.pay(u64::MAX);
        account.settle(paid, 1, u64::MAX);
    }
    let least = account.used();
    account.settle(VirtualTime::default(), 1, 0);
    assert!(account.used() >= least);
}
