//! What the pool lock guards: who has which items, and who is idle.
//!
//! Nothing here wakes, runs, or waits; `pool.rs` does, after the lock.

use std::{
    collections::{HashMap, VecDeque},
    ptr::{self, NonNull},
};

use sync::{atomic::Ordering, unmodelled::Arc};

use super::{
    mayday::{MaydayQueue, MaydayTimer},
    pwq::{Counts, Pwq, PwqState},
    worker::Worker,
};
use crate::workqueue::{
    item::colour::Colour,
    item::head::{Head, Home},
    item::list::{Injector, List},
    item::state::State,
    limit::queue_core::QueueCore,
    observe::concurrency::{Away, Seen},
    observe::stall::StallDetector,
};

/// A worker that is parked or about to be, and since when.
#[derive(Debug)]
pub(crate) struct IdleWorker {
    pub(crate) worker: Arc<Worker>,
    pub(crate) since_ns: u64,
}

/// A worker as the lock sees it.
#[derive(Debug)]
pub(crate) struct Enlisted {
    pub(crate) worker: Arc<Worker>,
    /// The link whose items it runs, and whose seat it holds.
    pub(crate) seat: Option<usize>,
    /// The colour of what it took last.
    pub(crate) colour: Colour,
    /// How many of its runs have been given back to their link's in-flight count.
    pub(crate) nr_retired: u32,
    /// Why it does not count as awake, if so.
    pub(crate) away: Away,
    /// What the last look saw of its item.
    pub(crate) seen: Option<Seen>,
}

/// The part of a pool that its lock guards.
#[derive(Debug, Default)]
pub(crate) struct Dispatch {
    /// Adopted items that nobody has looked at, oldest first.
    pub(crate) pending: List,
    /// How many items of all links were cancelled since tombstones were cut out of `pending`, about; see `tombstones.rs`.
    pub(crate) nr_cancelled: usize,
    /// Links that hold a seat for their inactive items.
    pub(crate) ready: VecDeque<usize>,
    /// Whether `ready` goes before `pending` next time; they take turns.
    pub(crate) ready_first: bool,
    /// Workers that are parked or about to be, the last to do so last.
    pub(crate) idle: Vec<IdleWorker>,
    /// All workers, by their number.
    workers: Vec<Option<Enlisted>>,
    nr_workers: usize,
    /// Workers that have been asked for and are not there yet.
    pub(crate) nr_creating: usize,
    pub(crate) mayday_timer: MaydayTimer,
    pub(crate) stall_detector: StallDetector,
    /// Batches taken.
    pub(crate) nr_batches: u64,
    /// How often items of a kind have been seen to hog the CPU, by their table.
    pub(crate) hogs: HashMap<usize, u64>,
    /// Links by their slot.
    links: Vec<Option<PwqState>>,
    /// Slots without a link.
    free_slots: Vec<usize>,
    /// Links to which routes lead.
    nr_led: usize,
    /// What links had counted that are gone.
    gone: Counts,
    /// No link is left: workers leave.
    pub(crate) dying: bool,
}

/// Items of one link that lie side by side in an injector: counted together, for so they mostly come.
struct Adopted {
    /// Only ever compared.
    home: *const Home,
    slot: usize,
    colour: Colour,
    count: usize,
}

impl Dispatch {
    pub(crate) fn link(&self, slot: usize) -> &PwqState {
        self.links[slot].as_ref().expect("a link in use")
    }

    pub(crate) fn link_mut(&mut self, slot: usize) -> &mut PwqState {
        self.links[slot].as_mut().expect("a link in use")
    }

