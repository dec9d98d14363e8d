//! What RCU shows of itself.

use sync::fork::PerProcess;

use super::{batch::place, callback::callbacks, local::global, stall};
use crate::page::{self, Image, Joined, Kind};

/// Shows RCU to whoever looks at the process, from its first use on.
#[cold]
pub(super) fn show() {
    static SHOWN: PerProcess<Joined> = PerProcess::new();
    if SHOWN.get().is_none() {
        SHOWN.get_or_set(page::join(describe));
    }
}

fn describe(image: &mut Image) {
    let (domain, callbacks) = (global(), callbacks());
    let (gp_seq, sweep_seq) = (domain.gp_seq(), callbacks.sweep_seq());
    let figures = [
        // Even while none runs, odd while one does; two for each.
        gp_seq / 2,
        gp_seq % 2,
        domain.nr_active().into(),
        sweep_seq / 2,
        place().nr_run(),
        u64::from(sweep_seq % 2 == 1 || callbacks.has_work()),
        place().nr_panicked(),
        stall::nr_told(),
    ];
    image.add(Kind::Rcu, "rcu", "", &figures);
}
