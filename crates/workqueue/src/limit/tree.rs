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
//! The accounts of pwqs are stored with the pwqs. The tree stores those of groups.

use sync::twin;

use super::account::{Account, Clock, GroupSlot, VirtualTime, Wanting};

/// The accounts of the groups of one pool, and the clocks of all levels.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The clock of the top level.
    clock: Clock,
    /// The groups with pwqs in this pool. The index is the `GroupSlot` minus one.
    groups: Vec<Option<Group>>,
}

#[derive(Debug)]
struct Group {
    /// The address of the group's gate, which identifies the group.
    key: usize,
    account: Account,
    /// The clock of its pwqs.
    clock: Clock,
    /// The number of its pwqs in this pool.
    nr_pwqs: usize,
    /// The number of its pwqs that wait for a turn, if the pool has shares.
    nr_waiting: usize,
}

/// The time that was paid in advance for a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Paid {
    /// `None` if nothing was paid.
    ns: Option<u64>,
    /// The group that also paid. It is charged even if the pwq is removed before the batch ends.
    group: Option<GroupSlot>,
}

/// The end of a service: the pwqs and groups that have work, at the levels whose clocks advance.
#[derive(Debug)]
pub(crate) struct Service {
    top: Wanting,
    of_group: Option<(GroupSlot, Wanting)>,
}

impl Tree {
    /// Adds a pwq, which belongs to the group with this `key` and these shares, or to no group. The
    /// shares are 0 if not set.
    pub(crate) fn add(&mut self, account: &mut Account, group: Option<(usize, u32)>) {
        let Some((key, shares)) = group else { return };
        let is_it = |it: &Option<Group>| it.as_ref().is_some_and(|it| it.key == key);
        let at = self.groups.iter().position(is_it).unwrap_or_else(|| {
            let mut account = Account::default();
            account.set_shares(shares, &self.clock);
            let new = Group { key, account, clock: Clock::default(), nr_pwqs: 0, nr_waiting: 0 };
            let free = self.groups.iter().position(Option::is_none);
            let at = free.unwrap_or_else(|| {
                self.groups.push(None);
                self.groups.len() - 1
            });
            self.groups[at] = Some(new);
            at
        });
        let slot = GroupSlot::MIN.saturating_add(at as u32);
        account.group = Some(slot);
        self.group(slot).nr_pwqs += 1;
    }

