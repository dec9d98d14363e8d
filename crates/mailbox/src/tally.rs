//! The counts of a mailbox that has a name, for the process's page.

use base::internal::page::{self, Kind};

/// Counts of one mailbox; see [`Kind::Mailbox`].
pub(super) type Tally = page::Tally<3>;

/// Items received. Counted by the owner.
pub(super) const RECEIVED: usize = 0;
/// Sleeps of the owner. Counted by the owner.
pub(super) const SLEEPS: usize = 1;
/// Wake-ups of the owner. Counted by posters.
pub(super) const WAKE_UPS: usize = 2;

pub(super) fn tally(name: &str) -> Tally {
    let name = name.to_owned();
    Tally::new(move |figures, image| image.add(Kind::Mailbox, &name, "", &figures))
}
