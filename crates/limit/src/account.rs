//! The CPU time that queues with shares have used in a pool, as pure functions.
//!
//! # The rule
//!
//! Each pool workqueue has an account in *virtual time*: the time that its items took, divided by
//! its queue's shares. The waiting pwq with the lowest account is served next. Pwqs that always
//! have work therefore get time in proportion to their shares, and the pool never waits for a pwq
//! without work.
//!
//! A group also has an account in each pool. Groups, and pwqs whose queues are in no group, compete
//! with each other; the pwqs of a group compete for the time of their group. Both levels have the
//! same rule, each with its own clock (`tree.rs`). The rule is described here for pwqs.
//!
//! - *Time is paid in advance*, based on the average time of the pwq's items, and settled when the
//!   actual time is known. Workers that arrive at the same time therefore do not all choose the
//!   same pwq.
//! - *An idle pwq accumulates no credit.* When it has work again, its account is raised to that of
//!   the pwq that was picked last, if it is lower. A pwq that was idle for an hour is therefore
//!   served next, once, and then gets its share.
//! - *A new pwq is not preferred.* Its account starts at the *service clock*, which is about the
//!   average of the pwqs that have work for the pool. If it started where an idle pwq does, pwqs
//!   created for a single item would get every turn.
//! - *Nothing is owed for time that no other pwq needed.* When no pwq has work any more, both
//!   clocks advance to the highest account.
//! - *Debts depend on the present shares.* When the shares change, the distance between the pwq's
//!   account and the clock is converted. Otherwise a pwq that ran with few shares would wait
//!   equally long, no matter how many shares it is given afterwards.
//!
//! This is stride scheduling (Waldspurger and Weihl, 1995), with the clock of start-time fair
//! queueing (Goyal, Vin and Cheng, 1996).
//!
//! # The service clock
//!
//! Each service advances the clock by the time of the service, divided by the sum of the weights of
//! all pwqs that have work for the pool when the service ends. This is the virtual time of weighted
//! fair queueing: the account of a pwq that has always received exactly its share.
//!
//! The clock also counts the service of removed pwqs, so a chain of new pwqs advances the clock,
//! and the waiting pwqs catch up with it. Two bounds keep the clock near the pwqs that have work
//! for the pool:
//!
//! - It is never behind the pwq that was picked last. Otherwise each new pwq would be served
//!   next.
//! - It is at most a few services (`SLACK`) ahead of the average of these pwqs. A pwq that was idle
//!   starts behind the clock. It takes some time from the others, but does not move the clock back.
//!   Without this bound these amounts would add up, and a new pwq would wait for all of them.

use sync::twin;

/// The shares of a queue or group that has set none, if another one in the pool has. It is the
/// default of `cpu.weight`.
const DEFAULT_SHARES: u32 = 100;

/// The maximum distance of the service clock ahead of the average of the pwqs that have work, as a
/// multiple of the longest service. In random histories of new pwqs the distance reaches 5. With a
/// smaller bound, waiting pwqs get less than their due: 0.86 of it with 2, and 0.96 with 8. With a
/// larger bound, a new pwq may wait longer.
pub(crate) const SLACK: u64 = 8;

/// Time divided by shares. The unit is small enough to represent a nanosecond divided by the
/// maximum number of shares, and the type can hold a hundred years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct VirtualTime(u128);

/// A pwq, by its slot, or a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Member {
    Pwq(usize),
    Group(GroupKey),
}

#[derive(Debug, Default)]
pub struct Account {
    pub(crate) member: Member,
    /// The shares of the queue or group; 0 if not set.
    shares: u32,
    /// The group for whose time the pwq competes, if any.
    pub(crate) group: Option<GroupKey>,
    used: VirtualTime,
    /// The average run time of an item; 0 until one has run.
    item_ns: u64,
    /// Set once the pwq has waited for a turn, and is therefore no longer new.
    has_waited: bool,
    /// The number of this wait among those of its level; 0 if it does not wait.
    pub(crate) entered: u64,
    /// The value of `Clock::nr_services` when the pwq was last counted.
    counted_at: u64,
}

/// The address of a group's gate, which identifies the group.
pub(crate) type GroupKey = usize;

/// The accounts at which the pwqs of one level start.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// The account of the pwq that was picked last. Pwqs that were idle start here.
    picked: VirtualTime,
    /// The service clock, see the top of the file. New pwqs start here.
    service: VirtualTime,
    /// The highest account after any service.
    highest: VirtualTime,
    nr_services: u64,
    /// The estimated length of the longest recent service.
    longest_ns: u64,
}

/// The pwqs that have work for the pool when a service ends, each counted once.
#[derive(Debug)]
pub(crate) struct Wanting {
    /// The values of the clock when the service ended.
    nr_services: u64,
    picked: VirtualTime,
    pub(crate) weight: u128,
    /// The sum of their distances from the pwq that was picked last, each multiplied by the pwq's
    /// weight.
    ahead: u128,
}

impl Clock {
    /// Records that the pwq with this account, the lowest one, is served next.
    pub(crate) fn pick(&mut self, account: &Account) {
        self.picked = self.picked.max(account.used);
        self.service = self.service.max(self.picked);
    }

