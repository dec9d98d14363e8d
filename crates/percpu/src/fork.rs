//! Per-CPU data in a child of `fork`, in which only the thread that forked exists.
//!
//! - A slot that no thread held is free. A parked owner of another thread no longer exists.
//! - A slot is unchanged if its owner is the thread that forked and held the slot.
//! - A slot is *lost* if another thread was inside it, or was its owner and held it: its data may
//!   be partly changed, and no thread will release it. A call on it panics.
//! - A slot that the forking thread was inside is lost to others until that thread leaves it.
//! - Queued calls are leaked with their captures, because the parent runs them.

use base::internal::numbered::Numbered;
use sync::Mutex;
use sync::fork::{self, Handler};

use super::slot::Slot;
use super::table::Table;

type Place = (usize, usize);

type Inheriting = (Place, unsafe fn(Place));

sync::process_wide! {
    fn places() -> Mutex<Numbered<Inheriting>> = Mutex::new(Numbered::new())
}

static HANDLER: Handler = Handler {
    before: |held| held.lock(places()),
    child: || {
        for &(place, inherit) in places().lock().iter() {
            // SAFETY: a place is listed as long as its slots exist.
            unsafe { inherit(place) };
        }
    },
    ..Handler::IDLE
};

/// Keeps the slots of a table registered for `fork` until it is dropped, except in a model.
pub(super) struct Listed(Option<u64>);

impl Listed {
    /// The slots of `table` do not move until the result is dropped.
    pub(super) fn new<T>(table: &Table<T>) -> Self {
        let place = (table.slots.as_ptr().expose_provenance(), table.slots.len());
        if cfg!(any(loom, shuttle)) {
            return Self(None);
        }
        fork::register(&HANDLER);
        Self(Some(places().lock().add((place, inherit::<T>))))
    }
}

sync::on_drop!(Listed, it => if let Some(number) = it.0 {
    places().lock().remove(number);
});

/// # Safety
///
/// 1. `len` slots of `T` are at `first`.
unsafe fn inherit<T>((first, len): Place) {
    let first = std::ptr::with_exposed_provenance::<Slot<T>>(first);
    // SAFETY: (1).
    let slots = unsafe { std::slice::from_raw_parts(first, len) };
    slots.iter().for_each(Slot::inherit);
}
