//! Notifies subsystems of changes to the online CPUs.
//!
//! A registry of workqueues, or the program, detects a change and calls [`notify`], which calls
//! every watcher, such as per-CPU data. A watcher may wait for slots that other threads own. A
//! caller that must not wait uses [`notify_aside`]:
//!
//! ```text
//! change:   add it to the unseen changes of each watcher;  start a thread
//! thread:   find a watcher that has unseen changes and is not called;  none?  end
//!           start another thread;  call the watcher;  repeat
//! start:    no watcher is left to call, or a thread starts already?  do nothing
//! ```
//!
//! A watcher that blocks therefore delays no other one, and at most one thread exists for each
//! watcher, plus one that starts.

use sync::fork::{self, Handler};
use sync::unmodelled::{Arc, Weak};
use sync::{Mutex, MutexGuard, thread, twin};
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

/// Calls every watcher on other threads, so that the caller does not wait. A watcher that has not
/// returned from an earlier call is called once for all changes since, with the CPUs that are
/// online after each of them.
///
/// Returns `false` if no thread can be started. The caller then causes a call of [`call_all`].
#[must_use]
pub fn notify_aside(online: &CpuSet) -> bool {
    fork::register(&HANDLER);
    let mut seen = watchers().lock();
    for (_, entry) in seen.entries.iter_mut() {
        let common = entry.unseen.as_ref().map(|unseen| unseen.intersection(online));
        entry.unseen = Some(common.unwrap_or_else(|| online.clone()));
    }
    start(seen)
}

/// Starts a thread if a watcher is to be called. Returns `false` if that fails.
fn start(mut seen: MutexGuard<'_, Watchers>) -> bool {
    let is_left = |entry: &Entry| entry.unseen.is_some() && !entry.is_called;
    if seen.is_starting || !seen.entries.iter().any(is_left) {
        return true;
    }
    seen.is_starting = true;
    drop(seen);
    let started = thread::spawn("aw/hotplug", call_all).is_ok();
    if !started {
        watchers().lock().is_starting = false;
    }
    started
}

/// Calls the watchers that have unseen changes and that no other thread calls. May block.
pub fn call_all() {
    let mut seen = watchers().lock();
    seen.is_starting = false;
    while let Some((number, watcher, online)) = claim(&mut seen) {
        // If no thread can be started, this one calls the other watchers afterwards.
        let _ = start(seen);
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
