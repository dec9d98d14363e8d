//! What the pool lock guards: who has which items, and who is idle.
//!
//! Nothing here wakes, runs, or waits; `pool.rs` does, after the lock.

use std::{
    collections::{HashMap, VecDeque},
    ptr::{self, NonNull},
};

use base::internal::wake::Unparker;
use sync::{atomic::Ordering, time, twin, unmodelled::Arc};

use super::{
    mayday::{MaydayQueue, MaydayTimer},
    pace::Pace,
    pwq::{Counts, Pwq, PwqState, Seeker},
    worker::Worker,
};
use crate::{
    item::{
        colour::Colour,
        head::{Head, Home},
        lane::Lane,
        list::{Injector, List},
        state::State,
    },
    limit::{
        account::{Clock, VirtualTime, next_by_use},
        queue_core::QueueCore,
    },
    observe::{
        concurrency::{Away, Seen},
        stall::StallDetector,
        tally::{Rest, Sampling},
    },
};

/// A worker that is parked or about to be, and since when.
#[derive(Debug)]
pub(crate) struct IdleWorker {
    pub(crate) worker: Arc<Worker>,
    /// Its own: who picks the worker touches nothing of it under the lock.
    pub(crate) unparker: Unparker,
    pub(crate) since_ns: u64,
    /// It has given its stack's memory back, and run nothing since.
    pub(crate) is_lean: bool,
}

/// A worker as the lock sees it. In lines of its own: the worker alone writes most of it, at each trip.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Enlisted {
    pub(crate) worker: Arc<Worker>,
    /// The link whose items it runs, and whose seat it holds.
    pub(crate) seat: Option<usize>,
    /// The colour of what it took last.
    pub(crate) colour: Colour,
    /// What the link has paid in advance for that.
    pub(crate) paid: VirtualTime,
    /// How many of its runs have been given back to their link's in-flight count.
    pub(crate) nr_retired: u32,
    /// Why it does not count as awake, if so.
    pub(crate) away: Away,
    /// What the last look saw of its item.
    pub(crate) seen: Option<Seen>,
    /// When it last told how long items wait and run.
    pub(crate) sampling: Sampling,
}

/// The part of a pool that its lock guards.
///
/// A worker of another CPU fetches each line that it finds written. So what every trip writes lies in the line of the lock, what
/// every trip reads in the next one, and what a kick changes in the third.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Dispatch {
    /// Adopted items that nobody has looked at, oldest first.
    pub(crate) pending: List,
    /// Items taken.
    pub(crate) nr_taken: u64,
    /// Links that have lanes.
    nr_with_lanes: usize,
    /// Whether `ready` goes before `pending` next time; they take turns.
    pub(crate) ready_first: bool,
    /// No link is left: workers leave.
    pub(crate) dying: bool,

    /// Links by their slot.
    links: Vec<Option<PwqState>>,
    /// All workers, by their number.
    workers: Vec<Option<Enlisted>>,
    /// Links that have shares and to which routes lead: all wait by themselves then, and go by what they have used.
    nr_with_shares: usize,
    /// How many items of all links were cancelled since tombstones were cut out of `pending`, about; see `tombstones.rs`.
    pub(crate) nr_cancelled: usize,

    pub(crate) pace: Pace,

    /// Links that hold a seat for their inactive items.
    pub(crate) ready: VecDeque<usize>,
    /// Workers that are parked or about to be, the last to do so last.
    pub(crate) idle: Vec<IdleWorker>,
    nr_workers: usize,

    /// Workers that have been asked for and are not there yet.
    pub(crate) nr_creating: usize,
    pub(crate) mayday_timer: MaydayTimer,
    pub(crate) stall_detector: StallDetector,
    /// How often items of a kind have been seen to hog the CPU, by their table.
    pub(crate) hogs: HashMap<usize, u64>,
    /// Slots without a link.
    free_slots: Vec<usize>,
    /// Links to which routes lead.
    nr_led: usize,
    /// The clocks that set where a link's account starts, if the links of this pool have shares.
    clock: Clock,
    /// What links had counted that are gone.
    gone: Counts,
}

