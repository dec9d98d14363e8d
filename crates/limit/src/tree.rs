//! The accounts of a pool whose queues or groups have shares: a tree of two levels, as pure
//! functions.
//!
//! At the top, groups and pwqs without a group compete for the pool's time. Below a group, its pwqs
//! compete for the time that the group gets. `account.rs` describes the rule for a level. A worker
//! takes the pwq or the group with the lowest account at the top. From a group, it takes the pwq
//! with the lowest account in the group. The pwq's time is charged to the pwq and to the group.
//!
//! A group *waits* while one of its pwqs does. When the first one starts to wait, the group starts
//! to wait as a pwq does, so an idle group accumulates no credit. Twins `shares: idle time of a
//! group is accumulated` and `shares: a group pays for nothing`. When no pwq of a group waits or
//! runs, nothing is owed within the group.
//!
//! The accounts of pwqs are stored with the pwqs. The tree stores those of groups, and for each
//! level the members that wait, in order (`level.rs`).

use std::collections::BTreeMap;

use sync::twin;

use super::account::{Account, Clock, GroupKey, Member, Wanting};
use super::level::Level;

/// The accounts of the groups with pwqs in one pool, and the members of all levels that wait.
#[derive(Debug, Default)]
pub struct Tree {
    top: Level,
    groups: BTreeMap<GroupKey, Group>,
}

#[derive(Debug, Default)]
struct Group {
    account: Account,
    level: Level,
    nr_pwqs: usize,
}

/// The time that was paid in advance for a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paid {
    /// `None` if nothing was paid.
    ns: Option<u64>,
    /// The group that also paid. It is charged even if the pwq is removed before the batch ends.
    group: Option<GroupKey>,
}

/// The end of a service: the pwqs and groups that have work, at the levels whose clocks advance.
#[derive(Debug)]
pub struct Service {
    top: Wanting,
    of_group: Option<(GroupKey, Wanting)>,
}

impl Tree {
    /// Adds the pwq `slot`, which belongs to the group with this `key` and these shares, or to no
    /// group. The shares are 0 if not set.
    pub fn add(&mut self, slot: usize, account: &mut Account, group: Option<(GroupKey, u32)>) {
        account.member = Member::Pwq(slot);
        let Some((key, shares)) = group else { return };
        account.group = Some(key);
        let group = self.groups.entry(key).or_default();
        group.nr_pwqs += 1;
        if group.nr_pwqs == 1 {
            group.account.member = Member::Group(key);
            group.account.set_shares(shares, &self.top.clock);
        }
    }

