//! A wait for a few more steps of another thread.

use std::time::Duration;

use crate::thread;

/// The number of yields before a sleep. A guess: the threads that share a CPU.
const NR_YIELDS: u32 = 32;
/// The duration of one sleep. It is about the cost of a wake-up, which the sleep replaces.
const SHORT_SLEEP: Duration = Duration::from_micros(50);

/// A wait for another thread that needs a few more steps and does not wake the waiter. It yields,
/// and then sleeps: a real-time thread that only yielded could keep the other off the CPU forever.
#[derive(Debug, Default)]
pub struct Backoff {
    nr_pauses: u32,
}

impl Backoff {
    /// Begins a wait.
    pub const fn new() -> Self {
        Self { nr_pauses: 0 }
    }

    /// Blocks for at most 50 µs plus scheduling latency.
    pub fn pause(&mut self) {
        self.nr_pauses = self.nr_pauses.saturating_add(1);
        if self.nr_pauses <= NR_YIELDS {
            thread::yield_now();
        } else {
            thread::sleep(SHORT_SLEEP);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::cpu;

    /// Both threads are on one CPU. The low-priority thread runs while the other one sleeps.
    /// Otherwise it would run only when the kernel throttles the other, after millions of pauses.
    #[test]
    fn real_time_waiter_yields_to_an_ordinary_thread() {
        let (begun, done) = (AtomicBool::new(false), AtomicBool::new(false));
        let low = || {
            while !begun.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            done.store(true, Ordering::Relaxed);
        };
        std::thread::scope(|scope| {
            let waiter = || {
                let cpus = cpu::affinity().unwrap();
                cpu::set_affinity(None, &cpus.iter().take(1).collect()).unwrap();
                scope.spawn(low);
                let may_be_real_time = thread::set_fifo(1).is_ok();
                begun.store(true, Ordering::Relaxed);
                if !may_be_real_time {
                    eprintln!("skipped: no right to real-time priorities");
                    return;
                }
                let mut backoff = Backoff::new();
                while !done.load(Ordering::Relaxed) {
                    backoff.pause();
                }
                assert!(backoff.nr_pauses < 100_000, "{} pauses", backoff.nr_pauses);
            };
            scope.spawn(waiter).join().unwrap();
        });
    }
}
