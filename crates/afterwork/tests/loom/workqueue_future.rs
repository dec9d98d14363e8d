//! Futures: a wake during the end of a poll or a cancel, and the last waker during the end.

use std::sync::Mutex;

use crate::support::*;

/// The state that a future shares with its waker. No step of the model runs under the lock.
#[derive(Default)]
struct Shared {
    waker: Mutex<Option<Waker>>,
    left: Barred,
    ready: AtomicBool,
    /// Overlapping polls are a race.
    polls: Plain,
    nr_dropped: AtomicUsize,
}

impl Shared {
    /// Waits for the first poll and takes the waker that it stored.
    fn waker(&self) -> Waker {
        self.left.pass();
        self.waker.lock().unwrap().take().expect("left earlier")
    }
}

/// A future that stores its waker at the first poll, and is ready when `ready` is set.
struct Lure(Arc<Shared>);

impl Future for Lure {
    type Output = u32;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u32> {
        let shared = &self.0;
        shared.polls.set(shared.polls.get() + 1);
        if shared.polls.get() == 1 {
            let waker = context.waker().clone();
            *shared.waker.lock().unwrap() = Some(waker);
            shared.left.open();
        }
        // Relaxed: the wake orders the flag.
        if shared.ready.load(Ordering::Relaxed) { Poll::Ready(7) } else { Poll::Pending }
    }
}

sync::on_drop!(Lure, this => this.0.nr_dropped.fetch_add(1, Ordering::Relaxed));

fn lured(nr_workers: usize) -> (Machine, Workqueue, Arc<Shared>, workqueue::JoinHandle<u32>) {
    let (machine, queue) = queue(nr_workers, false);
    let shared = Arc::new(Shared::default());
    let handle = queue.spawn_async(Lure(shared.clone()));
    (machine, queue, shared, handle)
}

/// The last of `nr_wakes` wakes arrives during the first poll or after it, or finds the future
/// pending. `nr_wakes` workers may poll it.
fn wake_races_with_polls(nr_wakes: usize) {
    let (_machine, queue, shared, handle) = lured(nr_wakes);
    let waker = shared.waker();
    (1..nr_wakes).for_each(|_| waker.wake_by_ref());
    shared.ready.store(true, Ordering::Relaxed);
    waker.wake();
    assert_eq!(handle.join().unwrap(), 7);
    assert!(shared.polls.get() <= 3);
    wind_up(queue);
}

fn wake_races_with_cancel() {
    let (_machine, queue, shared, mut handle) = lured(1);
    let waker = shared.waker();
    let other = spawn_with(shared.clone(), move |shared| {
        shared.ready.store(true, Ordering::Relaxed);
        waker.wake();
    });
    handle.cancel();
    match handle.join() {
        Ok(value) => assert_eq!(value, 7),
        Err(JoinError::Cancelled) => {}
        Err(error) => panic!("{error}"),
    }
    assert_eq!(shared.nr_dropped.load(Ordering::Relaxed), 1);
    other.join().unwrap();
    wind_up(queue);
}

/// The cancel arrives before, during or after the first poll. If `wakes`, it finds the future
/// pending after its first poll, or in its second.
fn cancel_races_with_polls(wakes: bool) {
    let (_machine, queue, shared, mut handle) = lured(1);
    if wakes {
        shared.waker().wake();
    }
    assert!(handle.cancel());
    assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
    assert_eq!(shared.nr_dropped.load(Ordering::Relaxed), 1);
    shared.waker.lock().unwrap().take();
    wind_up(queue);
}

/// One thread cancels the future, and the other does too, or awaits it as a task.
fn cancel_races_with_the_handle(is_awaited: bool) {
    let (machine, queue) = queue(1, false);
    let shared = Arc::new(Shared::default());
    let mut canceller = CancelHandle::default();
    let mut handle = queue.task().cancel_handle(&mut canceller).spawn_async(Lure(shared.clone()));
    let other = spawn(move || canceller.cancel());
    let is_cancelled = !is_awaited && handle.cancel();
    let outcome = if is_awaited { block_on(handle) } else { handle.join() };
    assert!(matches!(outcome, Err(JoinError::Cancelled)));
    assert!(other.join().unwrap() || is_cancelled);
    assert_eq!(shared.nr_dropped.load(Ordering::Relaxed), 1);
    shared.waker.lock().unwrap().take();
    wind_up(queue);
    // At the end of the queue, a reaper drops an item that a task awaited.
    machine.reap();
}

/// The future completes while another thread drops its last waker, and no handle exists.
fn last_waker_races_with_the_end() {
    let (_machine, queue) = queue(1, false);
    let shared = Arc::new(Shared::default());
    shared.ready.store(true, Ordering::Relaxed);
    drop(queue.spawn_async(Lure(shared.clone())));
    let waker = shared.waker();
    drop(waker);
    drop(queue);
    assert_eq!(shared.nr_dropped.load(Ordering::Relaxed), 1);
    // Loom reports an item that is leaked or freed twice.
}

/// The last waker is dropped while the future suspends, so no thread can wake it again.
fn last_waker_races_with_the_suspension() {
    let (_machine, queue, shared, handle) = lured(1);
    drop(handle);
    drop(shared.waker());
    drop(queue);
    assert_eq!(shared.nr_dropped.load(Ordering::Relaxed), 1);
}

fn wake_races_with_the_end_of_the_queue() {
    let (_machine, queue, shared, handle) = lured(1);
    drop(handle);
    let waker = shared.waker();
    let waking = spawn_with(shared.clone(), move |shared| {
        shared.ready.store(true, Ordering::Relaxed);
        waker.wake();
    });
    drop(queue);
    assert_eq!(shared.nr_dropped.load(Ordering::Relaxed), 1, "destroyed before its future");
    waking.join().unwrap();
}

models! {
    fn a_wake_during_a_poll_or_after_it_brings_another_poll() =
        bounded(2, || wake_races_with_polls(1)).detects(["future: suspend forgets the wake"]);
    fn next_poll_sees_writes_before_a_wake_of_a_pending_future() =
        bounded(1, || wake_races_with_polls(2)).detects(["future: pending is no transition"]);
    fn cancelled_future_is_dropped_once_despite_wakes() = bounded(1, wake_races_with_cancel);
    fn cancelled_future_ends_without_a_wake() =
        bounded(2, || cancel_races_with_polls(false)).detects(["future: a cancel is no wake"]);
    fn a_cancelled_future_that_was_woken_is_dropped_by_a_worker() =
        bounded(1, || cancel_races_with_polls(true))
            .detects(["future: a cancel moves a polled future"]);
    fn a_future_that_two_threads_cancel_ends_once() =
        bounded(1, || cancel_races_with_the_handle(false));
    fn a_task_gets_the_outcome_of_a_cancelled_future() =
        bounded(1, || cancel_races_with_the_handle(true)).detects([
            "future: a cancel forgets its task",
            "future: a cancel ends it without an outcome",
        ]);
    fn the_last_waker_and_the_end_of_a_future_free_it_once() =
        bounded(2, last_waker_races_with_the_end).detects(["item: completion never frees"]);
    fn unwakable_future_is_dropped_once_and_releases_its_queue() =
        bounded(2, last_waker_races_with_the_suspension).detects(["future: suspend never frees"]);
    fn queue_is_not_destroyed_before_its_futures_have_ended() =
        bounded(1, wake_races_with_the_end_of_the_queue).detects(["future: no held pwq"]);
}
