//! Readers that report quiescent states, and grace periods.

use crate::rcu::{Versions, replace_during};
use crate::support::*;

/// One version is replaced and freed while a reader runs `body` in a loop.
fn replace(body: fn(&mut Reader, &Versions)) {
    replace_during(move |versions| body(&mut Reader::new(), versions));
}

fn reports() {
    replace(|reader, versions| {
        versions.read();
        reader.quiescent();
        versions.read();
    });
}

fn reports_once() {
    replace(|reader, versions| {
        versions.read();
        reader.quiescent();
    });
}

fn goes_offline() {
    replace(|reader, versions| {
        versions.read();
        reader.offline(|| ());
        versions.read();
    });
}

fn reports_inside_a_section() {
    replace(|reader, versions| {
        let guard = rcu::read();
        versions.read();
        reader.quiescent();
        versions.read();
        drop(guard);
    });
}

/// The reader ends after the grace period, which only the reader's reports can complete.
fn reports_until_stopped() {
    rcu::synchronize();
    let is_stopped = Arc::new(AtomicBool::new(false));
    let reader = spawn_with(is_stopped.clone(), move |is_stopped| {
        let mut reader = Reader::new();
        while !is_stopped.load(Ordering::Relaxed) {
            reader.quiescent();
            thread::yield_now();
        }
    });
    rcu::synchronize();
    is_stopped.store(true, Ordering::Relaxed);
    reader.join().unwrap();
}

models! {
    fn a_report_ends_a_section() =
        bounded(4, reports).detects(["qsbr: relaxed number", "rcu: relaxed answer"]);
    fn a_report_needs_release() = must_fail("qsbr: relaxed report", || bounded(4, reports_once));
    fn report_inside_a_section_has_no_effect() =
        bounded(2, reports_inside_a_section),
        must_fail("qsbr: reports inside a section", || bounded(3, reports_inside_a_section));
    fn reader_that_returns_online_reads_the_new_version() =
        bounded(3, goes_offline).detects(["rcu: no fence after parking"]);
    fn reports_alone_end_a_grace_period() =
        bounded(3, reports_until_stopped).detects(["qsbr: reports without an answer"]);
}
