//! Hostile users of workqueues, next to the ordinary torture and with a separate registry.
//!
//! Most acts involve *victims*: queues that contain items when their last handle is dropped, while
//! other threads flush a timer of the queue. Where waiting is allowed, the drop waits for all
//! items.

use afterwork::params::Params;
use afterwork::rcu;
use afterwork::workqueue::{DelayedWork, RcuWork, Registry, TaskSet, Work, Workqueue, block_on};
use topology::Topology;

use crate::support::hostile::{
    Act, Grenade, contained, may, misbehave, refusable, rude_handler, rude_item,
};
use crate::support::*;

/// A delay that elapses while the queue ends.
const SOON: Duration = Duration::from_micros(100);
/// Number of consecutive victims whose timer is flushed while they end.
const NR_RACES: usize = 20;
/// Number of timers that are flushed in turn, whether their queue exists or not.
const NR_TIMERS: usize = 3;
const MAX_ITEMS: usize = 20;

pub struct Lair {
    registry: Registry,
    queue: Workqueue,
    bh: Workqueue,
    /// Timers whose queue may be destroyed.
    timers: Mutex<Vec<DelayedWork>>,
}

/// A queue that is about to end, and the number of its items that have run.
struct Victim {
    queue: Workqueue,
    nr_items: usize,
    nr_ran: Arc<AtomicUsize>,
}

impl Victim {
    /// Queues items that count their run, and then call the function that `act` returned.
    fn new<F: FnMut() + Send + 'static>(
        queue: Workqueue,
        nr_items: usize,
        mut act: impl FnMut() -> F,
    ) -> Self {
        let nr_ran = Arc::<AtomicUsize>::default();
        for _ in 0..nr_items {
            let (nr_ran, mut act) = (nr_ran.clone(), act());
            let item = move || {
                nr_ran.fetch_add(1, Ordering::Relaxed);
                act();
            };
            queue.spawn_detached(item).unwrap();
        }
        Self { queue, nr_items, nr_ran }
    }

    /// Drops the last handle on a thread where the drop waits.
    fn end(self) {
        let (nr_ran, nr_items) = (self.nr_ran.clone(), self.nr_items);
        drop(self.queue);
        let nr_ran = nr_ran.load(Ordering::Relaxed);
        assert_eq!(nr_ran, nr_items, "a queue was destroyed before its items had run");
    }

    fn watch(&self) -> impl Fn() -> bool + use<> {
        let (nr_ran, nr_items) = (self.nr_ran.clone(), self.nr_items);
        move || nr_ran.load(Ordering::Relaxed) == nr_items
    }
}

impl Lair {
    pub fn new(dice: &mut Dice) -> Self {
        let machine = dice.pick(&["1 core", "2 core", "4 core"]);
        let params = Params { idle_timeout_ms: dice.pick(&[1, 20, 300_000]), ..Params::default() };
        let registry = registry_on(machine, params);
        let build = |builder: afterwork::workqueue::Builder| builder.build_in(&registry).unwrap();
        Self {
            queue: build(Workqueue::builder("lair")),
            bh: build(Workqueue::builder("lair bh").bh()),
            timers: Mutex::default(),
            registry,
        }
    }

    pub fn flush_a_timer(&self, dice: &mut Dice) {
        let timers = self.timers.lock().unwrap();
        let work = (!timers.is_empty()).then(|| timers[dice.below(timers.len())].clone());
        drop(timers);
        match work {
            // The result depends on the state of the timer.
            Some(work) => _ = work.flush(),
            None => thread::sleep(Duration::from_micros(100)),
        }
    }

    pub fn end(self) {
        let Self { registry, queue, bh, timers } = self;
        watched("dropping what is hostile", || {
            // RCU callbacks can still queue items, because the queue exists.
            rcu::barrier();
            contained(|| drop(timers));
            // Drops the report handler here, so that the end of the registry does not.
            contained(|| registry.on_report(|_| ()));
            hostile::clean_up();
            drop((queue, bh));
        });
        watched("shutting hostile users down", || shut_down(registry));
    }

