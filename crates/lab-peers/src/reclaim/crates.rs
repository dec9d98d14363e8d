//! Crates that reclaim memory by epochs, by batches, by hazard pointers, or by counts.
//!
//! None of them has a grace period for which a thread can wait. To free a replaced value, a thread
//! defers it and then helps the crate make progress, until the value is freed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use crossbeam_epoch as epoch;
use haphazard::{Domain, Global, HazardPointer};
use seize::{Collector, Guard};

use super::{Flavor, Reader, Value};

/// The number of attempts before a replacer yields its CPU.
const TRIES: u32 = 16;

struct Flagged<T> {
    value: T,
    is_freed: Arc<AtomicBool>,
}

impl<T> Flagged<T> {
    fn new(value: T) -> Self {
        Self { value, is_freed: Arc::default() }
    }
}

impl<T> Drop for Flagged<T> {
    fn drop(&mut self) {
        self.is_freed.store(true, Ordering::Release);
    }
}

pub(super) fn flavor<T: Value>(name: &str, value: T) -> Box<dyn Flavor<T>> {
    match name {
        "crossbeam-epoch" => Box::new(Epoch(epoch::Atomic::new(Flagged::new(value)))),
        "seize" => Box::new(Seize {
            // The size of a batch is one, so that a retired value is checked at once.
            collector: Collector::new().batch_size(1),
            place: AtomicPtr::new(Box::into_raw(Box::new(Flagged::new(value)))),
        }),
        "haphazard" => Box::new(Hazard(Box::new(Flagged::new(value)).into())),
        "arc-swap" => Box::new(Swap(ArcSwap::from_pointee(value))),
        _ => panic!("unknown flavor {name}"),
    }
}

fn until(is_done: impl Fn() -> bool, mut attempt: impl FnMut()) {
    for nr_tries in 1_u32.. {
        attempt();
        if is_done() {
            return;
        }
        if nr_tries.is_multiple_of(TRIES) {
            std::thread::yield_now();
        }
    }
}

struct Epoch<T>(epoch::Atomic<Flagged<T>>);

impl<T: Value> Flavor<T> for Epoch<T> {
    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(self)
    }

    fn replace(&self, value: T) {
        let is_freed = {
            let guard = epoch::pin();
            let old = self.0.swap(epoch::Owned::new(Flagged::new(value)), Ordering::AcqRel, &guard);
            // SAFETY: this thread is pinned, and only this thread frees the value, below.
            let is_freed = unsafe { old.deref() }.is_freed.clone();
            // SAFETY: only this thread took the value out of the place, and no new reader can reach
            // it.
            unsafe { guard.defer_destroy(old) };
            guard.flush();
            is_freed
        };
        until(|| is_freed.load(Ordering::Acquire), || epoch::pin().flush());
    }

    fn call(&self, counter: &'static AtomicU64, count: usize) -> bool {
        for _ in 0..count {
            epoch::pin().defer(move || _ = counter.fetch_add(1, Ordering::Release));
        }
        epoch::pin().flush();
        true
    }
}

impl<T: Value> Reader for &Epoch<T> {
    fn read(&mut self, count: usize) -> u64 {
        let mut sum = 0;
        for turn in 0..count {
            let guard = epoch::pin();
            let current = self.0.load(Ordering::Acquire, &guard);
            // SAFETY: this thread is pinned. The pointer is never null, and the value is destroyed
            // only after the epoch.
            sum += unsafe { current.deref() }.value.look(turn);
        }
        sum
    }
}

impl<T> Drop for Epoch<T> {
    fn drop(&mut self) {
        // SAFETY: readers borrow the flavor, so there are no readers.
        let guard = unsafe { epoch::unprotected() };
        let last = self.0.load(Ordering::Relaxed, guard);
        // SAFETY: as above. `replace` freed the earlier values.
        drop(unsafe { last.into_owned() });
    }
}

struct Seize<T> {
    collector: Collector,
    place: AtomicPtr<Flagged<T>>,
}

