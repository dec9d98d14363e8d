//! The counters of remote calls that the process's page shows. Operations of owners are not
//! counted.

use base::internal::{
    page::{self, Kind},
    params::Qpw,
};

/// The counts of one table of slots; see [`Kind::PerCpu`].
pub(super) type Tally = page::Tally<4>;

pub(super) const DRAINS: usize = 0;
pub(super) const DRAINED: usize = 1;
pub(super) const WAITED: usize = 2;
pub(super) const QUEUED: usize = 3;

/// Creates the counts. `nr_panicked` is called when the page is written.
pub(super) fn tally(
    name: &str,
    qpw: Qpw,
    nr_slots: usize,
    nr_panicked: impl Fn() -> u64 + Send + Sync + 'static,
) -> Tally {
    let name = name.to_owned();
    Tally::new(move |[drains, drained, waited, queued], image| {
        let nr_slots = nr_slots as u64;
        let figures = [nr_slots, drains, drained, waited, queued, nr_panicked()];
        image.add(Kind::PerCpu, &name, qpw.as_str(), &figures);
    })
}
