//! Threads that are stationed on a CPU, and per-CPU data that they own while they are up.
//!
//! Workers know on which CPU they are, per-CPU data wants owners that live there, and neither is to name the other. So
//! data that wants such owners puts itself on the *roster* ([`enrol`]), and a worker that is bound to one CPU opens a
//! *station* there ([`open`]). From then on it says where it stands, and this module does the rest:
//!
//! ```text
//! takes a batch    arrive   attach to all on the roster whose slot here nobody owns
//! between items    pass     let others in: poll
//! may sleep        leave    give everything up
//! ends             close
//! ```
//!
//! A slot that its owner gives up is free for anybody to take, so whoever waits for one waits at most for the item that
//! runs there. What must never happen is that a thread sleeps with a slot: nobody wakes it for that.
//!
//! What is polled must not wait: its thread has all its slots meanwhile.
//!
//! Where nothing is offered an item costs a load for this, and a batch one more of a word that never changes.

use std::cell::{Cell, RefCell};

use sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
    fork::{self, Handler},
    twin,
    unmodelled::{Arc, Weak},
};
use topology::CpuId;

use crate::panics;

/// Per-CPU data, as threads see it that own slots of it.
pub(crate) trait Offered: Send + Sync {
    /// Makes this thread the owner of the slot of `cpu`, if that can be had at once; returns `true` if it is.
    fn attach(&self, cpu: CpuId) -> bool;
    /// Lets others into that slot.
    fn poll(&self, cpu: CpuId);
    /// Gives that slot up; returns `true` if it did, for it must not while this thread works on it.
    fn detach(&self, cpu: CpuId) -> bool;
}

/// All that is offered in this process.
struct Roster {
    /// A: how often `offered` changed; nothing was ever offered while it is 0.
    version: AtomicU64,
    offered: Mutex<Vec<Weak<dyn Offered>>>,
}

sync::process_wide! {
    fn roster() -> Roster = Roster {
        version: AtomicU64::new(0),
        offered: Mutex::new(Vec::new()),
    }
}

static HANDLER: Handler = Handler {
    before: |held| held.lock(&roster().offered),
    ..Handler::IDLE
};

/// Keeps per-CPU data on the roster until dropped.
///
/// Who owns a slot of it then gives that up before its next batch.
pub(crate) struct Enrolment(Weak<dyn Offered>);

/// Puts `offered` on the roster.
pub(crate) fn enrol(offered: Weak<dyn Offered>) -> Enrolment {
    fork::register(&HANDLER);
    roster().change(|all| all.push(offered.clone()));
    Enrolment(offered)
}

