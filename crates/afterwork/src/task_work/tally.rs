//! What a mailbox that has a name counts, for whoever looks at the process.

use crate::page::{self, Kind};

/// Counts of one mailbox; see [`Kind::Mailbox`].
pub(super) type Tally = page::Tally<3>;

/// By the owner: it received an item.
pub(super) const RECEIVED: usize = 0;
/// By the owner: it is about to sleep.
pub(super) const SLEEPS: usize = 1;
/// By posters: one wakes the owner.
pub(super) const WAKE_UPS: usize = 2;

pub(super) fn tally(name: &str) -> Tally {
    let name = name.to_owned();
    Tally::new(move |figures, image| image.add(Kind::Mailbox, &name, "", &figures))
}
