//! The part of a pool that selects the next pwq, by shares of CPU time if there are any.
//! `limit/tree.rs` has the accounts.

use std::collections::VecDeque;

use limit::internal::account::Account;
use limit::internal::tree::{Paid, Tree};
use sync::atomic::Ordering;

use super::{Dispatch, Worker};
use crate::pools::pwq::{PwqState, WaitsFor};
use crate::pools::seats::GroupGate;

impl Dispatch {
    /// Returns `true` if pwqs are served in the order of the time that they and their groups have
    /// used.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.nr_with_shares > 0
    }

    pub(super) fn add_account(&mut self, slot: usize) {
        let pwq = self.pwqs[slot].as_mut().expect("a pwq in use");
        let shares = pwq.core.shares.load(Ordering::Relaxed);
        let of_group = pwq.core.group_shares.load(Ordering::Relaxed);
        let key = pwq.group.as_ref().map(|group| GroupGate::as_ptr(group).addr());
        self.tree.add(slot, &mut pwq.account, key.map(|key| (key, of_group)));
        if shares > 0 {
            self.tree.set_shares(&mut pwq.account, shares);
        }
        self.count_shares(slot, true);
    }

    pub(super) fn remove_account(&mut self, slot: usize) {
        if !self.pwq(slot).retired {
            self.count_shares(slot, false);
        }
        let paid = self.workers.iter_mut().flatten().map(|it| &mut it.paid);
        self.tree.remove(account(&mut self.pwqs, slot), paid);
    }

    /// Sets the shares of a pwq in the pool's time, or in that of its group.
    pub(crate) fn set_shares(&mut self, slot: usize, shares: u32) {
        let pwq = self.pwqs[slot].as_mut().expect("a pwq in use");
        if self.tree.set_shares(&mut pwq.account, shares) && !pwq.retired {
            self.set_nr_with_shares(self.nr_with_shares + 1);
        }
    }

    /// Sets the shares of a pwq's group in the pool's time.
    pub(crate) fn set_group_shares(&mut self, slot: usize, shares: u32) {
        if self.tree.set_group_shares(account(&mut self.pwqs, slot), shares) {
            let account = &self.pwq(slot).account;
            let its = |it: &&PwqState| !it.retired && Tree::are_siblings(&it.account, account);
            let nr_more = self.pwqs().filter(its).count();
            self.set_nr_with_shares(self.nr_with_shares + nr_more);
        }
    }

    pub(super) fn count_shares(&mut self, slot: usize, more: bool) {
        let nr = self.tree.nr_with_shares(&self.pwq(slot).account);
        let before = self.nr_with_shares;
        self.set_nr_with_shares(if more { before + nr } else { before - nr });
    }

    /// When the first shares are set, orders all waiting items by use. When no shares are left,
    /// resets all accounts.
    fn set_nr_with_shares(&mut self, nr: usize) {
        let before = std::mem::replace(&mut self.nr_with_shares, nr);
        if before == 0 && nr > 0 {
            for slot in self.seated.iter().copied().chain(self.ready.drain(..)) {
                self.tree.wait(account(&mut self.pwqs, slot));
            }
            let pending = std::mem::take(&mut self.pending);
            self.sort(pending);
        } else if before > 0 && nr == 0 {
            while let Some(slot) = self.tree.first() {
                self.tree.leave(account(&mut self.pwqs, slot));
                if !self.seated.contains(&slot) {
                    self.ready.push_back(slot);
                }
            }
            self.tree.close();
            for pwq in self.pwqs.iter_mut().flatten() {
                pwq.account.close();
            }
            for enlisted in self.workers.iter_mut().flatten() {
                enlisted.paid = Paid::default();
            }
        }
    }

    /// Records that a worker took no item. If no worker holds a seat, nothing is owed from now on.
    pub(crate) fn rest(&mut self) {
        if self.is_shared() && self.workers().all(|it| it.seats().next().is_none()) {
            self.tree.rest();
        }
    }

    /// Records that a worker released its seat for a pwq. If no pwq of its group waits or runs,
    /// nothing is owed within the group from now on.
    pub(crate) fn rest_group(&mut self, slot: usize) {
        if !self.is_shared() {
            return;
        }
        let its = &self.pwq(slot).account;
        let runs = |slot| Tree::are_siblings(&self.pwq(slot).account, its);
        if !self.tree.group_waits(its) && !self.workers().flat_map(|it| it.seats()).any(runs) {
            self.tree.rest_group(account(&mut self.pwqs, slot));
        }
    }

    pub(crate) fn has_ready(&self) -> bool {
        self.nr_ready > 0
    }

    /// Makes a pwq with a seat of its queue wait for its turn.
    pub(crate) fn await_turn(&mut self, slot: usize) {
        self.note_ready(slot);
        if !self.is_shared() {
            self.ready.push_back(slot);
        }
    }

    /// Makes a pwq that has all seats, and whose turn has come, wait for a worker.
    pub(crate) fn seat(&mut self, slot: usize) {
        self.note_ready(slot);
        self.seated.push_back(slot);
    }

    fn note_ready(&mut self, slot: usize) {
        self.nr_ready += 1;
        self.pwq_mut(slot).waits = Some(WaitsFor::Turn);
        if self.is_shared() {
            self.tree.wait(account(&mut self.pwqs, slot));
        }
    }

    /// Takes the first pwq that has all seats and waits for a worker.
    pub(crate) fn next_seated(&mut self) -> Option<usize> {
        let slot = self.seated.pop_front()?;
        self.end_wait(slot);
        Some(slot)
    }

    pub(crate) fn next_turn(&mut self) -> Option<usize> {
        let slot = if self.is_shared() {
            let slot = self.tree.first()?;
            self.tree.pick(account(&mut self.pwqs, slot));
            slot
        } else {
            self.ready.pop_front()?
        };
        self.end_wait(slot);
        Some(slot)
    }

    /// Takes a pwq that waits for its turn. Returns `true` if it has all seats.
    pub(crate) fn take_ready(&mut self, slot: usize) -> bool {
        let remove = |from: &mut VecDeque<usize>| {
            let at = from.iter().position(|&it| it == slot);
            at.is_some_and(|at| from.remove(at).is_some())
        };
        let has_all = remove(&mut self.seated);
        if !has_all && self.nr_with_shares == 0 {
            remove(&mut self.ready);
        }
        self.end_wait(slot);
        has_all
    }

    fn end_wait(&mut self, slot: usize) {
        self.nr_ready -= 1;
        self.pwq_mut(slot).waits = None;
        if self.is_shared() {
            self.tree.leave(account(&mut self.pwqs, slot));
        }
    }

    /// Returns the pwq that is served next, of those that wait for their turn.
    pub(crate) fn first_ready(&self) -> Option<usize> {
        let listed = self.seated.front().or(self.ready.front());
        listed.copied().or_else(|| self.tree.first())
    }

    /// Charges a leg of the last batch of `worker` to its pwq and group, and advances the clocks.
    /// The pwq may have been removed since.
    pub(crate) fn charge(&mut self, worker: &Worker, leg: usize, nr_items: u64, took_ns: u64) {
        let enlisted = self.enlisted_mut(worker);
        let (its, paid) = (enlisted.legs[leg].slot, std::mem::take(&mut enlisted.paid));
        let Self { pwqs, workers, tree, .. } = self;
        let of_its = its.map(|slot| account(pwqs, slot));
        let mut service = tree.settle(of_its, paid, nr_items, took_ns);
        if nr_items == 0 {
            return;
        }
        // A worker that sleeps in an item uses no CPU time. If its pwq were counted, each such
        // worker would slow down the clock.
        let awake = workers.iter().flatten().filter(|it| !it.away.sleeps());
        for slot in awake.flat_map(|it| it.seats()).chain(its) {
            service.add(tree, account(pwqs, slot));
        }
        tree.serve(&service, took_ns);
    }

    /// Makes the pwq pay in advance for the batch that `worker` takes.
    pub(crate) fn pay(&mut self, worker: &Worker, slot: usize, nr_taken: usize) {
        let paid = self.tree.pay(account(&mut self.pwqs, slot), nr_taken as u64);
        self.enlisted_mut(worker).paid = paid;
    }
}

fn account(pwqs: &mut [Option<PwqState>], slot: usize) -> &mut Account {
    &mut pwqs[slot].as_mut().expect("a pwq in use").account
}