impl Roster {
    fn change(&self, change: impl FnOnce(&mut Vec<Weak<dyn Offered>>)) {
        let mut offered = self.offered.lock();
        change(&mut offered);
        // Relaxed: who sees it takes the lock to look.
        self.version.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Enrolment {
    fn drop(&mut self) {
        if !twin::torn_down() {
            roster().change(|all| {
                // Of several that are alike any one will do.
                let at = all.iter().position(|offered| offered.ptr_eq(&self.0));
                all.remove(at.expect("enrolled until now"));
            });
        }
    }
}

/// What this thread has of the roster.
struct Station {
    cpu: CpuId,
    /// Of the roster, when `slots` was copied from it.
    version: u64,
    slots: Vec<Slot>,
}

struct Slot {
    offered: Weak<dyn Offered>,
    /// While this thread owns its slot of it.
    owned: Option<Arc<dyn Offered>>,
}

sync::thread_local! {
    static STATION: RefCell<Option<Station>> = RefCell::new(None)
}
sync::thread_local! {
    /// The roster's version when there is nothing to arrive for, `OWNS_SLOTS` while slots are owned. Apart from the
    /// station, and without a destructor, so that to look costs a load.
    static OWNER_STATE: Cell<u64> = Cell::new(NOWHERE)
}

/// In [`OWNER_STATE`]: there are slots to poll, and to leave.
const OWNS_SLOTS: u64 = u64::MAX;
/// In [`OWNER_STATE`]: something is offered, and nothing of it owned.
const OFF_DUTY: u64 = u64::MAX - 1;
/// In [`OWNER_STATE`]: this thread is stationed nowhere.
const NOWHERE: u64 = u64::MAX - 2;

/// Stations this thread on `cpu`.
pub(crate) fn open(cpu: CpuId) {
    STATION.with(|station| {
        *station.borrow_mut() = Some(Station {
            cpu,
            version: 0,
            slots: Vec::new(),
        });
    });
    OWNER_STATE.with(|state| state.set(0));
}

/// Ends being stationed.
pub(crate) fn close() {
    leave();
    STATION.with(|station| *station.borrow_mut() = None);
    OWNER_STATE.with(|state| state.set(NOWHERE));
}

/// Has this thread own what is offered, before it begins a batch of items.
#[inline]
pub(crate) fn arrive() {
    let state = OWNER_STATE.with(Cell::get);
    if state != NOWHERE && state != roster().version.load(Ordering::Relaxed) {
        with_station(Station::arrive);
    }
}

/// Lets others in, between two items.
#[inline]
pub(crate) fn pass() {
    if OWNER_STATE.with(Cell::get) == OWNS_SLOTS {
        with_station(Station::poll);
    }
}

/// Gives up what this thread owns, before it may sleep; [`arrive`] gets it back.
#[inline]
pub(crate) fn leave() {
    // A thread that ends has given up all that it owned.
    if matches!(OWNER_STATE.try_with(Cell::get), Ok(OWNS_SLOTS)) {
        with_station(Station::leave);
    }
}

/// Calls `act` on this thread's station, if it has one.
///
/// The station is out of its place meanwhile, so what it calls cannot come back to it.
#[cold]
fn with_station(act: impl FnOnce(&mut Station) -> u64) {
    STATION.with(|place| {
        let Some(mut station) = place.borrow_mut().take() else {
            let version = roster().version.load(Ordering::Relaxed);
            return OWNER_STATE.with(|state| state.set(version));
        };
        OWNER_STATE.with(|state| state.set(0));
        let next = act(&mut station);
        OWNER_STATE.with(|state| state.set(next));
        *place.borrow_mut() = Some(station);
    });
}

impl Station {
    fn arrive(&mut self) -> u64 {
        if roster().version.load(Ordering::Relaxed) != self.version {
            // Between batches it is inside nothing, so all are given up.
            self.leave();
            self.copy();
        }
        for slot in &mut self.slots {
            slot.attach(self.cpu);
        }
        self.poll()
    }

    fn copy(&mut self) {
        let offered = roster().offered.lock();
        self.version = roster().version.load(Ordering::Relaxed);
        let slots = offered.iter().map(|offered| Slot {
            offered: offered.clone(),
            owned: None,
        });
        let slots = slots.collect();
        drop(offered);
        // What was there goes with no lock held.
        self.slots = slots;
    }

    fn poll(&mut self) -> u64 {
        let cpu = self.cpu;
        let owned = self.slots.iter().filter_map(|slot| slot.owned.as_ref());
        owned.for_each(|owned| owned.poll(cpu));
        self.state()
    }

    fn leave(&mut self) -> u64 {
        for slot in &mut self.slots {
            slot.detach(self.cpu);
        }
        self.state()
    }

    /// What [`OWNER_STATE`] shall be.
    fn state(&self) -> u64 {
        let owns = self.slots.iter().any(|slot| slot.owned.is_some());
        match self.slots.len() {
            _ if owns => OWNS_SLOTS,
            0 => self.version,
            _ => OFF_DUTY,
        }
    }
}

impl Slot {
    fn attach(&mut self, cpu: CpuId) {
        if self.owned.is_none() {
            let offered = self.offered.upgrade();
            let (owned, other) = match offered {
                Some(offered) if offered.attach(cpu) => (Some(offered), None),
                other => (None, other),
            };
            self.owned = owned;
            other.into_iter().for_each(let_go);
        }
    }

    fn detach(&mut self, cpu: CpuId) {
        let owned = self.owned.take_if(|owned| owned.detach(cpu));
        owned.into_iter().for_each(let_go);
    }
}

/// Drops what may be the last pointer to somebody's data; a panic of that ends here.
fn let_go(offered: Arc<dyn Offered>) {
    // FOREIGN(station-data): somebody's data may be dropped, on a worker between items; a panic ends here.
    panics::contain(|| drop(offered));
}
