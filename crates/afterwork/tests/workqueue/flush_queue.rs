//! Flushes of a queue.

use crate::spawn_async::Door;
use crate::support::*;

fn nr_waiting(queue: &Workqueue) -> usize {
    let text = format!("{queue:?}");
    let (_, count) = text.split_once("nr_waiting: ").unwrap();
    let count: String = count.chars().take_while(char::is_ascii_digit).collect();
    count.parse().unwrap()
}

/// Starts a flush of a queue that has a blocked item, waits until the flush sleeps, and checks that
/// it does not end.
fn flusher(queue: &Workqueue) -> thread::JoinHandle<()> {
    let before = nr_waiting(queue);
    let flusher = beside(queue, |queue| queue.flush().unwrap());
    wait_until(|| nr_waiting(queue) > before);
    is_under_way(&flusher);
    flusher
}

/// Blocks an item that its joiner runs, unless a worker takes it first, and counts its end.
pub fn joined_item(queue: &Workqueue) -> (Plug, thread::JoinHandle<()>, Count) {
    let ended = Count::default();
    let (joiner, plug) = stuck(|hole| {
        let handle = queue.spawn(move || {
            hole.sit();
            ended.add();
        });
        thread::spawn(move || handle.join().unwrap())
    });
    (plug, joiner, ended)
}

#[track_caller]
fn is_under_way(flusher: &thread::JoinHandle<()>) {
    assert!(!holds_within(10 * MS, || flusher.is_finished()));
}

#[test]
fn flush_of_an_empty_queue_returns_at_once() {
    let queue = queue("flush").alone();
    queue.flush().unwrap();
    queue.spawn(|| ()).join().unwrap();
    queue.flush().unwrap();
}

#[test]
fn flush_waits_for_all_queued_items_on_all_pools() {
    for max in [1, 3, 256] {
        let queue = queue("flush").affinity(Cpu).max_active(max);
        let (queue, count) = (queue.on(&registry("64 core")), Count::default());
        for round in 1..30 {
            threads(4, |i| {
                pin(i);
                count.spawn(50, &queue);
            });
            queue.flush().unwrap();
            assert_eq!(count.get(), round * 200);
        }
    }
}

#[test]
fn items_queued_after_a_flush_do_not_delay_it() {
    for max in [2, 256] {
        let (queue, first) = queue("flush").max_active(max).plugged();
        let flusher = flusher(&queue);
        let second = plug_into(&queue);
        first.release_and_join(flusher);
        second.release_and_drain(&queue);
    }
}

#[test]
fn a_stream_of_new_items_does_not_delay_a_flush() {
    let (queue, stop) = (queue("flush").alone(), Count::default());
    queue.task().enqueue_all(&[(); 4].map(|()| restless(&queue, stop)));
    (0..200).for_each(|_| queue.flush().unwrap());
    stop.add();
    queue.drain().unwrap();
}

#[test]
fn many_flushes_at_once_all_end_after_their_items() {
    // Uses more flushes than there are colors, each with an item of its own.
    let queue = queue("colors").max_active(512).alone();
    let waits = [(); 40].map(|()| (plug_into(&queue), flusher(&queue)));
    let none_has_ended = || waits.iter().all(|(_, flusher)| !flusher.is_finished());
    assert!(none_has_ended());
    // All items but the first are released. Each flush also waits for the first, so none ends.
    waits[1..].iter().rev().for_each(|(plug, _)| plug.release());
    assert!(none_has_ended());
    waits[0].0.release();
    waits.into_iter().for_each(|(_, flusher)| flusher.join().unwrap());
    queue.flush().unwrap();
}

#[test]
fn flush_waits_for_an_item_that_its_joiner_runs() {
    for pushed_by_other in [false, true] {
        let queue = queue("helped").alone();
        if pushed_by_other {
            // The earlier item wakes a worker, which may adopt both before the joiner helps.
            queue.detach(|| ());
        }
        let (plug, joiner, ended) = joined_item(&queue);
        let flusher = flusher(&queue);
        plug.release_and_join(flusher);
        assert_eq!(ended.get(), 1);
        joiner.join().unwrap();
    }
}