    pub(crate) fn add_link(
        &mut self,
        plugged: bool,
        pwq: impl FnOnce(usize) -> Arc<Pwq>,
    ) -> Arc<Pwq> {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() - 1
        });
        let pwq = pwq(slot);
        self.links[slot] = Some(PwqState::new(pwq.clone(), plugged));
        self.nr_led += 1;
        pwq
    }

    /// Notes whether routes lead to a link; returns `true` if that is a change.
    pub(crate) fn lead(&mut self, slot: usize, led: bool) -> bool {
        let changed = self.link(slot).retired == led;
        if changed {
            self.link_mut(slot).retired = !led;
            self.nr_led = if led {
                self.nr_led + 1
            } else {
                self.nr_led - 1
            };
        }
        changed
    }

    /// Drops a link that has nothing in flight; a worker may still hold its seat out of laziness.
    pub(crate) fn remove_link(&mut self, slot: usize) {
        for enlisted in self.workers.iter_mut().flatten() {
            if enlisted.seat == Some(slot) {
                debug_assert_eq!(enlisted.nr_retired, enlisted.worker.nr_done());
                enlisted.seat = None;
            }
        }
        let state = self.links[slot].take().expect("a link in use");
        debug_assert!(state.in_flight.nr_in_flight() == 0 && state.inactive.is_empty());
        debug_assert_eq!(state.nr_listed, 0);
        self.nr_led -= usize::from(!state.retired);
        self.free_slots.push(slot);
        if self.free_slots.len() == self.links.len() {
            // So that nobody walks over what once was.
            self.links.clear();
            self.free_slots.clear();
        }
        self.gone.add(&state.counts);
    }

    /// Returns what all links have counted that there ever were.
    pub(crate) fn counts(&self) -> Counts {
        let mut all = self.gone;
        for link in self.links() {
            all.add(&link.counts);
        }
        all
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = &PwqState> {
        self.links.iter().flatten()
    }

    /// Returns what the link has counted whose items `worker` runs.
    pub(crate) fn counts_mut(&mut self, worker: &Worker) -> Option<&mut Counts> {
        let slot = self.enlisted(worker).seat?;
        Some(&mut self.link_mut(slot).counts)
    }

    pub(crate) fn nr_workers(&self) -> usize {
        self.nr_workers
    }

    pub(crate) fn workers(&self) -> impl Iterator<Item = &Enlisted> {
        self.workers.iter().flatten()
    }

    pub(crate) fn enlist(&mut self, worker: impl FnOnce(usize) -> Arc<Worker>) -> Arc<Worker> {
        let number = self
            .workers
            .iter()
            .position(Option::is_none)
            .unwrap_or_else(|| {
                self.workers.push(None);
                self.workers.len() - 1
            });
        let worker = worker(number);
        self.workers[number] = Some(Enlisted {
            nr_retired: worker.nr_done(),
            worker: worker.clone(),
            seat: None,
            colour: Colour::default(),
            away: Away::default(),
            seen: None,
        });
        self.nr_workers += 1;
        worker
    }

    pub(crate) fn discharge(&mut self, worker: &Worker) {
        let enlisted = self.workers[worker.number].take();
        debug_assert!(enlisted.is_some_and(|it| it.seat.is_none() && !it.away.declared));
        self.nr_workers -= 1;
    }

    /// Returns `true` if items wait that have been adopted.
    pub(crate) fn has_work(&self) -> bool {
        !self.pending.is_empty() || !self.ready.is_empty()
    }

    pub(crate) fn nr_pending(&self) -> usize {
        self.pending.len()
    }

    /// Counts the workers that are known to sleep inside an item.
    pub(crate) fn nr_blocked(&self) -> usize {
        let blocked = |it: &&Enlisted| it.away.declared || it.away.asleep;
        self.workers().filter(blocked).count()
    }

    pub(crate) fn away_mut(&mut self, worker: &Worker) -> &mut Away {
        &mut self.enlisted_mut(worker).away
    }

    /// Returns `true` if `worker` has not been struck off, nor its number given to another.
    pub(crate) fn is_enlisted(&self, worker: &Arc<Worker>) -> bool {
        let enlisted = self.workers[worker.number].as_ref();
        enlisted.is_some_and(|it| Arc::ptr_eq(&it.worker, worker))
    }

    /// Returns the workers that are in an item of which they have not said that it may sleep; what the last look saw
    /// of it, and whether they slept then.
    pub(crate) fn busy(&self) -> impl Iterator<Item = (Arc<Worker>, Option<Seen>, bool)> {
        let busy = self
            .workers()
            .filter(|it| it.worker.is_inside() && !it.away.declared);
        busy.map(|it| (it.worker.clone(), it.seen, it.away.asleep))
    }

    /// Takes over what producers have left, and counts it in flight.
    pub(crate) fn adopt(&mut self, injector: &Injector) {
        if injector.is_empty() {
            return;
        }
        let links = &mut self.links;
        let mut run: Option<Adopted> = None;
        let mut list = injector.take(|item| {
            // SAFETY: the item is linked, so it is alive.
            let home = unsafe { item.as_ref() }
                .home
                // Written before the push by which we see the item, and not while it is linked.
                .load(Ordering::Relaxed)
                .cast_const();
            if let Some(run) = run.as_mut().filter(|run| ptr::eq(run.home, home)) {
                run.count += 1;
                return run.colour;
            }
            if let Some(run) = run.take() {
                run.count_in(links);
            }
            // SAFETY: a queue drains its links before they go, and this item is not counted yet, so that drain is still
            // to come.
            let slot = unsafe { &*home }.slot;
            let link = links[slot].as_ref().expect("a link in use");
            let colour = link.in_flight.present();
            run = Some(Adopted {
                home,
                slot,
                colour,
                count: 1,
            });
            colour
        });
        if let Some(run) = run {
            run.count_in(links);
        }
        self.pending.append(&mut list);
    }

    /// Puts a counted item back to the front of its link's line.
    pub(crate) fn put_back(&mut self, item: NonNull<Head>) {
        let slot = home_slot(item);
        let link = self.link_mut(slot);
        link.nr_listed += 1;
        if link.inactive.is_empty() {
            self.pending.push_front(item);
        } else {
            link.inactive.push_front(item);
        }
    }

    /// Cuts an item that must not run here out of its list; false when a worker has it in hand.
    pub(crate) fn unlink(&mut self, slot: usize, item: NonNull<Head>) -> bool {
        let found = self.pending.remove(item) || self.link_mut(slot).inactive.remove(item);
        if found {
            let link = self.link_mut(slot);
            link.nr_listed -= 1;
            link.probe.forget(item);
            // SAFETY: still linked as far as its state says, so it is alive.
            unsafe { item.as_ref() }.update(|state| Some(State::unlink(state)));
        }
        found
    }

    /// Returns which links with items in flight have a rescuer, of what queue, and where it is called.
    pub(crate) fn rescuers(&self) -> Vec<(Arc<QueueCore>, Arc<MaydayQueue>, usize)> {
        let busy = self.links.iter().enumerate().filter_map(|(slot, link)| {
            let link = link
                .as_ref()
                .filter(|link| link.in_flight.nr_in_flight() > 0)?;
            Some((link.core.clone(), link.mayday_queue.clone()?, slot))
        });
        busy.collect()
    }

    /// Returns `true` if `worker` has items in hand of a queue that is CPU-intensive.
    pub(crate) fn is_cpu_intensive(&self, worker: &Worker) -> bool {
        let seat = self.enlisted(worker).seat;
        seat.is_some_and(|slot| self.link(slot).core.cpu_intensive)
    }

    /// Returns `true` if no queue's routes lead here.
    pub(crate) fn is_deserted(&self) -> bool {
        self.nr_led == 0
    }

    /// Takes back what `worker` has in hand and has not started.
    pub(crate) fn reclaim(&mut self, worker: &Worker) {
        for item in worker.disown().into_iter().rev() {
            self.link_mut(home_slot(item)).counts.nr_started -= 1;
            self.put_back(item);
        }
    }

    pub(crate) fn enlisted(&self, worker: &Worker) -> &Enlisted {
        self.workers[worker.number]
            .as_ref()
            .expect("an enlisted worker")
    }

    pub(crate) fn enlisted_mut(&mut self, worker: &Worker) -> &mut Enlisted {
        self.workers[worker.number]
            .as_mut()
            .expect("an enlisted worker")
    }
}

impl Adopted {
    fn count_in(self, links: &mut [Option<PwqState>]) {
        let link = links[self.slot].as_mut().expect("a link in use");
        link.in_flight.adopt(self.count);
        link.nr_adopted += self.count as u64;
        link.nr_listed += self.count;
    }
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) fn home_slot(item: NonNull<Head>) -> usize {
    // SAFETY: the item is linked, so it is alive, and its home is a link that waits for it.
    unsafe { (*item.as_ref().home.load(Ordering::Relaxed)).slot }
}
