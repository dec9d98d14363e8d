//! Notifies subsystems of changes to the online CPUs.
//!
//! A registry of workqueues, or the program, detects a change and calls [`notify`], which calls
//! every watcher, such as per-CPU data. A watcher may wait for slots that other threads own. A
//! caller that must not wait uses [`notify_aside`].

use sync::fork::{self, Handler};
use sync::unmodelled::{Arc, Weak};
use sync::{Mutex, thread};
use topology::CpuSet;

use crate::numbered::Numbered;
use crate::panics;

type Watcher = dyn Fn(&CpuSet) + Send + Sync;

sync::process_wide! {
    fn watchers() -> Mutex<Numbered<Weak<Watcher>>> = Mutex::new(Numbered::new())
}

static HANDLER: Handler = Handler { before: |held| held.lock(watchers()), ..Handler::IDLE };

/// Keeps a watcher registered until it is dropped.
pub struct Watch {
    number: u64,
    _watcher: Arc<Watcher>,
}

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
        // the thread that calls `notify`. A panic is caught, and the other watchers are still
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
        // Without a thread, the caller has to wait after all.
        notify(online);
    }
}

// The pointer may be the last one, so it is dropped after the list is unlocked.
sync::on_drop!(Watch, it => {
    let removed = watchers().lock().remove(it.number);
    drop(removed);
});
