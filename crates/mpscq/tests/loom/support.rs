//! Shared by the models: an item that detects races and leaks, and functions to run a model.

use std::sync::Arc;

use afterwork_mpscq::{Node, Queue};
use sync::cell::UnsafeCell;

/// The `number`th item that producer `from` pushed.
#[derive(Debug)]
pub struct Item {
    pub from: usize,
    pub number: usize,
    /// A cell that the producer writes and the consumer reads, so that loom reports a missing
    /// ordering.
    contents: UnsafeCell<usize>,
    _leak: loom::alloc::Track<()>,
}

pub type Items = Queue<Node<Item>>;

impl Item {
    pub fn new(from: usize, number: usize) -> Box<Node<Self>> {
        let item = Node::new(Self {
            from,
            number,
            contents: UnsafeCell::new(0),
            _leak: loom::alloc::Track::new(()),
        });
        // SAFETY: this thread still owns the item.
        item.contents.with_mut(|contents| unsafe { *contents = number + 1 });
        item
    }

    /// Checks the contents that the producer wrote.
    pub fn check(&self) {
        // SAFETY: the item was popped, so this thread owns it; loom checks that.
        let contents = self.contents.with(|contents| unsafe { *contents });
        assert_eq!(contents, self.number + 1);
    }
}

/// The items that a consumer popped, checked for order.
#[derive(Debug, Default)]
pub struct Got {
    next: [usize; 4],
    pub total: usize,
}

impl Got {
    pub fn take(&mut self, item: &Item) {
        item.check();
        assert_eq!(item.number, self.next[item.from], "out of the order of producer {}", item.from);
        self.next[item.from] += 1;
        self.total += 1;
    }
}

/// Starts a producer that pushes `nr_items` items.
pub fn pusher(queue: &Arc<Items>, from: usize, nr_items: usize) -> loom::thread::JoinHandle<()> {
    let queue = queue.clone();
    spawn(move || {
        for number in 0..nr_items {
            queue.push(Item::new(from, number));
        }
    })
}

/// Explores without a bound.
pub fn exhaustive(model: impl Fn() + Sync + Send + 'static) {
    sync::model(model);
}

/// Explores without a bound, with the bug `name`, and returns the failure with which this must end.
pub fn must_fail(name: &'static str, model: impl Fn() + Sync + Send + 'static) -> String {
    sync::twin::must_fail(name, || exhaustive(model))
}

/// Explores all runs with at most `preemptions` switches away from a runnable thread.
pub fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Starts a thread of the model.
pub fn spawn<R: 'static>(body: impl FnOnce() -> R + 'static) -> loom::thread::JoinHandle<R> {
    loom::thread::spawn(body)
}
