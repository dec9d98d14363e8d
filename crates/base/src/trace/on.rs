//! The functions that emit events. `off.rs` defines the same names.

mod held;
mod spans;

use std::cell::Cell;

pub(super) use held::keep;
pub use held::{Held, hold, hold_without_span};
pub use spans::{enter, forget, remember};
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};
pub(super) use tracing::{Level, event};

use self::held::Event;
use super::{Item, activate_work};
use crate::panics;

/// Returns `true` if a subscriber may accept events of `level`.
#[inline(always)]
pub(super) fn is_on(level: Level) -> bool {
    level <= STATIC_MAX_LEVEL && level <= LevelFilter::current()
}

sync::thread_local! {
    /// `true` while this thread runs a subscriber that the library has called.
    static IS_EMITTING: Cell<bool> = Cell::new(false)
}

/// Returns `true` if this thread runs a subscriber that the library has called. It must not wait
/// for a queue, because other threads may depend on its return.
#[inline]
pub fn is_emitting() -> bool {
    IS_EMITTING.try_with(Cell::get).unwrap_or(false)
}

/// Passes an event to the subscriber, which is user code.
#[inline(always)]
pub(super) fn contained(event: impl FnOnce()) {
    let before = IS_EMITTING.try_with(|is_emitting| is_emitting.replace(true));
    // FOREIGN(subscriber): the subscriber, on the thread of the event. A panic is caught.
    panics::contain(event);
    _ = before.map(|before| IS_EMITTING.try_with(|is_emitting| is_emitting.set(before)));
}

/// Declares the functions of the table in `mod.rs`. During a stay, the event of a step is kept.
macro_rules! events {
    (
        steps { $($(#[$of_step:meta])* $step:ident, $message:literal;)* }
        $($(#[$meta:meta])* $name:ident($($arg:ident: $type:ty),*), $target:literal, $level:ident, { $($field:tt),* };)*
    ) => {
        $(
            $(#[$of_step])*
            #[inline(always)]
            pub fn $step<'a>(item: impl FnOnce() -> Item<'a>) {
                #[cold]
                #[inline(never)]
                fn emit(item: Item<'_>) {
                    let Item { address: item, func, queue, pool } = item;
                    on::contained(|| on::event!(
                        name: stringify!($step), target: "afterwork::workqueue", on::Level::TRACE,
                        item, func = func(), queue, pool, $message
                    ));
                }
                if on::is_on(on::Level::TRACE) {
                    let item = item();
                    if !on::keep(emit, &item) {
                        emit(item);
                    }
                }
            }
        )*
        $(
            $(#[$meta])*
            #[inline(always)]
            pub fn $name($($arg: $type),*) {
                if on::is_on(on::Level::$level) {
                    on::contained(|| on::event!(
                        name: stringify!($name), target: $target, on::Level::$level, $($field),*
                    ));
                }
            }
        )*
    };
}

/// The steps recorded under a lock.
#[derive(Default)]
pub struct Noted(Vec<Event>);

topology::impl_debug! {
    impl[] Noted;
}

impl Noted {
    /// Records the items that a worker has taken.
    #[inline(always)]
    pub fn activate<'a>(&mut self, items: impl FnOnce() -> Vec<Item<'a>>) {
        if is_on(Level::TRACE) {
            let emit = |item: Item<'_>| activate_work(|| item);
            self.0.extend(items().iter().map(|item| held::event(emit, item)));
        }
    }

    /// Emits the recorded events, with no lock held.
    pub fn emit(self) {
        self.0.into_iter().for_each(|emit| emit());
    }
}
