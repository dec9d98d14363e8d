//! Random histories of pwqs, with and without groups, that are added, wait, run, change their
//! shares and are cancelled, compared with a slow and obvious model.
//!
//! The model is a fluid: at each moment it divides the time of the workers by weight among the
//! groups and ungrouped pwqs that have work for the pool. It divides the time of each group by
//! weight among the pwqs of the group that have work.

use super::tests::order;
use super::*;
use crate::account::SLACK;

const LONGEST_NS: u64 = 20_000;

const NR_HISTORIES: u64 = if cfg!(sim) { 200 } else { 20_000 };

struct Link {
    account: Account,
    /// The index of its group, which is also the group's key.
    group: Option<usize>,
    shares: u32,
    nr_waiting: u32,
    nr_running: u32,
    had_ns: f64,
    due_ns: f64,
}

/// A pool. Each entry of `running` is a pwq that a worker serves, with the payment in advance.
#[derive(Default)]
struct World {
    pwqs: Vec<Link>,
    ready: Vec<usize>,
    running: Vec<(usize, Paid)>,
    tree: Tree,
    groups: Vec<u32>,
}

/// The result of a history, in units of the longest item.
#[derive(Default)]
struct Ends {
    /// The amount by which the first pwq, which always waits, falls short of nine tenths of the
    /// time that it is due.
    behind: f64,
    /// The longest time that was due to a new pwq before its first item ended.
    late: f64,
}

impl Link {
    fn wants(&self) -> bool {
        self.nr_waiting + self.nr_running > 0
    }
}

impl World {
    fn add(&mut self, group: Option<usize>, shares: u32, nr_items: u32) {
        let mut account = Account::default();
        self.tree.add(self.pwqs.len(), &mut account, group.map(|at| (at, self.groups[at])));
        self.tree.set_shares(&mut account, shares);
        let (nr_waiting, nr_running, had_ns, due_ns) = (0, 0, 0.0, 0.0);
        self.pwqs.push(Link { account, group, shares, nr_waiting, nr_running, had_ns, due_ns });
        self.queue(self.pwqs.len() - 1, nr_items);
    }

    fn queue(&mut self, at: usize, nr_items: u32) {
        self.pwqs[at].nr_waiting += nr_items;
        self.request_seat(at);
    }

    fn request_seat(&mut self, at: usize) {
        let pwq = &mut self.pwqs[at];
        if pwq.nr_waiting > 0 && !self.ready.contains(&at) {
            self.tree.wait(&mut pwq.account);
            self.ready.push(at);
        }
    }

    fn take(&mut self) -> usize {
        let at = self.tree.first().expect("a pwq waits");
        self.check_first(at);
        self.ready.retain(|&it| it != at);
        let pwq = &mut self.pwqs[at];
        self.tree.pick(&pwq.account);
        self.tree.leave(&mut pwq.account);
        let paid = self.tree.pay(&mut pwq.account, 1);
        pwq.nr_waiting -= 1;
        pwq.nr_running += 1;
        self.running.push((at, paid));
        self.request_seat(at);
        at
    }

    fn check_first(&self, at: usize) {
        let used = |&at: &usize| order(&self.tree, &self.pwqs[at].account);
        let of_top = self.ready.iter().map(|at| used(at).0).min();
        assert_eq!(of_top, Some(used(&at).0));
        let its = |&&it: &&usize| self.pwqs[it].group == self.pwqs[at].group;
        let in_group = self.ready.iter().filter(its).map(|at| used(at).1).min();
        assert_eq!(in_group, Some(used(&at).1));
    }

    /// Checks that all pwqs and groups with work are counted at the end of a service in `group`.
    /// Visits all pwqs.
    fn check_weights(&self, service: &Service, group: Option<usize>) {
        let wants = |group| self.pwqs.iter().filter(move |it| it.wants() && it.group == group);
        let weight = |group| wants(group).map(|it| u128::from(it.shares)).sum::<u128>();
        let groups = (0..self.groups.len()).filter(|&at| wants(Some(at)).count() > 0);
        let of_groups: u32 = groups.map(|at| self.groups[at]).sum();
        assert_eq!(service.top.weight, weight(None) + u128::from(of_groups));
        let of_group = service.of_group.as_ref().map(|it| it.1.weight);
        assert_eq!(of_group, group.map(|at| weight(Some(at))));
    }

    fn end(&mut self, worker: usize, took_ns: u64) {
        let (at, paid) = self.running[worker];
        let account = &mut self.pwqs[at].account;
        let mut service = self.tree.settle(Some(account), paid, 1, took_ns);
        let running = self.running.iter().map(|it| it.0);
        for at in running {
            service.add(&mut self.tree, &mut self.pwqs[at].account);
        }
        self.check_weights(&service, self.pwqs[at].group);
        self.tree.serve(&service, took_ns);
        self.running.remove(worker);
        self.divide(took_ns as f64);
        let pwq = &mut self.pwqs[at];
        pwq.had_ns += took_ns as f64;
        pwq.nr_running -= 1;
        let group = pwq.group;
        if group.is_some() && !self.pwqs.iter().any(|it| it.wants() && it.group == group) {
            self.tree.rest_group(&self.pwqs[at].account);
        }
    }

