//! Items from enqueue to destruction, freed in every possible way.

use afterwork::workqueue::{self, Builder, CancelHandle, CancellationToken};

use crate::*;

/// Creates a registry on two CPUs with one pool, whose workers park without a busy-poll.
fn registry() -> Registry {
    let params = Params { worker_spin_limit: 0, ..Params::default() };
    Registry::new(Topology::synthetic("2 core").unwrap(), params).unwrap()
}

/// The registry is shared, because Miri takes a long time to create one.
fn build(builder: Builder) -> Workqueue {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    builder.build_in(REGISTRY.get_or_init(registry)).unwrap()
}

pub fn queue() -> Workqueue {
    build(Workqueue::builder("miri"))
}

/// A counter that a test shares with its items. Miri reports a clone that is leaked.
#[derive(Clone, Default)]
pub struct Count(Arc<AtomicU32>);

impl Count {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a function that adds one.
    pub fn adder(&self) -> impl Fn() + Send + use<> {
        let count = self.clone();
        move || count.add()
    }

    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}

#[test]
fn result_is_joined_tried_awaited_or_dropped() {
    let queue = queue();
    let nested = queue.clone();
    let outer = queue.spawn(move || nested.spawn(|| vec![1; 3]).join().unwrap());
    // The closure is larger than any block of the slab.
    let large = [7_u64; 100];
    let sum = queue.spawn(move || large.iter().sum::<u64>());
    drop(queue.spawn(|| String::from("no thread requests it")));
    queue.spawn_detached(|| drop(vec![1])).unwrap();
    assert_eq!(block_on(queue.spawn(|| vec![2])).unwrap(), [2]);
    let mut tried = queue.spawn(|| vec![4]);
    until(|| tried.try_join().is_some_and(|result| result.unwrap() == [4]));
    assert_eq!(outer.join().unwrap(), [1; 3]);
    assert_eq!(sum.join().unwrap(), 700);
    assert!(queue.spawn(|| panic!("on purpose")).join().is_err());
}

#[test]
fn joiner_runs_the_item_or_finds_that_it_has_run() {
    let queue = queue();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for number in 0..4 {
                    assert_eq!(*queue.spawn(move || Box::new(number)).join().unwrap(), number);
                }
            });
        }
    });
}

#[test]
fn queue_is_destroyed_when_its_last_helper_has_left() {
    for _ in 0..3 {
        let queue = queue();
        let handle = queue.spawn(|| ());
        thread::scope(|scope| {
            scope.spawn(|| handle.join().unwrap());
            drop(queue);
        });
    }
}

#[test]
fn a_cancelled_closure_is_dropped_once() {
    let queue = build(Workqueue::builder("miri").ordered());
    let counted = Arc::new(());
    for _ in 0..4 {
        let mine = counted.clone();
        let mut handle = queue.spawn(move || drop(mine));
        if handle.cancel() {
            assert!(handle.join().is_err());
        }
    }
    queue.flush().unwrap();
    queue.drain().unwrap();
    assert_eq!(Arc::strong_count(&counted), 1);
}

#[test]
fn an_item_queues_itself_and_is_flushed_and_freed_by_its_run() {
    let queue = queue();
    let count = Count::default();
    let work = Work::with_handle({
        let (queue, count) = (queue.clone(), count.clone());
        move |this| {
            count.add();
            if count.get() < 3 {
                queue.enqueue(this);
            }
        }
    });
    queue.enqueue(&work);
    while work.is_busy() {
        work.flush().unwrap();
    }
    assert_eq!(count.get(), 3);
    queue.enqueue(&work);
    drop(work);
    queue.drain().unwrap();
    assert_eq!(count.get(), 4);
}

#[test]
fn items_are_queued_cancelled_and_moved_from_two_threads() {
    let (queue, other) = (queue(), build(Workqueue::builder("other").ordered()));
    let count = Count::default();
    let works: Vec<_> = (0..4).map(|_| Work::new(count.adder())).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            for work in &works {
                other.enqueue(work);
                work.clone().flush().unwrap();
            }
        });
        for _ in 0..2 {
            queue.task().enqueue_all(&works);
            for work in &works {
                work.cancel();
            }
        }
    });
    for work in &works {
        work.cancel_sync();
    }
    let mut works = works;
    queue.enqueue(&works[0]);
    works.clear();
    drop((queue, other));
    assert!(count.get() > 0);
}

