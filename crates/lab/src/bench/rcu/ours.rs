//! Our flavors: a cell, and the sections and grace periods that it relies on.

use std::sync::atomic::{AtomicU64, Ordering};

use afterwork::rcu::{self, Global, Rcu, qsbr, srcu::Domain};
use lab_peers::reclaim::{Calls, Flavor, Reader, Value};

/// Names of our variants.
pub const NAMES: [&str; 3] = [RCU, SRCU, QSBR];
/// Readers of the process.
pub const RCU: &str = "rcu";
/// Sleepable readers.
pub const SRCU: &str = "srcu";
/// Readers of the process that report.
pub const QSBR: &str = "rcu-qsbr";

/// A cell of one of our flavors, and that flavor for its callbacks.
struct Ours<T, F: rcu::Flavor> {
    cell: Rcu<T, F>,
    flavor: F,
    barrier: fn(&F),
}

/// A cell whose readers report.
struct Reporting<T>(Ours<T, Global>);

/// A reader that is online since it last rested.
struct Loop<'a, T> {
    cell: &'a Rcu<T>,
    online: Option<qsbr::Reader>,
}

/// Makes one of our flavors, which publishes `value`.
///
/// # Panics
///
/// If the name is not in [`NAMES`].
#[must_use]
pub fn flavor<T: Value>(name: &str, value: T) -> Box<dyn Flavor<T>> {
    if name == SRCU {
        let domain = Domain::new();
        return Box::new(Ours {
            cell: Rcu::new_in(value, domain.clone()),
            flavor: domain,
            barrier: Domain::barrier,
        });
    }
    assert!(NAMES.contains(&name), "no flavor of ours is called {name}");
    let of_process = Ours {
        cell: Rcu::new(value),
        flavor: Global,
        barrier: |_| rcu::barrier(),
    };
    if name == QSBR {
        Box::new(Reporting(of_process))
    } else {
        Box::new(of_process)
    }
}

impl<T: Value, F: rcu::Flavor + Send + Sync> Flavor<T> for Ours<T, F> {
    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(self)
    }

    fn replace(&self, value: T) {
        self.cell.replace_sync(value);
    }

    fn calls(&self) -> Option<&dyn Calls> {
        Some(self)
    }
}

impl<T: Value, F: rcu::Flavor> Reader for &Ours<T, F> {
    fn read(&mut self, count: usize) -> u64 {
        let mut sum = 0;
        for turn in 0..count {
            let guard = self.cell.read();
            sum += self.cell.load(&guard).look(turn);
        }
        sum
    }
}

impl<T: Value, F: rcu::Flavor + Send + Sync> Calls for Ours<T, F> {
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

impl<T: Value> Flavor<T> for Reporting<T> {
    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(Loop {
            cell: &self.0.cell,
            online: Some(qsbr::Reader::new()),
        })
    }

    fn replace(&self, value: T) {
        self.0.replace(value);
    }

    fn calls(&self) -> Option<&dyn Calls> {
        self.0.calls()
    }
}

impl<T: Value> Reader for Loop<'_, T> {
    fn read(&mut self, count: usize) -> u64 {
        let reader = self.online.get_or_insert_with(qsbr::Reader::new);
        let mut sum = 0;
        for turn in 0..count {
            sum += self.cell.load(reader).look(turn);
        }
        reader.quiescent();
        sum
    }

    fn rest(&mut self) {
        self.online = None;
    }
}
