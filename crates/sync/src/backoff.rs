//! A wait for a few more steps of another thread.

use std::time::Duration;

use crate::thread;

/// The number of yields before a sleep. This is a guess: about the number of threads that share a
/// CPU.
const NR_YIELDS: u32 = 32;
/// The duration of one sleep. It is about the cost of a wake-up, which the sleep replaces.
const SHORT_SLEEP: Duration = Duration::from_micros(50);

/// A wait for another thread that needs a few more steps and does not wake the waiter.
///
/// It first yields the CPU, and then sleeps for short times. A real-time thread that only yielded
/// could keep the other thread off the CPU forever, if the other has a lower priority.
#[derive(Debug, Default)]
pub struct Backoff {
    nr_pauses: u32,
}

impl Backoff {
    /// Begins a wait.
    pub const fn new() -> Self {
        Self { nr_pauses: 0 }
    }

    /// Lets a little time pass before the next check.
    ///
    /// # Blocking
    ///
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
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use super::*;
    use crate::cpu;

    /// Both threads are on one CPU. The low-priority thread runs while the other one sleeps.
    /// Otherwise it would run only when the kernel throttles real-time threads, after millions of
    /// pauses.
    #[test]
    fn real_time_waiter_yields_to_an_ordinary_thread() {
        let waiter = std::thread::spawn(|| {
            let cpus = cpu::affinity().unwrap();
            let one = cpus.iter().take(1).collect();
            cpu::set_affinity(None, &one).unwrap();
            let (begun, done) =
                (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let low = {
                let (begun, done) = (begun.clone(), done.clone());
                std::thread::spawn(move || {
                    while !begun.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                    done.store(true, Ordering::Relaxed);
                })
            };
            if thread::set_fifo(1).is_err() {
                eprintln!("skipped: no right to real-time priorities");
                return;
            }
            begun.store(true, Ordering::Relaxed);
            let mut backoff = Backoff::new();
            let mut nr_pauses = 0_u32;
            while !done.load(Ordering::Relaxed) {
                backoff.pause();
                nr_pauses += 1;
            }
            low.join().unwrap();
            assert!(nr_pauses < 100_000, "{nr_pauses} pauses");
        });
        waiter.join().unwrap();
    }
}