    /// Removes a pwq that does not wait. `paid` yields the payments in progress.
    pub(crate) fn remove<'a>(
        &mut self,
        account: &Account,
        paid: impl Iterator<Item = &'a mut Paid>,
    ) {
        let Some(slot) = account.group else { return };
        let group = self.group(slot);
        group.nr_pwqs -= 1;
        if group.nr_pwqs == 0 {
            self.groups[at(slot)] = None;
            paid.filter(|it| it.group == Some(slot)).for_each(|it| it.group = None);
        }
    }

    /// Sets the shares of a pwq. Returns `true` if it had none before.
    pub(crate) fn set_shares(&mut self, account: &mut Account, shares: u32) -> bool {
        let clock = self.clock_mut(account.group);
        account.set_shares(shares, clock)
    }

    /// Sets the shares of a pwq's group. Returns `true` if it had none before.
    pub(crate) fn set_group_shares(&mut self, account: &Account, shares: u32) -> bool {
        let Some(slot) = account.group else { return false };
        let group = self.groups[at(slot)].as_mut().expect("a group in use");
        group.account.set_shares(shares, &self.clock)
    }

    /// Returns the number of accounts with shares on the path of a pwq.
    pub(crate) fn nr_with_shares(&self, account: &Account) -> usize {
        let of_group = account.group.is_some_and(|slot| self.get(slot).account.has_shares());
        usize::from(account.has_shares()) + usize::from(of_group)
    }

    /// Returns `true` if the pwqs are in the same group.
    pub(crate) fn are_siblings(one: &Account, other: &Account) -> bool {
        one.group.is_some() && one.group == other.group
    }

    /// Resets all clocks and the accounts of all groups, because no shares are left. The caller
    /// [closes](Account::close) those of the pwqs.
    pub(crate) fn close(&mut self) {
        self.clock = Clock::default();
        for group in self.groups.iter_mut().flatten() {
            group.account.close();
            group.clock = Clock::default();
            group.nr_waiting = 0;
        }
    }

    /// Returns the key by which waiting pwqs are ordered. The first pwq with the lowest key is
    /// next.
    pub(crate) fn order(&self, account: &Account) -> (VirtualTime, VirtualTime) {
        match account.group {
            None => (account.used(), VirtualTime::default()),
            Some(slot) => (self.get(slot).account.used(), account.used()),
        }
    }

    /// Records that a pwq starts to wait.
    pub(crate) fn wait(&mut self, account: &mut Account) {
        if let Some(slot) = account.group {
            let group = self.groups[at(slot)].as_mut().expect("a group in use");
            if group.nr_waiting == 0 && !twin::armed("shares: idle time of a group is accumulated")
            {
                group.account.wait_from(&self.clock);
            }
            group.nr_waiting += 1;
        }
        account.wait_from(self.clock_mut(account.group));
    }

    /// Records that a pwq no longer waits.
    pub(crate) fn leave(&mut self, account: &Account) {
        if let Some(slot) = account.group {
            self.group(slot).nr_waiting -= 1;
        }
    }

    /// Records that the first pwq in that order is served.
    pub(crate) fn pick(&mut self, account: &Account) {
        self.clock_mut(account.group).pick(account);
        if let Some(slot) = account.group {
            let group = self.groups[at(slot)].as_ref().expect("a group in use");
            self.clock.pick(&group.account);
        }
    }

    /// Makes a pwq and its group pay in advance for `nr_items` of its items.
    pub(crate) fn pay(&mut self, account: &mut Account, nr_items: u64) -> Paid {
        let ns = account.item_ns().unwrap_or(0).saturating_mul(nr_items);
        account.pay(ns);
        if let Some(slot) = account.group
            && !twin::armed("shares: a group pays for nothing")
        {
            self.group(slot).account.pay(ns);
        }
        Paid { ns: Some(ns), group: account.group }
    }

    /// Charges `nr_items` items that took `took_ns` to their pwq, unless it was removed, and to its
    /// group, in place of the payment. The pwqs that have work must be added to the result.
    pub(crate) fn settle(
        &mut self,
        account: Option<&mut Account>,
        paid: Paid,
        nr_items: u64,
        took_ns: u64,
    ) -> Service {
        let slot = account.as_ref().map_or(paid.group, |account| account.group);
        if let Some(account) = account {
            account.settle(self.clock_mut(slot), paid.ns, nr_items, took_ns);
        }
        let Self { clock, groups } = self;
        let mut top = clock.count();
        let of_group = slot.map(|slot| {
            let group = groups[at(slot)].as_mut().expect("a group in use");
            if !twin::armed("shares: a group pays for nothing") {
                group.account.settle(clock, paid.ns, nr_items, took_ns);
            }
            top.add(&mut group.account);
            (slot, group.clock.count())
        });
        Service { top, of_group }
    }

    /// Advances the clocks by a service of `took_ns`.
    pub(crate) fn serve(&mut self, service: &Service, took_ns: u64) {
        self.clock.serve(&service.top, took_ns);
        if let Some((slot, wanting)) = &service.of_group {
            self.group(*slot).clock.serve(wanting, took_ns);
        }
    }

    /// Records that no pwq of the pool has work any more.
    pub(crate) fn rest(&mut self) {
        self.clock.rest();
    }

    /// Returns `true` if the group of a pwq, if there is one, waits for a turn.
    pub(crate) fn group_waits(&self, account: &Account) -> bool {
        account.group.is_some_and(|slot| self.get(slot).nr_waiting > 0)
    }

    /// If this pwq is in a group, records that no pwq of the group has work any more.
    pub(crate) fn rest_group(&mut self, account: &Account) {
        if let Some(slot) = account.group {
            self.group(slot).clock.rest();
        }
    }

    fn get(&self, slot: GroupSlot) -> &Group {
        self.groups[at(slot)].as_ref().expect("a group in use")
    }

    fn group(&mut self, slot: GroupSlot) -> &mut Group {
        self.groups[at(slot)].as_mut().expect("a group in use")
    }

    fn clock_mut(&mut self, level: Option<GroupSlot>) -> &mut Clock {
        match level {
            None => &mut self.clock,
            Some(slot) => &mut self.group(slot).clock,
        }
    }
}

impl Service {
    /// Adds a pwq that waits or whose items are running. A pwq may be added several times.
    pub(crate) fn add(&mut self, tree: &mut Tree, account: &mut Account) {
        let Some(slot) = account.group else {
            return self.top.add(account);
        };
        self.top.add(&mut tree.group(slot).account);
        if let Some((of_group, wanting)) = &mut self.of_group
            && *of_group == slot
        {
            wanting.add(account);
        }
    }
}

fn at(slot: GroupSlot) -> usize {
    slot.get() as usize - 1
}

#[cfg(test)]
mod histories;
#[cfg(test)]
mod tests;
