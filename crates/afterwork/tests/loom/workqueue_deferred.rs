//! An item that is queued on an ordered queue while it runs on another queue, with a later item
//! behind it.

use crate::support::*;

struct Outcome {
    /// `true` if the item was queued on the ordered queue.
    again: bool,
    /// The number of runs of the item before the later one ran.
    nr_before: u32,
}

impl Outcome {
    /// Asserts that the later item started after the second run of the earlier one.
    fn assert_order(&self) {
        if self.again {
            assert_eq!(self.nr_before, 2, "the later item overtook the earlier one");
        }
    }
}

/// Runs an item of a queue, while another thread queues it and then a later item on an ordered
/// queue, and calls `work`. `enqueue` queues the item, whose runs `nr_runs` counts.
fn run_and_queue(
    enqueue: impl Fn(&Workqueue) -> bool + Clone + 'static,
    nr_runs: &Arc<AtomicU32>,
    work: impl FnOnce(&Machine) + 'static,
) -> Outcome {
    // The threads of the model are the workers. No other one is needed, but some are requested.
    static FOUR_CPUS: OnceLock<Topology> = OnceLock::new();
    let topology = FOUR_CPUS.get_or_init(|| Topology::synthetic("4 core").unwrap());
    let machine = Arc::new(Machine::new(topology, Params { max_batch: 1, ..Params::default() }));
    let [first, second] =
        [plain(), plain().ordered()].map(|it| it.build_in(machine.registry()).unwrap());
    let nr_before = Arc::new(AtomicU32::new(u32::MAX));
    let later = Work::new({
        let (nr_runs, nr_before) = (nr_runs.clone(), nr_before.clone());
        move || nr_before.store(nr_runs.load(Ordering::Relaxed), Ordering::Relaxed)
    });
    assert!(enqueue(&first));
    let other = spawn_with((machine.clone(), second.clone()), move |(machine, second)| {
        let again = enqueue(&second);
        assert!(second.enqueue(&later));
        work(&machine);
        again
    });
    machine.help_out();
    let again = other.join().unwrap();
    machine.help_out();
    // Each deadlocks if an item or a seat was lost.
    second.drain().unwrap();
    first.drain().unwrap();
    wind_up(first);
    // Workers may have been requested.
    machine.make_workers();
    drop(second);
    Outcome { again, nr_before: nr_before.load(Ordering::Relaxed) }
}

fn order_is_kept() {
    let (count, nr_runs) = counter();
    let item = Work::new(count);
    let outcome = run_and_queue(move |queue| queue.enqueue(&item), &nr_runs, Machine::help_out);
    outcome.assert_order();
}

#[repr(C)]
struct Job {
    work: RawWork,
    nr_runs: Arc<AtomicU32>,
}

unsafe extern "C-unwind" fn count_run(work: *mut RawWork) {
    // SAFETY: the item is part of a job, which is valid while it runs.
    unsafe { &*work.cast::<Job>() }.nr_runs.fetch_add(1, Ordering::Relaxed);
}

fn order_of_raw_items_is_kept() {
    let nr_runs = Arc::new(AtomicU32::new(0));
    // SAFETY: the function may be called on any thread.
    let work = unsafe { RawWork::new(count_run) };
    let job = NonNull::from(Box::leak(Box::new(Job { work, nr_runs: nr_runs.clone() })));
    // SAFETY: the job is freed below, when it is idle.
    let enqueue = move |queue: &Workqueue| unsafe { RawWork::queue(job.cast(), queue, None) };
    let enqueue = move |queue: &Workqueue| enqueue(queue).unwrap();
    let outcome = run_and_queue(enqueue, &nr_runs, Machine::help_out);
    outcome.assert_order();
    // SAFETY: both queues were drained.
    drop(unsafe { Box::from_raw(job.as_ptr()) });
}

fn cancelled_item_releases_the_seat() {
    let (count, nr_runs) = counter();
    let item = Work::new(count);
    let cancels = item.clone();
    let outcome = run_and_queue(
        move |queue| queue.enqueue(&item),
        &nr_runs,
        move |machine| {
            machine.help_out();
            cancels.cancel();
            machine.help_out();
        },
    );
    assert!(outcome.nr_before <= 2, "the later item has run");
}

models! {
    fn later_item_does_not_overtake_one_that_still_runs() =
        bounded(2, order_is_kept)
            .detects(["take: a deferred item has no seat", "take: a returned item is deferred"]);
    fn later_item_does_not_overtake_a_raw_item_that_still_runs() =
        bounded(2, order_of_raw_items_is_kept).detects(["take: a deferred item has no seat"]);
    fn cancelled_item_does_not_keep_the_seat() =
        bounded(2, cancelled_item_releases_the_seat)
            .detects(["cancel: a deferred item keeps its seat"]);
}
