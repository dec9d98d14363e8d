//! The order in which the members of one level of a pool's [tree](super::tree) are served.
//!
//! The members that wait are kept in a sorted set, so that finding the next one takes logarithmic
//! time. Two sums over them are kept up to date, so that an advance of the service clock visits no
//! member. Each change of an account therefore goes through its level.

use std::collections::BTreeSet;

use sync::twin;

use super::account::{Account, Clock, Member, VirtualTime, Wanting};

#[derive(Debug, Default)]
pub(crate) struct Level {
    pub(crate) clock: Clock,
    /// The members by their accounts, and then by the order in which they began to wait.
    waiting: BTreeSet<(VirtualTime, u64, Member)>,
    nr_entered: u64,
    weight: u128,
    /// The sum of their accounts, each multiplied by its weight, modulo 2^128.
    used: u128,
}

impl Level {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn first(&self) -> Option<Member> {
        self.waiting.first().map(|it| it.2)
    }

    pub(crate) fn enter(&mut self, account: &mut Account) {
        let is_group = matches!(account.member, Member::Group(_));
        if !(is_group && twin::armed("shares: idle time of a group is accumulated")) {
            account.wait_from(&self.clock);
        }
        self.nr_entered += 1;
        account.entered = self.nr_entered;
        self.insert(account);
    }

    pub(crate) fn leave(&mut self, account: &mut Account) {
        self.remove(account);
        account.entered = 0;
    }

    pub(crate) fn change<R>(
        &mut self,
        account: &mut Account,
        change: impl FnOnce(&mut Account, &mut Clock) -> R,
    ) -> R {
        if account.entered > 0 {
            self.remove(account);
        }
        let result = change(account, &mut self.clock);
        if account.entered > 0 {
            self.insert(account);
        }
        result
    }

    /// Starts counting the members that have work for the pool, at the end of a service. Those that
    /// wait are counted.
    pub(crate) fn count(&mut self) -> Wanting {
        self.clock.count(self.weight, self.used)
    }

    fn insert(&mut self, account: &Account) {
        self.waiting.insert(key(account));
        self.weight += account.weight();
        self.used = self.used.wrapping_add(account.weighted());
    }

    fn remove(&mut self, account: &Account) {
        let found = self.waiting.remove(&key(account));
        debug_assert!(found, "it does not wait");
        self.weight -= account.weight();
        self.used = self.used.wrapping_sub(account.weighted());
    }
}

fn key(account: &Account) -> (VirtualTime, u64, Member) {
    (account.used(), account.entered, account.member)
}
