//! The table of all tunables. A new tunable needs a field of [`Params`] and a line here.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::edits::edits;
use super::word::Word;
use super::{ParamError, Params};

#[derive(Debug)]
#[doc(hidden)]
pub struct Key {
    /// Its kernel-style name.
    pub name: &'static str,
    /// Its purpose, in one line.
    pub about: &'static str,
    expects: fn() -> String,
    set: fn(&mut Params, &str) -> bool,
    value: fn(&Params) -> String,
}

/// Creates a row of the table. The value is a number in a range, or one of a set of words.
macro_rules! key {
    ($name:literal => $($field:ident).+ in $range:expr, $about:literal) => {
        Key {
            name: $name,
            about: $about,
            expects: || number_in(&$range),
            set: |params, word| put(&mut params.$($field).+, read_in(word, &$range)),
            value: |params| params.$($field).+.to_string(),
        }
    };
    ($name:literal => $($field:ident).+, $about:literal) => {
        Key {
            name: $name,
            about: $about,
            expects: || expected(|params: &Params| &params.$($field).+),
            set: |params, word| put(&mut params.$($field).+, Word::read(word)),
            value: |params| params.$($field).+.word(),
        }
    };
}

#[rustfmt::skip]
const KEYS: &[Key] = &[
    key!("workqueue.default_affinity_scope" => default_affinity_scope, "affinity scope of queues whose builder sets none"),
    key!("workqueue.max_active" => max_active in 1..=512, "items of a queue that may run at the same time, if its builder does not set it"),
    key!("workqueue.max_active_scope" => max_active_scope, "the scope that max_active bounds, if the builder does not set it"),
    key!("workqueue.cache_shard_size" => cache_shard_size in 1..=4096, "maximum number of cores that share a pool in the scope cache_shard"),
    key!("workqueue.worker_spin_limit" => worker_spin_limit in 0..=1_000_000, "maximum number of rounds that an idle worker spins before it sleeps"),
    key!("workqueue.max_batch" => max_batch in 1..=64, "maximum number of items that a worker takes at a time"),
    key!("workqueue.max_workers" => max_workers in 1..=4096, "maximum number of workers of a pool"),
    key!("workqueue.idle_timeout_ms" => idle_timeout_ms in 0..=86_400_000, "milliseconds until an idle worker may be culled"),
    // The minimum is a guess. The library and the standard library use less than half of a stack of
    // this size.
    key!("workqueue.stack_size" => stack_size in 65_536..=1_073_741_824, "stack size of a registry's threads in bytes"),
    key!("workqueue.sleep_slack_us" => sleep_slack_us in 0..=1_000_000, "microseconds by which sleeps may end late while many end at the same time; 0 for none"),
    key!("workqueue.watch_tick_us" => watch_tick_us in 1..=60_000_000, "microseconds between samples of the workers while work waits"),
    key!("workqueue.cpu_intensive_thresh_us" => cpu_intensive_thresh_us in 1..=60_000_000, "microseconds of CPU time until an item no longer counts against its pool"),
    key!("workqueue.topology_refresh_ms" => topology_refresh_ms in 0..=86_400_000, "minimum milliseconds between checks for CPUs that went online or offline; 0 for none"),
    key!("workqueue.cpu_quota" => cpu_quota, "limits the workers of each pool to the CPU quota of the cgroup"),
    key!("workqueue.unbound_cpus" => unbound_cpus, "CPUs that unbound queues may use"),
    key!("workqueue.watchdog_thresh_ms" => watchdog_thresh_ms in 0..=86_400_000, "milliseconds without progress until waiting work is reported, 0 for never"),
    key!("workqueue.stall_signal" => stall_signal in 0..=64, "number of the signal that captures the stacks of stalled workers, 0 for none"),
    key!("workqueue.wait_sample" => wait_sample in 0..=1_000_000_000, "minimum microseconds between two samples of wait and run times by a worker; 0 to disable"),
    key!("observe.publish" => publish, "shows the process to `afterwork top`"),
    key!("rcu.early_qs" => rcu.early_qs, "counts the quiescent state of a grace period's driver at once"),
    key!("rcu.jiffies_till_first_fqs" => rcu.first_fqs_ms in 0..=10_000, "milliseconds that a grace period waits before its first scan; 0 for none"),
    key!("rcu.jiffies_till_next_fqs" => rcu.next_fqs_ms in 0..=10_000, "milliseconds between its first and second scans, if rcu.early_qs is off; 0 for none"),
    key!("rcu.boost" => rcu.boost, "raises the priority of a preempted reader that delays a grace period"),
    key!("rcu.qhimark" => rcu.qhimark in 0..=1_000_000_000, "callbacks that may wait in one list before threads that add more wait; 0 for no limit"),
    key!("rcu.stall_timeout" => rcu.stall_timeout_ms in 0..=86_400_000, "milliseconds until a reader that delays a grace period is reported; 0 for never"),
    key!("rseq_slice_ext" => rseq_slice_ext, "requests longer time slices for threads in critical sections"),
    key!("qpw" => qpw, "how remote callers access per-CPU data that has an owner"),
];

/// Returns all tunables.
///
/// # Examples
///
/// ```
/// use afterwork::params::{keys, Params};
///
/// for key in keys() {
///     println!("{:<36} {} (now {})", key.name, key.about, key.value(&Params::default()));
/// }
/// ```
#[doc(hidden)]
pub fn keys() -> impl Iterator<Item = &'static Key> {
    KEYS.iter()
}

impl Key {
    pub fn expects(&self) -> String {
        (self.expects)()
    }

    /// Returns the value of the tunable in `params`, in the form in which it can be set.
    pub fn value(&self, params: &Params) -> String {
        (self.value)(params)
    }

    pub(super) fn set(&self, params: &mut Params, word: &str) -> Result<(), ParamError> {
        if (self.set)(params, word) {
            return Ok(());
        }
        Err(ParamError::BadValue {
            key: self.name,
            value: word.to_owned(),
            expects: self.expects(),
        })
    }
}

/// Returns the tunable called `name`.
pub(super) fn find(name: &str) -> Result<&'static Key, ParamError> {
    keys()
        .find(|key| key.name == name)
        .ok_or_else(|| ParamError::UnknownKey { key: name.to_owned(), nearest: nearest(name) })
}

/// Returns the most similar name, if any is similar enough.
fn nearest(name: &str) -> Option<&'static str> {
    // This is a guess: a word with more than a third of its letters wrong is taken to be a
    // different one.
    let limit = name.chars().count() / 3;
    // A user who writes `max_active` probably means `workqueue.max_active`.
    let distance = |key: &Key| {
        let bare = key.name.split_once('.').map_or(key.name, |(_, bare)| bare);
        edits(name, key.name).min(edits(name, bare))
    };
    keys()
        .map(|key| (distance(key), key.name))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, name)| name)
}

fn put<T>(place: &mut T, value: Option<T>) -> bool {
    value.map(|value| *place = value).is_some()
}

fn read_in<T: FromStr + PartialOrd>(word: &str, range: &RangeInclusive<T>) -> Option<T> {
    let number = word.parse().ok()?;
    range.contains(&number).then_some(number)
}

fn number_in<T: Display>(range: &RangeInclusive<T>) -> String {
    format!("a number from {} to {}", range.start(), range.end())
}

/// `_field` is only used for its type.
fn expected<T: Word>(_field: fn(&Params) -> &T) -> String {
    T::expects()
}