#[test]
fn item_is_freed_by_the_last_reference() {
    let queue = queue();
    for _ in 0..4 {
        let count = Count::default();
        let work = Work::new(count.adder());
        queue.enqueue(&work);
        let clone = work.clone();
        thread::scope(|scope| {
            scope.spawn(move || drop(clone));
            drop(work);
        });
        queue.flush().unwrap();
        assert_eq!(count.get(), 1);
    }
}

#[test]
fn a_future_is_woken_cancelled_and_freed_by_its_last_waker() {
    let queue = queue();
    let left: Arc<Mutex<Option<Waker>>> = Arc::default();
    let mut nr_polls = 0;
    let theirs = left.clone();
    let handle = queue.spawn_async(poll_fn(move |context| {
        nr_polls += 1;
        if nr_polls == 2 {
            return Poll::Ready(vec![nr_polls]);
        }
        *theirs.lock().unwrap() = Some(context.waker().clone());
        Poll::Pending
    }));
    let mut waker = None;
    until(|| {
        waker = left.lock().unwrap().take();
        waker.is_some()
    });
    let waker = waker.unwrap();
    thread::scope(|scope| {
        scope.spawn(|| waker.wake_by_ref());
        assert_eq!(block_on(handle).unwrap(), [2]);
    });
    waker.wake();
    let mut handle = queue.spawn_async(pending::<()>());
    assert!(handle.cancel() && handle.join().is_err());
    drop(queue.spawn_async(async { vec![3] }));
    // This future has no waker left.
    drop(queue.spawn_async(pending::<()>()));
    queue.drain().unwrap();
}

#[test]
fn delayed_item_runs_when_due_or_flushed_or_is_cancelled() {
    let queue = queue();
    let count = Count::default();
    let work = DelayedWork::new(count.adder());
    queue.enqueue_after(&work, Duration::from_millis(1));
    // The count is read without an ordering, so the state that is read next may be old.
    while count.get() == 0 || !queue.enqueue_after(&work, Duration::from_secs(3600)) {
        thread::sleep(Duration::from_millis(1));
    }
    work.flush().unwrap();
    assert_eq!(count.get(), 2);
    queue.enqueue_after(&work, Duration::from_secs(3600));
    queue.reschedule(&work, Duration::from_secs(1800)).unwrap();
    assert!(work.cancel_sync());
    queue.enqueue_after(&work, Duration::from_secs(3600));
    drop(work);
}

#[test]
fn item_runs_after_a_grace_period() {
    let queue = queue();
    let count = Count::default();
    let work = RcuWork::new(count.adder());
    assert!(queue.task().enqueue_rcu(&work));
    work.flush().unwrap();
    assert_eq!(count.get(), 1);
}

#[test]
fn queues_are_created_and_destroyed_with_their_items() {
    let keeper = queue();
    let count = Count::default();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..2 {
                    // The registry ends with its queue.
                    let queue = Workqueue::builder("miri").build_in(&registry()).unwrap();
                    let (again, add) = (queue.clone(), count.adder());
                    // An item of a queue may drop the queue's last handle.
                    let item = move || {
                        add();
                        drop(again);
                    };
                    queue.spawn_detached(item).unwrap();
                    drop(queue);
                    keeper.spawn_detached(count.adder()).unwrap();
                }
            });
        }
    });
    keeper.shutdown(Duration::MAX).unwrap();
    until(|| count.get() >= 8);
}

#[test]
fn data_lent_to_a_scope_is_returned() {
    let queue = queue();
    let mut lent: Vec<_> = (0..12).map(Box::new).collect();
    queue.scope(|s| {
        for chunk in lent.chunks_mut(3) {
            s.spawn(|| {
                let (left, right) = chunk.split_at_mut(1);
                s.spawn(|| *left[0] += 100);
                right.iter_mut().for_each(|it| **it += 100);
            });
        }
    });
    queue.for_each_chunk_mut(&mut lent, 5, |_, chunk| chunk.iter_mut().for_each(|it| **it -= 100));
    let sum = |half: &[Box<i32>]| half.iter().map(|it| **it).sum::<i32>();
    let (left, right) = lent.split_at(6);
    let ((first, second), rest) =
        queue.join(|| queue.join(|| sum(&left[..3]), || sum(&left[3..])), || Box::new(sum(right)));
    assert_eq!(first + second + *rest, 66);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        queue.scope(|s| lent.iter().for_each(|it| s.spawn(|| assert!(**it < 11, "on purpose"))));
    }));
    assert!(panicked.is_err());
}

