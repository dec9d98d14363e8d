//! Who wants to know which CPUs there are.
//!
//! A registry of workqueues notices when CPUs come and go, and so may a program by itself; per-CPU data wants to know,
//! and none of them names another. Whoever notices tells, whoever watches is told. Being told takes as long as it
//! takes, for a watcher may wait for slots that are owned: so one who must not wait tells by a thread of its own.

use sync::{
    Mutex,
    fork::{self, Handler},
    thread, twin,
    unmodelled::{Arc, Weak},
};
use topology::CpuSet;

use crate::panics;

/// Is told which CPUs are online.
pub(crate) trait Watcher: Send + Sync {
    fn set_online_cpus(&self, online: &CpuSet);
}

sync::process_wide! {
    fn watchers() -> Mutex<Vec<Weak<dyn Watcher>>> = Mutex::new(Vec::new())
}

static HANDLER: Handler = Handler {
    before: |held| held.lock(watchers()),
    ..Handler::IDLE
};

/// Has a watcher told until dropped.
pub(crate) struct Watch(Arc<dyn Watcher>);

/// Tells `watcher` from now on.
pub(crate) fn watch(watcher: Arc<dyn Watcher>) -> Watch {
    fork::register(&HANDLER);
    watchers().lock().push(Arc::downgrade(&watcher));
    Watch(watcher)
}

/// Tells all watchers that `online` are the CPUs that there are, and returns when they are done.
pub(crate) fn tell(online: &CpuSet) {
    fork::register(&HANDLER);
    let all = watchers().lock().clone();
    for watcher in all.iter().filter_map(Weak::upgrade) {
        // FOREIGN(hotplug-watcher): whose last pointer this may be, on who tells or a thread of its own; a panic of a
        // drop, or of a watcher that is inside what it is to drain, ends here, and the others are told.
        panics::contain(|| {
            watcher.set_online_cpus(online);
            drop(watcher);
        });
    }
}

/// As [`tell`], by a thread of its own if there is anybody to tell, so that the caller need not wait.
pub(crate) fn tell_aside(online: &CpuSet) {
    fork::register(&HANDLER);
    if watchers().lock().is_empty() {
        return;
    }
    let theirs = online.clone();
    if thread::spawn("aw/hotplug", move || tell(&theirs)).is_err() {
        // Late is better than never.
        tell(online);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !twin::torn_down() {
            let mut watchers = watchers().lock();
            watchers.retain(|watcher| !std::ptr::addr_eq(watcher.as_ptr(), Arc::as_ptr(&self.0)));
        }
    }
}
