//! Hostile users of per-CPU data. Values in slots, queued calls and panic handlers misbehave.
//!
//! No queued call may be lost. A leaked owner holds its slot forever, so the slots are leaked too.

use afterwork::percpu::{self, PerCpu};

use crate::support::hostile::{
    Act, Grenade, contained, dares, may, misbehave, refusable, rude_handler,
};
use crate::support::*;
use crate::{NR_CPUS, NR_STEPS, any_cpu, builder, some_cpus};

/// Time that a caller waits if the owner may be leaked or in another process.
const PATIENCE: Duration = Duration::from_micros(200);

pub struct Den {
    slots: Arc<PerCpu<Vec<Grenade>>>,
    nr_queued: AtomicU64,
    nr_ran: Arc<AtomicU64>,
}

impl Den {
    pub fn new(config: &str, dice: &mut Dice) -> Self {
        Self {
            slots: Arc::new(slots(config, dice)),
            nr_queued: AtomicU64::new(0),
            nr_ran: Arc::default(),
        }
    }

    pub fn torture(&self, dice: &mut Dice) {
        for _ in 0..NR_STEPS {
            contained(|| self.act(dice));
        }
    }

    pub fn end(self) {
        hostile::clean_up();
        for cpu in self.slots.cpus().iter() {
            self.slots.flush(cpu);
        }
        let nr_ran = self.nr_ran.load(Ordering::Relaxed);
        assert_eq!(nr_ran, self.nr_queued.into_inner(), "mail that misbehaves was lost");
        let slots = self.slots;
        contained(|| drop(slots));
    }

    fn act(&self, dice: &mut Dice) {
        let (slots, cpu) = (&self.slots, any_cpu(dice));
        match dice.below(12) {
            0 => self.own(dice),
            1..4 => self.mail(dice),
            4 => slots.run_on(cpu, |data| touch(data, dice)),
            5 => slots.with_current(|data| touch(data, dice)),
            6 => slots.drain_all(|_, data| {
                data.iter().for_each(Grenade::check);
                // The grenade is dropped inside the slot.
                data.pop();
            }),
            7 if may(Act::Handler) => {
                let watch = slots.drain_when_absent(|_, data| _ = contained(|| data.clear()));
                percpu::set_online_cpus(&some_cpus(dice));
                hostile::hide(dice, watch);
            }
            8 if may(Act::Leak) => leak_owner(dice),
            9 if dares(Act::Fork, dice, 16) => self.fork(dice),
            10 if may(Act::Drop) => hostile::hide(dice, slots.clone()),
            _ => hostile::misbehave_at_length(dice),
        }
    }

    fn own(&self, dice: &mut Dice) {
        let Ok(mut owner) = self.slots.attach(any_cpu(dice)) else {
            return;
        };
        for _ in 0..dice.below(20) {
            match dice.below(6) {
                0 => owner = owner.park().unpark(),
                // The panic ends the ownership.
                1 => owner.while_parked(|| misbehave(dice)),
                2 => drop(contained(|| owner.with(|data| touch(data, dice)))),
                _ => owner.poll(),
            }
        }
    }

    /// Queues a call that counts itself first and may then queue another one.
    fn mail(&self, dice: &mut Dice) {
        let (cpu, nr_ran, grenade) = (any_cpu(dice), self.nr_ran.clone(), Grenade::new(dice));
        let (mut own, seed) = (Dice::new(dice.bits()), dice.bits());
        let again = dares(Act::Queue, dice, 4).then(|| self.slots.clone());
        self.nr_queued.fetch_add(1, Ordering::Relaxed);
        self.slots.queue_percpu_work(cpu, move |data| {
            nr_ran.fetch_add(1, Ordering::Relaxed);
            grenade.check();
            if let Some(slots) = again {
                // Without a queue, the call would wait for its own slot, so the library panics.
                let mut inner = Dice::new(seed);
                refusable(|| slots.queue_percpu_work(cpu, move |_| misbehave(&mut inner)));
            }
            touch(data, &mut own);
        });
    }

    fn fork(&self, dice: &mut Dice) {
        let mut own = Dice::new(dice.bits());
        hostile::in_child("per-CPU data", || {
            for cpu in self.slots.cpus().iter() {
                // If the slot's owner does not exist in the child, the library panics.
                refusable(|| _ = self.slots.try_run_on(cpu, PATIENCE, |data| data.len()));
            }
            let slots = slots("any", &mut own);
            for cpu in slots.cpus().iter() {
                contained(|| slots.run_on(cpu, |data| touch(data, &mut own)));
            }
            contained(|| slots.drain_all(|_, data| data.clear()));
        });
    }
}

fn slots(config: &str, dice: &mut Dice) -> PerCpu<Vec<Grenade>> {
    let mut builder = builder(config, dice);
    if may(Act::Handler) {
        let handler = rude_handler(dice);
        builder = builder.on_panic(move |_| handler());
    }
    builder.build(|_| Vec::new()).expect("nothing of it is read from the machine")
}

fn touch(data: &mut Vec<Grenade>, dice: &mut Dice) {
    data.iter().for_each(Grenade::check);
    if data.len() < NR_CPUS as usize {
        data.push(Grenade::new(dice));
    } else {
        data.swap_remove(dice.below(NR_CPUS as usize));
    }
    misbehave(dice);
}

/// Leaks an owner. Its slot stays taken, and the other slots remain usable.
fn leak_owner(dice: &mut Dice) {
    let slots = slots("any", dice);
    let cpu = any_cpu(dice);
    if let Ok(owner) = slots.attach(cpu) {
        std::mem::forget(owner);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| _ = slots.try_run_on(cpu, PATIENCE, |data| data.len()));
    });
}
