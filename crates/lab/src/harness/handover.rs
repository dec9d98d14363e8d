//! The current transfer time of a cache line between two CPUs. The host can move the CPUs of a
//! virtual machine to cores that share no cache. A contended line then takes twice as long, which a
//! ping-pong between two threads shows, and the load average does not.

use std::thread;

use sync::atomic::{AtomicU32, Ordering};
use sync::hint::spin_loop;
use sync::time::now_ns;
use topology::{CpuId, CpuSet};

/// The number of round trips of one measurement, which take half a millisecond.
const ROUND_TRIPS: u32 = 2_000;

/// The number of measurements. In all but the fastest, a thread probably lost its CPU.
const ATTEMPTS: usize = 5;

/// The timeout for a side without its CPU. The slowest machines need a hundredth of it.
const PATIENCE_NS: u64 = 50_000_000;

/// The number of spins between two reads of the clock. One read costs as much as a few spins.
const SPINS_PER_LOOK: u32 = 1_024;

/// The ratio of two measurements above which the CPUs have moved. A second cache triples the time,
/// whereas noise changes it by less than a third.
const MOVED: f64 = 1.5;

/// Returns the first and the last of `cpus`, or `None` if there is only one CPU.
pub fn ends(cpus: &[CpuId]) -> Option<(CpuId, CpuId)> {
    let &[first, .., last] = cpus else { return None };
    Some((first, last))
}

/// Returns the round-trip time of a cache line between the [`ends`] of `cpus`, in nanoseconds.
/// Returns `None` if there is only one CPU or if threads cannot be pinned.
pub fn round_trip_ns(cpus: &[CpuId]) -> Option<f64> {
    let (first, last) = ends(cpus)?;
    (0..ATTEMPTS).filter_map(|_| attempt(first, last)).min_by(f64::total_cmp)
}

pub fn warning(before: Option<f64>, after: Option<f64>) -> Option<String> {
    let (before, after) = before.zip(after)?;
    (before.max(after) > MOVED * before.min(after)).then(|| {
        format!(
            "a cache line took {before:.0} ns from CPU to CPU and back before, {after:.0} ns after: \
             the CPUs were moved, so ratios from before and after are not comparable"
        )
    })
}

fn attempt(first: CpuId, last: CpuId) -> Option<f64> {
    // The turn counter. Even numbers are the turns of one side, odd ones those of the other.
    let ball = AtomicU32::new(0);
    let ball = &ball;
    thread::scope(|scope| {
        // Both sides run on new threads, so that the pinning ends with these threads. A side times
        // out if the other one failed to start or was taken off its CPU.
        let sides = [(first, 0), (last, 1)].map(|(cpu, turn)| {
            thread::Builder::new().spawn_scoped(scope, move || play(ball, cpu, turn))
        });
        let [first, last] = sides.map(|side| side.ok()?.join().ok()?);
        // The side that started second did not wait for the other one to start.
        Some(first?.min(last?))
    })
}

fn play(ball: &AtomicU32, cpu: CpuId, turn: u32) -> Option<f64> {
    sync::cpu::set_affinity(None, &[cpu].into_iter().collect::<CpuSet>()).ok()?;
    let start_ns = now_ns();
    for round in 0..ROUND_TRIPS {
        let mine = 2 * round + turn;
        let mut spins = 0_u32;
        while ball.load(Ordering::Relaxed) != mine {
            spin_loop();
            spins += 1;
            if spins.is_multiple_of(SPINS_PER_LOOK) && now_ns() - start_ns > PATIENCE_NS {
                return None;
            }
        }
        ball.store(mine + 1, Ordering::Relaxed);
    }
    Some((now_ns() - start_ns) as f64 / f64::from(ROUND_TRIPS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_has_no_handover() {
        assert_eq!(round_trip_ns(&[]), None);
        assert_eq!(round_trip_ns(&[CpuId::new(0)]), None);
    }

    #[test]
    fn a_round_trip_takes_time_and_leaves_this_thread_unpinned() {
        let cpus: Vec<CpuId> = sync::cpu::affinity().unwrap().iter().collect();
        let took = round_trip_ns(&cpus);
        assert!(took.is_none_or(|ns| ns > 0.0));
        assert_eq!(sync::cpu::affinity().unwrap().iter().collect::<Vec<_>>(), cpus);
    }

    #[test]
    fn only_a_move_is_reported() {
        assert_eq!(warning(Some(100.0), Some(140.0)), None);
        assert!(warning(Some(100.0), Some(300.0)).is_some());
        assert!(warning(Some(300.0), Some(100.0)).is_some());
        assert_eq!(warning(None, Some(1.0)), None);
    }
}