impl<T: Value> Flavor<T> for Seize<T> {
    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(self)
    }

    fn replace(&self, value: T) {
        let new = Box::into_raw(Box::new(Flagged::new(value)));
        let is_freed = {
            let guard = self.collector.enter();
            let old = guard.swap(&self.place, new, Ordering::AcqRel);
            // SAFETY: the guard protects the value, and only this thread frees it, below.
            let is_freed = unsafe { &*old }.is_freed.clone();
            // SAFETY: only this thread took the pointer out of `place`. It came from `into_raw`.
            unsafe { guard.defer_retire(old, seize::reclaim::boxed) };
            guard.flush();
            is_freed
        };
        until(
            || is_freed.load(Ordering::Acquire),
            || {
                // A batch needs an entry for each thread that has a guard, so it grows until it has
                // enough entries. If many threads replace values, a batch with one entry might
                // never be retired.
                let filler = Box::into_raw(Box::new(0_u8));
                // SAFETY: this thread has exclusive access to the filler, which came from
                // `into_raw`. The full batch is then retired.
                unsafe { (self.collector.enter()).defer_retire(filler, seize::reclaim::boxed) };
            },
        );
    }
}

impl<T: Value> Reader for &Seize<T> {
    fn read(&mut self, count: usize) -> u64 {
        let mut sum = 0;
        for turn in 0..count {
            let guard = self.collector.enter();
            let current = guard.protect(&self.place, Ordering::Acquire);
            // SAFETY: the guard protects the value, and the pointer is never null.
            sum += unsafe { &*current }.value.look(turn);
        }
        sum
    }
}

impl<T> Drop for Seize<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `into_raw`. Readers borrow the flavor, so there are no
        // readers.
        drop(unsafe { Box::from_raw(*self.place.get_mut()) });
    }
}

struct Hazard<T>(haphazard::AtomicPtr<Flagged<T>>);

impl<T: Value> Flavor<T> for Hazard<T> {
    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(Hazarded { flavor: self, pointer: HazardPointer::new() })
    }

    fn replace(&self, value: T) {
        let Some(old) = self.0.swap(Box::new(Flagged::new(value))) else { return };
        let old = old.into_inner();
        // SAFETY: only this thread took the value out. The domain frees it after the retirement
        // below.
        let is_freed = unsafe { old.as_ref() }.is_freed.clone();
        // SAFETY: the pointer came from a box. Every reader loads it through a hazard pointer of
        // the same domain.
        unsafe {
            Domain::<Global>::global().retire_ptr::<Flagged<T>, Box<Flagged<T>>>(old.as_ptr())
        };
        let reclaim = || _ = Domain::<Global>::global().eager_reclaim();
        until(|| is_freed.load(Ordering::Acquire), reclaim);
    }
}

struct Hazarded<'a, T> {
    flavor: &'a Hazard<T>,
    pointer: HazardPointer<'static>,
}

impl<T: Value> Reader for Hazarded<'_, T> {
    fn read(&mut self, count: usize) -> u64 {
        let mut sum = 0;
        for turn in 0..count {
            let current = self.flavor.0.safe_load(&mut self.pointer);
            sum += current.expect("never null").value.look(turn);
            self.pointer.reset_protection();
        }
        sum
    }
}

impl<T> Drop for Hazard<T> {
    fn drop(&mut self) {
        let last = self.0.load_ptr();
        // SAFETY: the pointer came from a box. Readers borrow the flavor, so there are no readers.
        drop(unsafe { Box::from_raw(last) });
    }
}

struct Swap<T>(ArcSwap<T>);

impl<T: Value> Flavor<T> for Swap<T> {
    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(self)
    }

    fn replace(&self, value: T) {
        let old = self.0.swap(Arc::new(value));
        let watch = Arc::downgrade(&old);
        drop(old);
        until(|| watch.strong_count() == 0, || ());
    }
}

impl<T: Value> Reader for &Swap<T> {
    fn read(&mut self, count: usize) -> u64 {
        let mut sum = 0;
        for turn in 0..count {
            sum += self.0.load().look(turn);
        }
        sum
    }
}
