//! The counters of remote calls, not of owners' operations, that the process's page shows.

use base::internal::page;

pub(super) type Tally = page::Tally<4>;

pub(super) const DRAINS: usize = 0;
pub(super) const DRAINED: usize = 1;
pub(super) const WAITED: usize = 2;
pub(super) const QUEUED: usize = 3;