    /// Performs a random act, which may panic as planned.
    pub fn act(&self, dice: &mut Dice) {
        match dice.below(16) {
            0 if may(Act::Bh) => self.end_in_bottom_half(dice),
            1..3 if may(Act::Timer) => self.end_under_flushes(dice),
            3 if may(Act::Timer) => self.arm(dice),
            4 => self.spawn(dice),
            5 => self.spawn_async(dice),
            6 if may(Act::Callback) => self.queue_after_readers(dice),
            7 if may(Act::Handler) => self.handle(dice),
            8 if may(Act::Tls) => self.leave_in_thread(dice),
            12 if may(Act::Timer) && may(Act::Drop) => self.shut_down_by_drop(dice),
            13 if may(Act::Timer) => self.sleep(dice),
            14 if may(Act::Timer) => self.come_again(dice),
            15 => self.gather(dice),
            9 if hostile::dares(Act::Fork, dice, 4) => self.fork(dice),
            10 if may(Act::Drop) => {
                let victim = self.victim(dice);
                hostile::hide_queue(dice, victim.queue);
            }
            _ => hostile::misbehave_at_length(dice),
        }
    }

    fn victim(&self, dice: &mut Dice) -> Victim {
        let (is_bh, handles) = (may(Act::Bh) && dice.below(6) == 0, dice.below(2) == 0);
        let (rescues, max_active) = (dice.below(8) == 0, 1 + dice.below(3) as u32);
        let build = || {
            let mut builder = Workqueue::builder("victim");
            builder = if is_bh { builder.bh() } else { builder.max_active(max_active) };
            if rescues && !is_bh {
                builder = builder.with_rescuer();
            }
            if handles && may(Act::Handler) {
                let handler = rude_handler(dice);
                builder = builder.on_panic(move |_| handler());
            }
            builder.build_in(&self.registry)
        };
        let queue = insist(build);
        Victim::new(queue, dice.below(MAX_ITEMS), || rude_item(dice))
    }

    fn brief_victim(&self, dice: &mut Dice) -> Victim {
        let queue = insist(|| Workqueue::builder("brief").build_in(&self.registry));
        Victim::new(queue, dice.below(3), || || ())
    }

    /// Drops a queue's last handle in a bottom-half item, which must not wait.
    fn end_in_bottom_half(&self, dice: &mut Dice) {
        let victim = self.victim(dice);
        let has_run = victim.watch();
        let item = self.bh.spawn(move || drop(victim));
        contained(|| drop(item.join()));
        while !has_run() {
            thread::yield_now();
        }
    }

    /// Drops the last handles to queues while their timers are flushed.
    fn end_under_flushes(&self, dice: &mut Dice) {
        let grenade = Grenade::new(dice);
        let work = DelayedWork::new(move || grenade.check());
        let mut timers = self.timers.lock().unwrap();
        timers.push(work.clone());
        let oldest = (timers.len() > NR_TIMERS).then(|| timers.remove(0));
        drop(timers);
        contained(|| drop(oldest));
        for _ in 0..NR_RACES {
            let victim = match dice.below(4) {
                0 => self.victim(dice),
                _ => self.brief_victim(dice),
            };
            let delay = dice.pick(&[SOON, NEVER]);
            victim.queue.enqueue_after(&work, delay);
            for _ in 0..dice.below(100) {
                std::hint::spin_loop();
            }
            victim.end();
        }
        work.cancel();
    }

    /// Arms an item that owns misbehaving values, and drops the item or its queue.
    fn arm(&self, dice: &mut Dice) {
        // This handle to a queue is dropped with the last handle to the item.
        let queue = (may(Act::Drop) && dice.below(2) == 0).then(|| self.victim(dice).queue);
        let owns_queue = queue.is_some();
        let mut act = rude_item(dice);
        let work = DelayedWork::new(move || {
            let _ = &queue;
            act();
        });
        let delay = Duration::from_micros(dice.pick(&[0, 50, 500, 2000]));
        match dice.below(4) {
            // The queue ends before the timer fires.
            0 => {
                let victim = self.victim(dice);
                victim.queue.enqueue_after(&work, delay);
                victim.end();
            }
            1 if may(Act::Bh) => drop(self.bh.enqueue_after(&work, delay)),
            _ => drop(self.queue.enqueue_after(&work, delay)),
        }
        match dice.below(3) {
            0 if owns_queue => hostile::hide_queue(dice, work),
            0 => hostile::hide(dice, work),
            1 => drop(work.cancel()),
            _ => drop(work),
        }
    }

