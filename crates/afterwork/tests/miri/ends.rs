//! Memory that is freed while other threads may access it: queues, cancelled items, joins, batches.

use afterwork::rcu;

use crate::workqueue::{Count, queue};
use crate::*;

#[test]
fn queue_dropped_in_a_callback_is_destroyed_elsewhere() {
    let count = Count::default();
    for _ in 0..2 {
        let queue = queue();
        queue.spawn_detached(count.adder()).unwrap();
        rcu::call(move || drop(queue));
    }
    rcu::barrier();
    until(|| count.get() >= 2);
}

#[test]
fn tombstones_are_reaped_while_others_cancel_and_queue() {
    let queue = queue();
    queue.pause();
    let count = Count::default();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let work = Work::new(count.adder());
                for _ in 0..3 {
                    drop(queue.spawn(|| Box::new(1)));
                    let mut handle = queue.spawn(|| Box::new(2));
                    assert!(handle.cancel());
                    drop(handle);
                    queue.enqueue(&work);
                    work.cancel();
                }
                queue.enqueue(&work);
            });
        }
    });
    queue.resume();
    drop(queue);
    assert_eq!(count.get(), 2);
}

/// Queues an item and cancels it when its thread exits.
struct AtExit(Option<(Workqueue, Work)>);

sync::on_drop!(AtExit, this => if let Some((queue, work)) = this.0.take() {
    queue.enqueue(&work);
    work.cancel_sync();
});

thread_local! {
    static AT_EXIT: RefCell<AtExit> = const { RefCell::new(AtExit(None)) };
}

fn dive(queue: &Workqueue, depth: u32) -> u32 {
    let inner = queue.clone();
    if depth == 0 {
        let work = Work::new(|| ());
        AT_EXIT.with(|place| place.borrow_mut().0 = Some((inner, work)));
        return 0;
    }
    1 + queue.spawn(move || dive(&inner, depth - 1)).join().unwrap()
}

#[test]
fn nested_joins_continue_on_threads_with_late_locals() {
    let queue = queue();
    assert_eq!(dive(&queue, 5), 5);
}

#[test]
fn timers_and_callbacks_fire_into_a_queue_that_ends() {
    for round in 0..3 {
        let (queue, count) = (queue(), Count::default());
        let delayed = DelayedWork::new(count.adder());
        let after = RcuWork::new(count.adder());
        queue.enqueue_after(&delayed, Duration::from_micros(round * 50));
        queue.task().enqueue_rcu(&after);
        thread::sleep(Duration::from_micros(50));
        drop(queue);
        let nr_run = count.get();
        delayed.cancel_sync();
        rcu::barrier();
        assert_eq!(count.get(), nr_run);
    }
}

#[test]
fn retained_batch_is_recalled_or_run_by_its_executor() {
    let kept: Arc<Mutex<Option<rcu::Batch>>> = Arc::default();
    let count = Count::default();
    let theirs = kept.clone();
    rcu::run_callbacks_on(Some(Box::new(move |batch| *theirs.lock().unwrap() = Some(batch))));
    rcu::call(count.adder());
    thread::scope(|scope| {
        scope.spawn(|| rcu::run_callbacks_on(None));
        // The callback runs once, in either order.
        drop(kept.lock().unwrap().take());
    });
    rcu::barrier();
    assert_eq!(count.get(), 1);
    drop(kept.lock().unwrap().take());
    assert_eq!(count.get(), 1);
}
