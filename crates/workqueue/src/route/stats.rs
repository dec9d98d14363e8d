//! What pools and queues have counted.

use std::time::Duration;

use base::internal::page::{Kind, Record, TIMES_LOG2, pool_figures, queue_figures};
use topology::CpuSet;

use super::attrs::Attrs;
use crate::observe::histogram::Histogram;

/// Makes the struct of a list of figures, with other fields before them.
macro_rules! counted {
    (
        $(#[$about:meta])* $name:ident { $($other:tt)* }
        $($measure:ident $figure:ident: $type:ty, $says:literal;)*
    ) => {
        $(#[$about])*
        #[non_exhaustive]
        pub struct $name {
            $($other)*
            $(#[doc = concat!($says, ".")] pub $figure: $type,)*
        }

        impl $name {
            /// In the order of the list.
            fn counts(&self) -> Vec<u64> {
                vec![$(self.$figure as u64),*]
            }
        }
    };
}

pool_figures!(counted! {
    /// What a worker pool has counted since it was made. Each figure is read by itself, so they may not add up.
    #[derive(Clone, PartialEq, Eq, Debug)]
    PoolStats {
        /// Where its workers run.
        pub cpus: CpuSet,
        /// Whether they never run elsewhere.
        pub strict: bool,
        /// Their nice value.
        pub nice: i8,
    }
} {});

queue_figures!(counted! {
    /// What a queue has counted since it was made.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    QueueStats {}
} {});

impl PoolStats {
    /// Returns its record: it is named by its CPUs, and its detail is what is not as usual.
    #[doc(hidden)]
    pub fn record(&self) -> Record {
        let strict = self.strict.then(|| "strict".to_owned());
        let nice = (self.nice != 0).then(|| format!("nice {}", self.nice));
        let detail: Vec<_> = strict.into_iter().chain(nice).collect();
        let name = self.cpus.to_string();
        Record::new(Kind::Pool, name, detail.join(", "), self.figures())
    }

    fn figures(&self) -> Vec<u64> {
        let mut figures = self.counts();
        let nr_awake = self.nr_workers.saturating_sub(self.nr_idle);
        figures.push(nr_awake.saturating_sub(self.nr_blocked) as u64);
        figures
    }
}

impl QueueReport {
    /// Returns its record, of which the detail is the affinity scope.
    #[doc(hidden)]
    pub fn record(&self) -> Record {
        self.record_of(Kind::Queue, self.figures())
    }

    fn record_of(&self, kind: Kind, figures: Vec<u64>) -> Record {
        let detail = self.attrs.scope.as_str().to_owned();
        Record::new(kind, self.name.clone(), detail, figures)
    }

    /// Returns the records of how long its items waited, and ran.
    #[doc(hidden)]
    pub fn times(&self) -> [Record; 2] {
        let of = |kind, times: &Histogram| {
            let below = |log2: u32| times.buckets.iter().take(log2 as usize).sum::<u64>();
            let mut figures = vec![times.count, times.total_ns];
            figures.extend(TIMES_LOG2.map(below));
            self.record_of(kind, figures)
        };
        [
            of(Kind::QueueWait, &self.wait),
            of(Kind::QueueRun, &self.run),
        ]
    }

    fn figures(&self) -> Vec<u64> {
        let (wait, run) = (&self.wait, &self.run);
        let mut figures = self.stats.counts();
        figures.extend([wait.count, wait.about_ns(0.5), wait.about_ns(0.99)]);
        let oldest_ns = self.oldest.map_or(0, |age| age.as_nanos() as u64);
        figures.extend([oldest_ns, run.about_ns(0.5), run.about_ns(0.99)]);
        figures
    }
}

/// A queue by its name, with all that is known of it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueueReport {
    /// Its name.
    pub name: String,
    /// Its attributes.
    pub attrs: Attrs,
    /// What it has counted.
    pub stats: QueueStats,
    /// How long items waited for a worker: see [`Workqueue::wait_times`](crate::Workqueue::wait_times).
    pub wait: Histogram,
    /// How long workers ran items: see [`Workqueue::run_times`](crate::Workqueue::run_times).
    pub run: Histogram,
    /// For how long the oldest item waits: see [`Workqueue::oldest_wait`](crate::Workqueue::oldest_wait).
    pub oldest: Option<Duration>,
}
