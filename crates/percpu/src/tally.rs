//! The counters of remote calls that the process's page shows. Operations of owners are not
//! counted.

use base::internal::page;

/// The counts of one table of slots; see [`page::Kind::PerCpu`].
pub(super) type Tally = page::Tally<4>;

pub(super) const DRAINS: usize = 0;
pub(super) const DRAINED: usize = 1;
pub(super) const WAITED: usize = 2;
pub(super) const QUEUED: usize = 3;