    fn divide(&mut self, ns: f64) {
        let weight_in = |group: Option<usize>| -> u32 {
            let its = self.pwqs.iter().filter(|it| it.wants() && it.group == group);
            its.map(|it| it.shares).sum()
        };
        let of_groups: Vec<_> = (0..self.groups.len()).map(|at| weight_in(Some(at))).collect();
        let busy = of_groups.iter().zip(&self.groups).filter(|it| *it.0 > 0);
        let all = f64::from(weight_in(None) + busy.map(|it| it.1).sum::<u32>());
        for pwq in self.pwqs.iter_mut().filter(|it| it.wants()) {
            let part =
                pwq.group.map_or(1.0, |at| f64::from(self.groups[at]) / f64::from(of_groups[at]));
            pwq.due_ns += ns * part * f64::from(pwq.shares) / all;
        }
    }

    fn set_shares(&mut self, at: usize, shares: u32) {
        let pwq = &mut self.pwqs[at];
        pwq.shares = shares;
        self.tree.set_shares(&mut pwq.account, shares);
    }

    fn set_group_shares(&mut self, at: usize, shares: u32) {
        self.groups[at] = shares;
        if let Some(pwq) = self.pwqs.iter().find(|it| it.group == Some(at)) {
            self.tree.set_group_shares(&pwq.account, shares);
        }
    }

    fn cancel(&mut self, at: usize) {
        let pwq = &mut self.pwqs[at];
        pwq.nr_waiting = 0;
        if let Some(place) = self.ready.iter().position(|&it| it == at) {
            self.ready.remove(place);
            self.tree.leave(&mut pwq.account);
        }
    }
}

fn dice_of(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

fn run(seed: u64, nr_groups: usize) -> Ends {
    let mut dice = dice_of(seed);
    let (mut world, mut ends) = (World::default(), Ends::default());
    let (nr_workers, nr_at_once) = (1 + dice(4), 1 + dice(6));
    let (returns, change) = (dice(3) == 0, dice(3) == 0);
    let shares = [20, 100, 100, 500];
    world.groups = (0..nr_groups).map(|_| shares[dice(4)]).collect();
    let group = |dice: &mut dyn FnMut(usize) -> usize| match nr_groups {
        0 => None,
        nr => Some(dice(nr + 1)).filter(|&at| at < nr),
    };
    world.add(group(&mut dice), shares[dice(4)], u32::MAX);
    for _ in 0..240 {
        let nr_pwqs = world.pwqs.len();
        let nr_wanting = world.pwqs.iter().filter(|it| it.wants()).count();
        match dice(32) {
            0..12 if nr_wanting <= nr_at_once => {
                world.add(group(&mut dice), shares[dice(4)], 1 + dice(2) as u32);
            }
            12..16 if returns => {
                let at = dice(nr_pwqs.min(6));
                if !world.pwqs[at].wants() {
                    world.queue(at, 1);
                }
            }
            16 if change && nr_groups > 0 && dice(2) == 0 => {
                world.set_group_shares(dice(nr_groups), shares[dice(4)]);
            }
            16 if change => world.set_shares(dice(nr_pwqs), shares[dice(4)]),
            17 if change && nr_pwqs > 1 => world.cancel(1 + dice(nr_pwqs - 1)),
            _ if world.running.len() < nr_workers => {
                world.take();
            }
            _ => world.end(dice(world.running.len()), 1 + dice(LONGEST_NS as usize) as u64),
        }
        let old = &world.pwqs[0];
        ends.behind = ends.behind.max(0.9 * old.due_ns - old.had_ns);
        let new = world.pwqs[1..].iter().filter(|it| it.had_ns == 0.0);
        ends.late = new.map(|it| it.due_ns).fold(ends.late, f64::max);
    }
    ends.behind /= LONGEST_NS as f64;
    ends.late /= LONGEST_NS as f64;
    ends
}

#[test]
fn pwqs_get_their_share_despite_many_new_ones() {
    for seed in 0..NR_HISTORIES {
        for nr_groups in [0, 1 + seed as usize % 3] {
            let Ends { behind, late } = run(seed, nr_groups);
            let history = format!("seed {seed}, {nr_groups} groups");
            assert!(behind < 8.0, "{history}: {behind} items behind");
            assert!(late < 20.0, "{history}: a new pwq waits for {late} items");
        }
    }
}

#[test]
fn new_pwq_waits_for_few_items_despite_returning_others() {
    let mut world = World::default();
    world.add(None, 100, u32::MAX);
    world.add(None, 100, 1);
    // The second pwq becomes idle and returns 10,000 times, and always gets its turn.
    for _ in 0..20_000 {
        if world.take() == 1 {
            world.end(0, 1000);
            assert_eq!(world.take(), 0);
        }
        world.end(0, 1000);
        if !world.pwqs[1].wants() {
            world.queue(1, 1);
        }
    }
    world.cancel(1);
    world.add(None, 100, 1);
    let nr_before = (0..).take_while(|_| {
        let at = world.take();
        world.end(0, 1000);
        at != 2
    });
    assert!(nr_before.count() <= 4 * SLACK as usize);
}
