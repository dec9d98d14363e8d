//! No item is lost, duplicated, torn or reordered.

use std::sync::Arc;

use afterwork_mpscq::{Chain, Pop, Stopped};
use sync::models;

use crate::support::{Got, Item, Items, bounded, exhaustive, pusher, spawn};

/// Each producer pushes the given number of items. The consumer tries `tries` pops at the same
/// time, and pops the rest afterwards.
pub fn singles(producers: &[usize], tries: usize) {
    let queue = Arc::new(Items::new());
    let total = producers.iter().sum();
    let start = |(from, &nr_items)| pusher(&queue, from, nr_items);
    let threads: Vec<_> = producers.iter().enumerate().map(start).collect();
    let mut got = Got::default();
    let mut consumer = queue.try_consumer().unwrap();
    for _ in 0..tries {
        if let Pop::Item(item) = consumer.pop() {
            got.take(&item);
        }
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    while got.total < total {
        match consumer.pop() {
            Pop::Item(item) => got.take(&item),
            nothing => panic!("lost: {nothing:?} after {} of {total} items", got.total),
        }
    }
    assert!(matches!(consumer.pop(), Pop::Empty));
    assert!(queue.is_empty());
}

/// One producer publishes a chain of two, another a single item or a chain.
fn chains(other: usize) {
    let queue = Arc::new(Items::new());
    let threads = [2, other].map(|len| {
        let queue = queue.clone();
        spawn(move || {
            let chain: Chain<_> = (0..len).map(|number| Item::new(len, number)).collect();
            queue.push_chain(chain);
        })
    });
    let mut order = Vec::new();
    let mut consumer = queue.try_consumer().unwrap();
    for _ in 0..2 {
        if let Pop::Item(item) = consumer.pop() {
            item.check();
            order.push((item.from, item.number));
        }
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    while let Pop::Item(item) = consumer.pop() {
        item.check();
        order.push((item.from, item.number));
    }
    let own = |len| (0..len).map(move |number| (len, number));
    let (one, two): (Vec<_>, Vec<_>) =
        (own(2).chain(own(other)).collect(), own(other).chain(own(2)).collect());
    assert!(order == one || order == two, "a chain was torn: {order:?}");
}

models! {
    fn two_producers_of_two_items_lose_nothing() = bounded(3, || singles(&[2, 2], 2));
    fn three_producers_of_one_item_lose_nothing() = bounded(3, || singles(&[1, 1, 1], 1));
    // Every known failure of this queue needs at most 2 preemptions.
    fn three_producers_and_an_eager_consumer_lose_nothing() = bounded(2, || singles(&[1, 1, 1], 3));
    fn three_producers_of_two_items_lose_nothing() = bounded(2, || singles(&[2, 2, 2], 3));
    fn chain_is_published_whole_next_to_a_single_item() = exhaustive(|| chains(1));
    fn two_chains_do_not_mix() = bounded(3, || chains(3));
}

#[test]
fn a_bounded_drain_leaves_the_rest_in_order() {
    exhaustive(|| {
        let queue = Arc::new(Items::new());
        let threads = [0, 1].map(|from| {
            let queue = queue.clone();
            spawn(move || {
                queue.push_chain((0..=from).map(|number| Item::new(from, number)).collect());
            })
        });
        let mut got = Got::default();
        let mut consumer = queue.try_consumer().unwrap();
        for bound in [1, 1] {
            let before = got.total;
            let mut drain = consumer.drain(bound);
            drain.by_ref().for_each(|item| got.take(&item));
            let stopped = drain.stopped();
            assert!(got.total - before <= bound);
            assert_eq!(got.total - before == bound, stopped == Stopped::Bound);
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut drain = consumer.drain(usize::MAX);
        drain.by_ref().for_each(|item| got.take(&item));
        assert_eq!(drain.stopped(), Stopped::Empty);
        assert_eq!(got.total, 3);
    });
}

#[test]
fn push_reports_an_empty_queue_to_one_producer_each_time() {
    exhaustive(|| {
        let queue = Arc::new(Items::new());
        let nr_reported = Arc::new(sync::atomic::AtomicUsize::new(0));
        let threads = [0, 1].map(|from| {
            let (queue, nr_reported) = (queue.clone(), nr_reported.clone());
            spawn(move || {
                if queue.push(Item::new(from, 0)) {
                    nr_reported.fetch_add(1, sync::atomic::Ordering::Relaxed);
                }
            })
        });
        let mut consumer = queue.try_consumer().unwrap();
        let mut nr_emptied = 0;
        let mut pop = || {
            let found = consumer.pop();
            nr_emptied += usize::from(matches!(found, Pop::Item(_)) && consumer.emptied());
        };
        pop();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        pop();
        pop();
        assert_eq!(nr_reported.load(sync::atomic::Ordering::Relaxed), nr_emptied);
    });
}

#[test]
fn remaining_items_are_dropped_with_the_queue() {
    exhaustive(|| {
        let queue = Arc::new(Items::new());
        for thread in [0, 1].map(|from| pusher(&queue, from, 1)) {
            thread.join().unwrap();
        }
    });
}
