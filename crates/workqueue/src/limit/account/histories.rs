//! Random histories of pwqs that are added, wait, run, change their shares and are cancelled,
//! compared with a slow and obvious model.
//!
//! The model is a fluid: at each moment it divides the time of the workers by weight among all pwqs
//! that have work for the pool.

use std::iter;

use super::*;

/// The longest item of a history.
const LONGEST_NS: u64 = 20_000;

const NR_HISTORIES: u64 = if cfg!(sim) { 200 } else { 20_000 };

/// One pwq, and its account in the model.
struct Link {
    account: Account,
    nr_waiting: u32,
    nr_running: u32,
    had_ns: f64,
    /// The time that the model has given to this pwq.
    due_ns: f64,
}

/// A pool. Each entry of `running` is a pwq that a worker serves, with the amount paid in advance.
#[derive(Default)]
struct World {
    pwqs: Vec<Link>,
    ready: Vec<usize>,
    running: Vec<(usize, VirtualTime)>,
    clock: Clock,
}

/// The result of a history, in units of the longest item.
#[derive(Default)]
struct Ends {
    /// The amount by which the first pwq, which always waits, falls short of nine tenths of the
    /// time that it is due.
    behind: f64,
    /// The longest time that a new pwq was due before its first item ended.
    late: f64,
}

impl Link {
    fn wants(&self) -> bool {
        self.nr_waiting + self.nr_running > 0
    }
}

impl World {
    fn add(&mut self, shares: u32, nr_items: u32) {
        let mut account = Account::default();
        account.set_shares(shares, &self.clock, iter::empty());
        self.pwqs.push(Link { account, nr_waiting: 0, nr_running: 0, had_ns: 0.0, due_ns: 0.0 });
        self.queue(self.pwqs.len() - 1, nr_items);
    }

    fn queue(&mut self, at: usize, nr_items: u32) {
        self.pwqs[at].nr_waiting += nr_items;
        self.request_seat(at);
    }

    fn request_seat(&mut self, at: usize) {
        let pwq = &mut self.pwqs[at];
        if pwq.nr_waiting > 0 && !self.ready.contains(&at) {
            pwq.account.wait_from(&self.clock);
            self.ready.push(at);
        }
    }

    /// Lets a worker take an item, and returns the item's pwq.
    fn take(&mut self) -> usize {
        let used = self.ready.iter().map(|&at| self.pwqs[at].account.used());
        let place = next_by_use(used).expect("a pwq that waits");
        let at = self.ready.remove(place);
        let pwq = &mut self.pwqs[at];
        self.clock.pick(pwq.account.used());
        let paid = pwq.account.pay(1);
        pwq.nr_waiting -= 1;
        pwq.nr_running += 1;
        self.running.push((at, paid));
        self.request_seat(at);
        at
    }

    /// Lets a worker end its item.
    fn end(&mut self, worker: usize, took_ns: u64) {
        let (at, paid) = self.running[worker];
        self.pwqs[at].account.settle(paid, 1, took_ns);
        let mut wanting = self.clock.count();
        let running = self.running.iter().map(|it| it.0);
        for at in self.ready.iter().copied().chain(running) {
            wanting.add(&mut self.pwqs[at].account);
        }
        wanting.serve(took_ns);
        self.running.remove(worker);
        let wanting = || self.pwqs.iter().filter(|it| it.wants());
        let weights: u128 = wanting().map(|it| it.account.weight()).sum();
        for pwq in self.pwqs.iter_mut().filter(|it| it.wants()) {
            pwq.due_ns += took_ns as f64 * pwq.account.weight() as f64 / weights as f64;
        }
        self.pwqs[at].had_ns += took_ns as f64;
        self.pwqs[at].nr_running -= 1;
    }

    fn set_shares(&mut self, at: usize, shares: u32) {
        let its = self.running.iter_mut().filter(|it| it.0 == at);
        let paid = its.map(|it| &mut it.1);
        let account = &mut self.pwqs[at].account;
        account.set_shares(shares, &self.clock, paid);
    }

    /// Cancels the waiting items of a pwq.
    fn cancel(&mut self, at: usize) {
        self.pwqs[at].nr_waiting = 0;
        self.ready.retain(|&it| it != at);
    }
}

/// Returns a generator of random numbers below its argument, seeded with `seed`.
fn dice_of(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

fn run(seed: u64) -> Ends {
    let mut dice = dice_of(seed);
    let (mut world, mut ends) = (World::default(), Ends::default());
    let (nr_workers, nr_at_once) = (1 + dice(4), 1 + dice(6));
    let (returns, change) = (dice(3) == 0, dice(3) == 0);
    let shares = [20, 100, 100, 500];
    world.add(shares[dice(4)], u32::MAX);
    for _ in 0..240 {
        let nr_pwqs = world.pwqs.len();
        let nr_wanting = world.pwqs.iter().filter(|it| it.wants()).count();
        match dice(32) {
            0..12 if nr_wanting <= nr_at_once => world.add(shares[dice(4)], 1 + dice(2) as u32),
            12..16 if returns => {
                let at = dice(nr_pwqs.min(6));
                if !world.pwqs[at].wants() {
                    world.queue(at, 1);
                }
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
        let Ends { behind, late } = run(seed);
        assert!(behind < 8.0, "seed {seed}: {behind} items behind");
        assert!(late < 20.0, "seed {seed}: a new pwq waits for {late} items");
    }
}

#[test]
fn new_pwq_waits_for_few_items_despite_returning_others() {
    let mut world = World::default();
    world.add(100, u32::MAX);
    world.add(100, 1);
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
    world.add(100, 1);
    let nr_before = (0..).take_while(|_| {
        let at = world.take();
        world.end(0, 1000);
        at != 2
    });
    assert!(nr_before.count() <= 4 * SLACK as usize);
}
