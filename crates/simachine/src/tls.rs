//! Thread-locals of simulated threads.
//!
//! As in the standard library, a thread-local without a destructor stays usable while others are
//! destroyed. Outside a simulation, the OS thread owns the thread-locals.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::engine::with;
use super::task::Slot;

/// Replaces `std::thread::LocalKey`.
#[derive(Debug)]
pub struct LocalKey<T: 'static> {
    init: fn() -> T,
    /// One more than the key's index; 0 before the first use.
    place: AtomicUsize,
}

/// The error returned by an access to a destroyed thread-local.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessError;

static NEXT: AtomicUsize = AtomicUsize::new(1);

thread_local!(static OF_HOST: RefCell<Vec<Slot>> = const { RefCell::new(Vec::new()) });

fn with_slots<R>(step: impl Fn(&mut Vec<Slot>, bool) -> R) -> R {
    with(|e| {
        let task = e.task();
        step(&mut task.locals, task.locals_are_gone)
    })
    .unwrap_or_else(|| OF_HOST.with_borrow_mut(|slots| step(slots, false)))
}

/// Returns the index of a key, which its first use assigns. No task can be suspended in between,
/// because this function is never compiled into an instrumented crate.
#[inline(never)]
fn placed(place: &AtomicUsize) -> usize {
    if place.load(Ordering::Relaxed) == 0 {
        place.store(NEXT.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }
    place.load(Ordering::Relaxed)
}

impl<T: 'static> LocalKey<T> {
    /// Creates a key whose values `init` creates.
    pub const fn new(init: fn() -> T) -> Self {
        Self { init, place: AtomicUsize::new(0) }
    }

    /// Calls `f` with this thread's value. Panics if the value has been destroyed.
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.try_with(f).expect("a thread-local that has been destroyed")
    }

    /// Calls `f` with this thread's value, unless the value has been destroyed.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        let place = placed(&self.place);
        let has_destructor = std::mem::needs_drop::<T>();
        let found = with_slots(|slots, are_gone| match slots.get(place) {
            Some(Slot::Made { value, .. }) => {
                Ok(std::ptr::from_ref::<dyn Any>(&**value).cast::<T>())
            }
            Some(Slot::Destroyed) => Err(AccessError),
            _ if are_gone && has_destructor => Err(AccessError),
            _ => Ok(std::ptr::null()),
        })?;
        let value = if found.is_null() { self.make(place, has_destructor) } else { found };
        // SAFETY: the value is boxed, has this key's type, and lives until this thread ends.
        Ok(f(unsafe { &*value }))
    }

    #[cold]
    fn make(&self, place: usize, has_destructor: bool) -> *const T {
        let made = Cell::new(Some(Box::new((self.init)()) as Box<dyn Any>));
        with_slots(|slots, _| {
            slots.resize_with(slots.len().max(place + 1), || Slot::Unmade);
            let value = made.take().expect("called once");
            let at = std::ptr::from_ref::<dyn Any>(&*value).cast();
            slots[place] = Slot::Made { value, has_destructor };
            at
        })
    }
}

/// Destroys the thread-locals of the running task. Their destructors may use thread-locals.
pub fn destroy_all() {
    with(|e| e.task().locals_are_gone = true);
    loop {
        let value = with_slots(|slots, _| {
            let is_due = |slot: &&mut Slot| matches!(slot, Slot::Made { has_destructor: true, .. });
            let due = slots.iter_mut().find(is_due)?;
            Some(std::mem::replace(due, Slot::Destroyed))
        });
        if value.is_none() {
            return;
        }
        drop(value);
    }
}
