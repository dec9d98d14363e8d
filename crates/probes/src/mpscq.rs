//! A push to a queue.

use mpscq::{Node, Queue};

/// Pushes an item. Returns `true` if the queue was empty.
#[inline(never)]
pub fn push(queue: &Queue<Node<u64>>, item: Box<Node<u64>>) -> bool {
    queue.push(item)
}

/// The callers, whose code is not inspected.
pub mod calls {
    use std::hint::black_box;

    use super::*;

    /// Calls the function, and checks its effect.
    pub fn run() {
        let queue = Queue::new();
        let push = black_box(push as fn(&Queue<Node<u64>>, Box<Node<u64>>) -> bool);
        assert_eq!([1, 2].map(|number| push(&queue, Node::new(number))), [true, false]);
        let mut consumer = queue.try_consumer().expect("it has no consumer");
        assert!(consumer.drain(usize::MAX).map(Node::into_inner).eq([1, 2]));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn items_are_pushed_in_order() {
        super::calls::run();
    }
}
