//! What the owner of a scope and its guests work at together.

use base::internal::panics::Payload;
use sync::unmodelled::Arc;

use super::{
    crew::{Crew, Ticket, whole},
    first_panic::FirstPanic,
    line::{Line, Rest, Started},
};
use crate::limit::queue_core::QueueCore;

/// Items that wait to be started, and what they panicked with.
#[derive(Debug)]
pub(super) struct Stand {
    pub(super) line: Line,
    pub(super) first_panic: FirstPanic,
    /// I: of the queue whose workers come.
    core: Arc<QueueCore>,
    /// I: those share one CPU.
    on_one_cpu: bool,
}

impl Stand {
    pub(super) fn new(core: Arc<QueueCore>, in_order: bool, on_one_cpu: bool) -> Self {
        Self {
            line: Line::new(in_order),
            first_panic: FirstPanic::default(),
            core,
            on_one_cpu,
        }
    }

    /// # Safety
    ///
    /// 1. `work` points to a `Stand`, which stays until this returns.
    pub(super) unsafe fn visit(work: *const (), ticket: &mut Ticket) {
        // SAFETY: (1).
        let this = unsafe { &*work.cast::<Self>() };
        this.serve();
        ticket.count_off();
        this.serve();
    }

    /// Runs items until none may start.
    fn serve(&self) {
        while let Some(item) = self.line.take() {
            self.run(item);
        }
    }

    fn run(&self, item: Started) {
        if let Err(payload) = self.line.run(item) {
            self.first_panic.note(&self.core, payload);
        }
    }

    /// Runs what nobody has started, waits for what somebody has, and closes the crew for good. The owner alone.
    pub(super) fn finish(&self, crew: &Crew) {
        whole(|| {
            loop {
                self.serve();
                match self.line.rest() {
                    Rest::Items => continue,
                    Rest::Marked => crew.doze(self.on_one_cpu, || !self.line.is_marked()),
                    Rest::Behind => crew.doze(self.on_one_cpu, || false),
                }
                if crew.try_close() {
                    // A guest may have come, brought something, and gone since we looked.
                    if self.line.is_empty() {
                        return;
                    }
                    crew.reopen();
                }
            }
        });
    }

    /// Returns what the owner's own part returned, or panics.
    pub(super) fn go_on<R>(self, own: Result<R, Payload>) -> R {
        self.first_panic.go_on(own)
    }
}
