//! Many interleavings of larger cases. Every ordering is treated as `SeqCst`.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p afterwork-mpscq --release --test shuttle`
//!
//! A failure prints the schedule, which shuttle can replay.
#![cfg(shuttle)]

use std::sync::Arc;

use afterwork_mpscq::{Chain, Node, Pop, Queue, Shared, Stack};
use shuttle::thread;
use sync::atomic::{AtomicUsize, Ordering};
use sync::models;

const NR_RUNS: usize = 100_000;

/// The number of a push by its producer, and the producer.
type Item = Node<(usize, usize)>;

fn check(next: &mut [usize], item: (usize, usize)) {
    let (from, number) = item;
    assert_eq!(next[from], number, "out of the order of producer {from}");
    next[from] += 1;
}

/// Starts threads that run `body` with the shared value and the index of the thread.
fn start<S: Send + Sync + 'static, R: Send + 'static>(
    nr_threads: usize,
    shared: &Arc<S>,
    body: fn(&S, usize) -> R,
) -> Vec<thread::JoinHandle<R>> {
    let start = |index| {
        let shared = shared.clone();
        thread::spawn(move || body(&shared, index))
    };
    (0..nr_threads).map(start).collect()
}

/// Four producers push items and chains; consumers pop, drain with a bound, and hand over.
fn transfer() {
    const NR_PRODUCERS: usize = 4;
    const NR_ITEMS: usize = 6;
    let queue = Arc::new(Queue::<Item>::new());
    let producers = start(NR_PRODUCERS, &queue, |queue, from| {
        let mut numbers = 0..NR_ITEMS;
        while !numbers.is_empty() {
            // Producer 0 pushes single items, the others push chains.
            let chain = numbers.by_ref().take(from + 1);
            let chain: Chain<Item> = chain.map(|number| Node::new((from, number))).collect();
            queue.push_chain(chain);
        }
    });
    let mut next = [0; NR_PRODUCERS];
    while next.iter().sum::<usize>() < NR_PRODUCERS * NR_ITEMS {
        let mut consumer = queue.try_consumer().expect("the last one was dropped");
        for node in consumer.drain(3) {
            check(&mut next, node.into_inner());
        }
        match consumer.pop() {
            Pop::Item(node) => check(&mut next, node.into_inner()),
            Pop::Empty | Pop::MidPush => thread::yield_now(),
        }
    }
    producers.into_iter().for_each(|producer| producer.join().unwrap());
    assert!(queue.is_empty());
}

models! {
    fn four_producers_lose_and_reorder_no_item() = shuttle::check_random(transfer, NR_RUNS);
    // This strategy finds bugs that need few preemptions at specific places.
    fn four_producers_lose_and_reorder_nothing_with_few_preemptions() =
        shuttle::check_pct(transfer, NR_RUNS, 3);
}

/// Three threads claim and push an item. Each successful claim is popped once.
fn shared() {
    let item = Arc::new(Shared::new(AtomicUsize::new(0)));
    let both = Arc::new((Queue::<Shared<AtomicUsize>>::new(), item.clone()));
    let pushers = start(3, &both, |(queue, item), _| {
        let mut nr_pushed = 0;
        for _ in 0..3 {
            if let Some(claim) = Shared::claim(item) {
                queue.push(claim);
                nr_pushed += 1;
            }
        }
        nr_pushed
    });
    let mut consumer = both.0.try_consumer().unwrap();
    let mut nr_popped = 0;
    for _ in 0..6 {
        if let Pop::Item(claim) = consumer.pop() {
            // No other thread uses the item while the claim exists.
            assert_eq!(claim.fetch_add(1, Ordering::Relaxed), 0);
            claim.fetch_sub(1, Ordering::Relaxed);
            nr_popped += 1;
        }
    }
    let nr_pushed: usize = pushers.into_iter().map(|pusher| pusher.join().unwrap()).sum();
    nr_popped += consumer.drain(usize::MAX).count();
    assert_eq!(nr_popped, nr_pushed);
    drop(consumer);
    drop(both);
    assert_eq!(Arc::strong_count(&item), 1);
}

models! {
    fn a_shared_item_comes_out_once_for_each_claim() = shuttle::check_random(shared, NR_RUNS);
}

/// Three threads push, two take everything.
fn stack() {
    const NR_PUSHERS: usize = 3;
    const NR_ITEMS: usize = 3;
    let stack = Arc::new(Stack::<Item>::new());
    let pushers = start(NR_PUSHERS, &stack, |stack, from| {
        for number in 0..NR_ITEMS {
            stack.push(Node::new((from, number)));
        }
    });
    let takers = start(2, &stack, |stack, _| {
        let mut got = Vec::new();
        for _ in 0..2 {
            got.extend(stack.take_all_fifo().map(Node::into_inner));
        }
        got
    });
    pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
    let mut all = Vec::new();
    for taker in takers {
        let got = taker.join().unwrap();
        for from in 0..NR_PUSHERS {
            // Each taker sees the items of one pusher in order.
            assert!(got.iter().filter(|item| item.0 == from).is_sorted_by_key(|item| item.1));
        }
        all.extend(got);
    }
    all.extend(stack.take_all_fifo().map(Node::into_inner));
    all.sort_unstable();
    let want: Vec<_> =
        (0..NR_PUSHERS).flat_map(|from| (0..NR_ITEMS).map(move |number| (from, number))).collect();
    assert_eq!(all, want);
}

models! {
    fn the_lifo_list_loses_nothing() = shuttle::check_random(stack, NR_RUNS);
}

#[test]
fn empty_by_the_missing_link_alone_is_detected() {
    sync::twin::must_fail("empty: no check of the tail", || {
        shuttle::check_random(
            || {
                let queue = Arc::new(Queue::<Item>::new());
                let others = start(1, &queue, |queue, from| queue.push(Node::new((from, 0))));
                queue.push(Node::new((1, 0)));
                assert!(!matches!(queue.try_consumer().unwrap().pop(), Pop::Empty));
                others.into_iter().for_each(|other| _ = other.join().unwrap());
            },
            NR_RUNS,
        );
    });
}
