//! Two closures, of which a worker may take the second.
//!
//! Joins nest, and most are small. So a join that begins only notes itself on its thread's *chain*, on the stack, and costs a
//! few nanoseconds. One join of a chain at a time is *offered* to workers, by a crew with one ticket: the outermost that
//! has not been, which has most to give. When a worker has come to it, the next join to begin offers the next one:
//!
//! ```text
//! outermost                                               innermost
//!   offered, taken ◄─ offered ◄─ noted ◄─ noted ◄─ noted
//! ```
//!
//! So nothing is given to the queue before somebody took the last that was. A join whose second closure nobody has taken runs it
//! after the first. One whose was taken waits for that, and does nothing else meanwhile.
//!
//! The chain is its thread's alone; guests know a crew, and through it what lies on the stack (`Pair`).

use std::{
    cell::{Cell, RefCell},
    ptr,
};

use base::internal::panics::{contain, guarded_in_item};
use sync::{cell::UnsafeCell, unmodelled::Arc};

use super::{
    crew::{self, Crew, Ticket, Visit, whole},
    first_panic::FirstPanic,
};
use crate::{execute::join::JoinHandle, limit::queue_core::QueueCore, queues::queue::Workqueue};

/// The second closure, and what it returned.
struct Pair<'a, B, R> {
    /// Taken by a guest while there is one, and by the owner when there are none any more.
    second: UnsafeCell<Option<B>>,
    /// Written by a guest, read by the owner.
    returned: UnsafeCell<Option<R>>,
    first_panic: FirstPanic,
    core: &'a QueueCore,
}

/// A join, as its thread's chain knows it.
struct Node {
    /// The one around it in the same chain; null for the outermost.
    outer: *const Node,
    /// The one inside of it.
    inner: Cell<*const Node>,
    queue: *const Workqueue,
    pair: *const (),
    visit: Visit,
    offer: RefCell<Option<(Arc<Crew>, JoinHandle<()>)>>,
}

/// The joins that this thread is in, of one queue. The nodes are on its stack.
#[derive(Clone, Copy)]
struct Chain {
    /// Of which queue; only compared. Null where there is no chain.
    core: *const QueueCore,
    innermost: *const Node,
    /// The outermost that has not been offered; null for none.
    unoffered: *const Node,
}

sync::thread_local! {
    /// The innermost chain.
    static CHAIN: Cell<Chain> = Cell::new(Chain {
        core: ptr::null(),
        innermost: ptr::null(),
        unoffered: ptr::null(),
    })
}

impl<B: FnOnce() -> R + Send, R: Send> Pair<'_, B, R> {
    /// # Safety
    ///
    /// 1. `work` points to one of this type, which stays until this returns.
    /// 2. No other guest comes.
    unsafe fn visit(work: *const (), _: &mut Ticket) {
        // SAFETY: (1).
        let this = unsafe { &*work.cast::<Self>() };
        // SAFETY: (2), and the owner looks when there are no guests.
        let second = this.second.with_mut(|second| unsafe { (*second).take() });
        let Some(second) = second else {
            return;
        };
        // FOREIGN(scope-run): the second part of a join, on a guest; contained.
        match guarded_in_item(second) {
            Ok(value) => {
                let place = |returned: *mut Option<R>| {
                    // SAFETY: as above.
                    unsafe { *returned = Some(value) };
                };
                this.returned.with_mut(place);
            }
            Err(payload) => this.first_panic.note(this.core, payload),
        }
    }
}

impl Chain {
    /// Offers the outermost join that has not been, if somebody has come to the last one that was.
    #[inline]
    fn offer(mut self) {
        // SAFETY: nodes of a chain are on this thread's stack, further out.
        let Some(next) = (unsafe { self.unoffered.as_ref() }) else {
            return;
        };
        // SAFETY: as above.
        let last = unsafe { next.outer.as_ref() };
        let last = last.map(|last| last.offer.borrow());
        let is_open = |(crew, _): &(Arc<Crew>, _)| !crew.was_visited();
        if last.is_some_and(|last| last.as_ref().is_some_and(is_open)) {
            return;
        }
        // First of all: what is told of the ticket may join here, too, and must not offer this one again.
        self.unoffered = next.inner.get();
        CHAIN.with(|chain| chain.set(self));
        next.send();
    }
}

impl Node {
    #[cold]
    fn send(&self) {
        // SAFETY: the caller of the join lent it, and is further out on this thread's stack.
        let queue = unsafe { &*self.queue };
        // A child that was forked inside of a join does it all itself. It must not unwind from here, off the chain.
        if !crew::may_have_guests(queue) {
            return;
        }
        // SAFETY: the pair stays until its owner has closed the crew; one ticket makes one guest.
        let crew = unsafe { Crew::new(self.pair, self.visit) };
        let ticket = crew::send(queue, &crew);
        *self.offer.borrow_mut() = ticket.map(|ticket| (crew, ticket));
    }
}

