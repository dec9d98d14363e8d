//! The loop: objects are taken one by one, through whatever guards the cache.

// Some guards call the work of the macro below, others hand it on.
#![allow(clippy::redundant_closure_call, clippy::let_unit_value)]

use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use afterwork::percpu::{BuildError, Choice, Escalate, Owner, PerCpu, Qpw};
use sync::time::cycles;

use super::cache::{Cache, Shards};
use crate::exit::Stop;

/// How much is taken, how often.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Objects of a round: all that the cache has.
    pub len: usize,
    /// Rounds of a run.
    pub rounds: usize,
}

/// Who guards the cache: makes one of the size, and returns the cycles that an object took.
pub type Guard = fn(Size) -> Result<f64, Stop>;

/// Takes all objects and gives them back, round by round. `with` works on the cache; only taking is timed.
///
/// A macro and no function: each guard is to be inlined into a loop of its own, whatever closure it wants.
macro_rules! rounds {
    ($size:expr, |$work:ident| $with:expr) => {{
        let Size { len, rounds } = $size;
        let mut taken = vec![0; len];
        let mut spent = 0;
        for _ in 0..rounds {
            let start = cycles();
            for place in &mut taken {
                let $work = |cache: &mut Cache| cache.alloc();
                *place = $with;
            }
            spent += cycles().saturating_sub(start);
            let $work = |cache: &mut Cache| cache.free_all(&taken);
            $with;
        }
        Ok(spent as f64 / (len * rounds) as f64)
    }};
}

/// Nothing.
pub fn unprotected(size: Size) -> Result<f64, Stop> {
    let mut cache = Cache::new(size.len);
    rounds!(size, |work| work(&mut cache))
}

/// The mode test compiled out.
pub fn compiled_out(size: Size) -> Result<f64, Stop> {
    let slots = PerCpu::builder().build_compiled_out(|_| Cache::new(0));
    owned(&slots.map_err(unmade)?, size)
}

/// Remote work is mailed.
pub fn queue(size: Size) -> Result<f64, Stop> {
    in_mode(Qpw::Queue, Escalate::Never, size)
}

/// The slot is handed over on demand.
pub fn on_demand(size: Size) -> Result<f64, Stop> {
    in_mode(Qpw::OnDemand, Escalate::Never, size)
}

/// The same, where remote callers may break the bias.
pub fn breakable(size: Size) -> Result<f64, Stop> {
    in_mode(Qpw::OnDemand, Escalate::Interrupt, size)
}

/// The slot is taken for each object.
pub fn every_op(size: Size) -> Result<f64, Stop> {
    in_mode(Qpw::EveryOp, Escalate::Never, size)
}

fn in_mode(qpw: Qpw, how: Escalate, size: Size) -> Result<f64, Stop> {
    let builder = PerCpu::builder()
        .qpw(qpw)
        .escalate(how, Duration::from_millis(1));
    let slots = builder.build(|_| Cache::new(0));
    owned(&slots.map_err(unmade)?, size)
}

pub(super) fn unmade(error: BuildError) -> Stop {
    Stop::because("cannot make per-CPU data", error)
}

#[inline(never)]
fn owned<C: Choice>(slots: &PerCpu<Cache, C>, size: Size) -> Result<f64, Stop> {
    let owner = slots.cpus().iter().find_map(|cpu| slots.attach(cpu).ok());
    let owner = owner.ok_or_else(|| Stop::CouldNotRun("every CPU is isolated".into()))?;
    taken_by(owner, size)
}

#[inline(never)]
fn taken_by<C: Choice>(mut owner: Owner<'_, Cache, C>, size: Size) -> Result<f64, Stop> {
    owner.with(|cache| *cache = Cache::new(size.len));
    rounds!(size, |work| owner.with(work))
}

/// A word beside the cache, and nothing else: what any lock costs whose owner says by one store that it is out.
///
/// No way to take a slot by an atomic can be cheaper.
pub fn bare_swap(size: Size) -> Result<f64, Stop> {
    bare(size, |word| word.swap(1, Ordering::Acquire) == 0)
}

/// The same with a compare-exchange.
pub fn bare_compare(size: Size) -> Result<f64, Stop> {
    bare(size, |word| {
        word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    })
}

#[inline(always)]
fn bare(size: Size, take: impl Fn(&AtomicU32) -> bool) -> Result<f64, Stop> {
    #[repr(align(128))]
    struct Beside {
        word: AtomicU32,
        cache: Cache,
    }
    let mut beside = Beside {
        word: AtomicU32::new(0),
        cache: Cache::new(size.len),
    };
    rounds!(size, |work| {
        assert!(take(&beside.word), "nobody else takes it");
        let result = work(&mut beside.cache);
        beside.word.store(0, Ordering::Release);
        result
    })
}

/// A head for each CPU, changed by an atomic.
pub fn sharded(size: Size) -> Result<f64, Stop> {
    let mut shards = Shards::new(size.len);
    let Size { len, rounds } = size;
    let mut taken = vec![0; len];
    let mut spent = 0;
    for _ in 0..rounds {
        let start = cycles();
        for place in &mut taken {
            *place = shards.alloc();
        }
        spent += cycles().saturating_sub(start);
        shards.free_all(&taken);
    }
    Ok(spent as f64 / (len * rounds) as f64)
}

/// A lock of std's.
pub fn std_mutex(size: Size) -> Result<f64, Stop> {
    let cache = Mutex::new(Cache::new(size.len));
    rounds!(size, |work| work(
        &mut cache.lock().expect("nothing panics inside")
    ))
}

/// A lock of parking_lot's.
pub fn parking_lot(size: Size) -> Result<f64, Stop> {
    let cache = parking_lot::Mutex::new(Cache::new(size.len));
    rounds!(size, |work| work(&mut cache.lock()))
}

/// What nobody else can ever drain.
pub fn thread_local(size: Size) -> Result<f64, Stop> {
    thread_local!(static CACHE: RefCell<Cache> = RefCell::new(Cache::new(0)));
    CACHE.set(Cache::new(size.len));
    let result = rounds!(size, |work| CACHE.with_borrow_mut(work));
    CACHE.set(Cache::new(0));
    result
}
