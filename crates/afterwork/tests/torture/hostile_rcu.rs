//! Hostile users of the grace periods of the process and of a domain, next to the ordinary torture.
//!
//! They publish [grenades](Grenade). A version freed under a reader has a changed mark, and
//! AddressSanitizer detects the read. A leaked guard of the process blocks all later grace periods,
//! so it is leaked in a forked child.

use afterwork::rcu::srcu::Domain;
use afterwork::rcu::{self, Flavor, Guard, Rcu};

use crate::support::hostile::{Act, Grenade, contained, dares, may, misbehave, refusable};
use crate::support::*;

/// Time that a child waits for its callback, which may lack a thread.
const PATIENCE_OF_CHILD: Duration = Duration::from_secs(1);
/// Number of times that a child checks the value of its leaked guard, with a callback each time.
const NR_LOOKS: usize = 20;

pub struct Den {
    domain: Domain,
    theirs: Arc<Rcu<Grenade, Domain>>,
    ours: Arc<Rcu<Grenade>>,
    nr_called: AtomicU64,
    nr_ran: Arc<AtomicU64>,
}

impl Den {
    pub fn new(dice: &mut Dice) -> Self {
        let domain = Domain::new();
        Self {
            theirs: Arc::new(Rcu::new_in(Grenade::new(dice), domain.clone())),
            ours: Arc::new(Rcu::new(Grenade::new(dice))),
            domain,
            nr_called: AtomicU64::new(0),
            nr_ran: Arc::default(),
        }
    }

    pub fn end(self) {
        contained(|| rcu::run_callbacks_on(None));
        let Self { domain, theirs, ours, nr_called, nr_ran } = self;
        for cells in [Box::new(theirs) as Box<dyn std::any::Any>, Box::new(ours)] {
            contained(|| drop(cells));
        }
        // Callbacks may hide guards, which block the barrier.
        for _ in 0..2 {
            hostile::clean_up();
            rcu::barrier();
        }
        thread::scope(|scope| {
            let barrier = scope.spawn(|| domain.barrier());
            while !barrier.is_finished() {
                hostile::clean_up();
                thread::yield_now();
            }
        });
        hostile::clean_up();
        let (nr_called, nr_ran) = (nr_called.into_inner(), nr_ran.load(Ordering::Relaxed));
        assert_eq!(nr_ran, nr_called, "a callback that misbehaves was lost");
    }

    /// Performs a random act, which may panic as planned.
    pub fn act(&self, dice: &mut Dice) {
        match dice.below(16) {
            0..2 => replace(&self.ours, dice),
            2..4 => replace(&self.theirs, dice),
            4..6 if may(Act::Callback) => self.call(dice),
            6..8 if may(Act::Callback) => self.call_theirs(dice),
            8 if may(Act::Leak) => hostile::hide(dice, self.domain.read_owned()),
            9 => self.own_domain(dice),
            10 if dares(Act::Handler, dice, 4) => set_executor(dice),
            11 => hostile::await_rudely(Box::pin(rcu::synchronize_async()), dice),
            12 => hostile::await_rudely(Box::pin(self.domain.synchronize_async()), dice),
            13 if dares(Act::Fork, dice, 4) => self.fork(dice),
            14 if dares(Act::Wait, dice, 4) => match dice.below(4) {
                0 => rcu::barrier(),
                1 => self.domain.barrier(),
                2 => rcu::synchronize_expedited(),
                _ => self.domain.synchronize(),
            },
            _ => hostile::misbehave_at_length(dice),
        }
    }

    /// Queues a callback that reads, queues another callback and misbehaves.
    fn call(&self, dice: &mut Dice) {
        let (cell, nr_ran, grenade) = (self.ours.clone(), self.nr_ran.clone(), Grenade::new(dice));
        let mut own = Dice::new(dice.bits());
        self.nr_called.fetch_add(1, Ordering::Relaxed);
        rcu::call(move || {
            nr_ran.fetch_add(1, Ordering::Relaxed);
            grenade.check();
            let guard = rcu::read();
            let seen = cell.load(&guard);
            if dares(Act::Queue, &mut own, 4) {
                cell.replace(Grenade::new(&mut own));
                let mut inner = own.clone();
                rcu::call(move || misbehave(&mut inner));
            }
            contained(|| misbehave(&mut own));
            seen.check();
            drop(guard);
            if dares(Act::Wait, &mut own, 16) {
                rcu::synchronize();
                // The barrier would wait for itself, so the library panics.
                refusable(rcu::barrier);
            }
            misbehave(&mut own);
        });
    }

    /// Does the same in the domain, where another thread may drop the guard.
    fn call_theirs(&self, dice: &mut Dice) {
        let (cell, nr_ran, grenade) =
            (self.theirs.clone(), self.nr_ran.clone(), Grenade::new(dice));
        let (domain, mut own) = (self.domain.clone(), Dice::new(dice.bits()));
        self.nr_called.fetch_add(1, Ordering::Relaxed);
        self.domain.call(move || {
            nr_ran.fetch_add(1, Ordering::Relaxed);
            grenade.check();
            let guard = domain.read_owned();
            let seen = cell.load(&guard);
            if dares(Act::Queue, &mut own, 4) {
                cell.replace(Grenade::new(&mut own));
            }
            contained(|| misbehave(&mut own));
            seen.check();
            if dares(Act::Leak, &mut own, 2) {
                hostile::hide(&mut own, guard);
            }
            misbehave(&mut own);
        });
    }