impl Workqueue {
    /// Calls `a` on this thread, and `b` too unless a worker of this queue has taken that; returns what both returned.
    ///
    /// # Guarantees
    ///
    /// - When this returns, or goes on with a panic, neither runs or is going to.
    /// - While it waits for a `b` that was taken the thread does nothing else, and it needs no worker and no seat: see
    ///   [`scope`](Self::scope).
    /// - If `a` panics, a `b` that nobody has taken is dropped. If both panic, that of `a` goes on here.
    ///
    /// # Cost
    ///
    /// A few nanoseconds for one inside others, as long as nobody has come to what this thread offered last; then one of them
    /// is offered, the outermost, for an allocation and an item.
    ///
    /// # Blocking
    ///
    /// Until both have ended. Called from a work item it lets the pool get another worker meanwhile.
    ///
    /// # Panics
    ///
    /// With what `a` or `b` panicked with; else as [`scope`](Self::scope).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// fn sum(queue: &Workqueue, numbers: &[u64]) -> u64 {
    ///     if numbers.len() <= 1000 {
    ///         return numbers.iter().sum();
    ///     }
    ///     let (left, right) = numbers.split_at(numbers.len() / 2);
    ///     let (left, right) = queue.join(|| sum(queue, left), || sum(queue, right));
    ///     left + right
    /// }
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let numbers: Vec<u64> = (0..10_000).collect();
    /// assert_eq!(sum(&queue, &numbers), 49_995_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn join<A, B, Ra, Rb>(&self, a: A, b: B) -> (Ra, Rb)
    where
        A: FnOnce() -> Ra,
        B: FnOnce() -> Rb + Send,
        Rb: Send,
    {
        let core = &*self.inner.core;
        let around = CHAIN.with(Cell::get);
        let is_first = !ptr::eq(around.core, core);
        if is_first {
            self.must_be_free_to_own();
        }
        let pair = Pair {
            second: UnsafeCell::new(Some(b)),
            returned: UnsafeCell::new(None),
            first_panic: FirstPanic::default(),
            core,
        };
        let node = Node {
            outer: if is_first {
                ptr::null()
            } else {
                around.innermost
            },
            inner: Cell::new(ptr::null()),
            queue: self,
            pair: (&raw const pair).cast(),
            visit: Pair::<B, Rb>::visit,
            offer: RefCell::new(None),
        };
        node.enter(core, around);
        // FOREIGN(scope-run): the first part of a join, on the owner; contained, and gone on with when the second has ended.
        let first = guarded_in_item(a);
        node.leave(is_first, around);
        if let Some((crew, ticket)) = node.offer.take() {
            whole(|| crew.close(self.reach().on_one_cpu));
            crew::take_back(ticket);
        }
        // SAFETY: there are no guests any more.
        let mut second = pair.second.with_mut(|second| unsafe { (*second).take() });
        if first.is_err() {
            // SAFETY: as above.
            let returned = pair.returned.with_mut(|it| unsafe { (*it).take() });
            let second = second.take();
            // FOREIGN(scope-run): the drop of the second part, or of what it returned, on the owner, who goes on with the panic
            // of the first.
            contain(|| drop((second, returned)));
        }
        let first = pair.first_panic.go_on(first);
        let second = match second {
            Some(second) => second(),
            None => {
                let returned = pair.returned.into_inner();
                returned.expect("it returned, or panicked")
            }
        };
        (first, second)
    }
}

impl Node {
    /// Makes this the innermost join of its chain.
    #[inline]
    fn enter(&self, core: *const QueueCore, around: Chain) {
        let innermost = ptr::from_ref(self);
        // SAFETY: nodes of a chain are on this thread's stack, further out.
        let unoffered = match unsafe { self.outer.as_ref() } {
            Some(outer) => {
                outer.inner.set(innermost);
                if around.unoffered.is_null() {
                    innermost
                } else {
                    around.unoffered
                }
            }
            None => innermost,
        };
        let chain = Chain {
            core,
            innermost,
            unoffered,
        };
        CHAIN.with(|place| place.set(chain));
        chain.offer();
    }

    /// Takes it off its chain, of which it is the innermost.
    #[inline]
    fn leave(&self, is_first: bool, around: Chain) {
        // SAFETY: as in `enter`.
        let before = match unsafe { self.outer.as_ref() } {
            Some(outer) if !is_first => {
                outer.inner.set(ptr::null());
                let now = CHAIN.with(Cell::get);
                let was_unoffered = ptr::eq(now.unoffered, self);
                Chain {
                    innermost: outer,
                    unoffered: if was_unoffered {
                        ptr::null()
                    } else {
                        now.unoffered
                    },
                    ..now
                }
            }
            _ => around,
        };
        CHAIN.with(|chain| chain.set(before));
    }
}
