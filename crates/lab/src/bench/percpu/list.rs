//! Guards of a list, through each of which objects are taken one by one.

// The macro below creates a closure that some guards call and others pass on.
#![allow(clippy::redundant_closure_call, clippy::let_unit_value, unused_mut)]

use std::cell::RefCell;
use std::mem::swap;
use std::sync::Mutex;
use std::time::Duration;

use afterwork::percpu::{BuildError, Owner, PerCpu, Qpw};
use sync::time::cycles;
use top::exit::Stop;

use super::cache::Cache;
use super::cases::{
    BY_TRY, COMPILED_OUT, EVERY_OP, ON_DEMAND, PARKING_LOT, QUEUE, STD_MUTEX, THREAD_LOCAL,
    UNPROTECTED,
};

/// A turn of a guard: it takes objects, stores their indexes, and returns the cycles used.
pub type Turn<'g> = Box<dyn FnMut(&mut Cache, &mut [u32]) -> u64 + 'g>;

pub fn with_all<R>(with: impl FnOnce(&mut [(&'static str, Turn<'_>)]) -> R) -> Result<R, Stop> {
    let [queue, on_demand, every_op] = [Qpw::Queue, Qpw::OnDemand, Qpw::EveryOp].map(in_mode);
    let (queue, on_demand, every_op) = (queue?, on_demand?, every_op?);
    let compiled_out = PerCpu::builder().build_compiled_out(|_| Cache::new(0));
    let compiled_out = compiled_out.map_err(unmade)?;
    let unowned = in_mode(Qpw::Queue)?;
    Ok(with(&mut [
        (UNPROTECTED, Box::new(unprotected)),
        (QUEUE, owned(&queue)?),
        (ON_DEMAND, owned(&on_demand)?),
        (EVERY_OP, owned(&every_op)?),
        (COMPILED_OUT, owned(&compiled_out)?),
        (BY_TRY, by_try(&unowned)?),
        (STD_MUTEX, std_mutex()),
        (PARKING_LOT, parking_lot()),
        (THREAD_LOCAL, Box::new(thread_local)),
    ]))
}

/// Takes one object for each element of `$places`. `$with` runs the work on the guard's own cache,
/// which holds the objects of `$cache` during the turn. It is a macro, so that each guard is
/// inlined.
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
    Stop::because("cannot create per-CPU data")(error)
}

fn owned<const C: bool>(slots: &PerCpu<Cache, C>) -> Result<Turn<'_>, Stop> {
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

/// Runs one turn of an owner. The owner is a local variable, as recommended.
#[inline(never)]
fn owned_turn<'p, const C: bool>(
    mut owner: Owner<'p, Cache, C>,
    cache: &mut Cache,
    places: &mut [u32],
) -> (Owner<'p, Cache, C>, u64) {
    let spent = turn!(cache, places, |work| owner.with(work));
    (owner, spent)
}

/// Uses per-CPU data without an owner. The slot is taken for each operation if it is free.
fn by_try(slots: &PerCpu<Cache>) -> Result<Turn<'_>, Stop> {
    let none = || Stop::CouldNotRun("no CPU has a slot".into());
    let cpu = slots.cpus().first().ok_or_else(none)?;
    Ok(Box::new(move |cache, places| {
        turn!(cache, places, |work| {
            let done = slots.try_run_on(cpu, Duration::ZERO, work);
            done.unwrap_or_else(|_| panic!("no other thread uses the slot"))
        })
    }))
}

fn std_mutex<'g>() -> Turn<'g> {
    let own = Mutex::new(Cache::new(0));
    Box::new(move |cache, places| {
        turn!(cache, places, |work| work(&mut own.lock().expect("nothing panics inside")))
    })
}

fn parking_lot<'g>() -> Turn<'g> {
    let own = parking_lot::Mutex::new(Cache::new(0));
    Box::new(move |cache, places| turn!(cache, places, |work| work(&mut own.lock())))
}

/// Uses a thread-local cache, which no other thread can drain.
fn thread_local(cache: &mut Cache, places: &mut [u32]) -> u64 {
    thread_local!(static OWN: RefCell<Cache> = RefCell::new(Cache::new(0)));
    turn!(cache, places, |work| OWN.with_borrow_mut(work))
}