    fn spawn(&self, dice: &mut Dice) {
        let (grenade, queue) = (Grenade::new(dice), self.queue.clone());
        let mut own = Dice::new(dice.bits());
        let mut handle = self.queue.spawn(move || {
            grenade.check();
            if hostile::dares(Act::Queue, &mut own, 4) {
                let inner = queue.spawn(|| ());
                match own.below(3) {
                    0 if may(Act::Leak) => std::mem::forget(inner),
                    1 if may(Act::Wait) => drop(inner.join()),
                    _ => drop(inner),
                }
            }
            misbehave(&mut own);
            // The result misbehaves on its joiner's thread.
            grenade
        });
        match dice.below(5) {
            0 if may(Act::Leak) => std::mem::forget(handle),
            1 => hostile::hide(dice, handle),
            2 => drop(handle.cancel()),
            3 => drop(hostile::await_rudely(handle, dice)),
            _ => drop(handle.join()),
        }
    }

    fn spawn_async(&self, dice: &mut Dice) {
        let rude = Rude::new(dice);
        let handle = self.queue.spawn_async(rude);
        match dice.below(3) {
            0 => drop(handle),
            1 => hostile::hide(dice, handle),
            _ => drop(hostile::await_rudely(handle, dice)),
        }
    }

    fn sleep(&self, dice: &mut Dice) {
        let span = Duration::from_micros(dice.pick(&[0, 50, 500, 2000]));
        let mut slept = self.registry.sleep(span);
        match dice.below(4) {
            0 => hostile::await_rudely(slept, dice),
            1 => block_on(slept),
            2 => {
                let _ = hostile::poll_rudely(&mut slept, dice);
                hostile::hide(dice, slept);
            }
            _ => {
                let rude = Rude::new(dice);
                let _ = hostile::await_rudely(self.registry.timeout(span, rude), dice);
            }
        }
    }

    fn come_again(&self, dice: &mut Dice) {
        let act = rude_item(dice);
        let victim = (dice.below(2) == 0).then(|| self.victim(dice));
        let queue = victim.as_ref().map_or(&self.queue, |victim| &victim.queue);
        let period = Duration::from_micros(1 + dice.below(500) as u64);
        let work = queue.every(period, act).unwrap();
        thread::sleep(2 * period);
        match (victim, dice.below(3)) {
            (Some(victim), 0) => {
                work.detach();
                victim.end();
            }
            (Some(victim), _) => {
                victim.end();
                hostile::hide(dice, work);
            }
            (None, 0) => hostile::hide(dice, work),
            (None, 1) => work.cancel_sync(),
            (None, _) => drop(work),
        }
    }

    fn gather(&self, dice: &mut Dice) {
        let mut set = TaskSet::new(&self.queue);
        for _ in 0..dice.below(4) {
            set.spawn(rude_item(dice));
            set.spawn_async(Rude::new(dice));
        }
        match dice.below(4) {
            0 => hostile::hide_queue(dice, set),
            1 => set.cancel_all(),
            2 => drop(set),
            _ => {
                while let Some(result) = hostile::await_rudely(Box::pin(set.join_next()), dice) {
                    drop(result);
                }
            }
        }
    }

    fn queue_after_readers(&self, dice: &mut Dice) {
        let work = RcuWork::new(rude_item(dice));
        if dice.below(2) == 0 {
            let victim = self.victim(dice);
            victim.queue.task().enqueue_rcu(&work);
            victim.end();
        } else {
            self.queue.task().enqueue_rcu(&work);
        }
        match dice.below(3) {
            0 => hostile::hide(dice, work),
            1 if may(Act::Wait) => drop(work.flush()),
            _ => drop(work.cancel()),
        }
    }

