//! The counts of a mailbox that has a name, for the process's page.

use base::internal::page::{self, Kind};

pub(super) type Tally = page::Tally<3>;

/// Received items, counted by the owner.
pub(super) const RECEIVED: usize = 0;
/// The owner's sleeps, counted by the owner.
pub(super) const SLEEPS: usize = 1;
/// The owner's wake-ups, counted by posters.
pub(super) const WAKE_UPS: usize = 2;

pub(super) fn tally(name: &str) -> Tally {
    let name = name.to_owned();
    Tally::new(move |figures, image| image.add(Kind::Mailbox, &name, "", &figures))
}