    /// Creates a domain whose handles are dropped while its callbacks wait.
    fn own_domain(&self, dice: &mut Dice) {
        let domain = Domain::new();
        let cell = Rcu::new_in(Grenade::new(dice), domain.clone());
        for _ in 0..dice.below(4) {
            cell.replace(Grenade::new(dice));
        }
        if may(Act::Leak) {
            hostile::hide(dice, domain.read_owned());
        }
        hostile::hide(dice, cell);
        hostile::hide(dice, domain);
    }

    fn fork(&self, dice: &mut Dice) {
        let mut own = Dice::new(dice.bits());
        match dice.below(3) {
            0 if may(Act::Leak) => hostile::in_child("a guard is leaked in a callback", || {
                leak_in_callback(&mut own);
            }),
            1 => hostile::in_child("a version of the parent's is replaced under a reader", || {
                self.replace_in_child(&mut own);
            }),
            _ => hostile::in_child("grace periods and callbacks", || use_all(&mut own)),
        }
    }

    /// Updates a domain of the parent, which rejects the call in a child, while a reader is active.
    fn replace_in_child(&self, dice: &mut Dice) {
        let guard = self.theirs.read();
        let seen = self.theirs.load(&guard);
        seen.check();
        refusable(|| self.theirs.replace(Grenade::new(dice)));
        seen.check();
        refusable(|| drop(self.theirs.compare_exchange(seen, Grenade::new(dice), &guard)));
        seen.check();
        refusable(|| self.domain.call(|| ()));
        drop(guard);
        refusable(|| self.domain.barrier());
        replace(&self.ours, dice);
    }
}

fn replace<F: Flavor>(cell: &Rcu<Grenade, F>, dice: &mut Dice) {
    let (guard, new) = (cell.read(), Grenade::new(dice));
    let seen = cell.load(&guard);
    match dice.below(3) {
        0 => drop(cell.compare_exchange(seen, new, &guard)),
        // A panic ends the section.
        1 => cell.update(|_| {
            misbehave(dice);
            Grenade::new(dice)
        }),
        _ => cell.replace(new),
    }
    contained(|| misbehave(dice));
    seen.check();
}

/// Leaks a guard in a callback. The value that it protects is never freed.
fn leak_in_callback(dice: &mut Dice) {
    let cell: &'static Rcu<Grenade> = Box::leak(Box::new(Rcu::new(Grenade::new(dice))));
    let (sender, receiver) = mpsc::channel();
    rcu::call(move || {
        let guard: &'static Guard = Box::leak(Box::new(rcu::read()));
        sender.send(cell.load(guard)).ok();
    });
    let Ok(seen) = receiver.recv_timeout(PATIENCE_OF_CHILD) else {
        return;
    };
    cell.replace(Grenade::new(dice));
    for _ in 0..NR_LOOKS {
        rcu::call(|| ());
        thread::sleep(Duration::from_micros(200));
        seen.check();
    }
}

fn use_all(dice: &mut Dice) {
    let (cell, nr_ran) = (Rcu::new(Grenade::new(dice)), Arc::<AtomicU64>::default());
    for _ in 0..8 {
        let guard = rcu::read();
        let seen = cell.load(&guard);
        cell.replace(Grenade::new(dice));
        seen.check();
        let (nr_ran, mut own) = (nr_ran.clone(), Dice::new(dice.bits()));
        rcu::call(move || {
            nr_ran.fetch_add(1, Ordering::Relaxed);
            misbehave(&mut own);
        });
    }
    rcu::synchronize();
    rcu::barrier();
    assert_eq!(nr_ran.load(Ordering::Relaxed), 8, "a callback was lost");
    let domain = Domain::new();
    let cell = Rcu::new_in(Grenade::new(dice), domain.clone());
    let guard = domain.read();
    let seen = cell.load(&guard);
    cell.replace(Grenade::new(dice));
    seen.check();
    drop(guard);
    domain.barrier();
    hostile::misbehave_at_length(dice);
}

/// Installs a misbehaving callback executor, or restores the library's own.
fn set_executor(dice: &mut Dice) {
    let (kind, seed, grenade) = (dice.below(4), dice.bits(), Grenade::new(dice));
    if kind == 0 {
        return rcu::run_callbacks_on(None);
    }
    rcu::run_callbacks_on(Some(Box::new(move |batch: rcu::Batch| {
        grenade.check();
        match kind {
            1 => drop(batch),
            // The unwinding drops the batch.
            2 => {
                let _batch = batch;
                misbehave(&mut Dice::new(seed));
            }
            _ => drop(hostile::start_anyhow(move || batch.run())),
        }
    })));
}
