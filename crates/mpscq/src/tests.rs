//! Tests with one thread, and with several threads if only the outcome matters. Miri runs them all.

extern crate std;

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Chain, Link, Linked, Node, Pop, Queue, RawCursor, RawQueue, Shared, Stack, Stopped};

struct Counted<'a>(&'a Cell<usize>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

fn take<T>(found: Pop<Box<Node<T>>>) -> T {
    popped(found).into_inner()
}

fn taken<T>(nodes: impl IntoIterator<Item = Box<Node<T>>>) -> Vec<T> {
    nodes.into_iter().map(Node::into_inner).collect()
}

fn popped<H>(found: Pop<H>) -> H {
    let Pop::Item(item) = found else { panic!("no item") };
    item
}

fn chain_of<T>(values: impl IntoIterator<Item = T>) -> Chain<Node<T>> {
    values.into_iter().map(Node::new).collect()
}

fn queue_of<T>(values: impl IntoIterator<Item = T>) -> Queue<Node<T>> {
    let queue = Queue::new();
    queue.push_chain(chain_of(values));
    queue
}

#[test]
fn push_returns_whether_the_queue_was_empty() {
    let queue = Queue::<Node<_>>::new();
    let mut consumer = queue.try_consumer().unwrap();
    for _ in 0..2 {
        assert!(queue.push(Node::new(1)));
        assert!(!queue.push(Node::new(2)));
        take(consumer.pop());
        assert!(!queue.push(Node::new(3)));
        take(consumer.pop());
        take(consumer.pop());
    }
}

#[test]
fn a_drain_stops_at_its_bound_and_leaves_the_rest() {
    let queue = queue_of(0..10);
    let mut consumer = queue.try_consumer().unwrap();
    let mut drain = consumer.drain(4);
    assert_eq!(taken(drain.by_ref()), [0, 1, 2, 3]);
    assert_eq!(drain.stopped(), Stopped::Bound);
    let mut drain = consumer.drain(usize::MAX);
    assert_eq!(taken(drain.by_ref()), [4, 5, 6, 7, 8, 9]);
    assert_eq!(drain.stopped(), Stopped::Empty);
    assert!(drain.next().is_none());
}

#[test]
fn a_drain_that_ended_stays_ended() {
    let queue = Queue::<Node<_>>::new();
    let mut consumer = queue.try_consumer().unwrap();
    let mut drain = consumer.drain(4);
    assert!(drain.next().is_none());
    queue.push(Node::new(1));
    assert!(drain.next().is_none());
    assert_eq!(take(consumer.pop()), 1);
}

#[test]
fn abandoned_drain_yields_no_item_twice() {
    let queue = queue_of(0..3);
    let mut consumer = queue.try_consumer().unwrap();
    assert!(consumer.drain(3).next().is_some());
    assert_eq!(take(consumer.pop()), 1);
}

#[test]
fn a_chain_is_published_whole_and_in_order() {
    let queue = Queue::<Node<_>>::new();
    let mut consumer = queue.try_consumer().unwrap();
    assert!(queue.push_chain(chain_of([1, 2, 3])));
    assert!(!queue.push_chain(chain_of([4])));
    assert!(!queue.push_chain(Chain::new()), "nothing to publish");
    queue.push(Node::new(5));
    assert_eq!(taken(consumer.drain(9)), [1, 2, 3, 4, 5]);
    assert!(!queue.push_chain(Chain::new()), "nothing to publish, even onto an empty queue");
    assert!(queue.is_empty());
}

#[test]
fn chains_append_reverse_and_count() {
    let mut chain = chain_of([1, 2]);
    chain.append(chain_of([3]));
    chain.append(Chain::new());
    let mut front = Chain::<Node<_>>::new();
    front.append(chain);
    assert_eq!(front.len(), 3);
    front.reverse();
    front.push_back(Node::new(0));
    assert_eq!(taken(front), [3, 2, 1, 0]);
}