    /// Starts counting the pwqs that have work for the pool, at the end of a service. `weight` and
    /// `used` are the sums over those that wait: of their weights, and of their accounts, each
    /// multiplied by its weight, modulo 2^128.
    pub(crate) fn count(&mut self, weight: u128, used: u128) -> Wanting {
        self.nr_services += 1;
        let Self { nr_services, picked, .. } = *self;
        // A pwq that was charged too much in advance may be behind.
        let ahead = used.wrapping_sub(picked.0.wrapping_mul(weight)) as i128;
        Wanting { nr_services, picked, weight, ahead: ahead.max(0) as u128 }
    }

    /// Advances the service clock by `took_ns`, the time of a service, divided by the weights of
    /// `wanting`.
    pub(crate) fn serve(&mut self, wanting: &Wanting, took_ns: u64) {
        let weight = wanting.weight.max(1);
        self.longest_ns = took_ns.max(self.longest_ns - self.longest_ns / 64);
        let slack = price(self.longest_ns.saturating_mul(SLACK), weight);
        let average = self.picked.0.saturating_add(wanting.ahead / weight);
        let most = average.saturating_add(slack.0);
        let moved = self.service.0 + price(took_ns, weight).0;
        self.service = VirtualTime(moved.min(most)).max(self.picked);
    }

    /// Advances both clocks to the highest account, because no pwq has work any more.
    pub(crate) fn rest(&mut self) {
        self.picked = self.picked.max(self.highest);
        self.service = self.picked;
    }
}

impl Wanting {
    /// Counts a pwq whose items are running. A pwq may be added several times.
    pub(crate) fn add(&mut self, account: &mut Account) {
        if account.entered == 0 && account.counted_at != self.nr_services {
            account.counted_at = self.nr_services;
            self.weight += account.weight();
            let ahead = account.used.0.saturating_sub(self.picked.0);
            self.ahead = self.ahead.saturating_add(ahead.saturating_mul(account.weight()));
        }
    }
}

impl Account {
    /// Sets the shares, relative to the `clock` of the level. Returns `true` if no shares were set
    /// before.
    pub(crate) fn set_shares(&mut self, shares: u32, clock: &Clock) -> bool {
        let before = self.weight();
        let is_first = std::mem::replace(&mut self.shares, shares) == 0;
        let ahead = self.used.0.saturating_sub(clock.picked.0);
        self.used.0 = self.used.0 - ahead + ahead.saturating_mul(before) / self.weight();
        is_first
    }

    /// Resets the account, together with the clock, because no pwq has shares any longer.
    pub fn close(&mut self) {
        self.used = VirtualTime::default();
        self.counted_at = 0;
    }

    pub(crate) fn has_shares(&self) -> bool {
        self.shares > 0
    }

    pub(crate) fn used(&self) -> VirtualTime {
        self.used
    }

    pub fn item_ns(&self) -> Option<u64> {
        (self.item_ns > 0).then_some(self.item_ns)
    }

    /// Records that the pwq starts to wait, relative to the `clock` of the level.
    pub(crate) fn wait_from(&mut self, clock: &Clock) {
        let was_idle = std::mem::replace(&mut self.has_waited, true)
            || twin::armed("shares: a new pwq begins as an idle one");
        let begin = if was_idle { clock.picked } else { clock.service };
        if !twin::armed("shares: idle time is accumulated") {
            self.used = self.used.max(begin);
        }
    }

    pub(crate) fn pay(&mut self, ns: u64) {
        self.used.0 += price(ns, self.weight()).0;
    }

    /// Charges for the time that `nr_items` items took, and refunds `paid_ns` if it was paid in
    /// advance. Both are priced with the current shares, because the account was converted when the
    /// shares changed.
    pub(crate) fn settle(
        &mut self,
        clock: &mut Clock,
        paid_ns: Option<u64>,
        nr_items: u64,
        took_ns: u64,
    ) {
        let paid = paid_ns.map_or(0, |ns| price(ns, self.weight()).0);
        self.used.0 = self.used.0.saturating_sub(paid);
        let Some(each) = took_ns.checked_div(nr_items) else {
            return;
        };
        self.used.0 += price(took_ns, self.weight()).0;
        clock.highest = clock.highest.max(self.used);
        let each = each.max(1);
        self.item_ns = match self.item_ns {
            0 => each,
            before => (before - before / 8 + each / 8).max(1),
        };
    }

    pub(crate) fn weight(&self) -> u128 {
        u128::from(or_default(self.shares))
    }

    /// Returns the account, multiplied by its weight, modulo 2^128.
    pub(crate) fn weighted(&self) -> u128 {
        self.used.0.wrapping_mul(self.weight())
    }
}

impl Default for Member {
    fn default() -> Self {
        Self::Pwq(0)
    }
}

/// Returns the shares, or the default if they are 0, which means that none are set.
pub(crate) fn or_default(shares: u32) -> u32 {
    if shares == 0 { DEFAULT_SHARES } else { shares }
}

/// Returns the price of `ns` nanoseconds at a weight. The time counts as at least a nanosecond,
/// even on a coarse clock, because a pwq that pays nothing would always be served next.
fn price(ns: u64, weight: u128) -> VirtualTime {
    VirtualTime(((u128::from(ns.max(1)) << 32) / weight).max(1))
}