/// Items of one link that lie side by side in an injector: counted together, for so they mostly come.
struct Adopted {
    /// Only ever compared.
    home: *const Home,
    slot: usize,
    lane: Lane,
    colour: Colour,
    count: usize,
}

/// From when to when the items of one adoption came, in cycles, if that is noted.
type Came = Option<(u64, u64)>;

impl Dispatch {
    pub(crate) fn link(&self, slot: usize) -> &PwqState {
        self.links[slot].as_ref().expect("a link in use")
    }

    pub(crate) fn link_mut(&mut self, slot: usize) -> &mut PwqState {
        self.links[slot].as_mut().expect("a link in use")
    }

    pub(crate) fn add_link(&mut self, pwq: impl FnOnce(usize) -> Arc<Pwq>) -> Arc<Pwq> {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() - 1
        });
        let pwq = pwq(slot);
        let state = PwqState::new(pwq.clone());
        self.nr_led += 1;
        self.nr_with_lanes += usize::from(state.has_lanes);
        self.links[slot] = Some(state);
        let shares = pwq.core.shares.load(Ordering::Relaxed);
        if shares > 0 {
            self.set_shares(slot, shares);
        }
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
            if self.link(slot).account.has_shares() {
                self.count_shares(led);
            }
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
            if enlisted.sampling.slot() == slot {
                enlisted.sampling = Sampling::default();
            }
        }
        let state = self.links[slot].take().expect("a link in use");
        debug_assert!(state.in_flight.nr_in_flight() == 0 && !state.has_waiting());
        debug_assert_eq!(state.nr_listed(), 0);
        self.nr_led -= usize::from(!state.retired);
        self.nr_with_lanes -= usize::from(state.has_lanes);
        if state.account.has_shares() && !state.retired {
            self.count_shares(false);
        }
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
            paid: VirtualTime::default(),
            away: Away::default(),
            seen: None,
            sampling: Sampling::default(),
        });
        self.nr_workers += 1;
        worker
    }

    /// Strikes a worker off that has nothing in hand; what it has not told yet is told.
    pub(crate) fn discharge(&mut self, worker: &Worker) {
        let sampling = &mut self.enlisted_mut(worker).sampling;
        let (slot, rest) = (sampling.slot(), sampling.take_rest());
        self.tell_rest(slot, rest);
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
        let blocked = |it: &&Enlisted| it.away.sleeps();
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

    /// Returns `true` if what producers have left may go before what has been adopted.
    #[inline]
    pub(crate) fn adopts_early(&self) -> bool {
        self.nr_with_lanes > 0 || self.is_shared()
    }

    /// Returns `true` if links go by what they have used.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.nr_with_shares > 0
    }

    /// Sets the shares of a link in the pool's time.
    pub(crate) fn set_shares(&mut self, slot: usize, shares: u32) {
        let paid = self.workers.iter_mut().flatten();
        let paid = paid
            .filter(|it| it.seat == Some(slot))
            .map(|it| &mut it.paid);
        let link = self.links[slot].as_mut().expect("a link in use");
        if link.account.set_shares(shares, &self.clock, paid) && !link.retired {
            self.count_shares(true);
        }
    }

    /// Counts one link with shares more or less; when none is left, what links have used is forgotten.
    fn count_shares(&mut self, more: bool) {
        if more {
            self.nr_with_shares += 1;
            let pending = std::mem::take(&mut self.pending);
            return self.sort(pending);
        }
        self.nr_with_shares -= 1;
        if self.is_shared() {
            return;
        }
        self.clock = Clock::default();
        for link in self.links.iter_mut().flatten() {
            link.account.close();
        }
        for enlisted in self.workers.iter_mut().flatten() {
            enlisted.paid = VirtualTime::default();
        }
    }

    /// Takes note that a worker found nothing: if no other has anything either, links owe nothing to those that come next.
    pub(crate) fn rest(&mut self) {
        if self.is_shared() && self.workers().all(|it| it.seat.is_none()) {
            let links = self.links.iter().flatten();
            self.clock.rest(links.map(|link| link.account.used()));
        }
    }

    /// Takes note that a link has a seat for what waits there.
    pub(crate) fn seat(&mut self, slot: usize) {
        if self.is_shared() {
            let link = self.links[slot].as_mut().expect("a link in use");
            link.account.wait_from(&self.clock);
        }
        self.ready.push_back(slot);
    }

    /// Takes the link out of `ready` whose turn it is.
    pub(crate) fn next_ready(&mut self) -> Option<usize> {
        if !self.is_shared() {
            return self.ready.pop_front();
        }
        // A link of which all items were cancelled releases its seat at once, so that no other link waits for its turn.
        let has_none = |&slot: &usize| !self.link(slot).has_waiting();
        if let Some(at) = self.ready.iter().position(has_none)
            && !twin::armed("shares: an emptied link waits for its turn")
        {
            return self.ready.remove(at);
        }
        let used = self
            .ready
            .iter()
            .map(|&slot| self.link(slot).account.used());
        let slot = self.ready.remove(next_by_use(used)?)?;
        let used = self.link(slot).account.used();
        self.clock.pick(used);
        Some(slot)
    }

    /// Charges the last batch of `worker` to its link, and advances the clock. The link may have
    /// been removed since.
    pub(crate) fn charge(&mut self, worker: &Worker, nr_items: u64, took_ns: u64) {
        let enlisted = self.enlisted_mut(worker);
        let (its, paid) = (enlisted.seat, std::mem::take(&mut enlisted.paid));
        if let Some(slot) = its {
            let account = &mut self.link_mut(slot).account;
            account.settle(paid, nr_items, took_ns);
        }
        if nr_items == 0 {
            return;
        }
        // A worker that sleeps in an item uses no CPU time. If its link were counted, each such
        // worker would slow down the clock.
        let awake = self.workers.iter().flatten().filter(|it| !it.away.sleeps());
        let waiting = self.ready.iter().copied();
        let mut wanting = self.clock.count();
        for slot in waiting.chain(awake.filter_map(|it| it.seat)).chain(its) {
            let link = self.links[slot].as_mut().expect("a link in use");
            wanting.add(&mut link.account);
        }
        wanting.serve(took_ns);
    }

    /// Has the link of what `worker` takes pay for it in advance.
    pub(crate) fn pay(&mut self, worker: &Worker, slot: usize, nr_taken: usize) {
        let paid = self.link_mut(slot).account.pay(nr_taken as u64);
        self.enlisted_mut(worker).paid = paid;
    }

    /// Takes over what producers have left, and counts it in flight.
    pub(crate) fn adopt(&mut self, injector: &Injector) {
        if !injector.is_empty() {
            self.adopt_at(time::cycles(), injector);
        }
    }

    /// As [`adopt`](Self::adopt), at the time `now` in cycles.
    pub(crate) fn adopt_at(&mut self, now: u64, injector: &Injector) {
        if injector.is_empty() {
            return;
        }
        let mut sorts = self.is_shared();
        let links = &mut self.links;
        let came = || injector.since().map(|since| (since, now));
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
                run.count_in(links, came());
            }
            // SAFETY: a queue drains its links before they go, and this item is not counted yet, so that drain is still
            // to come.
            let &Home { slot, lane, .. } = unsafe { &*home };
            let link = links[slot].as_ref().expect("a link in use");
            sorts |= link.has_lanes;
            let colour = link.in_flight.present();
            run = Some(Adopted {
                home,
                slot,
                lane,
                colour,
                count: 1,
            });
            colour
        });
        if let Some(run) = run {
            run.count_in(links, came());
        }
        if sorts {
            self.sort(list);
        } else {
            self.pending.append(&mut list);
        }
    }

    /// Puts adopted items, oldest first, where they wait.
    #[cold]
    fn sort(&mut self, mut items: List) {
        while let Some(item) = items.pop_front() {
            let &Home { slot, lane, .. } = home(item);
            if self.link(slot).has_lanes || self.is_shared() {
                self.set_aside(slot, |link| link.lane_mut(lane).push_back(item));
            } else {
                self.pending.push_back(item);
            }
        }
    }

    /// Has the items of a link wait by themselves from now on, where urgent ones may overtake them.
    pub(crate) fn open_lanes(&mut self, slot: usize) {
        self.link_mut(slot).has_lanes = true;
        self.nr_with_lanes += 1;
        let pending = std::mem::take(&mut self.pending);
        self.sort(pending);
    }

    /// Lets `add` put items into a link's lists; the link waits for its turn if it did not.
    fn set_aside(&mut self, slot: usize, add: impl FnOnce(&mut PwqState)) {
        let link = self.link_mut(slot);
        let waits = link.has_waiting();
        add(link);
        if !waits && !twin::armed("lanes: forgets to line up") {
            self.line_up(slot);
        }
    }

    /// Gets a link with waiting items a seat, or puts it in line for one.
    pub(crate) fn line_up(&mut self, slot: usize) {
        let link = self.link(slot);
        if link.has_waiting()
            && !twin::armed("take: forgets the inactive")
            && link.gate.enter_or_queue(link.node, || Seeker {
                pool: link.pool.clone(),
                slot,
            })
        {
            self.seat(slot);
        }
    }

    /// Puts a counted item back to the front of its link's line.
    pub(crate) fn put_back(&mut self, item: NonNull<Head>) {
        let &Home { slot, lane, .. } = home(item);
        let link = self.link_mut(slot);
        link.rejoin_line(lane);
        let waits_here = link.has_lanes || link.has_waiting();
        if waits_here || self.is_shared() {
            self.set_aside(slot, |link| link.lane_mut(lane).push_front(item));
        } else {
            self.pending.push_front(item);
        }
    }

    /// Cuts an item that must not run here out of its list; false when a worker has it in hand.
    pub(crate) fn unlink(&mut self, slot: usize, item: NonNull<Head>) -> bool {
        let found = self.pending.remove(item) || self.link_mut(slot).remove(item);
        if found {
            let link = self.link_mut(slot);
            link.leave_line(home(item).lane, 1);
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
        let items = worker.disown();
        // They are told again when they are taken again.
        self.untell(worker, items.len() as u64);
        for item in items.into_iter().rev() {
            self.link_mut(home_slot(item)).counts.nr_started -= 1;
            self.put_back(item);
        }
    }

    /// Takes back what was told of the waits of `count` items that `worker` has taken and does not run.
    pub(crate) fn untell(&mut self, worker: &Worker, count: u64) {
        let enlisted = self.enlisted_mut(worker);
        let (seat, waited) = (enlisted.seat, enlisted.sampling.gave_back(count));
        if let (Some(slot), Some(waited)) = (seat, waited)
            && let Some(times) = self.link_mut(slot).times_mut()
        {
            times.wait.take_back(waited, count);
        }
    }

    /// Tells a link what a worker has not told of it, unless the link has gone.
    pub(crate) fn tell_rest(&mut self, slot: usize, rest: Rest) {
        let link = self.links.get_mut(slot).and_then(Option::as_mut);
        if let Some(times) = link.and_then(PwqState::times_mut) {
            times.add_rest(rest);
        }
    }

    /// Has all workers that have nothing in hand tell a link what they have not told of it.
    pub(crate) fn tell_rests(&mut self, slot: usize) {
        for number in 0..self.workers.len() {
            let enlisted = self.workers[number].as_mut();
            let idle =
                enlisted.filter(|it| it.sampling.slot() == slot && it.worker.nr_not_started() == 0);
            if let Some(enlisted) = idle {
                let rest = enlisted.sampling.take_rest();
                self.tell_rest(slot, rest);
            }
        }
    }

    /// Walks the workers that have a seat for the items of a link.
    pub(crate) fn seated(&self, slot: usize) -> impl Iterator<Item = &Enlisted> {
        self.workers().filter(move |it| it.seat == Some(slot))
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
    fn count_in(self, links: &mut [Option<PwqState>], came: Came) {
        let link = links[self.slot].as_mut().expect("a link in use");
        link.in_flight.adopt(self.count);
        link.nr_adopted += self.count as u64;
        link.join_line(self.lane, self.count, came);
    }
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) fn home_slot(item: NonNull<Head>) -> usize {
    home(item).slot
}

pub(crate) fn home<'a>(item: NonNull<Head>) -> &'a Home {
    // SAFETY: the item is linked, so it is alive, and its home is a link that waits for it.
    unsafe { &*item.as_ref().home.load(Ordering::Relaxed) }
}
