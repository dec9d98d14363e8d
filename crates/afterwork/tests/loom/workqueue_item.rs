//! One item: queueing, running, flushing, cancelling, helping, freeing.

use std::sync::Mutex;

use crate::support::*;

fn flush_reads(help: bool) {
    let (_machine, queue) = queue(1, help);
    let (work, count) = counting();
    assert!(queue.enqueue(&work));
    work.flush().unwrap();
    assert_eq!(count.get(), 1);
    wind_up(queue);
}

fn two_enqueuers() {
    let (_machine, queue) = queue(2, false);
    let (work, count) = counting();
    let other =
        spawn_with((queue.clone(), work.clone()), move |(queue, work)| queue.enqueue(&work));
    let mine = queue.enqueue(&work);
    let theirs = other.join().unwrap();
    assert!(mine || theirs);
    drop(queue);
    assert_eq!(count.get(), u32::from(mine) + u32::from(theirs));
}

/// A thread writes a word and queues an item that may already be pending. A run sees the word.
fn enqueue_of_a_pending_item() {
    let (_machine, queue) = queue(1, false);
    let (word, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (reads, notes) = (word.clone(), seen.clone());
    let work = Work::new(move || {
        if reads.load(Ordering::Relaxed) {
            notes.store(true, Ordering::Relaxed);
        }
    });
    queue.enqueue(&work);
    word.store(true, Ordering::Relaxed);
    queue.enqueue(&work);
    drop(queue);
    assert!(seen.load(Ordering::Relaxed), "no run saw the write");
}

fn cancel_races_with_pop(requeues: bool) {
    let (_machine, queue) = queue(1, false);
    let (work, count) = counting();
    assert!(queue.enqueue(&work));
    let cancelled = work.cancel();
    let again = requeues && queue.enqueue(&work);
    assert!(!requeues || !cancelled || again, "a cancelled item can be queued");
    work.flush().unwrap();
    assert_eq!(count.get(), u32::from(!cancelled) + u32::from(again));
    wind_up(queue);
}

/// Two items are cancelled, which removes tombstones, and one of them is queued again.
fn reaped_during_an_enqueue() {
    let (_machine, queue) = queue(1, false);
    let [(first, count_first), (second, count_second)] = [(); 2].map(|()| counting());
    queue.enqueue(&first);
    queue.enqueue(&second);
    let other = spawn_with((queue.clone(), second.clone()), |(queue, second)| {
        (second.cancel(), queue.enqueue(&second))
    });
    let cancelled = first.cancel();
    let (other_cancelled, again) = other.join().unwrap();
    drop(queue);
    assert_eq!(count_first.get(), u32::from(!cancelled));
    assert_eq!(count_second.get(), u32::from(!other_cancelled) + u32::from(again));
}

/// The item queues itself again until `cancel_sync` stops it.
fn cancel_sync_ends_it() {
    let (machine, queue) = queue(1, false);
    let count = Arc::new(Plain::default());
    let (runs, mut again) = (count.clone(), Some(queue.clone()));
    let work = Work::with_handle(move |this| {
        runs.set(runs.get() + 1);
        if let Some(queue) = again.take() {
            queue.enqueue(this);
        }
    });
    queue.enqueue(&work);
    work.cancel_sync();
    assert!(!work.is_busy());
    // Races with any run that has not ended.
    count.set(0);
    drop(queue);
    assert_eq!(count.get(), 0);
    // A worker may find the item cancelled and drop the queue's last handle with it.
    drop(work);
    machine.end();
    assert_eq!(count.get(), 0);
}

fn disable_races_with_enqueue() {
    let (_machine, queue) = queue(1, false);
    let (work, count) = counting();
    let enqueuer =
        spawn_with((queue.clone(), work.clone()), move |(queue, work)| queue.enqueue(&work));
    work.disable_sync();
    assert!(!work.is_pending(), "pending although disabled");
    // Races with any run that has not ended.
    count.set(0);
    enqueuer.join().unwrap();
    drop(queue);
    assert_eq!(count.get(), 0);
}

/// A run on this thread queues its own item and cancels it, in a flush that it has started.
fn flush_races_with_a_cancel() {
    let (machine, queue) = held(false);
    let flusher = Arc::new(Mutex::new(None));
    let (own, place) = (queue.clone(), flusher.clone());
    let work = Work::with_handle(move |this| {
        let ended = Arc::new(AtomicBool::new(false));
        let thread = spawn_with((this.clone(), ended.clone()), |(work, ended)| {
            work.flush().unwrap();
            assert!(ended.load(Ordering::Relaxed), "flushed before the end of the run");
        });
        let previous = place.lock().unwrap().replace(thread);
        assert!(previous.is_none(), "it runs once");
        assert!(own.enqueue(this) && this.cancel());
        ended.store(true, Ordering::Relaxed);
    });
    queue.enqueue(&work);
    go(&machine);
    let flusher = flusher.lock().unwrap().take().expect("it has run");
    flusher.join().unwrap();
    wind_up(queue);
}

fn last_handle() {
    let (_machine, queue) = queue(1, false);
    let (work, count) = counting();
    queue.enqueue(&work);
    drop(work);
    drop(queue);
    assert_eq!(count.get(), 1);
    // Loom reports an item that is leaked or freed twice.
}

/// The run clones the handle that it borrows while the last other handle is dropped.
fn cloned_in_the_run() {
    let (_machine, queue) = queue(1, false);
    let kept = Arc::new(Mutex::new(None));
    let place = kept.clone();
    let work = Work::with_handle(move |this| *place.lock().unwrap() = Some(this.clone()));
    queue.enqueue(&work);
    drop(work);
    drop(queue);
    let work = kept.lock().unwrap().take().expect("it has run");
    assert!(!work.is_busy());
    assert!(!work.is_orphaned());
}

fn spawn_and_join(help: bool) {
    let (_machine, queue) = queue(1, help);
    let handle = queue.spawn(|| Box::new(42));
    assert_eq!(*handle.join().unwrap(), 42);
    wind_up(queue);
}

fn handle_is_dropped(cancel: bool) {
    let (_machine, queue) = queue(1, false);
    let dropped = Arc::new(AtomicU32::new(0));
    struct Counted(Arc<AtomicU32>, Plain);
    sync::on_drop!(Counted, this => this.0.fetch_add(1 + this.1.get(), Ordering::Relaxed));
    let argument = Counted(dropped.clone(), Plain::default());
    let mut handle = queue.spawn(move || {
        argument.1.set(0);
        argument
    });
    if cancel {
        handle.cancel();
    }
    drop(handle);
    drop(queue);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

/// A task polls a handle twice before it sleeps.
fn polled() {
    let (_machine, queue) = queue(1, false);
    let mut handle = queue.spawn(|| 42);
    let mut parker = Parker::new();
    let waker = foreign_waker(parker.unparker());
    let mut context = Context::from_waker(&waker);
    let mut poll = || Pin::new(&mut handle).poll(&mut context);
    let result = loop {
        let polled = poll();
        let polled = if polled.is_pending() { poll() } else { polled };
        if let Poll::Ready(result) = polled {
            break result;
        }
        parker.park();
    };
    assert_eq!(result.unwrap(), 42);
    wind_up(queue);
}

fn queue_is_destroyed_during_a_helper(nr_workers: usize) {
    let (_machine, queue) = queue(nr_workers, true);
    let (count, nr_runs) = counter();
    let work = Work::new(count);
    queue.enqueue(&work);
    let helper = spawn(move || work.flush().unwrap());
    drop(queue);
    let nr_runs = nr_runs.load(Ordering::Relaxed);
    assert_eq!(nr_runs, 1, "the queue was destroyed before its item had run");
    helper.join().unwrap();
}

fn one_at_a_time() {
    let (machine, queue) = set_up(2, 2, plain().max_active(1));
    machine.start_workers(2);
    let inside = Arc::new(Plain::default());
    let works = [0, 1].map(|_| {
        let inside = inside.clone();
        Work::new(move || inside.set(inside.get() + 1))
    });
    works.iter().for_each(|work| assert!(queue.enqueue(work)));
    drop(queue);
    assert_eq!(inside.get(), 2);
}

fn ordered_cancel() {
    let (machine, queue) = set_up(2, 1, Workqueue::builder("model").ordered());
    machine.start_workers(1);
    let [(first, count_first), (second, count_second)] = [(); 2].map(|()| counting());
    queue.enqueue(&first);
    queue.enqueue(&second);
    let cancelled = first.cancel();
    drop(queue);
    assert_eq!(count_first.get(), u32::from(!cancelled));
    assert_eq!(count_second.get(), 1);
}

fn moved_to_another_queue() {
    let machine = machine(2, 1);
    let queues = [0, 1].map(|_| plain().build_in(machine.registry()).unwrap());
    machine.start_workers(1);
    let (work, count) = counting();
    queues[0].enqueue(&work);
    let cancelled = work.cancel();
    let again = queues[1].enqueue(&work);
    drop(queues);
    assert_eq!(count.get(), u32::from(!cancelled) + u32::from(again));
}

/// The same happens in a pool where only the enqueuer can remove the tombstone from the injector.
fn moved_from_a_stuck_pool() {
    let machine = machine(1, 1);
    let [first, second] = [0, 1].map(|_| plain().build_in(machine.registry()).unwrap());
    machine.pretend_busy(true);
    let (work, count) = counting();
    assert!(first.enqueue(&work) && work.cancel());
    assert!(second.enqueue(&work));
    go(&machine);
    assert_eq!(count.get(), 1);
    wind_up([first, second]);
}

models! {
    fn flush_sees_writes_of_the_run() =
        bounded(3, || flush_reads(false))
            .detects(["item: relaxed transitions", "item: completion forgets its sleepers"]);
    fn a_joiner_and_a_worker_run_the_item_once() = bounded(3, || flush_reads(true));
    fn each_successful_enqueue_causes_one_run_without_overlap() =
        bounded(1, two_enqueuers).detects(["item: runs overlap"]);
    fn run_sees_writes_before_an_enqueue_of_a_pending_item() =
        bounded(2, enqueue_of_a_pending_item).detects(["item: pending is no transition"]);
    fn item_is_either_cancelled_or_runs() =
        bounded(3, || cancel_races_with_pop(false)), bounded(2, || cancel_races_with_pop(true));
    fn a_tombstone_is_reaped_or_queued_again() =
        bounded(1, reaped_during_an_enqueue).detects(["reap: overlooks an enqueuer"]);
    fn nothing_runs_after_cancel_sync() = bounded(2, cancel_sync_ends_it);
    fn disabled_item_is_not_and_cannot_be_pending() =
        bounded(2, disable_races_with_enqueue).detects(["cancel: overlooks a claim"]);
    fn flush_waits_for_the_run_when_the_requeue_is_cancelled() =
        bounded(2, flush_races_with_a_cancel).detects(["item: a cancel ends the run"]);
    fn a_dropped_item_is_freed_once() =
        bounded(3, last_handle).detects(["item: completion never frees"]);
    fn a_handle_cloned_in_the_run_keeps_the_item() =
        bounded(3, cloned_in_the_run).detects(["item: a clone does not wait"]);
    fn joiner_gets_the_return_value_of_the_closure() =
        bounded(3, || spawn_and_join(false)), bounded(3, || spawn_and_join(true));
    fn a_closure_and_its_result_are_dropped_once() =
        bounded(3, || handle_is_dropped(false))
            .detects(["item: the last handle leaves an idle item"]),
        bounded(3, || handle_is_dropped(true));
    fn a_task_that_polled_is_woken() =
        bounded(3, polled).detects(["item: completion forgets its task"]);
    fn queue_is_not_destroyed_before_its_items_have_run() =
        bounded(1, || queue_is_destroyed_during_a_helper(1))
            .detects(["drain: no fence", "drain: relaxed read of the seats"]),
        must_fail("drain: forgets the seat holders",
            || bounded(2, || queue_is_destroyed_during_a_helper(0)));
    fn one_seat_means_one_item_at_a_time_and_none_forgotten() = bounded(1, one_at_a_time);
    fn an_ordered_item_is_cut_out_or_runs() = bounded(2, ordered_cancel);
    fn a_tombstone_follows_its_item_to_another_queue() = bounded(2, moved_to_another_queue);
    fn tombstone_is_removed_from_a_pool_without_workers() =
        bounded(2, moved_from_a_stuck_pool).detects(["cut out: forgets the injector"]);
}
