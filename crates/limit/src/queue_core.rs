use std::any::Any;

use base::internal::panics::Foreign;
use item::internal::panicked::{self, Handler, PanicHandler};
use item::internal::token::Token;
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use sync::unmodelled::Arc;
use sync::{Mutex, OnceLock, twin};

use super::account::or_default;
use super::capacity::Capacity;
use super::settled::Settled;

/// State that all pwqs of one queue share. The last worker may drop it after the queue's handle.
#[derive(Default)]
pub struct QueueCore {
    /// I
    pub name: Box<str>,
    /// A: notified when a pwq that a thread waits for has no item in flight, or none of a closed
    /// color. It is also notified when a gate has no seat in use, or no helper from before a flush.
    pub settled: Settled,
    /// A: statistics, to be added to the counts of the gates' stocks.
    pub nr_helped: AtomicU64,
    /// A: the number of running items that were cut out of a list. A flush checks whether it has
    /// changed.
    pub nr_cut: AtomicU64,
    /// A: the number of times that all items were cancelled. A closure of a strand compares this
    /// number with its value when the closure was spawned.
    pub nr_cancels: AtomicU32,
    /// A: statistics, like the next two fields.
    pub nr_panicked: AtomicU64,
    pub nr_expired: AtomicU64,
    pub nr_refused: AtomicU64,
    /// Under the plan's lock: `nr_helped` at the last query for the number of waiting items.
    pub nr_helped_seen: AtomicU64,
    /// A: the highest number of started items that has been reported. Reports never decrease.
    pub nr_shown_started: AtomicU64,
    /// The handler for panics that no joiner receives. It is removed when the queue is destroyed,
    /// possibly before this value is dropped. The lock is a leaf in the lock order.
    pub on_panic: Mutex<Option<Handler>>,
    /// A: the parent of its items' tokens, cancelled when the queue is shut down.
    pub token: OnceLock<Arc<Token>>,
    /// I: the limit on waiting items; `None` without a capacity. It is boxed, because it has cache
    /// lines of its own.
    pub capacity: Option<Box<Capacity>>,
    /// I: set if its items do not count against the workers that a pool runs at once.
    pub cpu_intensive: bool,
    /// Set if the queue has an urgent lane. It is written under the plan's lock.
    pub has_lanes: AtomicBool,
    /// The queue's shares of its pools' CPU time; 0 if not set. It is written under the plan's
    /// lock.
    pub shares: AtomicU32,
    /// The shares of the queue's group; 0 if not set. It is written under the plan's lock.
    pub group_shares: AtomicU32,
    /// The queue's last turn at the gate of its group, guarded by the lock of the gate's wait
    /// queue.
    pub turn: AtomicU64,
    /// I: set if its items never sleep; each pod then has one thread for them.
    pub bh: bool,
    /// I: set if the queue is in no list of queues.
    pub hidden: bool,
    /// I: set if the queue has a rescuer.
    pub reclaim: bool,
    /// The names of the queues without a rescuer that its items have waited for. This is a leaf
    /// lock.
    pub waits: Mutex<Vec<Box<str>>>,
}

pub type Unseen<'a> = (&'static str, &'a (dyn Any + Send));

impl QueueCore {
    pub fn new(name: &str, on_panic: Option<PanicHandler>) -> Self {
        // FOREIGN(on-panic-drop): the drop of a handler, on the thread that drops it; a panic is
        // contained by `Foreign`.
        let on_panic = on_panic.map(|handler| Arc::new(Foreign::new(handler)));
        Self { name: name.into(), on_panic: Mutex::new(on_panic), ..Self::default() }
    }

    pub(crate) fn seat_price(&self) -> u64 {
        // Relaxed suffices: a change of the shares may be late.
        let shares = self.shares.load(Ordering::Relaxed);
        let shares = if twin::armed("group: turns overlook shares") { 0 } else { shares };
        // The price of the maximum number of shares is large enough to be exact to 1 %.
        (1 << 20) / u64::from(or_default(shares))
    }

    pub fn token(&self) -> &Arc<Token> {
        self.token.get_or_init(Token::new)
    }

    /// Returns `true` if no item of this queue has waited for `what` so far.
    pub fn is_first_wait_for(&self, what: &str) -> bool {
        let mut waits = self.waits.lock();
        let is_first = waits.iter().all(|it| **it != *what);
        if is_first {
            waits.push(what.into());
        }
        is_first
    }

    /// Counts a panic, and calls the handler if no joiner receives the panic.
    #[cold]
    pub fn note_panic(&self, unseen: Option<Unseen<'_>>) {
        self.nr_panicked.fetch_add(1, Ordering::Relaxed);
        let Some((func, payload)) = unseen else {
            return;
        };
        let handler = self.on_panic.lock().clone();
        if let Some(handler) = handler {
            panicked::report(&handler, &self.name, func, payload);
        }
    }

    /// Removes the handler after all items have ended, so that a worker that drops the last
    /// reference does not drop the handler.
    pub fn take_handler(&self) -> Option<Handler> {
        self.on_panic.lock().take()
    }
}

base::internal::impl_debug!(QueueCore, it => name: it.name);
