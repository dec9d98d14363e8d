//! Many changes, each of which requests that the data be saved soon after the last change.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use afterwork::workqueue::{DelayedWork, Workqueue};
use tokio::task::JoinHandle;
use top::exit::Stop;

use super::cases::{PER_CHANGE, SAVES};
use super::sleeps::runtime;
use crate::harness::case::Sample;

pub const CHANGES: usize = 1000;
/// The delay of the save. It is longer than all changes take together, so that no save runs between
/// two changes.
const SOON: Duration = Duration::from_millis(100);

/// Calls `change` [`CHANGES`] times, and then `end`, which waits for the saves that are counted.
fn measured(mut change: impl FnMut(), saves: &AtomicU64, end: impl FnOnce()) -> Sample {
    let begun = Instant::now();
    (0..CHANGES).for_each(|_| change());
    let per_change_ns = begun.elapsed().as_nanos() as f64 / CHANGES as f64;
    end();
    let saves = saves.load(Ordering::Relaxed) as f64;
    Sample::of([(SAVES, saves), (PER_CHANGE, per_change_ns)])
}

pub fn ours() -> Result<Sample, Stop> {
    let queue = Workqueue::builder("soon").build();
    let queue = queue.map_err(Stop::because("cannot build our workqueue"))?;
    let saves: Arc<AtomicU64> = Arc::default();
    let counted = Arc::clone(&saves);
    let save = DelayedWork::new(move || _ = counted.fetch_add(1, Ordering::Relaxed));
    let end = || _ = save.flush().expect("the item does not panic");
    Ok(measured(|| _ = queue.reschedule(&save, SOON), &saves, end))
}

/// Spawns a tokio task for each change, which sleeps and then saves. If `abort` is set, each change
/// first aborts the task of the previous change.
pub fn tokio(abort: bool) -> Result<Sample, Stop> {
    let runtime = runtime(2)?;
    let saves: Arc<AtomicU64> = Arc::default();
    let tasks = RefCell::new(Vec::<JoinHandle<()>>::with_capacity(CHANGES));
    let change = || {
        let (mut tasks, saves) = (tasks.borrow_mut(), Arc::clone(&saves));
        if let Some(last) = tasks.last().filter(|_| abort) {
            last.abort();
        }
        tasks.push(runtime.spawn(async move {
            tokio::time::sleep(SOON).await;
            saves.fetch_add(1, Ordering::Relaxed);
        }));
    };
    // A task that was aborted returns an error.
    let end = || tasks.take().into_iter().for_each(|task| _ = runtime.block_on(task));
    Ok(measured(change, &saves, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_timer_saves_and_a_task_per_change_saves_each_time() {
        let saves = |sample: Result<Sample, Stop>| sample.unwrap().value(SAVES.name).unwrap();
        assert!(saves(ours()) >= 1.0);
        assert_eq!(saves(tokio(false)), CHANGES as f64);
        assert!(saves(tokio(true)) >= 1.0);
    }
}
