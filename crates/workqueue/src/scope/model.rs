//! What models see of scopes: a scope without a queue, whose guests are threads of the model.

use std::{fmt, ptr::NonNull};

use base::internal::panics::guarded_in_item;
use sync::unmodelled::Arc;

use super::{
    crew::{Crew, Ticket},
    line,
    pieces::Untaken,
    stand::Stand,
};
use crate::limit::queue_core::QueueCore;

/// A scope that is there as long as anybody has it, also when its end overlooks somebody.
#[derive(Clone)]
pub struct OpenScope {
    stand: NonNull<Stand>,
    crew: Arc<Crew>,
    _kept: Arc<Kept>,
}

/// Keeps the stand where it is.
struct Kept(NonNull<Stand>);

// SAFETY: a stand may be used by several threads.
unsafe impl Send for OpenScope {}
// SAFETY: as above; whoever is last drops it.
unsafe impl Send for Kept {}
// SAFETY: as above; shared, it shows nothing.
unsafe impl Sync for Kept {}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`, and nobody is left.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl OpenScope {
    /// Makes one whose items run one at a time, or not.
    pub fn new(in_order: bool) -> Self {
        let core = Arc::new(QueueCore::new("model", None));
        let stand = NonNull::from(Box::leak(Box::new(Stand::new(core, in_order, false))));
        // SAFETY: every clone keeps the stand, and so does every guest.
        let crew = unsafe { Crew::new(stand.as_ptr().cast_const().cast(), Stand::visit) };
        let kept = Arc::new(Kept(stand));
        Self {
            stand,
            crew,
            _kept: kept,
        }
    }

    /// Brings an item, as [`Scope::spawn`](crate::Scope::spawn) does.
    pub fn bring(&self, func: impl FnOnce() + Send + 'static) {
        if self.stand().line.push(line::item(func)) {
            self.crew.rouse();
        }
    }

    /// Returns `true` if [`Scope::spawn`](crate::Scope::spawn) would send a ticket now, where one is enough.
    pub fn wants_ticket(&self) -> bool {
        self.crew.wants_ticket(1)
    }

    /// Sends a ticket, and returns what a worker does that has come to it.
    pub fn ticket(&self) -> impl FnOnce() + use<> {
        let (ticket, kept) = (Ticket::new(self.crew.clone()), self.clone());
        move || {
            ticket.use_up();
            drop(kept);
        }
    }

    /// Does what a worker does that has come to a ticket.
    pub fn visit(&self) {
        Ticket::new(self.crew.clone()).use_up();
    }

    /// Does what the owner does when the body has returned; returns `true` if an item panicked.
    pub fn finish(&self) -> bool {
        self.stand().finish(&self.crew);
        let outcome = guarded_in_item(|| self.stand().first_panic.go_on(Ok(())));
        outcome.is_err()
    }

    fn stand(&self) -> &Stand {
        // SAFETY: kept by this.
        unsafe { self.stand.as_ref() }
    }
}

impl fmt::Debug for OpenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenScope")
    }
}

/// A crew whose work is one closure, as that of a join: for a guest, or for the owner if none came.
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
        // SAFETY: the model checks that nobody else is here.
        let func = self.0.with_mut(|func| unsafe { (*func).take() });
        if let Some(func) = func {
            func();
        }
    }

    unsafe fn visit(work: *const (), _: &mut Ticket) {
        // SAFETY: every clone of the pair keeps it.
        unsafe { &*work.cast::<Self>() }.run();
    }
}

impl OpenPair {
    /// Makes one of `func`.
    pub fn new(func: impl FnOnce() + 'static) -> Self {
        let once = Arc::new(Once(sync::cell::UnsafeCell::new(Some(Box::new(func)))));
        // SAFETY: every clone keeps it.
        let crew = unsafe { Crew::new(Arc::as_ptr(&once).cast(), Once::visit) };
        Self { crew, once }
    }

    /// Does what a worker does that has come to the ticket.
    pub fn visit(&self) {
        Ticket::new(self.crew.clone()).use_up();
    }

    /// Does what the owner does after the first part.
    pub fn finish(&self) {
        self.crew.close(false);
        self.once.run();
    }
}

impl fmt::Debug for OpenPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenPair")
    }
}

/// A range that participants work at, one element a piece.
#[derive(Clone)]
pub struct OpenRange(Arc<Untaken>);

impl OpenRange {
    /// Makes one of `len` elements.
    pub fn new(len: usize) -> Self {
        Self(Arc::new(Untaken::new(len, 1)))
    }

    /// Calls `work` with elements until none is left.
    pub fn serve(&self, work: impl FnMut(usize)) {
        std::iter::from_fn(|| self.0.take(1))
            .flatten()
            .for_each(work);
    }
}

impl fmt::Debug for OpenRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenRange")
    }
}