#[test]
fn popped_items_form_a_chain_linked_or_not() {
    let queue = Queue::<Node<_>>::new();
    let mut consumer = queue.try_consumer().unwrap();
    let mut chain = Chain::<Node<_>>::new();
    for numbers in [vec![1, 2, 3], vec![4], vec![5, 6]] {
        queue.push_chain(chain_of(numbers));
        consumer.drain(9).for_each(|node| chain.push_back_popped(node));
    }
    assert_eq!(chain.len(), 6);
    chain.push_back_popped(Node::new(7));
    assert_eq!(taken(chain), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn contained_items_are_dropped_with_their_container() {
    let dropped = Cell::new(0);
    let counted = || (0..3).map(|_| Counted(&dropped));
    drop(queue_of(counted()));
    assert_eq!(dropped.get(), 3);
    drop(chain_of(counted()));
    assert_eq!(dropped.get(), 6);
    let stack = Stack::<Node<_>>::new();
    stack.push_chain(chain_of(counted()));
    drop(stack);
    assert_eq!(dropped.get(), 9);
}

#[test]
fn a_moved_queue_keeps_its_items() {
    let moved = Box::new(queue_of([1, 2]));
    let mut consumer = moved.try_consumer().unwrap();
    assert_eq!(take(consumer.pop()), 1);
    assert_eq!(take(consumer.pop()), 2);
}

#[test]
fn one_consumer_at_a_time_and_the_next_one_continues() {
    let queue = queue_of(0..4);
    let mut first = queue.try_consumer().unwrap();
    assert!(queue.try_consumer().is_none());
    assert_eq!(take(first.pop()), 0);
    drop(first);
    assert_eq!(take(queue.try_consumer().unwrap().pop()), 1);
}

#[test]
fn handles_that_stay_on_their_thread_work_too() {
    let queue = queue_of([Rc::new(7)]);
    assert_eq!(*take(queue.try_consumer().unwrap().pop()), 7);
}

#[test]
fn a_node_is_pushed_again_without_another_allocation() {
    let queue = Queue::<Node<_>>::new();
    let mut consumer = queue.try_consumer().unwrap();
    queue.push(Node::new(1));
    let mut node = popped(consumer.pop());
    let address = &raw const *node;
    assert_eq!(node.replace(2), 1);
    queue.push(node);
    let node = popped(consumer.pop());
    assert_eq!(&raw const *node, address);
    assert_eq!(node.into_inner(), 2);
}

#[test]
fn shared_item_is_in_one_queue_at_a_time() {
    let (one, other) = (Queue::<Shared<_>>::new(), Queue::<Shared<_>>::new());
    let item = Arc::new(Shared::new(7));
    one.push(Shared::claim(&item).unwrap());
    assert!(item.is_pending());
    assert!(Shared::claim(&item).is_none());
    let claim = popped(one.try_consumer().unwrap().pop());
    assert!(Shared::claim(&item).is_none(), "the claim came out with it");
    other.push(claim);
    let claim = popped(other.try_consumer().unwrap().pop());
    assert_eq!(**claim.release(), 7);
    assert!(!item.is_pending());
    assert_eq!(Arc::strong_count(&item), 1);
    one.push(Shared::claim(&item).unwrap());
    drop(one);
    assert_eq!(Arc::strong_count(&item), 1);
    assert!(Shared::claim(&item).is_some());
}

#[test]
fn lifo_list_is_reversed_on_demand() {
    let stack = Stack::<Node<_>>::new();
    assert!(stack.push(Node::new(1)));
    assert!(!stack.push_chain(chain_of([3, 2])));
    assert!(!stack.push_chain(Chain::new()));
    assert_eq!(taken(stack.take_all_fifo()), [1, 2, 3]);
    assert!(stack.is_empty());
    assert_eq!(stack.take_all().count(), 0);
}

#[test]
fn item_pushed_to_the_front_comes_first() {
    let mut chain = Chain::<Node<_>>::new();
    (1..=2).for_each(|number| chain.push_front(Node::new(number)));
    chain.push_back(Node::new(0));
    let stack = Stack::new();
    stack.push_chain(chain);
    let mut taken = stack.take_all();
    taken.put_back(Node::new(3));
    assert_eq!(self::taken(taken), [3, 2, 1, 0]);
}

/// An item that is not in a box, and whose link is not its first field.
struct Embedded {
    number: u32,
    link: Link<Embedded>,
}

// SAFETY: 1, 2: the handle is a borrow that never ends. 3, 4: the link is a private field. 5: no
// function panics.
unsafe impl Linked for Embedded {
    type Handle = &'static mut Embedded;

    fn into_raw(handle: &'static mut Embedded) -> NonNull<Self> {
        NonNull::from(handle)
    }

    unsafe fn from_raw(mut item: NonNull<Self>) -> &'static mut Embedded {
        // SAFETY: (1): the pointer came from an exclusive borrow that was given up.
        unsafe { item.as_mut() }
    }

    unsafe fn link(item: NonNull<Self>) -> NonNull<Link<Self>> {
        // SAFETY: the item is alive, so its field's address is inside it.
        unsafe { NonNull::new_unchecked(&raw mut (*item.as_ptr()).link) }
    }
}

#[test]
fn the_raw_halves_work_apart() {
    let (queue, mut cursor) = (RawQueue::<Embedded>::new(), RawCursor::new());
    let mut items = Vec::new();
    for number in 0..3 {
        let item = Box::into_raw(Box::new(Embedded { number, link: Link::new() }));
        items.push(item);
        // SAFETY: the item was just leaked, and this is the only reference.
        let item = Embedded::into_raw(unsafe { &mut *item });
        // SAFETY: 1: the item came from `into_raw`. 2: it is new. 3: `queue` stays on this stack.
        let was_empty = unsafe { queue.push(item) };
        assert_eq!(was_empty, number == 0);
    }
    for number in 0..3 {
        // SAFETY: the cursor was created with the queue, and this is the only thread.
        let item = popped(unsafe { queue.pop(&mut cursor) });
        // SAFETY: the item is popped once.
        assert_eq!(unsafe { Embedded::from_raw(item) }.number, number);
        assert_eq!(cursor.emptied(), number == 2);
    }
    // SAFETY: as above.
    assert_eq!(unsafe { queue.pop(&mut cursor) }, Pop::Empty);
    for item in items {
        // SAFETY: the item was leaked above, and has been popped.
        drop(unsafe { Box::from_raw(item) });
    }
}

/// An item that blocks its push between the exchange and the store of the link, until released.
struct Frozen {
    number: u32,
    link: Link<Frozen>,
}

/// Set once the push is blocked, and set to release it.
static IS_BLOCKED: AtomicBool = AtomicBool::new(false);
static IS_RELEASED: AtomicBool = AtomicBool::new(false);

std::thread_local!(static NR_LINKS: Cell<Option<u32>> = const { Cell::new(None) });

// SAFETY: 1, 2: the handle is a box. 3, 4: the link is a private field, used nowhere else. 5: no
// function panics.
unsafe impl Linked for Frozen {
    type Handle = Box<Frozen>;

    fn into_raw(handle: Box<Frozen>) -> NonNull<Self> {
        NonNull::from(Box::leak(handle))
    }

    unsafe fn from_raw(item: NonNull<Self>) -> Box<Frozen> {
        // SAFETY: the pointer came from a box that was given up.
        unsafe { Box::from_raw(item.as_ptr()) }
    }

    unsafe fn link(item: NonNull<Self>) -> NonNull<Link<Self>> {
        let nth = NR_LINKS.get();
        NR_LINKS.set(nth.map(|nth| nth + 1));
        // The first call is for the item's own link, the second for that of the item before it.
        if nth == Some(1) {
            IS_BLOCKED.store(true, Ordering::SeqCst);
            while !IS_RELEASED.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
        // SAFETY: the item is alive, so its field's address is inside it.
        unsafe { NonNull::new_unchecked(&raw mut (*item.as_ptr()).link) }
    }
}

#[test]
fn no_item_overtakes_an_incomplete_push() {
    let frozen = |number| Box::new(Frozen { number, link: Link::new() });
    let queue = Queue::<Frozen>::new();
    queue.push(frozen(1));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            NR_LINKS.set(Some(0));
            queue.push(frozen(2));
        });
        while !IS_BLOCKED.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // This push completes, behind one that has not.
        queue.push(frozen(3));
        for _ in 0..3 {
            let mut consumer = queue.try_consumer().unwrap();
            assert!(!queue.is_empty());
            assert!(matches!(consumer.pop(), Pop::MidPush), "its link is still to be stored");
            let mut drain = consumer.drain(10);
            assert!(drain.next().is_none());
            assert_eq!(drain.stopped(), Stopped::MidPush);
        }
        IS_RELEASED.store(true, Ordering::SeqCst);
    });
    let mut consumer = queue.try_consumer().unwrap();
    let numbers = consumer.drain(10).map(|item| item.number);
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 2, 3]);
    assert!(matches!(consumer.pop(), Pop::Empty) && queue.is_empty());
}

