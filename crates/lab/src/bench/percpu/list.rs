//! The guards: whatever stands around the list while objects are taken from it, one by one.

// Some guards call the work of the macro below, others hand it on.
#![allow(clippy::redundant_closure_call, clippy::let_unit_value, unused_mut)]

use std::cell::RefCell;
use std::mem::swap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use afterwork::percpu::{BuildError, Choice, Escalate, Owner, PerCpu, Qpw};
use sync::time::cycles;
use top::exit::Stop;

use super::cache::{Cache, Shards};
use super::cases::{
    BARE_COMPARE, BARE_SWAP, BREAKABLE, COMPILED_OUT, EVERY_OP, ON_DEMAND, PARKING_LOT, QUEUE,
    SHARDED, STD_MUTEX, THREAD_LOCAL, UNPROTECTED,
};

/// A guard's turn: fills the places with objects of a cache that it guards meanwhile; returns the cycles that took.
pub type Turn<'g> = Box<dyn FnMut(&mut Cache, &mut [u32]) -> u64 + 'g>;

/// Calls `with` a guard of each kind.
pub fn with_all<R>(with: impl FnOnce(&mut [(&'static str, Turn<'_>)]) -> R) -> Result<R, Stop> {
    let compiled_out = PerCpu::builder().build_compiled_out(|_| Cache::new(0));
    let compiled_out = compiled_out.map_err(unmade)?;
    let queue = in_mode(Qpw::Queue, Escalate::Never)?;
    let on_demand = in_mode(Qpw::OnDemand, Escalate::Never)?;
    let breakable = in_mode(Qpw::OnDemand, Escalate::Interrupt)?;
    let every_op = in_mode(Qpw::EveryOp, Escalate::Never)?;
    Ok(with(&mut [
        (UNPROTECTED, Box::new(unprotected)),
        (COMPILED_OUT, owned(&compiled_out)?),
        (QUEUE, owned(&queue)?),
        (ON_DEMAND, owned(&on_demand)?),
        (BREAKABLE, owned(&breakable)?),
        (EVERY_OP, owned(&every_op)?),
        (BARE_SWAP, bare(|word| word.swap(1, Ordering::Acquire) == 0)),
        (BARE_COMPARE, bare(compare)),
        (STD_MUTEX, std_mutex()),
        (PARKING_LOT, parking_lot()),
        (THREAD_LOCAL, Box::new(thread_local)),
        (SHARDED, sharded()),
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

fn in_mode(qpw: Qpw, how: Escalate) -> Result<PerCpu<Cache>, Stop> {
    let builder = PerCpu::builder()
        .qpw(qpw)
        .escalate(how, Duration::from_millis(1));
    builder.build(|_| Cache::new(0)).map_err(unmade)
}

pub(super) fn unmade(error: BuildError) -> Stop {
    Stop::because("cannot make per-CPU data", error)
}

/// Per-CPU data, by an owner.
fn owned<C: Choice>(slots: &PerCpu<Cache, C>) -> Result<Turn<'_>, Stop> {
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
fn owned_turn<'p, C: Choice>(
    mut owner: Owner<'p, Cache, C>,
    cache: &mut Cache,
    places: &mut [u32],
) -> (Owner<'p, Cache, C>, u64) {
    let spent = turn!(cache, places, |work| owner.with(work));
    (owner, spent)
}

fn compare(word: &AtomicU32) -> bool {
    word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// A word beside the cache, and nothing else: what any lock costs whose owner says by one store that it is out.
///
/// No way to take a slot by an atomic can be cheaper.
fn bare<'g>(take: impl Fn(&AtomicU32) -> bool + 'g) -> Turn<'g> {
    #[repr(align(128))]
    struct Beside {
        word: AtomicU32,
        cache: Cache,
    }
    let mut beside = Beside {
        word: AtomicU32::new(0),
        cache: Cache::new(0),
    };
    Box::new(move |cache, places| {
        turn!(cache, places, |work| {
            assert!(take(&beside.word), "nobody else takes it");
            let result = work(&mut beside.cache);
            beside.word.store(0, Ordering::Release);
            result
        })
    })
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

/// A head for each CPU, changed by an atomic.
fn sharded<'g>() -> Turn<'g> {
    let mut shards = Shards::new();
    Box::new(move |cache, places| {
        shards.swap(cache);
        let start = cycles();
        for place in places {
            *place = shards.alloc();
        }
        let spent = cycles().saturating_sub(start);
        shards.swap(cache);
        spent
    })
}
