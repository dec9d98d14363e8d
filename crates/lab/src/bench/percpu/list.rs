//! The guards: whatever stands around the list while objects are taken from it, one by one.

// Some guards call the work of the macro below, others hand it on.
#![allow(clippy::redundant_closure_call, clippy::let_unit_value, unused_mut)]

use std::cell::RefCell;
use std::mem::swap;
use std::sync::Mutex;

use afterwork::percpu::{BuildError, Owner, PerCpu, Qpw};
use sync::time::cycles;
use top::exit::Stop;

use super::cache::Cache;
use super::cases::{EVERY_OP, ON_DEMAND, PARKING_LOT, QUEUE, STD_MUTEX, THREAD_LOCAL, UNPROTECTED};

/// A guard's turn: fills the places with objects of a cache that it guards meanwhile; returns the cycles that took.
pub type Turn<'g> = Box<dyn FnMut(&mut Cache, &mut [u32]) -> u64 + 'g>;

/// Calls `with` a guard of each kind.
pub fn with_all<R>(with: impl FnOnce(&mut [(&'static str, Turn<'_>)]) -> R) -> Result<R, Stop> {
    let [queue, on_demand, every_op] = [Qpw::Queue, Qpw::OnDemand, Qpw::EveryOp].map(in_mode);
    let (queue, on_demand, every_op) = (queue?, on_demand?, every_op?);
    Ok(with(&mut [
        (UNPROTECTED, Box::new(unprotected)),
        (QUEUE, owned(&queue)?),
        (ON_DEMAND, owned(&on_demand)?),
        (EVERY_OP, owned(&every_op)?),
        (STD_MUTEX, std_mutex()),
        (PARKING_LOT, parking_lot()),
        (THREAD_LOCAL, Box::new(thread_local)),
    ]))
}

/// Takes one object for each place by `with`, which works on the guard's own cache: it has the turn's objects meanwhile.
///
/// A macro and no function: each guard is to be inlined into a loop of its own, whatever closure it wants.
macro_rules! turn {
    ($cache:ident, $places:ident, |$work:ident| $with:expr) => {{
        let mut $work = |own: &mut Cache| swap(own, $cache);
        $with;
        let start = cycles();
        for place in $places {
            let $work = |own: &mut Cache| own.alloc();
            *place = $with;
        }
        let spent = cycles().saturating_sub(start);
        let mut $work = |own: &mut Cache| swap(own, $cache);
        $with;
        spent
    }};
}

/// Nothing.
#[inline(never)]
fn unprotected(cache: &mut Cache, places: &mut [u32]) -> u64 {
    let mut own = Cache::new(0);
    turn!(cache, places, |work| work(&mut own))
}

fn in_mode(qpw: Qpw) -> Result<PerCpu<Cache>, Stop> {
    let built = PerCpu::builder().qpw(qpw).build(|_| Cache::new(0));
    built.map_err(unmade)
}

pub(super) fn unmade(error: BuildError) -> Stop {
    Stop::because("cannot make per-CPU data", error)
}

/// Per-CPU data, by an owner.
fn owned(slots: &PerCpu<Cache>) -> Result<Turn<'_>, Stop> {
    let owner = slots.cpus().iter().find_map(|cpu| slots.attach(cpu).ok());
    let owner = owner.ok_or_else(|| Stop::CouldNotRun("every CPU is isolated".into()))?;
    let mut kept = Some(owner);
    Ok(Box::new(move |cache, places| {
        let owner = kept.take().expect("the last turn kept it");
        let (owner, spent) = owned_turn(owner, cache, places);
        kept = Some(owner);
        spent
    }))
}

/// The owner is a local variable here, as it is to be.
#[inline(never)]
fn owned_turn<'p>(
    mut owner: Owner<'p, Cache>,
    cache: &mut Cache,
    places: &mut [u32],
) -> (Owner<'p, Cache>, u64) {
    let spent = turn!(cache, places, |work| owner.with(work));
    (owner, spent)
}

/// A lock of std's.
fn std_mutex<'g>() -> Turn<'g> {
    let own = Mutex::new(Cache::new(0));
    Box::new(move |cache, places| {
        turn!(cache, places, |work| work(
            &mut own.lock().expect("nothing panics inside")
        ))
    })
}

/// A lock of parking_lot's.
fn parking_lot<'g>() -> Turn<'g> {
    let own = parking_lot::Mutex::new(Cache::new(0));
    Box::new(move |cache, places| turn!(cache, places, |work| work(&mut own.lock())))
}

/// What nobody else can ever drain.
fn thread_local(cache: &mut Cache, places: &mut [u32]) -> u64 {
    thread_local!(static OWN: RefCell<Cache> = RefCell::new(Cache::new(0)));
    turn!(cache, places, |work| OWN.with_borrow_mut(work))
}
