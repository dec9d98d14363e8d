//! Random runs of one thread, compared with a slow, obvious model: a `VecDeque`.
#![cfg(not(any(loom, shuttle)))]

use std::collections::VecDeque;

use afterwork_mpscq::{Chain, Node, Pop, Queue, Stack, Stopped};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Push,
    PushChain(usize),
    Pop,
    Drain(usize),
    Replace,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Push),
        2 => (0..6_usize).prop_map(Step::PushChain),
        4 => Just(Step::Pop),
        1 => (0..8_usize).prop_map(Step::Drain),
        1 => Just(Step::Replace),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn queue_behaves_like_a_deque(steps in steps()) {
        let queue = Queue::<Node<_>>::new();
        let mut consumer = queue.try_consumer().unwrap();
        let mut model = VecDeque::new();
        let mut numbers = 0..;
        for step in steps {
            match step {
                Step::Push => {
                    let number: u32 = numbers.next().unwrap();
                    prop_assert_eq!(queue.push(Node::new(number)), model.is_empty());
                    model.push_back(number);
                }
                Step::PushChain(len) => {
                    let new: Vec<u32> = numbers.by_ref().take(len).collect();
                    let chain: Chain<_> = new.iter().copied().map(Node::new).collect();
                    prop_assert_eq!(chain.len(), len);
                    prop_assert_eq!(queue.push_chain(chain), len > 0 && model.is_empty());
                    model.extend(new);
                }
                Step::Pop => match consumer.pop() {
                    Pop::Item(node) => {
                        prop_assert_eq!(Some(node.into_inner()), model.pop_front());
                        prop_assert_eq!(consumer.emptied(), model.is_empty());
                    }
                    Pop::Empty => prop_assert!(model.is_empty()),
                    Pop::MidPush => prop_assert!(false, "no other thread pushes"),
                },
                Step::Drain(max) => {
                    let mut drain = consumer.drain(max);
                    let got: Vec<u32> = drain.by_ref().map(Node::into_inner).collect();
                    let stopped = drain.stopped();
                    let want: Vec<u32> = model.drain(..max.min(model.len())).collect();
                    prop_assert_eq!(stopped, if got.len() == max { Stopped::Bound } else { Stopped::Empty });
                    prop_assert_eq!(got, want);
                }
                Step::Replace => {
                    drop(consumer);
                    consumer = queue.try_consumer().unwrap();
                }
            }
            prop_assert_eq!(queue.is_empty(), model.is_empty());
        }
        let rest: Vec<u32> = consumer.drain(usize::MAX).map(Node::into_inner).collect();
        prop_assert_eq!(rest, Vec::from(model));
    }

    #[test]
    fn the_lifo_list_taken_and_turned_is_a_deque(chains in proptest::collection::vec(0..6_usize, 0..30)) {
        let stack = Stack::<Node<_>>::new();
        let mut model = Vec::new();
        let mut numbers = 0_u32..;
        for len in chains {
            let new: Vec<u32> = numbers.by_ref().take(len).collect();
            // The stack puts a chain's first item on top, so the chain is reversed before the push.
            let mut chain: Chain<_> = new.iter().copied().map(Node::new).collect();
            chain.reverse();
            prop_assert_eq!(stack.push_chain(chain), len > 0 && model.is_empty());
            model.extend(new);
        }
        let got: Vec<u32> = stack.take_all_fifo().map(Node::into_inner).collect();
        prop_assert_eq!(got, model);
    }
}
