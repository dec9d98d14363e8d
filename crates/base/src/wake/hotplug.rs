//! Notifies subsystems of changes to the online CPUs.
//!
//! A registry of workqueues detects changes to the online CPUs, and a program may do so, too.
//! Per-CPU data must be notified of them. Neither side may depend on the other, so this file
//! connects them: the thread that detects a change calls [`notify`], which calls every watcher.
//! A watcher may wait for slots that other threads own. A caller that must not wait uses
//! [`notify_aside`].

use sync::fork::{self, Handler};
use sync::unmodelled::{Arc, Weak};
use sync::{Mutex, thread, twin};
use topology::CpuSet;

use crate::numbered::Numbered;
use crate::panics;

/// A function that is called with the CPUs that are online.
type Watcher = dyn Fn(&CpuSet) + Send + Sync;

sync::process_wide! {
    fn watchers() -> Mutex<Numbered<Weak<Watcher>>> = Mutex::new(Numbered::new())
}

static HANDLER: Handler = Handler { before: |held| held.lock(watchers()), ..Handler::IDLE };

/// Keeps a watcher registered until it is dropped.
pub struct Watch {
    /// The number of the watcher in the list.
    number: u64,
    _watcher: Arc<Watcher>,
}

/// Registers `watcher`.
pub fn watch(watcher: Arc<Watcher>) -> Watch {
    fork::register(&HANDLER);
    let number = watchers().lock().add(Arc::downgrade(&watcher));
    Watch { number, _watcher: watcher }
}

/// Calls every watcher with `online`.
pub fn notify(online: &CpuSet) {
    fork::register(&HANDLER);
    let all: Vec<_> = watchers().lock().iter().cloned().collect();
    for watcher in all.iter().filter_map(Weak::upgrade) {
        // FOREIGN(hotplug-watcher): a watcher, and its drop if this is the last pointer to it, on
        // the thread that calls `notify`. A panic is caught, and the remaining watchers are still
        // called.
        panics::contain(|| {
            watcher(online);
            drop(watcher);
        });
    }
}

/// Calls every watcher as [`notify`] does, on a new thread, so that the caller does not wait.
pub fn notify_aside(online: &CpuSet) {
    fork::register(&HANDLER);
    if watchers().lock().is_empty() {
        return;
    }
    let theirs = online.clone();
    if thread::spawn("aw/hotplug", move || notify(&theirs)).is_err() {
        // If thread creation fails, the caller has to wait after all.
        notify(online);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !twin::torn_down() {
            // The pointer may be the last one, so it is dropped after the list is unlocked.
            let removed = watchers().lock().remove(self.number);
            drop(removed);
        }
    }
}
