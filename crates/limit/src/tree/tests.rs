use super::*;
use crate::account::VirtualTime;

type GroupOf = Option<(usize, u32)>;

/// Returns the accounts by which a pwq is served: that of its group, if any, and its own.
pub(super) fn order(tree: &Tree, account: &Account) -> (VirtualTime, VirtualTime) {
    let of_group = account.group.map(|key| tree.groups[&key].account.used());
    (of_group.unwrap_or(account.used()), account.used())
}

/// Pwqs that always have work, with their shares and the times that their items take.
struct Pool {
    pwqs: Vec<(Account, u64)>,
    tree: Tree,
    had_ns: Vec<u64>,
}

impl Pool {
    fn new(pwqs: &[(u32, u64)]) -> Self {
        let groups: Vec<_> =
            pwqs.iter().map(|&(shares, item_ns)| (None, shares, item_ns)).collect();
        Self::with_groups(&groups)
    }

    fn with_groups(pwqs: &[(GroupOf, u32, u64)]) -> Self {
        let mut tree = Tree::default();
        let account = |(slot, &(group, shares, item_ns)): (usize, &(GroupOf, u32, u64))| {
            let mut account = Account::default();
            tree.add(slot, &mut account, group);
            if shares > 0 {
                tree.set_shares(&mut account, shares);
            }
            tree.wait(&mut account);
            (account, item_ns)
        };
        let pwqs: Vec<_> = pwqs.iter().enumerate().map(account).collect();
        Self { had_ns: vec![0; pwqs.len()], pwqs, tree }
    }

    fn take(&mut self, among: usize) -> (usize, Paid) {
        let order = |&at: &usize| order(&self.tree, &self.pwqs[at].0);
        let at = (0..among).min_by_key(order).unwrap();
        let account = &mut self.pwqs[at].0;
        self.tree.pick(account);
        self.tree.leave(account);
        let paid = self.tree.pay(account, 1);
        self.tree.wait(account);
        (at, paid)
    }

    fn end(&mut self, (at, paid): (usize, Paid)) {
        let (account, item_ns) = &mut self.pwqs[at];
        self.tree.settle(Some(account), paid, 1, *item_ns);
        self.had_ns[at] += *item_ns;
    }

