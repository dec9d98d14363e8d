//! Runs two closures, the second of which a worker may take.
//!
//! Joins nest, and most are small. Beginning a join therefore only adds a node to its thread's
//! *chain*, which is on the stack. One join of a chain at a time is *offered* to workers, through a
//! crew with one ticket: the outermost join that has not been offered yet, because that one has the
//! most work. When a worker has used the ticket, the next join that begins offers the next one:
//!
//! ```text
//! outermost                                               innermost
//!   offered, taken ◄─ offered ◄─ noted ◄─ noted ◄─ noted
//! ```
//!
//! Nothing is therefore queued before a worker has taken the previous offer. If no worker has taken
//! the second closure of a join, the owner runs it after the first. Otherwise the owner waits for
//! the worker, and runs nothing else during the wait.
//!
//! An offer costs more than a short join saves. Each thread therefore has a *credit* of offers. The
//! outermost join of a chain adds one for each microsecond that a worker could save: the time of
//! its shorter closure, minus the first few microseconds. Without credit, a chain makes no first
//! offer until it is a few microseconds old.
//!
//! Only its own thread uses a chain. A guest accesses a crew, and through it a `Pair` on the stack.

use std::cell::Cell;
use std::panic::resume_unwind;
use std::ptr;

use base::internal::panics::{Foreign, Payload, contain, guarded_in_item};
use limit::internal::queue_core::QueueCore;
use sync::cell::UnsafeCell;
use sync::time;
use sync::unmodelled::Arc;

use super::crew::{self, Crew, FirstPanic, Ticket, Visit, whole};
use crate::execute::join::JoinHandle;
use crate::queues::queue::Workqueue;

struct Pair<'a, B, R> {
    /// The closure, which the guest takes, or the owner once there is no guest.
    second: UnsafeCell<Option<B>>,
    /// The value, which a guest writes and the owner reads.
    returned: UnsafeCell<Option<R>>,
    first_panic: FirstPanic,
    core: &'a QueueCore,
}

type Offer = (Arc<Crew>, JoinHandle<()>);

struct Node {
    /// The next outer join of the chain; null for the outermost.
    outer: *const Node,
    inner: Cell<*const Node>,
    queue: *const Workqueue,
    pair: *const (),
    visit: Visit,
    offer: Cell<Option<Offer>>,
}

/// The joins on one queue that this thread is executing. Their nodes are on its stack.
struct Chain {
    /// The queue's core, for comparison only. Null if there is no chain.
    core: Cell<*const QueueCore>,
    innermost: Cell<*const Node>,
    /// The outermost join that has not been offered; null for none.
    unoffered: Cell<*const Node>,
    /// The crew of the last offer, which its node keeps alive. Null for none.
    offered: Cell<*const Crew>,
    /// The time at which the first closure of the outermost join began, in cycles.
    began: Cell<u64>,
    /// The number of offers that chains of this thread may make while they are young.
    credit: Cell<u64>,
}

/// The outermost join of a chain: the chain that it replaces, and its own times, in cycles.
struct Outermost {
    core: *const QueueCore,
    innermost: *const Node,
    unoffered: *const Node,
    offered: *const Crew,
    began: u64,
    first_took: u64,
    second_began: u64,
}

/// The credit of a new thread. With a lower value, the first joins of a thread may be sequential;
/// with a higher one, a thread with short joins makes more useless offers. The value is a guess.
const FIRST_CREDIT: u64 = 200;

/// The time that a worker needs to wake, in microseconds. With a lower value, joins are offered
/// that no worker can shorten; with a higher one, a chain without credit offers later.
const WAKE_US: u64 = 2;

sync::thread_local! {
    static CHAIN: Chain = Chain {
        core: Cell::new(ptr::null()),
        innermost: Cell::new(ptr::null()),
        unoffered: Cell::new(ptr::null()),
        offered: Cell::new(ptr::null()),
        began: Cell::new(0),
        credit: Cell::new(FIRST_CREDIT),
    }
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
        // FOREIGN(scope-run): the second part of a join, on a guest; a panic is contained.
        match guarded_in_item(second) {
            // SAFETY: as above.
            Ok(value) => this.returned.with_mut(|place| unsafe { *place = Some(value) }),
            Err(payload) => this.first_panic.note(this.core, payload),
        }
    }
}

