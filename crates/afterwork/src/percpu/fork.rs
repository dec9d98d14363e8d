//! Per-CPU data in a child of `fork`, which has one thread of its parent's.
//!
//! | slot | in the child |
//! |---|---|
//! | no thread had it | free, without an owner that had parked |
//! | the thread that forked is its owner, and had it | unchanged |
//! | another thread was inside, or was the owner and had it | *lost*: its data may be half changed, and no thread will release it. A call on it panics |
//! | the thread that forked was inside | lost for others, until that thread leaves it |
//! | mail | forgotten, with what it holds: the parent runs it |

use std::collections::BTreeMap;

use sync::{
    Mutex,
    fork::{self, Handler},
    twin,
};

use super::{slot::Slot, table::Table};

/// Where slots lie, and how many.
type Place = (usize, usize);

sync::process_wide! {
    /// All slots of the process, and how to go through them.
    fn places() -> Mutex<BTreeMap<Place, unsafe fn(Place)>> = Mutex::new(BTreeMap::new())
}

static HANDLER: Handler = Handler {
    before: |held| held.lock(places()),
    child: || {
        for (&place, inherit) in &*places().lock() {
            // SAFETY: a place is on the list while its slots are there.
            unsafe { inherit(place) };
        }
    },
    ..Handler::IDLE
};

/// Keeps the slots of a table registered for `fork` until dropped. Does nothing in a model, which does not fork.
pub(super) struct Listed(Place);

impl Listed {
    /// The slots of `table` stay where they are until the listing is dropped.
    pub(super) fn new<T>(table: &Table<T>) -> Self {
        let place = (table.slots.as_ptr().expose_provenance(), table.slots.len());
        if !cfg!(any(loom, shuttle)) {
            fork::register(&HANDLER);
            places().lock().insert(place, inherit::<T>);
        }
        Self(place)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if !cfg!(any(loom, shuttle)) && !twin::torn_down() {
            places().lock().remove(&self.0);
        }
    }
}

/// # Safety
///
/// 1. So many slots of `T` are at `place`.
unsafe fn inherit<T>((first, len): Place) {
    let first = std::ptr::with_exposed_provenance::<Slot<T>>(first);
    // SAFETY: (1).
    let slots = unsafe { std::slice::from_raw_parts(first, len) };
    slots.iter().for_each(Slot::inherit);
}