/// Increments the counter when dropped. The drop of item 1 then panics.
struct Bomb<'a> {
    nth: usize,
    _counted: Counted<'a>,
}

impl Drop for Bomb<'_> {
    fn drop(&mut self) {
        assert!(self.nth != 1, "the second one");
    }
}

#[test]
fn item_whose_drop_panics_harms_no_other() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let nr_dropped = Cell::new(0);
    let bombs = || (0..5).map(|nth| Bomb { nth, _counted: Counted(&nr_dropped) });
    let stack = || {
        let stack = Stack::<Node<_>>::new();
        stack.push_chain(chain_of(bombs()));
        stack
    };
    let drops: [(&str, &dyn Fn()); 4] = [
        ("a chain", &|| drop(chain_of(bombs()))),
        ("a stack", &|| drop(stack())),
        ("what was taken from one", &|| drop(stack().take_all())),
        ("a queue", &|| drop(queue_of(bombs()))),
    ];
    for (what, drop) in drops {
        nr_dropped.set(0);
        let payload = catch_unwind(AssertUnwindSafe(drop)).expect_err(what);
        assert_eq!(payload.downcast_ref(), Some(&"the second one"), "{what}");
        assert_eq!(nr_dropped.get(), 5, "{what}");
    }
}

/// Reduced under Miri, which is a thousand times slower.
const NR_PUSHES: usize = if cfg!(miri) { 60 } else { 20_000 };