impl<B, R> Pair<'_, B, R> {
    /// Drops the second closure or its value, because the first closure has panicked. Only the
    /// owner calls this, when there is no guest.
    fn drop_second(&self) {
        // SAFETY: there is no guest.
        let second = self.second.with_mut(|second| unsafe { (*second).take() });
        // SAFETY: as above.
        let returned = self.returned.with_mut(|it| unsafe { (*it).take() });
        // FOREIGN(scope-run): the drop of the second part, or of its value, on the owner, which
        // resumes the panic from the first.
        contain(|| drop((second, returned)));
    }

    /// Ends a join that has not been offered and whose first part has panicked.
    #[cold]
    fn end_alone(&self, payload: Payload) -> ! {
        self.drop_second();
        resume_unwind(payload)
    }

    /// Waits for the guest of an offered join. Returns the first part's value, or resumes a panic.
    #[cold]
    fn end_offer<Ra>(
        &self,
        (crew, mut ticket): Offer,
        on_one_cpu: bool,
        first: Result<Ra, Payload>,
    ) -> Ra {
        whole(|| crew.close(on_one_cpu));
        ticket.cancel();
        if first.is_err() {
            self.drop_second();
        }
        self.first_panic.go_on(first)
    }
}

impl Chain {
    /// Offers the outermost unoffered join. Without credit, it does so only if a worker has used
    /// the last offer of the chain, or the chain is old enough.
    #[cold]
    fn offer(&self) {
        // SAFETY: nodes of a chain are on this thread's stack, in outer frames.
        let Some(next) = (unsafe { self.unoffered.get().as_ref() }) else {
            return;
        };
        let credit = self.credit.get();
        let age = || time::cycles().saturating_sub(self.began.get());
        if credit == 0 && self.offered.get().is_null() && age() < wake_cycles() {
            return;
        }
        // Update the chain first: code that runs while the ticket is sent may join here too, and
        // must not offer this join again.
        self.unoffered.set(next.inner.get());
        self.offered.set(ptr::null());
        self.credit.set(credit.saturating_sub(1));
        self.offered.set(next.send());
        if next.outer.is_null() && next.inner.get().is_null() {
            // Restart the time here, to exclude the time of the offer.
            self.began.set(time::cycles());
        }
    }
}

/// These functions are not inlined, so that a nested join contains only its own code.
impl Outermost {
    #[inline(never)]
    fn start(core: *const QueueCore) -> Self {
        CHAIN.with(|chain| Self {
            core: chain.core.replace(core),
            innermost: chain.innermost.replace(ptr::null()),
            unoffered: chain.unoffered.replace(ptr::null()),
            offered: chain.offered.replace(ptr::null()),
            began: chain.began.replace(time::cycles()),
            first_took: 0,
            second_began: 0,
        })
    }

    #[inline(never)]
    fn end_chain(&mut self) {
        self.second_began = time::cycles();
        CHAIN.with(|chain| {
            self.first_took = self.second_began.saturating_sub(chain.began.get());
            chain.core.set(self.core);
            chain.innermost.set(self.innermost);
            chain.unoffered.set(self.unoffered);
            chain.offered.set(self.offered);
            chain.began.set(self.began);
        });
    }

    /// Adds the time that a worker could have saved. `is_here` is `true` if the second closure ran
    /// on this thread.
    #[inline(never)]
    fn settle(&self, is_here: bool) {
        let ended = if is_here { time::cycles() } else { u64::MAX };
        let shorter = self.first_took.min(ended.saturating_sub(self.second_began));
        let saved = shorter.saturating_sub(wake_cycles());
        if saved > 0 {
            let more = saved / time::cycles_per_us();
            CHAIN.with(|chain| chain.credit.set(chain.credit.get().saturating_add(more)));
        }
    }
}

fn wake_cycles() -> u64 {
    WAKE_US * time::cycles_per_us()
}

impl Node {
    /// Sends the ticket for this join. Returns the join's crew, or null if no worker may take it.
    fn send(&self) -> *const Crew {
        // SAFETY: the caller of the join, in an outer frame, borrows the queue.
        let queue = unsafe { &*self.queue };
        // A child that was forked inside a join runs all parts itself. A panic would skip `leave`.
        if queue.inner.core.bh || !queue.inner.is_at_home() {
            return ptr::null();
        }
        // SAFETY: the pair outlives the open crew; one ticket makes one guest.
        let crew = unsafe { Crew::new(self.pair, self.visit) };
        let Some(ticket) = crew::send(queue, &crew) else {
            return ptr::null();
        };
        let address = Arc::as_ptr(&crew);
        self.offer.set(Some((crew, ticket)));
        address
    }