    /// Removes a pwq that does not wait. `paid` yields the payments in progress.
    pub fn remove<'a>(&mut self, account: &Account, paid: impl Iterator<Item = &'a mut Paid>) {
        let Some(key) = account.group else { return };
        let group = self.group(key);
        group.nr_pwqs -= 1;
        if group.nr_pwqs == 0 {
            self.groups.remove(&key);
            paid.filter(|it| it.group == Some(key)).for_each(|it| it.group = None);
        }
    }

    /// Sets the shares of a pwq. Returns `true` if it had none before.
    pub fn set_shares(&mut self, account: &mut Account, shares: u32) -> bool {
        let level = self.level(account.group);
        level.change(account, |it, clock| it.set_shares(shares, clock))
    }

    /// Sets the shares of a pwq's group. Returns `true` if it had none before.
    pub fn set_group_shares(&mut self, account: &Account, shares: u32) -> bool {
        let Some(key) = account.group else { return false };
        self.change_group(key, |it, clock| it.set_shares(shares, clock))
    }

    /// Returns the number of accounts with shares on the path of a pwq.
    pub fn nr_with_shares(&self, account: &Account) -> usize {
        let of_group = account.group.is_some_and(|key| self.groups[&key].account.has_shares());
        usize::from(account.has_shares()) + usize::from(of_group)
    }

    pub fn are_siblings(one: &Account, other: &Account) -> bool {
        one.group.is_some() && one.group == other.group
    }

    /// Resets all clocks and the accounts of all groups, because no shares are left and no pwq
    /// waits. The caller [closes](Account::close) those of the pwqs.
    pub fn close(&mut self) {
        self.top = Level::default();
        for group in self.groups.values_mut() {
            group.account.close();
            group.level = Level::default();
        }
    }

    /// Returns the waiting pwq that is served next: the one with the lowest account, of the group
    /// with the lowest account. If accounts are equal, the first to wait is served first.
    #[inline]
    pub fn first(&self) -> Option<usize> {
        let mut member = self.top.first()?;
        loop {
            match member {
                Member::Pwq(slot) => return Some(slot),
                Member::Group(key) => member = self.groups[&key].level.first()?,
            }
        }
    }

    pub fn wait(&mut self, account: &mut Account) {
        if let Some(key) = account.group {
            let group = self.groups.get_mut(&key).expect("a group in use");
            if group.level.is_empty() {
                self.top.enter(&mut group.account);
            }
        }
        self.level(account.group).enter(account);
    }

    pub fn leave(&mut self, account: &mut Account) {
        self.level(account.group).leave(account);
        if let Some(key) = account.group {
            let group = self.groups.get_mut(&key).expect("a group in use");
            if group.level.is_empty() {
                self.top.leave(&mut group.account);
            }
        }
    }

    /// Records that this pwq, the [first](Self::first), is served.
    pub fn pick(&mut self, account: &Account) {
        self.level(account.group).clock.pick(account);
        if let Some(key) = account.group {
            self.top.clock.pick(&self.groups[&key].account);
        }
    }

    /// Makes a pwq and its group pay in advance for `nr_items` of its items.
    pub fn pay(&mut self, account: &mut Account, nr_items: u64) -> Paid {
        let ns = account.item_ns().unwrap_or(0).saturating_mul(nr_items);
        self.level(account.group).change(account, |it, _| it.pay(ns));
        if let Some(key) = account.group
            && !twin::armed("shares: a group pays for nothing")
        {
            self.change_group(key, |it, _| it.pay(ns));
        }
        Paid { ns: Some(ns), group: account.group }
    }

    /// Charges `nr_items` items that took `took_ns` to their pwq, unless it was removed, and to its
    /// group, in place of the payment. The pwqs that have work must be added to the result.
    pub fn settle(
        &mut self,
        account: Option<&mut Account>,
        paid: Paid,
        nr_items: u64,
        took_ns: u64,
    ) -> Service {
        let key = account.as_ref().map_or(paid.group, |account| account.group);
        let settle = |it: &mut Account, clock: &mut Clock| {
            it.settle(clock, paid.ns, nr_items, took_ns);
        };
        if let Some(account) = account {
            self.level(key).change(account, settle);
        }
        let of_group = key.map(|key| {
            if !twin::armed("shares: a group pays for nothing") {
                self.change_group(key, settle);
            }
            (key, self.group(key).level.count())
        });
        let mut top = self.top.count();
        if let Some(key) = key {
            top.add(&mut self.group(key).account);
        }
        Service { top, of_group }
    }

    /// Advances the clocks by a service of `took_ns`.
    pub fn serve(&mut self, service: &Service, took_ns: u64) {
        self.top.clock.serve(&service.top, took_ns);
        if let Some((key, wanting)) = &service.of_group {
            self.group(*key).level.clock.serve(wanting, took_ns);
        }
    }

    /// Records that no pwq of the pool has work any more.
    pub fn rest(&mut self) {
        self.top.clock.rest();
    }

    /// Returns `true` if the group of a pwq, if there is one, waits for a turn.
    #[inline]
    pub fn group_waits(&self, account: &Account) -> bool {
        account.group.is_some_and(|key| !self.groups[&key].level.is_empty())
    }

    /// If this pwq is in a group, records that no pwq of the group has work any more.
    #[inline]
    pub fn rest_group(&mut self, account: &Account) {
        if let Some(key) = account.group {
            self.group(key).level.clock.rest();
        }
    }

    fn group(&mut self, key: GroupKey) -> &mut Group {
        self.groups.get_mut(&key).expect("a group in use")
    }

    fn change_group<R>(
        &mut self,
        key: GroupKey,
        change: impl FnOnce(&mut Account, &mut Clock) -> R,
    ) -> R {
        let group = self.groups.get_mut(&key).expect("a group in use");
        self.top.change(&mut group.account, change)
    }

    fn level(&mut self, group: Option<GroupKey>) -> &mut Level {
        match group {
            None => &mut self.top,
            Some(key) => &mut self.group(key).level,
        }
    }
}

impl Service {
    /// Adds a pwq whose items are running. A pwq may be added several times. Pwqs that wait are
    /// already included.
    pub fn add(&mut self, tree: &mut Tree, account: &mut Account) {
        let Some(key) = account.group else {
            return self.top.add(account);
        };
        self.top.add(&mut tree.group(key).account);
        if let Some((of_group, wanting)) = &mut self.of_group
            && *of_group == key
        {
            wanting.add(account);
        }
    }
}

#[cfg(test)]
mod histories;
#[cfg(test)]
mod tests;
