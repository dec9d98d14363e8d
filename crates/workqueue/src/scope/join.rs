//! Two closures, the second of which a worker may take.
//!
//! Joins nest, and most are small. A join that begins therefore only adds a node to its thread's
//! *chain*, which is on the stack and costs a few nanoseconds. One join of a chain at a time is
//! *offered* to workers, through a crew with one ticket. It is the outermost join that was not
//! offered yet, because it has the most work. When a worker has used the ticket, the next join that
//! begins offers the next one:
//!
//! ```text
//! outermost                                               innermost
//!   offered, taken ◄─ offered ◄─ noted ◄─ noted ◄─ noted
//! ```
//!
//! Nothing is therefore queued before a worker has taken the previous offer. If no worker has taken
//! the second closure of a join, the owner runs it after the first. Otherwise the owner waits for
//! the worker, and runs nothing else while it waits.
//!
//! Only its own thread uses a chain. A guest knows a crew, and through it a `Pair` on the stack.

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

/// The second closure, and its return value.
struct Pair<'a, B, R> {
    /// Taken by the guest, or by the owner when there is no guest any more.
    second: UnsafeCell<Option<B>>,
    /// Written by a guest, read by the owner.
    returned: UnsafeCell<Option<R>>,
    first_panic: FirstPanic,
    core: &'a QueueCore,
}

/// A join in the chain of its thread.
struct Node {
    /// The next outer join of the chain; null for the outermost.
    outer: *const Node,
    inner: Cell<*const Node>,
    queue: *const Workqueue,
    pair: *const (),
    visit: Visit,
    offer: RefCell<Option<(Arc<Crew>, JoinHandle<()>)>>,
}

/// The joins of one queue that this thread is in. The nodes are on its stack.
#[derive(Clone, Copy)]
struct Chain {
    /// The queue's core, for comparison only. Null if there is no chain.
    core: *const QueueCore,
    innermost: *const Node,
    /// The outermost join that was not offered; null for none.
    unoffered: *const Node,
}

sync::thread_local! {
    static CHAIN: Cell<Chain> = Cell::new(Chain {
        core: ptr::null(),
        innermost: ptr::null(),
        unoffered: ptr::null(),
    })
}

impl<B: FnOnce() -> R + Send, R: Send> Pair<'_, B, R> {
    /// # Safety
    ///
    /// 1. `work` points to a `Self` that is valid until this returns.
    /// 2. There is no other guest.
    unsafe fn visit(work: *const (), _: &mut Ticket) {
        // SAFETY: (1).
        let this = unsafe { &*work.cast::<Self>() };
        // SAFETY: (2), and the owner accesses it only when there is no guest.
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
    /// Offers the outermost unoffered join, if a worker has used the ticket of the last offer.
    #[inline]
    fn offer(mut self) {
        // SAFETY: nodes of a chain are on this thread's stack, in outer frames.
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
        // Update the chain first: code that runs while the ticket is sent may join here too, and
        // must not offer this join again.
        self.unoffered = next.inner.get();
        CHAIN.with(|chain| chain.set(self));
        next.send();
    }
}

impl Node {
    #[cold]
    fn send(&self) {
        // SAFETY: the caller of the join, in an outer frame, borrows the queue.
        let queue = unsafe { &*self.queue };
        // A child that was forked inside a join runs all parts itself. A panic would skip `leave`.
        if !crew::may_have_guests(queue) {
            return;
        }
        // SAFETY: the pair outlives the open crew; one ticket makes one guest.
        let crew = unsafe { Crew::new(self.pair, self.visit) };
        let ticket = crew::send(queue, &crew);
        *self.offer.borrow_mut() = ticket.map(|ticket| (crew, ticket));
    }
}

impl Workqueue {
    /// Calls `a` on this thread, and `b` here or on a worker of this queue; returns both results.
    ///
    /// # Guarantees
    ///
    /// - When this returns or panics, neither closure is running, and neither will run.
    /// - A thread that waits for a worker to complete `b` runs nothing else. It needs no worker and
    ///   no seat: see [`scope`](Self::scope).
    /// - If `a` panics, `b` is dropped unless a worker took it. If both panic, that of `a` is
    ///   resumed.
    ///
    /// # Cost
    ///
    /// A nested join costs a few nanoseconds while no worker has taken this thread's last offer.
    /// Afterwards the outermost unoffered join is offered: one allocation and one item.
    ///
    /// # Blocking
    ///
    /// Blocks until both have ended. The pool of a calling item can start another worker.
    ///
    /// # Panics
    ///
    /// Resumes the panic of `a` or `b`; otherwise as [`scope`](Self::scope).
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
        // FOREIGN(scope-run): the first part of a join, on the owner; contained, and resumed later.
        let first = guarded_in_item(a);
        node.leave(is_first, around);
        if let Some((crew, ticket)) = node.offer.take() {
            whole(|| crew.close(self.reach().on_one_cpu));
            crew::take_back(ticket);
        }
        // SAFETY: the crew is closed or was never offered, so there is no guest.
        let mut second = pair.second.with_mut(|second| unsafe { (*second).take() });
        if first.is_err() {
            // SAFETY: as above.
            let returned = pair.returned.with_mut(|it| unsafe { (*it).take() });
            let second = second.take();
            // FOREIGN(scope-run): the drop of the second part, or of its value, on the owner, which
            // resumes the panic of the first.
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
        // SAFETY: nodes of a chain are on this thread's stack, in outer frames.
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

    /// Removes this join, the innermost one, from its chain.
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
