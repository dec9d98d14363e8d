//! Remembers the span in which an item was queued, so that the item runs in the same span.
//!
//! Items have no space for a span, and a program without a subscriber must not pay for spans. Spans
//! are therefore stored in a table, by the addresses of the items. The table is read only if there
//! is a subscriber and an item was queued in a span:
//!
//! ```text
//! queue:  a subscriber, and a span?  insert it;  otherwise remove the span of an earlier run
//! run:    remove it, enter it, call the item's code, leave it; a future keeps its span
//! end:    of a future, and of an item that is cancelled and freed: remove it
//! ```
//!
//! The drop of a span notifies its subscriber, so it is contained, and happens after the table is
//! unlocked.

use std::collections::HashMap;
use std::mem;

use sync::atomic::{AtomicUsize, Ordering};
use sync::fork::{self, Handler};
use sync::unmodelled::Arc;
use sync::{Mutex, OnceLock};
use tracing::Span;
use tracing::level_filters::LevelFilter;

use super::contained;
use super::held::{current_span, drop_span};

/// By the addresses of the items.
type Spans = HashMap<usize, Arc<Span>>;

static SPANS: OnceLock<Mutex<Spans>> = OnceLock::new();
/// The table is locked only if it contains any.
static NR_SPANS: AtomicUsize = AtomicUsize::new(0);

fn spans() -> &'static Mutex<Spans> {
    SPANS.get_or_init(Mutex::default)
}

static HANDLER: Handler = Handler {
    settle: || {
        spans();
    },
    before: |held| held.lock(spans()),
    // The spans of the parent's items are leaked, because their subscriber might wait for threads
    // that do not exist.
    child: || {
        mem::forget(mem::take(&mut *spans().lock()));
        NR_SPANS.store(0, Ordering::Relaxed);
    },
};

/// Records the current span for an item that this thread queues, unless the item has `begun`.
#[inline(always)]
pub fn remember(item: usize, begun: impl FnOnce() -> bool) {
    if LevelFilter::current() != LevelFilter::OFF && !begun() {
        remember_now(item);
    }
}

#[cold]
fn remember_now(item: usize) {
    let Some(span) = current_span() else {
        return forget(item);
    };
    fork::register(&HANDLER);
    drop_span(change(|spans| spans.insert(item, span)));
}

/// Removes the span of an item that will not run in it.
#[inline(always)]
pub fn forget(item: usize) {
    if NR_SPANS.load(Ordering::Relaxed) > 0 {
        take_out(item);
    }
}

#[cold]
fn take_out(item: usize) {
    drop_span(change(|spans| spans.remove(&item)));
}

fn change<R>(body: impl FnOnce(&mut Spans) -> R) -> R {
    let mut spans = spans().lock();
    let result = body(&mut spans);
    NR_SPANS.store(spans.len(), Ordering::Relaxed);
    result
}

/// The span of an item, which this thread leaves when it is dropped.
#[must_use]
#[derive(Debug)]
pub struct Within(Option<Arc<Span>>);

/// Enters the span in which the item that is about to run was queued. `again` is `true` if the item
/// may run again without being queued again.
#[inline(always)]
pub fn enter(item: usize, again: bool) -> Within {
    if NR_SPANS.load(Ordering::Relaxed) == 0 {
        return Within(None);
    }
    enter_now(item, again)
}

#[cold]
fn enter_now(item: usize, again: bool) -> Within {
    let span = change(|spans| if again { spans.get(&item).cloned() } else { spans.remove(&item) });
    let Some(span) = span else {
        return Within(None);
    };
    contained(|| {
        span.with_subscriber(|(id, subscriber)| subscriber.enter(id));
    });
    Within(Some(span))
}

impl Drop for Within {
    fn drop(&mut self) {
        if let Some(span) = self.0.take() {
            contained(|| {
                span.with_subscriber(|(id, subscriber)| subscriber.exit(id));
                drop(span);
            });
        }
    }
}
