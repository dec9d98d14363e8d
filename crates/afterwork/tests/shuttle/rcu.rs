//! Sections, grace periods and callbacks of many threads that share as much as possible.

use afterwork::rcu;

use crate::*;

impl Versions {
    /// Reads twice in one section or in a nested one, and sometimes yields in between.
    fn read(&self) {
        let outer = rcu::read();
        let seen = self.look();
        if thread_rng().gen_bool(0.5) {
            drop(rcu::read());
        } else {
            thread::yield_now();
        }
        self.check(seen);
        drop(outer);
    }

    /// Replaces the version. The old one is freed after a grace period, in a random way.
    fn update(self: &Arc<Self>) {
        let old = self.replace().expect("there are enough versions");
        match thread_rng().gen_range(0..4) {
            0 => {
                rcu::synchronize();
                self.free(old);
            }
            1 => {
                let cookie = rcu::get_state();
                self.read();
                rcu::cond_synchronize(cookie);
                self.free(old);
            }
            2 => {
                let theirs = self.clone();
                rcu::call(move || theirs.free(old));
            }
            _ => {
                let (theirs, freed) = (self.clone(), Arc::new(AtomicBool::new(false)));
                let frees = freed.clone();
                rcu::call(move || {
                    theirs.free(old);
                    frees.store(true, Ordering::Relaxed);
                });
                rcu::barrier();
                assert!(freed.load(Ordering::Relaxed), "a barrier returned too early");
            }
        }
    }
}

/// Three readers, three updaters and the thread that sweeps share the versions.
fn versions() {
    let versions = Arc::new(Versions::default());
    let is_over = Arc::new(AtomicBool::new(false));
    let theirs = is_over.clone();
    let sweeper = thread::spawn(move || {
        while !theirs.load(Ordering::Relaxed) {
            model::sweep_when_wanted();
        }
    });
    let (read, updated) = (versions.clone(), versions.clone());
    let readers = spawn_each(3, move |_| (0..3).for_each(|_| read.read()));
    join_all(spawn_each(3, move |_| (0..2).for_each(|_| updated.update())));
    join_all(readers);
    rcu::barrier();
    versions.assert_all_free();
    is_over.store(true, Ordering::Relaxed);
    // Wakes the sweeper.
    let _ = rcu::start_poll();
    sweeper.join().unwrap();
}

models! {
    fn no_reader_sees_a_version_freed_in_any_way() =
        explore(1_000, versions),
        must_fail("rcu: the driver wakes early", || explore(20_000, versions)),
        must_fail("rcu: a holdout is not counted", || explore(20_000, versions)),
        must_fail("rcu: barrier joins a running sweep", || explore(20_000, versions)),
        must_fail("rcu: a bag is left open", || explore(20_000, versions));
}
