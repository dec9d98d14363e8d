//! The record of RCU on the process's page.

use base::internal::page::{self, Image, Joined, Kind};
use sync::atomic::Ordering;
use sync::fork::PerProcess;

use super::batch::place;
use super::callback::{callbacks, nr_panicked};
use super::local::global;
use super::stall;

/// Adds RCU's record to the page, once, on the first use of RCU.
#[cold]
pub(super) fn show() {
    static SHOWN: PerProcess<Joined> = PerProcess::new();
    if SHOWN.get().is_none() {
        SHOWN.get_or_set(page::join(describe));
    }
}

fn describe(image: &mut Image) {
    let (domain, callbacks) = (global(), callbacks());
    let (gp_seq, sweep_seq) =
        (domain.periods.gp_seq(), callbacks.sweep_seq.load(Ordering::Relaxed));
    let figures = [
        // `gp_seq` grows by two with each grace period, and is odd while one runs.
        gp_seq / 2,
        gp_seq % 2,
        domain.nr_active.get().into(),
        sweep_seq / 2,
        place().nr_run.read(),
        u64::from(sweep_seq % 2 == 1 || callbacks.has_work()),
        nr_panicked(),
        stall::NR_REPORTED.read(),
    ];
    image.add(Kind::Rcu, "rcu", "", &figures);
}
