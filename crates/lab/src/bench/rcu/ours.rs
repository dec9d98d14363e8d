//! The flavors of afterwork. Each is a cell with the sections and grace periods that it uses.

use std::sync::atomic::{AtomicU64, Ordering};

use afterwork::rcu::srcu::Domain;
use afterwork::rcu::{self, Global, Rcu, Tunables, qsbr};
use lab_peers::reclaim::{Flavor, Reader, Value};

pub const NAMES: [&str; 3] = [RCU, SRCU, QSBR];
pub const RCU: &str = "rcu";
pub const SRCU: &str = "srcu";
pub const QSBR: &str = "rcu-qsbr";

/// The kernel's waits before 7.1: the driver's own quiescent state is late, and a callback wakes
/// waiters.
pub const WAITS: &str = "waits";
/// The same as [`WAITS`], but the driver's quiescent state is reported at once.
pub const EARLY_QS: &str = "waits early_qs";
/// [`WAITS`], but the grace period wakes the waiter.
pub const WAKE_FROM_GP: &str = "waits wake_from_gp";
/// The same as [`WAITS`], with both changes, as in the current kernel.
pub const BOTH: &str = "waits both";

/// No fixed wait, and a callback wakes the waiter.
pub const BY_CALLBACK: &str = "by callback";

/// RCU readers of the process that are not boosted when they are preempted.
pub const NOT_BOOSTED: &str = "rcu not boosted";

/// The kernel's methods: name, wait in milliseconds, `early_qs`, `wake_from_gp`.
pub const KERNEL_WAYS: [(&str, u32, bool, bool); 5] = [
    (WAITS, FQS_MS, false, false),
    (EARLY_QS, FQS_MS, true, false),
    (WAKE_FROM_GP, FQS_MS, false, true),
    (BOTH, FQS_MS, true, true),
    (BY_CALLBACK, 0, true, false),
];

pub fn with_kernel_ways() -> Vec<&'static str> {
    NAMES.into_iter().chain(KERNEL_WAYS.map(|way| way.0)).collect()
}

/// Three jiffies at 1000 Hz: the kernel's wait before each scan of readers.
const FQS_MS: u32 = 3;

struct Ours<T, F: rcu::Flavor> {
    cell: Rcu<T, F>,
    flavor: F,
    reader: fn(&Self) -> Box<dyn Reader + '_>,
    barrier: fn(&F),
    _way: Option<Way>,
}

/// A reader that reports quiescent states. It is online unless it has rested since its last read.
struct Loop<'a, T> {
    cell: &'a Rcu<T>,
    online: Option<qsbr::Reader>,
}

/// A change to the grace periods of this process, which lasts until it is dropped.
struct Way;

impl Way {
    fn of(name: &str) -> Option<Self> {
        let mut tunables = Tunables::default();
        if name == NOT_BOOSTED {
            tunables.boost = false;
        } else {
            let way = KERNEL_WAYS.iter().find(|way| way.0 == name)?;
            let (fqs_ms, early_qs, wake_from_gp) = (way.1, way.2, way.3);
            (tunables.first_fqs_ms, tunables.next_fqs_ms) = (fqs_ms, fqs_ms);
            (tunables.early_qs, tunables.wake_from_gp) = (early_qs, wake_from_gp);
        }
        rcu::set_tunables(tunables);
        Some(Self)
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        rcu::set_tunables(Tunables::default());
    }
}

/// Creates the flavor `name`, which publishes `value`. Panics if the name is unknown.
pub fn flavor<T: Value>(name: &str, value: T) -> Box<dyn Flavor<T>> {
    if name == SRCU {
        let domain = Domain::new();
        return Box::new(Ours {
            cell: Rcu::new_in(value, domain.clone()),
            flavor: domain,
            reader: |it| Box::new(it),
            barrier: Domain::barrier,
            _way: None,
        });
    }
    let way = Way::of(name);
    assert!(way.is_some() || NAMES.contains(&name), "unknown flavor {name}");
    Box::new(Ours {
        cell: Rcu::new(value),
        flavor: Global,
        reader: match name {
            QSBR => |it| Box::new(Loop { cell: &it.cell, online: Some(qsbr::Reader::new()) }),
            _ => |it| Box::new(it),
        },
        barrier: |_| rcu::barrier(),
        _way: way,
    })
}

impl<T: Value, F: rcu::Flavor + Send + Sync> Flavor<T> for Ours<T, F> {
    fn reader(&self) -> Box<dyn Reader + '_> {
        (self.reader)(self)
    }

    fn replace(&self, value: T) {
        self.cell.replace_sync(value);
    }

    fn call(&self, counter: &'static AtomicU64, count: usize) -> bool {
        for _ in 0..count {
            self.flavor.call(move || _ = counter.fetch_add(1, Ordering::Release));
        }
        true
    }

    fn barrier(&self) -> Option<()> {
        (self.barrier)(&self.flavor);
        Some(())
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