    fn used(&self, at: usize) -> VirtualTime {
        self.pwqs[at].0.used()
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
    pool.tree.leave(&mut pool.pwqs[1].0);
    pool.run(1, 10_000);
    pool.tree.wait(&mut pool.pwqs[1].0);
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
fn returned_items_are_not_charged_even_if_shares_change() {
    for shares in [100, 1000] {
        let mut pool = Pool::new(&[(100, 1000)]);
        pool.run(1, 1);
        let before = pool.used(0);
        let account = &mut pool.pwqs[0].0;
        pool.tree.pick(account);
        let paid = pool.tree.pay(account, 5);
        assert!(account.used() > before);
        pool.tree.set_shares(account, shares);
        pool.tree.settle(Some(account), paid, 0, 0);
        assert_eq!(pool.used(0), before, "{shares} shares");
    }
}

#[test]
fn debts_of_pwqs_and_groups_are_converted_to_the_present_shares() {
    let (few, many) = (Some((1, 1)), Some((2, 1000)));
    let ungrouped = [(None, 1, 1_000_000), (None, 1000, 1000)];
    for pwqs in [ungrouped, [(few, 0, 1_000_000), (many, 0, 1000)]] {
        let mut pool = Pool::with_groups(&pwqs);
        let long = pool.take(2);
        assert_eq!(long.0, 0);
        pool.end(long);
        let account = &mut pool.pwqs[0].0;
        if account.group.is_some() {
            assert!(!pool.tree.set_group_shares(account, 1000));
        } else {
            pool.tree.set_shares(account, 1000);
        }
        pool.had_ns.fill(0);
        pool.run(2, 2000);
        assert!(pool.had_ns[0] >= 1_000_000, "{pwqs:?}: {:?}", pool.had_ns);
    }
}

#[test]
fn nothing_overflows() {
    let mut pool = Pool::with_groups(&[(Some((1, 1)), 1, 0)]);
    let account = &mut pool.pwqs[0].0;
    for _ in 0..1000 {
        let paid = pool.tree.pay(account, u64::MAX);
        let mut service = pool.tree.settle(Some(account), paid, 1, u64::MAX);
        service.add(&mut pool.tree, account);
        pool.tree.serve(&service, u64::MAX);
    }
    let least = account.used();
    pool.tree.settle(Some(account), Paid::default(), 1, 0);
    assert!(account.used() >= least);
}

#[test]
fn groups_get_time_by_their_shares_and_queues_within_them() {
    // Two queues of one group, three of another one, and a queue without a group.
    let (first, second) = (Some((1, 100)), Some((2, 200)));
    let mut pool = Pool::with_groups(&[
        (first, 0, 1000),
        (first, 300, 10),
        (second, 100, 1000),
        (second, 100, 500),
        (second, 0, 100),
        (None, 100, 1000),
    ]);
    pool.run(6, 100_000);
    let all: u64 = pool.had_ns.iter().sum();
    for (had, due) in pool.had_ns.iter().zip([3, 9, 8, 8, 8, 12]) {
        assert!(had.abs_diff(all * due / 48) <= 3000, "{had} of {}", all * due / 48);
    }
}

#[test]
fn a_group_that_was_idle_is_next_and_has_no_saved_time() {
    let group = Some((1, 100));
    let mut pool = Pool::with_groups(&[(None, 100, 1000), (group, 0, 1000), (group, 0, 1000)]);
    for at in [1, 2] {
        pool.tree.leave(&mut pool.pwqs[at].0);
    }
    pool.run(1, 10_000);
    for at in [1, 2] {
        pool.tree.wait(&mut pool.pwqs[at].0);
    }
    pool.had_ns.fill(0);
    pool.run(3, 2000);
    for (had, due) in pool.had_ns.iter().zip([1_000_000, 500_000, 500_000]) {
        assert!(had.abs_diff(due) <= 3000, "{had} of {due}");
    }
}

#[test]
fn a_second_pwq_does_not_change_the_account_of_a_waiting_group() {
    let group = Some((1, 100));
    let mut pool = Pool::with_groups(&[(None, 100, 1000), (group, 0, 1000), (group, 0, 1000)]);
    pool.run(3, 30);
    pool.tree.leave(&mut pool.pwqs[2].0);
    // The group pays too much in advance, and so falls behind the queue when it is charged.
    let account = &mut pool.pwqs[1].0;
    let paid = pool.tree.pay(account, 1000);
    pool.run(1, 500);
    pool.tree.settle(Some(&mut pool.pwqs[1].0), paid, 1, 1);
    let before = order(&pool.tree, &pool.pwqs[1].0).0;
    assert!(before < pool.used(0));
    pool.tree.wait(&mut pool.pwqs[2].0);
    assert_eq!(order(&pool.tree, &pool.pwqs[2].0).0, before);
}

#[test]
fn a_group_is_charged_for_a_pwq_that_was_removed() {
    let group = Some((1, 100));
    let mut pool = Pool::with_groups(&[(group, 0, 1000), (group, 0, 1000)]);
    pool.run(1, 10);
    let (at, paid) = pool.take(1);
    let before = order(&pool.tree, &pool.pwqs[1].0).0;
    let account = &mut pool.pwqs[at].0;
    pool.tree.leave(account);
    let mut payments = [paid, Paid::default()];
    pool.tree.remove(account, payments.iter_mut());
    pool.tree.settle(None, payments[0], 1, 1_000_000);
    assert!(order(&pool.tree, &pool.pwqs[1].0).0 > before);
    // The last pwq of the group.
    let account = &mut pool.pwqs[1].0;
    pool.tree.leave(account);
    pool.tree.remove(account, payments.iter_mut());
    pool.tree.settle(None, payments[0], 1, 1_000_000);
}

#[test]
fn nothing_is_owed_within_a_group_that_had_no_work() {
    let group = Some((1, 100));
    let mut pool = Pool::with_groups(&[(group, 1, 1_000_000), (group, 1000, 1000)]);
    let long = pool.take(1);
    pool.end(long);
    for at in [0, 1] {
        pool.tree.leave(&mut pool.pwqs[at].0);
    }
    assert!(!pool.tree.group_waits(&pool.pwqs[0].0));
    pool.tree.rest_group(&pool.pwqs[0].0);
    for at in [0, 1] {
        pool.tree.wait(&mut pool.pwqs[at].0);
    }
    assert_eq!(pool.used(0), pool.used(1));
}
