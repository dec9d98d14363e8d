//! Events that are kept while other threads wait for this one, and are emitted afterwards.

use std::cell::RefCell;

use sync::unmodelled::Arc;
use tracing::Span;
use tracing::level_filters::LevelFilter;

use super::{Item, contained};

sync::thread_local! {
    /// `None` outside a stay.
    static KEPT: RefCell<Option<Kept>> = RefCell::new(None)
}

#[derive(Default)]
struct Kept {
    /// The thread's span when the stay began.
    span: Option<Arc<Span>>,
    events: Vec<Event>,
    /// Dropped after the stay, because the drop of a span calls its subscriber.
    dropped: Vec<Arc<Span>>,
}

/// Emits an event of an item, which may have been freed before.
pub(super) type Event = Box<dyn FnOnce() + Send>;

/// Keeps the events of this thread during a *stay*, a period whose end other threads wait for. They
/// are emitted when this value is dropped, after the stay, with no lock held.
#[must_use]
#[derive(Debug)]
pub struct Held {
    is_outermost: bool,
}

/// Begins a stay, with no lock held. Items that this thread queues during it get its current span.
#[inline(always)]
pub fn hold() -> Held {
    hold_if(true)
}

/// Begins a stay during which items are queued without a span.
#[inline(always)]
pub fn hold_without_span() -> Held {
    hold_if(false)
}

#[inline(always)]
fn hold_if(with_span: bool) -> Held {
    Held { is_outermost: LevelFilter::current() != LevelFilter::OFF && begin(with_span) }
}

#[cold]
fn begin(with_span: bool) -> bool {
    if KEPT.try_with(|kept| kept.borrow().is_some()).unwrap_or(true) {
        return false;
    }
    let span = with_span.then(current_span).flatten();
    let kept = Kept { span, ..Kept::default() };
    KEPT.with(|place| place.replace(Some(kept)).is_none())
}

impl Drop for Held {
    #[inline(always)]
    fn drop(&mut self) {
        if self.is_outermost {
            end();
        }
    }
}

#[cold]
fn end() {
    let kept = KEPT.with(RefCell::take).unwrap_or_default();
    kept.events.into_iter().for_each(|emit| emit());
    let dropped = kept.dropped.into_iter().chain(kept.span);
    dropped.for_each(|span| contained(|| drop(span)));
}

pub(super) fn event(emit: fn(Item<'_>), item: &Item<'_>) -> Event {
    let Item { address, func, pool, .. } = *item;
    let queue: Box<str> = item.queue.into();
    Box::new(move || emit(Item { address, func, queue: &queue, pool }))
}

/// Calls `body` with the events and spans that this thread keeps, if it is in a stay.
fn with_kept<R>(body: impl FnOnce(&mut Kept) -> R) -> Option<R> {
    let kept = KEPT.try_with(|kept| kept.borrow_mut().as_mut().map(body));
    kept.ok().flatten()
}

/// During a stay of this thread, keeps the event and returns `true`.
pub(crate) fn keep(emit: fn(Item<'_>), item: &Item<'_>) -> bool {
    with_kept(|kept| kept.events.push(event(emit, item))).is_some()
}

/// Returns the span in which this thread queues an item. During a stay, this is the span in which
/// the stay began.
pub(super) fn current_span() -> Option<Arc<Span>> {
    if let Some(span) = with_kept(|kept| kept.span.clone()) {
        return span;
    }
    let mut span = Span::none();
    contained(|| span = Span::current());
    (!span.is_none()).then(|| Arc::new(span))
}

/// Drops a span, after the stay if this thread is in one.
pub(super) fn drop_span(mut span: Option<Arc<Span>>) {
    with_kept(|kept| kept.dropped.extend(span.take()));
    if let Some(span) = span {
        contained(|| drop(span));
    }
}
