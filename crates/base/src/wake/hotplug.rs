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
//! start:    no watcher must be called, or a thread is already starting?  do nothing
//! ```
//!
//! A watcher that blocks therefore delays no other one, and there is at most one thread for each
//! watcher, and one that is starting. If no thread can be started, watchers are called one after
//! another.

use sync::fork::{self, Handler};
use sync::unmodelled::{Arc, Weak};
use sync::{Mutex, MutexGuard, thread, twin};
use topology::CpuSet;

use crate::numbered::Numbered;
use crate::panics;

type Watcher = dyn Fn(&CpuSet) + Send + Sync;

struct Entry {
    watcher: Weak<Watcher>,
    /// The CPUs that were online after every change that the watcher has not seen.
    unseen: Option<CpuSet>,
    /// Set if a thread is calling the watcher.
    is_called: bool,
}

struct Watchers {
    entries: Numbered<Entry>,
    /// Set if a thread is being started. It checks all entries.
    is_starting: bool,
}

sync::process_wide! {
    fn watchers() -> Mutex<Watchers> =
        Mutex::new(Watchers { entries: Numbered::new(), is_starting: false })
}

// The threads that call watchers do not exist in a child.
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
/// returned from an earlier call is called once for all changes since, with the CPUs that were
/// online after every one of these changes.
///
/// Returns `false` if no thread can be started. The caller must then arrange a call of [`call_all`]
/// on a thread that may block.
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

/// Starts a thread if a watcher must be called. Returns `false` if no thread can be started.
fn start(mut seen: MutexGuard<'_, Watchers>) -> bool {
    if seen.is_starting || !seen.entries.iter().any(|it| it.unseen.is_some() && !it.is_called) {
        return true;
    }
    seen.is_starting = true;
    drop(seen);
    let body = || {
        let mut seen = watchers().lock();
        seen.is_starting = false;
        call_each(seen);
    };
    let started = thread::spawn("aw/hotplug", body).is_ok();
    if !started {
        watchers().lock().is_starting = false;
    }
    started
}

/// Calls the watchers that have unseen changes and that no other thread calls. May block.
pub fn call_all() {
    call_each(watchers().lock());
}

fn call_each(mut seen: MutexGuard<'_, Watchers>) {
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
