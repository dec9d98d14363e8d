//! Notifies subsystems of changes to the online CPUs.
//!
//! A registry of workqueues, or the program, detects a change and calls [`notify`], which calls
//! every watcher, such as per-CPU data. A watcher may wait for slots that other threads own. A
//! caller that must not wait uses [`notify_aside`], which leaves the change with each watcher:
//!
//! ```text
//! change:   add it to the unseen changes of each watcher
//!           every watcher is called, or a thread starts?  end;  otherwise start a thread
//! thread:   find a watcher that has unseen changes and is not called;  none?  end
//!           call it;  repeat
//! ```
//!
//! A watcher that blocks therefore delays no later change for the others, and at most one thread
//! exists for each watcher, plus one that starts.

use sync::fork::{self, Handler};
use sync::unmodelled::{Arc, Weak};
use sync::{Mutex, thread, twin};
use topology::CpuSet;

use crate::numbered::Numbered;
use crate::panics;

type Watcher = dyn Fn(&CpuSet) + Send + Sync;

struct Entry {
    watcher: Weak<Watcher>,
    /// The changes that the watcher has not seen: the CPUs that are online after each of them.
    unseen: Option<CpuSet>,
    /// Whether a thread calls the watcher.
    is_called: bool,
}

struct Watchers {
    entries: Numbered<Entry>,
    /// Whether a thread starts, which will look at all entries.
    is_starting: bool,
}

sync::process_wide! {
    fn watchers() -> Mutex<Watchers> =
        Mutex::new(Watchers { entries: Numbered::new(), is_starting: false })
}

// The threads do not exist in a child.
static HANDLER: Handler = Handler {
    before: |held| held.lock(watchers()),
    child: || {
        let mut watchers = watchers().lock();
        watchers.is_starting = false;
        watchers.entries.iter_mut().for_each(|(_, entry)| entry.is_called = false);
    },
    ..Handler::IDLE
};

/// Keeps a watcher registered until it is dropped.
pub struct Watch {
    number: u64,
    _watcher: Arc<Watcher>,
}

pub fn watch(watcher: Arc<Watcher>) -> Watch {
    fork::register(&HANDLER);
    let entry = Entry { watcher: Arc::downgrade(&watcher), unseen: None, is_called: false };
    let number = watchers().lock().entries.add(entry);
    Watch { number, _watcher: watcher }
}

/// Calls every watcher with `online`.
pub fn notify(online: &CpuSet) {
    fork::register(&HANDLER);
    let all: Vec<_> = watchers().lock().entries.iter().map(|it| it.watcher.clone()).collect();
    for watcher in all.iter().filter_map(Weak::upgrade) {
        call(watcher, online);
    }
}

fn call(watcher: Arc<Watcher>, online: &CpuSet) {
    // FOREIGN(hotplug-watcher): a watcher, and its drop if this is the last pointer to it, on the
    // thread that calls `notify`, or on a separate thread. A panic is caught, and the other
    // watchers are still called.
    panics::contain(|| {
        watcher(online);
        drop(watcher);
    });
}

/// Calls every watcher on another thread, so that the caller does not wait. A watcher that has not
/// returned from an earlier call is called once for all changes since, with the CPUs that are
/// online after each of them.
pub fn notify_aside(online: &CpuSet) {
    fork::register(&HANDLER);
    let mut seen = watchers().lock();
    let mut starts = false;
    for (_, entry) in seen.entries.iter_mut() {
        let common = entry.unseen.as_ref().map(|unseen| unseen.intersection(online));
        entry.unseen = Some(common.unwrap_or_else(|| online.clone()));
        starts |= !entry.is_called;
    }
    starts &= !seen.is_starting;
    seen.is_starting |= starts;
    drop(seen);
    // Without a thread, the caller has to wait after all.
    if starts && thread::spawn("aw/hotplug", call_all).is_err() {
        call_all();
    }
}

/// Calls the watchers that have unseen changes and that no other thread calls.
fn call_all() {
    let mut seen = watchers().lock();
    seen.is_starting = false;
    while let Some((number, watcher, online)) = claim(&mut seen) {
        drop(seen);
        call(watcher, &online);
        seen = watchers().lock();
        if let Some(entry) = seen.entries.get_mut(number) {
            entry.is_called = false;
            if twin::armed("hotplug: a call takes the changes that arrive during it") {
                entry.unseen = None;
            }
        }
    }
}

fn claim(watchers: &mut Watchers) -> Option<(u64, Arc<Watcher>, CpuSet)> {
    watchers.entries.iter_mut().filter(|(_, entry)| !entry.is_called).find_map(|(number, entry)| {
        let online = entry.unseen.take()?;
        let watcher = entry.watcher.upgrade()?;
        entry.is_called = true;
        Some((number, watcher, online))
    })
}

// The pointer may be the last one, so it is dropped after the list is unlocked.
sync::on_drop!(Watch, it => {
    let removed = watchers().lock().entries.remove(it.number);
    drop(removed);
});
