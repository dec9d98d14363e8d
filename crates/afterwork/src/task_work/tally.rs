//! What a mailbox that has a name counts, for whoever looks at the process.

use sync::unmodelled::Arc;

use crate::page::{self, Count, Image, Joined, Kind};

/// Counts of one mailbox.
#[derive(Debug)]
pub(super) struct Tally {
    counts: Arc<Counts>,
    /// Shows them for as long as the mailbox is there.
    _shown: Joined,
}

#[derive(Debug)]
struct Counts {
    name: String,
    /// By the owner.
    received: Count,
    /// By the owner.
    sleeps: Count,
    /// By posters.
    wake_ups: Count,
}

impl Tally {
    pub(super) fn new(name: &str) -> Self {
        let counts = Arc::new(Counts {
            name: name.to_owned(),
            received: Count::new(),
            sleeps: Count::new(),
            wake_ups: Count::new(),
        });
        let seen = counts.clone();
        Self {
            counts,
            _shown: page::join(move |image| seen.describe(image)),
        }
    }

    /// The owner received an item.
    #[inline]
    pub(super) fn received(&self) {
        self.counts.received.add_alone();
    }

    /// The owner is about to sleep.
    pub(super) fn sleeps(&self) {
        self.counts.sleeps.add_alone();
    }

    /// A poster wakes the owner.
    pub(super) fn wakes(&self) {
        self.counts.wake_ups.add(1);
    }
}

impl Counts {
    fn describe(&self, image: &mut Image) {
        let figures = [
            self.received.read(),
            self.sleeps.read(),
            self.wake_ups.read(),
        ];
        image.add(Kind::Mailbox, &self.name, "", &figures);
    }
}
