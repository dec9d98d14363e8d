//! Several ways to free values that readers may still use, with a common interface.
//!
//! Each *flavor* publishes one [`Value`]. A reader reads it in read-side critical sections of its
//! own. A call that replaces the value returns when the old value has been freed. This makes
//! flavors with and without a grace period comparable.

mod crates;
#[cfg(liburcu)]
mod urcu;

use std::sync::atomic::AtomicU64;

/// The value that readers read.
pub trait Value: Send + Sync + 'static {
    /// Reads the value in the `turn`th section. The result must depend on the whole value.
    fn look(&self, turn: usize) -> u64;
}

impl Value for u64 {
    #[inline(always)]
    fn look(&self, _turn: usize) -> u64 {
        *self
    }
}

/// Publishes a value, which some threads read while others replace it.
pub trait Flavor<T = u64>: Send + Sync {
    /// Makes this thread a reader.
    fn reader(&self) -> Box<dyn Reader + '_>;

    /// Publishes another value, and waits until the old one has been freed. Must not be called on
    /// reader threads.
    fn replace(&self, value: T);

    /// Queues `count` callbacks, each of which adds one to `counter` after a grace period. Must not
    /// be called on reader threads. Returns `false` if the flavor has no callbacks.
    fn call(&self, _counter: &'static AtomicU64, _count: usize) -> bool {
        false
    }

    /// Waits until all queued callbacks have run. Returns `None` if the flavor cannot wait for
    /// callbacks.
    fn barrier(&self) -> Option<()> {
        None
    }
}

/// Reads the value. A reader must be dropped before its flavor.
pub trait Reader {
    /// Reads the value `count` times, each time in its own section, and returns the sum. If readers
    /// of the flavor report quiescent states, this reports one at the end.
    fn read(&mut self, count: usize) -> u64;

    /// Reports that this thread will not read for some time. A thread calls this before it blocks.
    fn rest(&mut self) {}
}

/// The names of the flavors.
pub const NAMES: [&str; 8] = [
    "urcu-memb",
    "urcu-qsbr",
    "urcu-mb",
    "urcu-bp",
    "crossbeam-epoch",
    "seize",
    "haphazard",
    "arc-swap",
];

/// Returns `true` if liburcu was found when this crate was built.
#[must_use]
pub const fn has_liburcu() -> bool {
    cfg!(liburcu)
}

/// Creates the named flavor, which publishes `value`. Returns `None` if the flavor needs liburcu,
/// which was not found.
///
/// # Panics
///
/// Panics if `name` is not in [`NAMES`].
#[must_use]
pub fn flavor<T: Value>(name: &str, value: T) -> Option<Box<dyn Flavor<T>>> {
    assert!(NAMES.contains(&name), "unknown flavor {name}");
    if !name.starts_with("urcu-") {
        return Some(crates::flavor(name, value));
    }
    #[cfg(liburcu)]
    return Some(urcu::flavor(name, value));
    #[cfg(not(liburcu))]
    None
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn every_flavor_replaces_under_readers() {
        for name in NAMES {
            let Some(flavor) = flavor(name, 0_u64) else {
                assert!(!has_liburcu());
                continue;
            };
            let (flavor, is_over) = (&*flavor, &AtomicBool::new(false));
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(move || {
                        let mut reader = flavor.reader();
                        while !is_over.load(Ordering::Relaxed) {
                            reader.read(64);
                        }
                    });
                }
                for value in 1..=20 {
                    flavor.replace(value);
                }
                is_over.store(true, Ordering::Relaxed);
            });
            assert_eq!(flavor.reader().read(3), 3 * 20, "{name}");
        }
    }

    #[test]
    fn readers_check_more_than_a_number() {
        struct Pair(u64, u64);
        impl Value for Pair {
            fn look(&self, turn: usize) -> u64 {
                [self.0, self.1][turn % 2]
            }
        }
        for flavor in NAMES.map(|name| flavor(name, Pair(1, 2))).iter().flatten() {
            assert_eq!(flavor.reader().read(4), 6);
            flavor.replace(Pair(10, 20));
            assert_eq!(flavor.reader().read(4), 60);
        }
    }

    #[test]
    fn every_callback_runs() {
        for name in NAMES {
            let Some(flavor) = flavor(name, 0_u64) else { continue };
            let counter: &'static AtomicU64 = Box::leak(Box::default());
            if flavor.call(counter, 100) && flavor.barrier().is_some() {
                assert_eq!(counter.load(Ordering::Acquire), 100, "{name}");
            }
        }
    }
}