#[test]
fn every_item_of_four_producers_arrives_once_and_in_its_order() {
    const NR_PRODUCERS: usize = 4;
    let queue = Queue::<Node<_>>::new();
    let mut seen = [0; NR_PRODUCERS];
    std::thread::scope(|scope| {
        for producer in 0..NR_PRODUCERS {
            let queue = &queue;
            scope.spawn(move || {
                let mut number = 0;
                while number < NR_PUSHES {
                    // Single items alternate with chains of two to five.
                    let len = (number % 5 + 1).min(NR_PUSHES - number);
                    if len == 1 {
                        queue.push(Node::new((producer, number)));
                    } else {
                        let numbers = number..number + len;
                        queue.push_chain(chain_of(numbers.map(|number| (producer, number))));
                    }
                    number += len;
                }
            });
        }
        let mut consumer = queue.try_consumer().unwrap();
        while seen.iter().sum::<usize>() < NR_PRODUCERS * NR_PUSHES {
            match consumer.pop() {
                Pop::Item(node) => {
                    let (producer, number) = node.into_inner();
                    assert_eq!(seen[producer], number);
                    seen[producer] += 1;
                }
                Pop::Empty | Pop::MidPush => std::thread::yield_now(),
            }
        }
    });
    assert!(queue.is_empty());
}

#[test]
fn shared_item_is_reused_by_several_threads() {
    let queue = Queue::<Shared<_>>::new();
    let item = Arc::new(Shared::new(()));
    let mut nr_pushed = 0;
    let done = AtomicBool::new(false);
    let nr_popped = std::thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            let mut consumer = queue.try_consumer().unwrap();
            let mut nr_popped = 0;
            loop {
                match consumer.pop() {
                    Pop::Item(claim) => {
                        drop(claim);
                        nr_popped += 1;
                    }
                    Pop::Empty if done.load(Ordering::Acquire) && queue.is_empty() => {
                        return nr_popped;
                    }
                    Pop::Empty | Pop::MidPush => std::thread::yield_now(),
                }
            }
        });
        while nr_pushed < NR_PUSHES {
            match Shared::claim(&item) {
                Some(claim) => {
                    queue.push(claim);
                    nr_pushed += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        done.store(true, Ordering::Release);
        consumer.join().unwrap()
    });
    assert_eq!(nr_popped, nr_pushed);
}
