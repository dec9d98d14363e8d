//! Grace periods whose steps run on different threads: one removes, one waits, one frees.

use crate::rcu::{Versions, beside, reader, versions, warm_up};
use crate::support::*;

fn removed_by_another(before: fn()) {
    let versions = versions();
    let is_removed = Arc::new(AtomicBool::new(false));
    let reader = reader(&versions, before);
    let remover =
        spawn_with((versions.clone(), is_removed.clone()), move |(versions, is_removed)| {
            versions.remove();
            is_removed.store(true, Ordering::Release);
        });
    if is_removed.load(Ordering::Acquire) {
        rcu::synchronize();
        versions.free();
    }
    remover.join().unwrap();
    reader.join().unwrap();
}

fn cookie_of_another(before: fn()) {
    let versions = versions();
    let noted = Arc::new(Mutex::new(None));
    let reader = reader(&versions, before);
    let remover = spawn_with((versions.clone(), noted.clone()), move |(versions, noted)| {
        versions.remove();
        let cookie = rcu::get_state();
        *noted.lock().unwrap() = Some(cookie);
    });
    let cookie: Option<rcu::GpCookie> = *noted.lock().unwrap();
    if let Some(cookie) = cookie {
        if !rcu::poll_state(cookie) {
            rcu::cond_synchronize(cookie);
        }
        versions.free();
    }
    remover.join().unwrap();
    reader.join().unwrap();
}

fn outer_ends_first(versions: &Versions) {
    let outer = rcu::read();
    let inner = rcu::read();
    drop(outer);
    versions.read();
    drop(inner);
}

fn reads_after_it_waited(versions: &Versions) {
    rcu::synchronize();
    versions.read_in_section();
}

/// Reads on a slot of a thread that has exited, which a driver may have asked to report.
fn reuses_a_slot(versions: &Versions) {
    spawn(warm_up).join().unwrap();
    versions.read_in_section();
}

/// Another thread sweeps because of a cookie that is polled.
fn started() {
    let versions = versions();
    let reader = reader(&versions, warm_up);
    versions.remove();
    let cookie = rcu::start_poll();
    let sweeper = spawn(model::sweep_when_wanted);
    if rcu::poll_state(cookie) {
        versions.free();
    }
    sweeper.join().unwrap();
    reader.join().unwrap();
    assert!(rcu::poll_state(cookie));
}

/// A callback leaves a section open on the sweeping thread. The version that it sees is removed.
fn left_open() {
    let versions = versions();
    rcu::call(|| std::mem::forget(rcu::read()));
    model::sweep();
    versions.remove();
    let theirs = versions.clone();
    rcu::call(move || theirs.free());
    // A sweep would wait for its own thread, because no other thread can end the section.
    if !model::sweep_waits() {
        model::sweep();
        versions.read_first();
    }
}

models! {
    fn grace_period_covers_removals_by_other_threads() =
        bounded(3, || removed_by_another(warm_up))
            .detects(["rcu: no heavy barrier", "rcu: no light barrier at lock"]),
        bounded(3, || removed_by_another(|| ())).detects(["rcu: no fence after parking"]);
    fn cookie_works_on_any_thread() =
        bounded(3, || cookie_of_another(warm_up)).detects(["rcu: no heavy barrier"]),
        bounded(3, || cookie_of_another(|| ())).detects(["rcu: no fence after parking"]);
    fn a_section_lasts_until_its_last_guard() =
        bounded(3, || beside(outer_ends_first)).detects(["rcu: a holdout is not counted"]);
    fn waiter_reads_correctly_after_its_grace_period() =
        bounded(2, || beside(reads_after_it_waited)).detects(["rcu: no light barrier at lock"]);
    fn slot_changes_its_owner_during_a_request() =
        bounded(3, || beside(reuses_a_slot)).detects(["rcu: no light barrier at lock"]);
    fn a_poll_that_was_started_ends_by_a_sweep() =
        bounded(2, started).detects(["rcu: no heavy barrier"]);
    fn section_left_open_by_a_callback_protects_its_data() =
        bounded(3, left_open).detects(["rcu: a sweep overlooks its own section"]);
}
