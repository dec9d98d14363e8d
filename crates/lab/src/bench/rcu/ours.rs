//! Our flavors: a cell, and the sections and grace periods that it relies on.

use std::sync::atomic::{AtomicU64, Ordering};

use afterwork::rcu::{self, Global, Rcu, srcu::Domain};
use lab_peers::reclaim::{Calls, Flavor, Reader};

/// Names of our variants.
pub const NAMES: [&str; 2] = [RCU, SRCU];
/// Readers of the process.
pub const RCU: &str = "rcu";
/// Sleepable readers.
pub const SRCU: &str = "srcu";

/// A cell of one of our flavors, and that flavor for its callbacks.
struct Ours<F: rcu::Flavor> {
    cell: Rcu<u64, F>,
    flavor: F,
    barrier: fn(&F),
}

/// Makes one of our flavors.
///
/// # Panics
///
/// For a name that is not in [`NAMES`].
#[must_use]
pub fn flavor(name: &str) -> Box<dyn Flavor> {
    match name {
        RCU => Box::new(Ours {
            cell: Rcu::new(0),
            flavor: Global,
            barrier: |_| rcu::barrier(),
        }),
        SRCU => {
            let domain = Domain::new();
            Box::new(Ours {
                cell: Rcu::new_in(0, domain.clone()),
                flavor: domain,
                barrier: Domain::barrier,
            })
        }
        _ => panic!("no flavor of ours is called {name}"),
    }
}

impl<F: rcu::Flavor + Send + Sync> Flavor for Ours<F> {
    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(self)
    }

    fn replace(&self, value: u64) {
        self.cell.replace_sync(value);
    }

    fn calls(&self) -> Option<&dyn Calls> {
        Some(self)
    }
}

impl<F: rcu::Flavor> Reader for &Ours<F> {
    fn read(&mut self, count: usize) -> u64 {
        let mut sum = 0;
        for _ in 0..count {
            let guard = self.cell.read();
            sum += *self.cell.load(&guard);
        }
        sum
    }
}

impl<F: rcu::Flavor + Send + Sync> Calls for Ours<F> {
    fn call(&self, counter: &'static AtomicU64, count: usize) {
        for _ in 0..count {
            self.flavor.call(move || {
                counter.fetch_add(1, Ordering::Release);
            });
        }
    }

    fn barrier(&self) -> Option<()> {
        (self.barrier)(&self.flavor);
        Some(())
    }
}