#[test]
fn an_item_helped_after_the_flush_began_does_not_delay_it() {
    let (queue, first) = queue("helped").max_active(256).plugged();
    let flusher = flusher(&queue);
    let (second, joiner, _) = joined_item(&queue);
    first.release_and_join(flusher);
    second.release_and_join(joiner);
}

#[test]
fn a_later_helper_delays_no_flush_that_waits_for_a_helper() {
    let queue = queue("helped").max_active(256).alone();
    // Retries until the joiner, with a seat that its CPU kept, runs the item before a worker.
    let helped = || loop {
        let ((plug, hole), (send, is_helped)) = (stopper(), mpsc::channel());
        let joiner = beside(&queue, move |own| {
            pin(0);
            (0..50).for_each(|_| own.spawn(|| ()).join().unwrap());
            let joiner = thread::current().id();
            let item = move || {
                send.send(thread::current().id() == joiner).unwrap();
                hole.sit();
            };
            own.spawn(item).join().unwrap();
        });
        if is_helped.recv().unwrap() {
            return (plug, joiner);
        }
        plug.release_and_join(joiner);
    };
    let (first, first_joiner) = helped();
    let flusher = flusher(&queue);
    let (second, second_joiner) = helped();
    first.release_and_join(first_joiner);
    flusher.join().unwrap();
    second.release_and_join(second_joiner);
    queue.drain().unwrap();
}

#[test]
fn flush_waits_for_items_that_have_no_seat_yet() {
    let queue = one_seat("inactive").alone();
    let (plug, count) = (plug_into(&queue), Count::default());
    assert_eq!(queue.task().enqueue_all(&[(); 10].map(|()| counting(count))), 10);
    let flusher = flusher(&queue);
    plug.release_and_join(flusher);
    assert_eq!(count.get(), 10);
}

#[test]
fn flush_waits_for_an_item_that_was_queued_again_while_it_ran() {
    let queue = queue("again").alone();
    let (work, plug) = stuck_in(&queue);
    assert!(queue.enqueue(&work));
    let flusher = flusher(&queue);
    plug.release();
    plug.wait_until_stuck();
    is_under_way(&flusher);
    plug.release_and_join(flusher);
    assert!(!work.is_busy());
}

#[test]
fn a_cancelled_item_does_not_delay_a_flush() {
    for queue in ordered_and_narrow() {
        let (plug, (work, count)) = (plug_into(&queue), counted());
        queue.enqueue(&work);
        let flusher = flusher(&queue);
        assert!(work.cancel());
        plug.release_and_join(flusher);
        assert_eq!(count.get(), 0);
    }
}

#[test]
fn an_item_may_flush_another_queue_of_a_pool_of_one_worker() {
    // The monitor does not run, so only the flush itself can wake another worker.
    let [outer, inner] = ["outer", "inner"].map(queue).on(&unwatched("1 core"));
    let count = Count::default();
    for inner in vec![inner; 50] {
        outer.detach(move || {
            inner.detach(count.adder());
            inner.flush().unwrap();
        });
    }
    outer.flush().unwrap();
    assert_eq!(count.get(), 50);
}

#[test]
fn flush_waits_for_earlier_futures_and_for_no_later_ones() {
    let (queue, door) = (queue("futures").alone(), Door::default());
    let first = queue.spawn_async(door.clone());
    wait_until(|| door.nr_waiting() == 1);
    let flusher = flusher(&queue);
    let mut second = queue.spawn_async(pending::<()>());
    door.open();
    flusher.join().unwrap();
    first.join().unwrap();
    assert!(second.cancel());
    queue.drain().unwrap();
}
