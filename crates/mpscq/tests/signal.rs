//! Pushes in a signal handler that interrupts its thread at each instruction of a push or a pop.

#![cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::{mem, ptr};

use afterwork_mpscq::{Chain, Node, Pop, Queue};

/// The trap flag of x86: it raises a signal after each instruction.
const TRAP: i64 = 0x100;
const NOT_ARMED: u32 = u32::MAX;
/// The item that the handler pushes. Lower items are pushed by the thread.
const FROM_HANDLER: u32 = 100;

type Items = Queue<Node<u32>>;

/// The instruction of the stepped function after which the handler pushes.
static AT: AtomicU32 = AtomicU32::new(NOT_ARMED);
static STEP: AtomicU32 = AtomicU32::new(0);
static QUEUE: AtomicPtr<Items> = AtomicPtr::new(ptr::null_mut());
/// The results of the handler's push and of its call to `is_empty`.
static WAS_EMPTY: AtomicBool = AtomicBool::new(false);
static LOOKED_EMPTY: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The item that the handler pushes, allocated beforehand because a handler must not allocate.
    static SPARE: Cell<Option<Box<Node<u32>>>> = const { Cell::new(None) };
}

/// Serializes the tests, because the process has one signal handler.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // SAFETY: a zeroed action is valid, and the handler calls async-signal-safe functions only.
    unsafe {
        let mut act: libc::sigaction = mem::zeroed();
        act.sa_sigaction = on_trap as *const () as usize;
        act.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &act, ptr::null_mut()), 0);
    }
    alone
}

/// Called after each instruction while the trap flag is set. Pushes after one of them.
extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the registers of the interrupted thread.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let step = STEP.fetch_add(1, Ordering::Relaxed);
    let at = AT.load(Ordering::Relaxed);
    if step == at {
        // SAFETY: the interrupted thread set the pointer, and keeps the queue until the step ends.
        let queue = unsafe { &*QUEUE.load(Ordering::Relaxed) };
        LOOKED_EMPTY.store(queue.is_empty(), Ordering::Relaxed);
        let spare = SPARE.take().expect("the handler pushes once");
        WAS_EMPTY.store(queue.push(spare), Ordering::Relaxed);
    }
    if step >= at || at == NOT_ARMED {
        context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP;
    }
}

/// Calls `body` while the handler pushes to `queue` after the instruction `at`. Returns `true` if
/// `body` had at least that many instructions.
#[inline(never)]
fn stepped(queue: &Items, at: u32, body: impl FnOnce()) -> bool {
    QUEUE.store(ptr::from_ref(queue).cast_mut(), Ordering::Relaxed);
    SPARE.set(Some(Node::new(FROM_HANDLER)));
    STEP.store(0, Ordering::Relaxed);
    AT.store(at, Ordering::Relaxed);
    // SAFETY: the code sets the trap flag, whose signal has a handler.
    unsafe { std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    body();
    AT.store(NOT_ARMED, Ordering::Relaxed);
    SPARE.take().is_none()
}

/// Steps through `act` on a queue that holds `before` items, with a push at each of its
/// instructions. `make` creates the argument of `act`. `check` gets the result of `act`, the
/// remaining items, and the results of the handler's push and of its `is_empty`.
fn at_each_instruction<A, R>(
    before: u32,
    make: impl Fn(&'static Items) -> A,
    act: impl Fn(&Items, A) -> R,
    check: impl Fn(R, Vec<u32>, bool, bool),
) {
    let _alone = alone();
    let mut nr_places = 0;
    for at in 0..100_000 {
        // The queue is leaked (a few kilobytes in all), so that `make` can borrow it.
        let queue: &'static Items = Box::leak(Box::default());
        (0..before).for_each(|number| _ = queue.push(Node::new(number)));
        let (argument, mut result) = (make(queue), None);
        let has_pushed = stepped(queue, at, || result = Some(act(queue, argument)));
        if !has_pushed {
            break;
        }
        nr_places += 1;
        let mut consumer = queue.try_consumer().expect("that of the thread is freed");
        let mut left = Vec::new();
        loop {
            match consumer.pop() {
                Pop::Item(item) => left.push(item.into_inner()),
                Pop::Empty => break,
                Pop::MidPush => panic!("all pushes have ended"),
            }
        }
        let was_empty = WAS_EMPTY.load(Ordering::Relaxed);
        check(result.unwrap(), left, was_empty, LOOKED_EMPTY.load(Ordering::Relaxed));
    }
    assert!(nr_places > 20, "{nr_places} places");
}

#[test]
fn a_push_may_be_interrupted_by_a_push_at_any_instruction() {
    for before in [0, 2] {
        at_each_instruction(
            before,
            |_| Node::new(before),
            Items::push,
            |was_empty, mut left, handler_found, handler_looked| {
                // Exactly one of the pushes to an empty queue finds it empty.
                let nr_found = u32::from(was_empty) + u32::from(handler_found);
                assert_eq!(nr_found, u32::from(before == 0));
                assert_eq!(handler_found, handler_looked);
                let at = left.iter().position(|&item| item == FROM_HANDLER);
                assert!(at.is_some_and(|at| at as u32 >= before), "{left:?}");
                left.retain(|&item| item != FROM_HANDLER);
                assert!(left.into_iter().eq(0..=before));
            },
        );
    }
}

#[test]
fn a_chain_may_be_interrupted_by_a_push_at_any_instruction() {
    at_each_instruction(
        1,
        |_| {
            let mut chain = Chain::new();
            (1..4).for_each(|number| chain.push_back(Node::new(number)));
            chain
        },
        Items::push_chain,
        |was_empty, left, handler_found, _| {
            assert!(!was_empty && !handler_found);
            // The item is before the chain or behind it, never between two of its items.
            let expected = [[0, FROM_HANDLER, 1, 2, 3], [0, 1, 2, 3, FROM_HANDLER]];
            assert!(expected.contains(&left.try_into().unwrap()));
        },
    );
}

#[test]
fn a_pop_may_be_interrupted_by_a_push_at_any_instruction() {
    for before in [0, 1] {
        at_each_instruction(
            before,
            |queue| queue.try_consumer().unwrap(),
            |_, mut consumer| consumer.pop(),
            |popped, left, handler_found, handler_looked| {
                assert_eq!(handler_found, handler_looked);
                let popped = match popped {
                    Pop::Item(item) => Some(item.into_inner()),
                    // The push happened between two reads of the pop.
                    Pop::Empty | Pop::MidPush => None,
                };
                let all = popped.into_iter().chain(left);
                assert!(all.eq((0..before).chain([FROM_HANDLER])));
            },
        );
    }
}