    /// Gives the registry another report handler, or a machine source that panics.
    fn handle(&self, dice: &mut Dice) {
        if dice.below(4) > 0 {
            let handler = rude_handler(dice);
            return self.registry.on_report(move |_| handler());
        }
        let machine = || Topology::synthetic("2 core").unwrap();
        let (mut act, mut own) = (rude_item(dice), Dice::new(dice.bits()));
        let mut source = Some(move || {
            act();
            (own.below(2) == 0).then(machine)
        });
        let watching = || {
            let mut source = source.take();
            let look = move || source.as_mut().and_then(|source| source());
            Registry::watching(machine(), Params::default(), look)
        };
        let registry = insist(watching);
        let queue = Workqueue::builder("seen").build_in(&registry).unwrap();
        let item = queue.spawn(|| ());
        contained(|| _ = registry.refresh_topology());
        item.join().unwrap();
        drop(queue);
        hostile::hide_queue(dice, registry);
    }

    /// Shuts down a registry in the drop of a value that one of its armed timers owns.
    fn shut_down_by_drop(&self, dice: &mut Dice) {
        struct Shuts(Option<Registry>, Grenade);
        sync::on_drop!(Shuts, this => {
            drop(this.0.take().map(Registry::shutdown));
            this.1.check();
        });
        let registry = registry_on("1 core", Params::default());
        let queue = insist(|| Workqueue::builder("shut").build_in(&registry));
        for _ in 0..1 + dice.below(3) {
            let shuts = Shuts(Some(registry.clone()), Grenade::new(dice));
            let work = DelayedWork::new(move || _ = &shuts);
            queue.enqueue_after(&work, NEVER);
        }
        drop(registry);
        let own = queue.clone();
        queue.spawn_detached(move || drop(own)).unwrap();
        contained(|| drop(queue));
    }

    /// Leaves a thread-local value in a worker. It misbehaves and waits when the thread exits.
    fn leave_in_thread(&self, dice: &mut Dice) {
        struct Last(Dice, Option<(Workqueue, Grenade)>);
        sync::on_drop!(Last, this => {
            // If a panic escaped here, the standard library would abort the process.
            contained(|| {
                let (queue, grenade) = this.1.take().expect("it is dropped once");
                grenade.check();
                if may(Act::Wait) {
                    queue.spawn(|| ()).join().unwrap();
                }
                misbehave(&mut this.0);
            });
        });
        thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });
        // This queue belongs to the process-wide registry, which exists as long as any thread.
        let Ok(queue) = Workqueue::builder("late").build() else {
            return;
        };
        let last = Last(Dice::new(dice.bits()), Some((queue, Grenade::new(dice))));
        let item = self.queue.spawn(move || {
            let before = LAST.with(|place| place.replace(Some(last)));
            contained(|| drop(before));
        });
        contained(|| drop(item.join()));
    }

    fn fork(&self, dice: &mut Dice) {
        let (inherited, seed) = (self.queue.clone(), dice.bits());
        let work = Work::new(|| ());
        hostile::in_child("workqueues", || {
            let mut dice = Dice::new(seed);
            refusable(|| drop(inherited.spawn(|| ())));
            refusable(|| inherited.enqueue(&work));
            refusable(|| drop(inherited.flush()));
            let registry = registry_on("2 core", Params::default());
            let queue = insist(|| Workqueue::builder("child").build_in(&registry));
            let items: Vec<_> = (0..8).map(|i| queue.spawn(move || i)).collect();
            let sum: u32 = items.into_iter().map(|item| item.join().unwrap()).sum();
            assert_eq!(sum, 28);
            work.cancel();
            drop(queue);
            drop(inherited);
            hostile::misbehave_at_length(&mut dice);
        });
    }
}

/// A future that misbehaves, and leaves its wakers to other threads.
struct Rude {
    dice: Dice,
    nr_polls: usize,
    grenade: Grenade,
}

impl Rude {
    fn new(dice: &mut Dice) -> Self {
        Self { dice: Dice::new(dice.bits()), nr_polls: dice.below(4), grenade: Grenade::new(dice) }
    }
}

impl Future for Rude {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.grenade.check();
        if self.nr_polls == 0 {
            return Poll::Ready(());
        }
        self.nr_polls -= 1;
        let waker = context.waker().clone();
        hostile::hide(&mut self.dice, waker.clone());
        waker.wake();
        misbehave(&mut self.dice);
        Poll::Pending
    }
}