#[test]
fn a_queue_may_be_paused_under_a_scope_and_tickets_outlive_it() {
    let queue = build(Workqueue::builder("miri").ordered());
    for _ in 0..3 {
        let count = AtomicU32::new(0);
        queue.pause();
        queue.scope(|s| {
            for _ in 0..3 {
                s.spawn(|| _ = count.fetch_add(1, Ordering::Relaxed));
            }
            queue.resume();
        });
        assert_eq!(count.into_inner(), 3);
    }
}

#[test]
fn tasks_sleep_time_out_and_are_cancelled() {
    let queue = queue();
    let registry = registry();
    const SHORT: Duration = Duration::from_micros(100);
    const LONG: Duration = Duration::from_secs(3600);
    workqueue::block_on(registry.sleep(SHORT));
    // The first sleep blocks this thread, and a reaper fires its waker. The second is in a future.
    block_on(registry.sleep(SHORT));
    let slept = registry.sleep(SHORT);
    let task = queue.spawn_async(async move {
        slept.await;
        vec![7]
    });
    let late = registry.timeout(SHORT, pending::<Vec<u8>>());
    assert!(workqueue::block_on(late).is_err());
    assert_eq!(block_on(task).unwrap(), [7]);
    let long = registry.sleep(LONG);
    let mut canceller = CancelHandle::default();
    let handle = queue.task().cancel_handle(&mut canceller).spawn_async(long);
    assert!(canceller.clone().cancel());
    assert!(handle.join().is_err() && canceller.is_finished());
    let mut canceller = CancelHandle::default();
    let handle = queue.task().cancel_handle(&mut canceller).spawn(|| vec![7]);
    drop(handle);
    queue.drain().unwrap();
    assert!(!canceller.cancel());
}

#[test]
fn set_yields_results_and_cancels_the_rest() {
    let queue = queue();
    let mut set = TaskSet::new(&queue);
    for number in 0..3 {
        set.spawn(move || vec![number]);
        set.spawn_async(async move { vec![number] });
    }
    let sum: i32 = set.results().map(|result| result.unwrap()[0]).sum();
    assert_eq!(sum, 6);
    for _ in 0..3 {
        set.spawn(|| vec![7]);
        set.spawn_async(pending());
    }
    set.cancel_all();
    assert!(block_on(set.join_next()).is_some());
}

#[test]
fn periodic_work_repeats_until_it_or_its_queue_is_dropped() {
    let queue = queue();
    const PERIOD: Duration = Duration::from_micros(100);
    for _ in 0..2 {
        let (count, left) = (Count::default(), Arc::new(()));
        let (add, kept) = (count.adder(), left.clone());
        let work = queue.every(PERIOD, move || {
            let _ = &kept;
            add();
        });
        until(|| count.get() >= 2);
        work.unwrap().cancel_sync();
        // A timer that was about to fire may hold the last reference.
        until(|| Arc::strong_count(&left) == 1);
    }
    let left = Arc::new(());
    let kept = left.clone();
    queue.every(PERIOD, move || _ = &kept).unwrap().detach();
    drop(queue);
    until(|| Arc::strong_count(&left) == 1);
}

#[test]
fn strand_frees_its_state_after_run_cancelled_and_left_closures() {
    let count = Count::default();
    let queue = queue();
    let strand = queue.strand(vec![count.clone()]);
    let sum = strand.spawn(|state| {
        state[0].add();
        state.len()
    });
    assert_eq!(sum.join().unwrap(), 1);
    queue.pause();
    let mut cancelled = strand.spawn(|state| state[0].add());
    assert!(cancelled.cancel());
    let also = strand.spawn(|state| state[0].add());
    assert_eq!(queue.cancel_all(), 1);
    assert!(also.join().is_err());
    let other = strand.clone();
    (0..40).for_each(|_| other.spawn_detached(|state| state[0].add()).unwrap());
    drop((strand, other));
    queue.resume();
    drop(queue);
    assert_eq!(count.get(), 41);
    assert_eq!(Arc::strong_count(&count.0), 1);
}

#[test]
fn tokens_of_items_and_children_are_freed() {
    let queue = queue();
    let token = CancellationToken::new();
    let own = token.child();
    let task = queue.spawn_async(async move { own.cancelled().await });
    let item = queue.spawn(CancellationToken::current);
    assert!(!item.join().unwrap().child().is_cancelled());
    let item = queue.spawn(|| {
        let token = CancellationToken::current();
        let before = workqueue::is_cancelled();
        token.cancel();
        (before, workqueue::is_cancelled())
    });
    assert_eq!(item.join().unwrap(), (false, true));
    token.cancel();
    task.join().unwrap();
}
