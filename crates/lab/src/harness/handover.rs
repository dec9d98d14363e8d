//! How fast a cache line passes from one CPU to another right now.
//!
//! A virtual machine's CPUs move about on the host. When two of them land on cores that share no cache, every
//! line that threads fight for takes twice as long, and a pool that shares more lines loses more. No load average
//! tells of it; a ping-pong does.

use std::thread;

use sync::atomic::{AtomicU32, Ordering};
use sync::hint::spin_loop;
use sync::time::now_ns;
use topology::{CpuId, CpuSet};

/// Round trips of one measurement: half a millisecond.
const ROUND_TRIPS: u32 = 2_000;

/// Measurements, of which the fastest counts: the others had a CPU taken away.
const ATTEMPTS: usize = 5;

/// A side that takes longer was off its CPU: a hundred times what the slowest machines need.
const PATIENCE_NS: u64 = 50_000_000;

/// Spins between two looks at the clock, which costs as much as a few of them.
const SPINS_PER_LOOK: u32 = 1_024;

/// Beyond this factor between two moments the CPUs are not where they were. Cores of one cache and of two
/// differ by three; noise by less than a third.
const MOVED: f64 = 1.5;

/// Returns the nanoseconds that a line takes from the first to the last of `cpus` and back; `None` for a
/// single CPU, or where threads cannot be pinned.
#[must_use]
pub fn round_trip_ns(cpus: &[CpuId]) -> Option<f64> {
    let (&first, &last) = (cpus.first()?, cpus.last()?);
    if first == last {
        return None;
    }
    (0..ATTEMPTS)
        .filter_map(|_| attempt(first, last))
        .min_by(f64::total_cmp)
}

/// Returns what to tell about two measurements that should be alike.
#[must_use]
pub fn warning(before: Option<f64>, after: Option<f64>) -> Option<String> {
    let (before, after) = before.zip(after)?;
    (before.max(after) > MOVED * before.min(after)).then(|| {
        format!(
            "a cache line took {before:.0} ns from CPU to CPU and back before, {after:.0} ns after: \
             something moved the CPUs, and ratios of before and after are not alike"
        )
    })
}

fn attempt(first: CpuId, last: CpuId) -> Option<f64> {
    // Counts up; even numbers are the one side's turn, odd ones the other's.
    let ball = AtomicU32::new(0);
    let ball = &ball;
    thread::scope(|scope| {
        // Both in threads of their own, which take their pinning with them when they end. A side that is never
        // answered, because the other could not start or was taken off its CPU, gives up.
        let sides = [(first, 0), (last, 1)].map(|(cpu, turn)| {
            thread::Builder::new().spawn_scoped(scope, move || play(ball, cpu, turn))
        });
        let [first, last] = sides.map(|side| side.ok()?.join().ok()?);
        // Who started second did not wait for the other's start.
        Some(first?.min(last?))
    })
}

/// Plays one side, and returns the nanoseconds a round.
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
    fn one_cpu_has_nobody_to_hand_over_to() {
        assert_eq!(round_trip_ns(&[]), None);
        assert_eq!(round_trip_ns(&[CpuId::new(0)]), None);
    }

    #[test]
    fn a_round_trip_takes_time_and_leaves_this_thread_unpinned() {
        let cpus: Vec<CpuId> = sync::cpu::affinity().unwrap().iter().collect();
        let took = round_trip_ns(&cpus);
        assert!(took.is_none_or(|ns| ns > 0.0));
        assert_eq!(
            sync::cpu::affinity().unwrap().iter().collect::<Vec<_>>(),
            cpus
        );
    }

    #[test]
    fn only_a_move_is_told() {
        assert_eq!(warning(Some(100.0), Some(140.0)), None);
        assert!(warning(Some(100.0), Some(300.0)).is_some());
        assert!(warning(Some(300.0), Some(100.0)).is_some());
        assert_eq!(warning(None, Some(1.0)), None);
    }
}
