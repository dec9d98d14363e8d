//! Many changes, each of which requests that the data be saved soon after the last change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use afterwork::workqueue::{DelayedWork, Workqueue};
use tokio::task::JoinHandle;
use top::exit::Stop;

/// The number of changes.
pub const CHANGES: usize = 1000;
/// The delay of the save. It is longer than all changes take together, so that no save runs between
/// two changes.
const SOON: Duration = Duration::from_millis(100);

/// The results of a run.
#[derive(Clone, Copy, Debug)]
pub struct Saved {
    /// The number of saves.
    pub saves: u64,
    /// Mean time of a change, which arms the save.
    pub per_change: Duration,
}

/// Calls `change` [`CHANGES`] times, then `end`, which returns the number of saves.
fn count(mut change: impl FnMut(), end: impl FnOnce() -> u64) -> Saved {
    let begun = Instant::now();
    (0..CHANGES).for_each(|_| change());
    let per_change = begun.elapsed() / CHANGES as u32;
    Saved { saves: end(), per_change }
}

/// Moves the timer of one item with each change.
pub fn ours() -> Result<Saved, Stop> {
    let queue = Workqueue::builder("soon").build();
    let queue = queue.map_err(|error| Stop::because("cannot build our workqueue", error))?;
    let saves: Arc<AtomicU64> = Arc::default();
    let counted = Arc::clone(&saves);
    let save = DelayedWork::new(move || _ = counted.fetch_add(1, Ordering::Relaxed));
    let end = || {
        save.flush().expect("the item does not panic");
        saves.load(Ordering::Relaxed)
    };
    Ok(count(|| _ = queue.reschedule(&save, SOON), end))
}

/// Spawns a tokio task for each change, which sleeps and then saves. If `abort` is set, each change
/// first aborts the task of the previous change.
pub fn tokio(abort: bool) -> Result<Saved, Stop> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.map_err(|error| Stop::because("cannot start tokio", error))?;
    let saves: Arc<AtomicU64> = Arc::default();
    let mut tasks: Vec<JoinHandle<()>> = Vec::with_capacity(CHANGES);
    let change = || {
        let saves = Arc::clone(&saves);
        if let Some(last) = tasks.last().filter(|_| abort) {
            last.abort();
        }
        tasks.push(runtime.spawn(async move {
            tokio::time::sleep(SOON).await;
            saves.fetch_add(1, Ordering::Relaxed);
        }));
    };
    let mut saved = count(change, || 0);
    // A task that was aborted returns an error.
    tasks.into_iter().for_each(|task| _ = runtime.block_on(task));
    saved.saves = saves.load(Ordering::Relaxed);
    Ok(saved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_timer_saves_and_a_task_per_change_saves_each_time() {
        assert!(ours().unwrap().saves >= 1);
        assert_eq!(tokio(false).unwrap().saves, CHANGES as u64);
        assert!(tokio(true).unwrap().saves >= 1);
    }
}
