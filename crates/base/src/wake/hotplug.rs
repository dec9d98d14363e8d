//! Notifies subsystems of changes to the online CPUs.
//!
//! A registry of workqueues, or the program, detects a change and calls [`notify`], which calls
//! every watcher, such as per-CPU data. A watcher may wait for slots that other threads own. A
//! caller that must not wait uses [`notify_aside`]. One thread serves all such callers. If several
//! changes arrive during a notification, the next notification reports only the newest of them.

use std::mem;

use sync::fork::{self, Handler};
use sync::unmodelled::{Arc, Weak};
use sync::{Mutex, thread};
use topology::CpuSet;

use crate::numbered::Numbered;
use crate::panics;

type Watcher = dyn Fn(&CpuSet) + Send + Sync;

struct Watchers {
    all: Numbered<Weak<Watcher>>,
    /// The online CPUs after the newest change, until the thread of `notify_aside` takes them.
    next: Option<CpuSet>,
    /// Set while a thread reports the changes passed to `notify_aside`.
    has_thread: bool,
}

sync::process_wide! {
    fn watchers() -> Mutex<Watchers> =
        Mutex::new(Watchers { all: Numbered::new(), next: None, has_thread: false })
}

static HANDLER: Handler = Handler {
    before: |held| held.lock(watchers()),
    child: || {
        let mut watchers = watchers().lock();
        (watchers.next, watchers.has_thread) = (None, false);
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
    let number = watchers().lock().all.add(Arc::downgrade(&watcher));
    Watch { number, _watcher: watcher }
}

/// Calls every watcher with `online`.
pub fn notify(online: &CpuSet) {
    fork::register(&HANDLER);
    let all: Vec<_> = watchers().lock().all.iter().cloned().collect();
    for watcher in all.iter().filter_map(Weak::upgrade) {
        // FOREIGN(hotplug-watcher): a watcher, and its drop if this is the last pointer to it, on
        // the thread that calls `notify`. A panic is caught, and the other watchers are still
        // called.
        panics::contain(|| {
            watcher(online);
            drop(watcher);
        });
    }
}

/// Calls every watcher as [`notify`] does, on another thread, so that the caller does not wait. If
/// no thread can be started, the caller waits. A later change replaces an earlier one that the
/// thread has not begun to report.
pub fn notify_aside(online: &CpuSet) {
    fork::register(&HANDLER);
    let mut watchers = watchers().lock();
    if watchers.all.is_empty() {
        return;
    }
    watchers.next = Some(online.clone());
    let has_thread = mem::replace(&mut watchers.has_thread, true);
    drop(watchers);
    if !has_thread && thread::spawn("aw/hotplug", notify_newest).is_err() {
        // Without a thread, the caller has to wait after all.
        notify_newest();
    }
}

fn notify_newest() {
    let next = || {
        let mut watchers = watchers().lock();
        let next = watchers.next.take();
        watchers.has_thread = next.is_some();
        next
    };
    while let Some(online) = next() {
        notify(&online);
    }
}

// The pointer may be the last one, so it is dropped after the list is unlocked.
sync::on_drop!(Watch, it => {
    let removed = watchers().lock().all.remove(it.number);
    drop(removed);
});
