//! What all links of one queue share.

use std::any::Any;

use base::internal::panics::{Foreign, discard, guarded_in_item};
use sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    unmodelled::Arc,
};

use super::{room::Room, settled::Settled};
use crate::observe::item_panic::ItemPanic;

/// A queue's handler of panics. Its drop is foreign code.
pub(crate) type Handler = Arc<Foreign<PanicHandler>>;

/// What all links of one queue share. It outlives the queue's handle until the last worker has let go.
pub(crate) struct QueueCore {
    /// I
    pub(crate) name: Box<str>,
    /// A: told when a link that is waited for has nothing in flight, or nothing of a colour that was closed, and when
    /// nobody is seated, or helps since before a flush.
    pub(crate) settled: Settled,
    /// A: statistics, with what the stocks of the gates count.
    pub(crate) nr_helped: AtomicU64,
    /// A: how often the link of an item was cut out while that ran; a flush looks whether there were any.
    pub(crate) nr_cut: AtomicU64,
    /// A: statistics.
    pub(crate) nr_panicked: AtomicU64,
    /// A: statistics.
    pub(crate) nr_expired: AtomicU64,
    /// A: statistics.
    pub(crate) nr_refused: AtomicU64,
    /// Under the plan's lock: how many had been helped when somebody asked last how many wait.
    pub(crate) nr_helped_seen: AtomicU64,
    /// A: the most items that were ever shown as started, for that count never falls.
    pub(crate) nr_shown_started: AtomicU64,
    /// Called after a panic that no joiner will see. Goes with the queue, not with who still has this. A leaf.
    pub(crate) on_panic: Mutex<Option<Handler>>,
    /// I: how many items may wait here; none without a capacity.
    pub(crate) room: Option<Room>,
    /// I: its items never count against the workers that a pool runs at once.
    pub(crate) cpu_intensive: bool,
    /// Written under the plan's lock: it has an urgent lane.
    pub(crate) has_lanes: AtomicBool,
    /// Written under the plan's lock: what it gets of its pools' CPU time; 0 where that was not set.
    pub(crate) shares: AtomicU32,
    /// I: its items never sleep, and have one thread a pod.
    pub(crate) bh: bool,
    /// I: it has a rescuer.
    pub(crate) reclaim: bool,
    /// What its items have waited for, of queues without a rescuer. A leaf.
    pub(crate) waits: Mutex<Vec<Box<str>>>,
}

/// Called after an item panicked.
pub(crate) type PanicHandler = Box<dyn Fn(&ItemPanic<'_>) + Send + Sync>;

/// A panic that reaches no joiner: of what function, and with what.
pub(crate) type Unseen<'a> = (&'static str, &'a (dyn Any + Send));

impl QueueCore {
    pub(crate) fn new(name: &str, on_panic: Option<PanicHandler>) -> Self {
        Self {
            name: name.into(),
            settled: Settled::default(),
            nr_helped: AtomicU64::new(0),
            nr_cut: AtomicU64::new(0),
            nr_panicked: AtomicU64::new(0),
            nr_expired: AtomicU64::new(0),
            nr_refused: AtomicU64::new(0),
            nr_helped_seen: AtomicU64::new(0),
            nr_shown_started: AtomicU64::new(0),
            // FOREIGN(on-panic-drop): by `Foreign`.
            on_panic: Mutex::new(on_panic.map(|handler| Arc::new(Foreign::new(handler)))),
            room: None,
            cpu_intensive: false,
            has_lanes: AtomicBool::new(false),
            shares: AtomicU32::new(0),
            bh: false,
            reclaim: false,
            waits: Mutex::new(Vec::new()),
        }
    }

    /// Returns `true` if no item of this queue has waited for `what` before.
    pub(crate) fn is_first_wait_for(&self, what: &str) -> bool {
        let mut waits = self.waits.lock();
        let is_first = waits.iter().all(|it| **it != *what);
        if is_first {
            waits.push(what.into());
        }
        is_first
    }

    /// Takes note of a panic, and tells the handler if it is one that reaches no joiner.
    #[cold]
    pub(crate) fn note_panic(&self, unseen: Option<Unseen<'_>>) {
        self.nr_panicked.fetch_add(1, Ordering::Relaxed);
        let Some((func, payload)) = unseen else {
            return;
        };
        let handler = self.on_panic.lock().clone();
        if let Some(handler) = handler {
            // FOREIGN(on-panic): a queue's handler, on the thread that ran the item, inside its run; contained.
            let queue = &*self.name;
            let panic = ItemPanic {
                queue,
                func,
                payload,
            };
            guarded_in_item(|| handler(&panic)).unwrap_or_else(discard);
        }
    }

    /// Takes the handler out, when all items have ended: a worker that is the last to let go of this must not drop it.
    pub(crate) fn take_handler(&self) -> Option<Handler> {
        self.on_panic.lock().take()
    }
}

impl std::fmt::Debug for QueueCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueCore")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