    /// Makes this the innermost join of its chain. Offers a join if a worker has used the ticket of
    /// the last offer, or there was no offer.
    #[inline]
    fn enter(&self, chain: &Chain) {
        let innermost = ptr::from_ref(self);
        // SAFETY: nodes of a chain are on this thread's stack, in outer frames.
        if let Some(outer) = unsafe { self.outer.as_ref() } {
            outer.inner.set(innermost);
        }
        chain.innermost.set(innermost);
        if chain.unoffered.get().is_null() {
            chain.unoffered.set(innermost);
        }
        // SAFETY: the node that keeps the crew alive is in an outer frame.
        let offered = unsafe { chain.offered.get().as_ref() };
        let may_offer = !self.outer.is_null() || chain.credit.get() > 0;
        if may_offer && offered.is_none_or(Crew::was_visited) {
            chain.offer();
        }
    }

    /// Removes this join, the innermost one, from its chain; returns its offer.
    #[inline]
    fn leave(&self, chain: &Chain) -> Option<Offer> {
        // SAFETY: as in `enter`.
        if let Some(outer) = unsafe { self.outer.as_ref() } {
            outer.inner.set(ptr::null());
        }
        chain.innermost.set(self.outer);
        if ptr::eq(chain.unoffered.get(), self) {
            chain.unoffered.set(ptr::null());
        }
        let offer = self.offer.take();
        if offer.is_some() {
            chain.offered.set(ptr::null());
        }
        offer
    }
}

impl Workqueue {
    /// Calls `a` on this thread, and `b` on this thread or on a worker of this queue; returns both
    /// results.
    ///
    /// # Guarantees
    ///
    /// - When this returns or panics, neither closure is running, and neither will run.
    /// - A thread that waits for a worker to complete `b` runs nothing else. It needs no worker and
    ///   no seat: see [`scope`](Self::scope).
    /// - If `a` panics, `b` is dropped unless a worker took it. If both panic, the panic from `a`
    ///   is resumed.
    ///
    /// # Cost
    ///
    /// A nested join costs a few nanoseconds while no worker has taken this thread's last offer.
    /// Afterwards the outermost unoffered join is offered, which costs one allocation and one item.
    /// If a thread's earlier outermost joins were too short for a worker, which needs 2 µs for each
    /// closure, the thread offers its outermost join later: when `a` joins on this queue more than
    /// 2 µs after it began. Such a join costs about 30 ns if it is short. Otherwise `b` may run
    /// after `a`, so `a` must not wait for `b`.
    ///
    /// # Blocking
    ///
    /// Blocks until both have ended. If an item calls this, its pool can start another worker.
    ///
    /// # Panics
    ///
    /// Resumes a panic from `a` or `b`; otherwise panics as [`scope`](Self::scope) does.
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
        let core = ptr::from_ref(&*self.inner.core);
        let is_first = CHAIN.with(|chain| !ptr::eq(chain.core.get(), core));
        if is_first {
            self.must_be_free_to_own();
        }
        let pair = Pair {
            second: UnsafeCell::new(Some(b)),
            returned: UnsafeCell::new(None),
            first_panic: FirstPanic::default(),
            core: &self.inner.core,
        };
        let mut outermost = is_first.then(|| Outermost::start(core));
        let node = Node {
            outer: CHAIN.with(|chain| chain.innermost.get()),
            inner: Cell::new(ptr::null()),
            queue: self,
            pair: (&raw const pair).cast(),
            visit: Pair::<B, Rb>::visit,
            offer: Cell::new(None),
        };
        CHAIN.with(|chain| node.enter(chain));
        // FOREIGN(scope-run): the first part of a join, on the owner; a panic is contained, and
        // resumed later.
        let first = guarded_in_item(a);
        let offer = CHAIN.with(|chain| node.leave(chain));
        if let Some(outermost) = &mut outermost {
            outermost.end_chain();
        }
        let first = match offer {
            Some(offer) => {
                let first = pair.end_offer(offer, self.here().rules.one_cpu, first);
                if let Some(outermost) = &mut outermost {
                    outermost.second_began = time::cycles();
                }
                first
            }
            None => first.unwrap_or_else(|payload| pair.end_alone(payload)),
        };
        // FOREIGN(scope-run): the drop of the first part's value, on the owner, if the second part
        // panics there; a panic in the drop is contained by `Foreign`.
        let first = Foreign::new(first);
        // SAFETY: the crew is closed or was never offered, so there is no guest.
        let second = pair.second.with_mut(|second| unsafe { (*second).take() });
        let is_here = second.is_some();
        let second = match second {
            Some(second) => second(),
            None => pair.returned.into_inner().expect("it returned, or panicked"),
        };
        if let Some(outermost) = outermost {
            outermost.settle(is_here);
        }
        (first.into_inner(), second)
    }
}
