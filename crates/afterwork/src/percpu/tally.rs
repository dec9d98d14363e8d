//! What remote calls count, for whoever looks at the process. Owners count nothing.

use sync::unmodelled::Arc;

use crate::{
    page::{self, Count, Joined, Kind},
    params::Qpw,
};

/// Counts of one table of slots.
#[derive(Debug)]
pub(super) struct Tally {
    counts: Arc<Counts>,
    /// Shows them for as long as the data is there.
    _shown: Joined,
}

/// See [`Kind::PerCpu`].
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) drains: Count,
    pub(super) drained: Count,
    pub(super) waited: Count,
    pub(super) mailed: Count,
}

impl Tally {
    /// `nr_panicked` is asked when somebody looks.
    pub(super) fn new(
        name: &str,
        qpw: Qpw,
        nr_slots: usize,
        nr_panicked: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        let counts = Arc::new(Counts {
            drains: Count::new(),
            drained: Count::new(),
            waited: Count::new(),
            mailed: Count::new(),
        });
        let (seen, name) = (counts.clone(), name.to_owned());
        let shown = page::join(move |image| {
            let figures = [
                nr_slots as u64,
                seen.drains.read(),
                seen.drained.read(),
                seen.waited.read(),
                seen.mailed.read(),
                nr_panicked(),
            ];
            image.add(Kind::PerCpu, &name, qpw.as_str(), &figures);
        });
        Self {
            counts,
            _shown: shown,
        }
    }
}

impl std::ops::Deref for Tally {
    type Target = Counts;

    fn deref(&self) -> &Counts {
        &self.counts
    }
}
