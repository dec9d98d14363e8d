//! A lock that spins a while and then gives its CPU away, as engines have them that do not trust the kernel's.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sync::time::{cycles, cycles_per_us};

/// Looks before the CPU is given away: some tens of microseconds, several times what the lock is held.
const LOOKS: usize = 2000;

/// How often an item takes the lock.
const SECTIONS: usize = 8;

/// What an item does before each section, and in it.
const OUTSIDE_US: u64 = 5;
const INSIDE_US: u64 = 5;

/// Guards nothing but the time that it is held.
#[derive(Debug, Default)]
pub struct SpinLock(AtomicBool);

impl SpinLock {
    fn with(&self, body: impl FnOnce()) {
        while self.0.swap(true, Ordering::Acquire) {
            let free = || !self.0.load(Ordering::Relaxed);
            let saw_it_free = (0..LOOKS).any(|_| {
                hint::spin_loop();
                free()
            });
            if !saw_it_free {
                thread::yield_now();
            }
        }
        body();
        self.0.store(false, Ordering::Release);
    }

    /// Does what one item does: computes by itself and under the lock in turn.
    pub fn item(&self) {
        for _ in 0..SECTIONS {
            burn(OUTSIDE_US);
            self.with(|| burn(INSIDE_US));
        }
    }
}

/// Keeps the CPU busy until so much time has passed, whoever had the CPU meanwhile.
pub fn burn(us: u64) {
    let end = cycles() + us * cycles_per_us();
    while cycles() < end {
        hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn one_at_a_time_is_inside() {
        let (lock, inside) = (SpinLock::default(), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        lock.with(|| {
                            assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                            inside.fetch_sub(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
    }
}
