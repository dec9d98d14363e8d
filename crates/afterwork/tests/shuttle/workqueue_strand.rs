//! Strands with several spawners, whose closures are cancelled and flushed. A batch is one closure.

use afterwork::workqueue::{JoinError, Strand};

use crate::workqueue::Managed;
use crate::*;

const NR_SPAWNERS: usize = 3;
const NR_CLOSURES: u32 = 4;

/// The number of the last closure of each spawner that has run.
type Last = [u32; NR_SPAWNERS];

#[derive(Default)]
struct Seen {
    is_inside: AtomicBool,
    nr_runs: AtomicU32,
    nr_bulk_cancels: AtomicU32,
}

/// Spawns, cancels, joins and flushes. Returns how many must have run if nothing cancels all.
fn spawn_some(me: usize, strand: &Strand<Last>, queue: &Workqueue, seen: &Arc<Seen>) -> u32 {
    let alive = Arc::new(());
    let mut nr_cancelled = 0;
    for number in 1..=NR_CLOSURES {
        let (own, alive) = (seen.clone(), alive.clone());
        let mut handle = strand.spawn(move |last| {
            assert!(!own.is_inside.swap(true, Ordering::Relaxed), "two at once");
            assert!(last[me] < number, "out of order");
            last[me] = number;
            own.nr_runs.fetch_add(1, Ordering::Relaxed);
            own.is_inside.store(false, Ordering::Relaxed);
            drop(alive);
        });
        match thread_rng().gen_range(0..8) {
            0 | 1 if handle.cancel() => nr_cancelled += 1,
            2 => match handle.join() {
                Ok(()) => {}
                Err(JoinError::Cancelled) => {
                    let nr_bulk_cancels = seen.nr_bulk_cancels.load(Ordering::Relaxed);
                    assert!(nr_bulk_cancels > 0, "no thread cancelled it");
                }
                Err(error) => panic!("{error}"),
            },
            3 if me == 0 => {
                seen.nr_bulk_cancels.fetch_add(1, Ordering::Relaxed);
                queue.cancel_all();
            }
            _ => {}
        }
    }
    queue.flush().unwrap();
    // A bulk cancel may drop the cancelled closures only after the flush has ended.
    if seen.nr_bulk_cancels.load(Ordering::Relaxed) == 0 {
        assert_eq!(Arc::strong_count(&alive), 1, "flushed too early");
    }
    NR_CLOSURES - nr_cancelled
}

fn spawners() {
    let (managed, queues) = Managed::new(&[2], 2);
    let strand = queues[0].strand(Last::default());
    let other = queues[0].strand(0);
    let seen = Arc::<Seen>::default();
    let (queue, theirs) = (queues[0].clone(), seen.clone());
    let threads = spawn_each(NR_SPAWNERS, move |me| spawn_some(me, &strand, &queue, &theirs));
    for _ in 0..NR_CLOSURES {
        other.spawn_detached(|nr_runs| *nr_runs += 1).unwrap();
    }
    drop(other);
    let nr_due: u32 = join_all(threads).into_iter().sum();
    managed.end(queues);
    let nr_runs = seen.nr_runs.load(Ordering::Relaxed);
    if seen.nr_bulk_cancels.load(Ordering::Relaxed) == 0 {
        assert_eq!(nr_runs, nr_due);
    } else {
        assert!(nr_runs <= nr_due);
    }
}

models! {
    fn closures_of_many_spawners_run_once_in_order_or_are_cancelled() =
        explore(1_500, spawners).detects([
            "strand: forgets a late push",
            "strand: ends during a flush",
            "strand: leaves its count to a later color",
            "strand: is unqueued while it runs",
        ]);
}
