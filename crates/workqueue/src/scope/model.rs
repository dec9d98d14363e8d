//! Scopes for models: a scope without a queue, whose guests are threads of the model.

use base::internal::panics::guarded_in_item;
use limit::internal::queue_core::QueueCore;
use sync::unmodelled::Arc;

use super::crew::{Crew, Ticket};
use super::pending;
use super::pieces::Untaken;
use super::scoped::ScopeState;

/// A scope that lives as long as any clone of it, even if its end overlooks a guest.
#[derive(Clone)]
pub struct OpenScope {
    scope_state: Arc<ScopeState>,
    crew: Arc<Crew>,
}

// SAFETY: a scope state may be used by several threads, and may be dropped by any of them.
unsafe impl Send for OpenScope {}

impl OpenScope {
    /// Creates a scope. If `in_order`, its items run one at a time.
    pub fn new(in_order: bool) -> Self {
        let core = Arc::new(QueueCore::new("model", None));
        let scope_state = Arc::new(ScopeState::new(core, in_order, false));
        // SAFETY: every clone and every guest keeps the scope state alive.
        let crew = unsafe { Crew::new(Arc::as_ptr(&scope_state).cast(), ScopeState::visit) };
        Self { scope_state, crew }
    }

    /// Spawns an item, as [`Scope::spawn`](crate::Scope::spawn) does.
    pub fn bring(&self, func: impl FnOnce() + Send + 'static) {
        if self.scope_state.pending.push(pending::item(func)) {
            self.crew.wake_owner();
        }
    }

    /// Returns `true` if [`Scope::spawn`](crate::Scope::spawn) would send a first ticket.
    pub fn wants_ticket(&self) -> bool {
        self.crew.wants_ticket(1)
    }

    /// Sends a ticket, and returns the closure that a worker runs for it.
    pub fn ticket(&self) -> impl FnOnce() + use<> {
        let (ticket, kept) = (Ticket::new(self.crew.clone()), self.clone());
        move || {
            ticket.use_up();
            drop(kept);
        }
    }

    /// Sends a ticket and runs it, as a worker does.
    pub fn visit(&self) {
        Ticket::new(self.crew.clone()).use_up();
    }

    /// Ends the scope as its owner does after the body; returns `true` if an item panicked.
    pub fn finish(&self) -> bool {
        self.scope_state.finish(&self.crew);
        let outcome = guarded_in_item(|| self.scope_state.first_panic.go_on(Ok(())));
        outcome.is_err()
    }
}

/// A crew whose work is one closure, as in a join: a guest or the owner runs it.
#[derive(Clone)]
pub struct OpenPair {
    crew: Arc<Crew>,
    once: Arc<Once>,
}

struct Once(sync::cell::UnsafeCell<Option<Box<dyn FnOnce()>>>);

// SAFETY: the model checks every access.
unsafe impl Send for OpenPair {}
// SAFETY: as above.
unsafe impl Sync for Once {}
// SAFETY: as above.
unsafe impl Send for Once {}

impl Once {
    fn run(&self) {
        // SAFETY: the model checks that no other thread accesses it.
        let func = self.0.with_mut(|func| unsafe { (*func).take() });
        if let Some(func) = func {
            func();
        }
    }

    unsafe fn visit(work: *const (), _: &mut Ticket) {
        // SAFETY: every clone of the pair keeps it alive.
        unsafe { &*work.cast::<Self>() }.run();
    }
}

impl OpenPair {
    /// Creates a pair that runs `func`.
    pub fn new(func: impl FnOnce() + 'static) -> Self {
        let once = Arc::new(Once(sync::cell::UnsafeCell::new(Some(Box::new(func)))));
        // SAFETY: every clone keeps `once` alive.
        let crew = unsafe { Crew::new(Arc::as_ptr(&once).cast(), Once::visit) };
        Self { crew, once }
    }

    /// Sends a ticket and runs it, as a worker does.
    pub fn visit(&self) {
        Ticket::new(self.crew.clone()).use_up();
    }

    /// Ends the join as its owner does after the first part.
    pub fn finish(&self) {
        self.crew.close(false);
        self.once.run();
    }
}

/// A range on which participants work, in pieces of one element.
#[derive(Clone)]
pub struct OpenRange(Arc<Untaken>);

impl OpenRange {
    /// Creates a range of `len` elements.
    pub fn new(len: usize) -> Self {
        Self(Arc::new(Untaken::new(len, 1)))
    }

    /// Calls `work` with elements until none is left.
    pub fn serve(&self, work: impl FnMut(usize)) {
        std::iter::from_fn(|| self.0.take(1)).flatten().for_each(work);
    }
}
