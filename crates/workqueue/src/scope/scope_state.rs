//! The state that the owner of a scope shares with its guests.

use sync::unmodelled::Arc;

use super::{
    crew::{Crew, Ticket, whole},
    first_panic::FirstPanic,
    pending::{PendingItems, Rest, Started},
};
use crate::limit::queue_core::QueueCore;

/// The pending items of a scope, and the first panic in an item.
pub(super) struct ScopeState {
    pub(super) pending: PendingItems,
    pub(super) first_panic: FirstPanic,
    /// I: the queue whose workers are the guests.
    core: Arc<QueueCore>,
    /// I: set if those workers share one CPU.
    on_one_cpu: bool,
}

impl ScopeState {
    pub(super) fn new(core: Arc<QueueCore>, in_order: bool, on_one_cpu: bool) -> Self {
        Self {
            pending: PendingItems::new(in_order),
            first_panic: FirstPanic::default(),
            core,
            on_one_cpu,
        }
    }

    /// # Safety
    ///
    /// 1. `work` points to a `ScopeState` that is valid until this returns.
    pub(super) unsafe fn visit(work: *const (), ticket: &mut Ticket) {
        // SAFETY: (1).
        let this = unsafe { &*work.cast::<Self>() };
        this.serve();
        ticket.count_off();
        this.serve();
    }

    /// Runs items until none can start.
    fn serve(&self) {
        while let Some(item) = self.pending.take() {
            self.run(item);
        }
    }

    fn run(&self, item: Started) {
        if let Err(payload) = self.pending.run(item) {
            self.first_panic.note(&self.core, payload);
        }
    }

    /// As the owner, runs pending items, waits for those of guests, and closes the crew
    /// permanently.
    pub(super) fn finish(&self, crew: &Crew) {
        whole(|| {
            loop {
                self.serve();
                match self.pending.rest() {
                    Rest::Items => continue,
                    Rest::Marked => {
                        crew.sleep_while_empty(self.on_one_cpu, || !self.pending.is_marked())
                    }
                    Rest::Behind => crew.sleep_while_empty(self.on_one_cpu, || false),
                }
                if crew.try_close() {
                    // A guest may have entered, pushed an item and left since `rest`.
                    if self.pending.is_empty() {
                        return;
                    }
                    crew.reopen();
                }
            }
        });
    }
}
