//! A value that readers look at while others replace it.
//!
//! A cell points at a box. Whoever replaces the value swaps the pointer; the old box is freed after a grace period of
//! the cell's [flavor](Flavor), when no section can still be looking at it.
//!
//! # Why safe code cannot keep a reference too long
//!
//! A reference from [`load`](Rcu::load) borrows the cell *and* the guard. The guard cannot end before it, so the
//! section in which it was loaded still runs, and an old box waits for that section; the current box is freed by the
//! cell's drop alone, which the borrow of the cell forbids. A guard that does not belong to the cell's flavor would
//! protect nothing: for the global one there is no other, and domains are compared at each load. A
//! [`qsbr::Reader`] in the place of a guard begins its next section in methods that need it exclusively, so
//! never while a reference borrows it.

use std::marker::PhantomData;

use sync::{
    atomic::{AtomicPtr, Ordering},
    twin,
};

use super::flavor::{Flavor, Global, Section};

/// Holds a value that readers look at without a lock while others replace it.
///
/// # Guarantees
///
/// A reader sees one version whole. A version is dropped once, on any thread, after every section that could have seen
/// it; the last one is dropped with the cell. Versions that wait are dropped even if the cell is gone.
///
/// # Examples
///
/// ```
/// use afterwork::rcu::{self, Rcu};
///
/// let routes = Rcu::new(vec![1, 2]);
/// let guard = rcu::read();
/// let seen = routes.load(&guard);
/// routes.replace(vec![3]);
/// assert_eq!(*seen, [1, 2]);
/// assert_eq!(*routes.load(&guard), [3]);
/// ```
///
/// A reference does not outlive its guard:
///
/// ```compile_fail,E0505
/// # use afterwork::rcu::{self, Rcu};
/// # let routes = Rcu::new(vec![1, 2]);
/// let guard = rcu::read();
/// let seen = routes.load(&guard);
/// drop(guard);
/// assert_eq!(*seen, [1, 2]);
/// ```
///
/// nor its cell:
///
/// ```compile_fail,E0505
/// # use afterwork::rcu::{Rcu, srcu::Domain};
/// # let domain = Domain::new();
/// # let routes = Rcu::new_in(vec![1, 2], domain.clone());
/// # let guard = domain.read();
/// let seen = routes.load(&guard);
/// drop(routes);
/// assert_eq!(*seen, [1, 2]);
/// ```
///
/// a guard stays on its thread, unless it is one of a domain:
///
/// ```compile_fail,E0277
/// let guard = afterwork::rcu::read();
/// std::thread::spawn(move || drop(guard));
/// ```
///
/// and a value that may not be dropped elsewhere, or is not to be shared, stays on its thread:
///
/// ```compile_fail,E0277
/// # use afterwork::rcu::{Rcu, srcu::Domain};
/// let alone = Rcu::new_in(std::rc::Rc::new(1), Domain::new());
/// std::thread::spawn(move || drop(alone));
/// ```
pub struct Rcu<T, F: Flavor = Global> {
    /// A: the current version, from `Box::into_raw`; never null.
    current: AtomicPtr<T>,
    flavor: F,
    owns: PhantomData<T>,
}

/// Says that a cell held another version than was expected, and gives the new value back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replaced<'a, T> {
    /// What the cell holds instead.
    pub current: &'a T,
    /// What was not stored.
    pub new: T,
}

// SAFETY: a cell that moves takes its version along and may leave older ones behind that others look at: both ways of
// crossing threads.
unsafe impl<T: Send + Sync, F: Flavor + Send> Send for Rcu<T, F> {}
// SAFETY: threads look at a version together (Sync), and each may put one in that another drops (Send).
unsafe impl<T: Send + Sync, F: Flavor + Sync> Sync for Rcu<T, F> {}

impl<T> Rcu<T> {
    /// Makes a cell whose readers are those of the process.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::rcu::Rcu;
    ///
    /// let routes = Rcu::new(vec![1, 2]);
    /// assert_eq!(routes.replace_sync(vec![3]), [1, 2]);
    /// ```
    pub fn new(value: T) -> Self {
        Self::new_in(value, Global)
    }
}

impl<T, F: Flavor> Rcu<T, F> {
    /// Makes a cell whose readers are those of `flavor`.
    pub fn new_in(value: T, flavor: F) -> Self {
        Self {
            current: AtomicPtr::new(Box::into_raw(Box::new(value))),
            flavor,
            owns: PhantomData,
        }
    }

    /// Begins a section of the cell's flavor.
    ///
    /// # Blocking
    ///
    /// Never.
    #[inline(always)]
    pub fn read(&self) -> F::Guard<'_> {
        self.flavor.read()
    }

    /// Returns the current version, for as long as both the guard and the cell are there.
    ///
    /// Costs a load, and for a domain a comparison.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// If the guard is one of another domain.
    #[inline(always)]
    pub fn load<'a>(&'a self, guard: &'a impl Section<F>) -> &'a T {
        assert!(
            guard.is_of(&self.flavor),
            "the guard is one of another domain than the cell's"
        );
        // ORDER(cell): publish and consume, other end in `swap`.
        //   writer: the new value; current = new Release
        //   here:   current Acquire; the value
        // Test: rcu_cell_needs_release_and_acquire
        let order = twin::order("rcu cell: relaxed load", Ordering::Acquire);
        let current = self.current.load(order);
        // SAFETY: from `Box::into_raw`; freed by `retire` after the section of `guard`, which `'a` keeps running, or
        // by `drop`, which the borrow of `self` keeps away.
        unsafe { &*current }
    }

    /// Returns the value, which nobody else can reach.
    pub fn get_mut(&mut self) -> &mut T {
        let current = self.current.load(Ordering::Relaxed);
        // SAFETY: from `Box::into_raw`, current, and `&mut self` says that no reader borrows the cell.
        unsafe { &mut *current }
    }

    /// Puts `value` in place, waits for all sections that could see the old one, and returns that.
    ///
    /// # Blocking
    ///
    /// As the flavor's `synchronize`: never in a section of it.
    ///
    /// # Panics
    ///
    /// As the flavor's `synchronize`; the cell is as it was then.
    #[inline]
    pub fn replace_sync(&self, value: T) -> T {
        let swap = || self.swap(Box::into_raw(Box::new(value)));
        let old = self.flavor.synchronize_after("replace_sync", swap);
        // SAFETY: from `Box::into_raw`, taken out by us alone; every section that could have loaded it has ended.
        *unsafe { Box::from_raw(old) }
    }

    fn swap(&self, new: *mut T) -> *mut T {
        // ORDER(cell): other end in `load`.
        // Test: rcu_cell_needs_release_and_acquire
        let order = twin::order("rcu cell: relaxed swap", Ordering::AcqRel);
        self.current.swap(new, order)
    }
}

impl<T: Send + Sync + 'static, F: Flavor> Rcu<T, F> {
    /// Puts `value` in place; the old one is dropped after a grace period.
    ///
    /// # Blocking
    ///
    /// As the flavor's `call`: may be called in a section.
    ///
    /// # Panics
    ///
    /// As the flavor's `call`; the cell is as it was then.
    pub fn replace(&self, value: T) {
        self.flavor.assert_may_call();
        let old = self.swap(Box::into_raw(Box::new(value)));
        self.retire(old);
    }

    /// Puts `new` in place if the cell still holds `expected`, a version that was loaded from it.
    ///
    /// Versions are told apart by where they are; while `expected` is borrowed, nothing else can be there.
    ///
    /// # Blocking
    ///
    /// As [`replace`](Self::replace).
    ///
    /// # Errors
    ///
    /// The cell holds another version: both it and `new` come back.
    ///
    /// # Panics
    ///
    /// If the guard is one of another domain, and as [`replace`](Self::replace).
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::rcu::{Rcu, srcu::Domain};
    ///
    /// let count = Rcu::new_in(1, Domain::new());
    /// let guard = count.read();
    /// let seen = count.load(&guard);
    /// assert!(count.compare_exchange(seen, seen + 1, &guard).is_ok());
    /// let late = count.compare_exchange(seen, 7, &guard).unwrap_err();
    /// assert_eq!((*late.current, late.new), (2, 7));
    /// ```
    pub fn compare_exchange<'a>(
        &'a self,
        expected: &T,
        new: T,
        guard: &'a impl Section<F>,
    ) -> Result<(), Replaced<'a, T>> {
        self.exchange(expected, Box::new(new), guard)
            .map_err(|new| Replaced {
                current: self.load(guard),
                new: *new,
            })
    }

    /// Replaces the value by what `change` makes of it, again and again until nobody was faster.
    ///
    /// # Blocking
    ///
    /// As [`replace`](Self::replace); `change` runs in a section. With many writers a lock around
    /// [`replace`](Self::replace) makes fewer copies.
    ///
    /// # Panics
    ///
    /// When `change` does, and as [`replace`](Self::replace); the cell is as it was then.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::rcu::{Rcu, srcu::Domain};
    ///
    /// let routes = Rcu::new_in(vec![1], Domain::new());
    /// routes.update(|routes| routes.iter().copied().chain([2]).collect());
    /// assert_eq!(*routes.load(&routes.read()), [1, 2]);
    /// ```
    pub fn update(&self, mut change: impl FnMut(&T) -> T) {
        let guard = self.read();
        loop {
            let seen = self.load(&guard);
            // FOREIGN(rcu-update): the caller's, on its own thread, in a section and under no lock; a panic is the
            // caller's, with nothing changed.
            let new = Box::new(change(seen));
            if self.exchange(seen, new, &guard).is_ok() {
                return;
            }
        }
    }

    /// Stores `new` if the cell holds `expected`, else gives it back.
    fn exchange(&self, expected: &T, new: Box<T>, guard: &impl Section<F>) -> Result<(), Box<T>> {
        assert!(
            guard.is_of(&self.flavor),
            "the guard is one of another domain than the cell's"
        );
        self.flavor.assert_may_call();
        let expected = std::ptr::from_ref(expected).cast_mut();
        let new = Box::into_raw(new);
        match self
            .current
            .compare_exchange(expected, new, Ordering::AcqRel, Ordering::Relaxed)
        {
            Ok(old) => {
                self.retire(old);
                Ok(())
            }
            // SAFETY: from `into_raw` above, and not stored.
            Err(_) => Err(unsafe { Box::from_raw(new) }),
        }
    }

    /// Drops a version that was taken out, after a grace period; where `call` refuses, which the caller has ruled out,
    /// never.
    fn retire(&self, old: *mut T) {
        let old = Old(old);
        // FOREIGN(rcu-old-version): the destructor of a version, in a callback, contained as that is.
        self.flavor.call(move || drop(old));
    }
}

/// A version that was taken out of its cell; frees it when dropped.
struct Old<T>(*mut T);

// SAFETY: its owner is the only one that will use the pointer, and T may be dropped by another thread.
unsafe impl<T: Send> Send for Old<T> {}

impl<T> Drop for Old<T> {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`; `retire` alone makes one, for a version that it got out of the cell, and hands it
        // to a callback, which drops it after every section that could have loaded it or leaks it.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl<T, F: Flavor> Drop for Rcu<T, F> {
    fn drop(&mut self) {
        if twin::torn_down() {
            return;
        }
        let current = self.current.load(Ordering::Relaxed);
        // SAFETY: from `Box::into_raw`; no reader borrows the cell any more.
        drop(unsafe { Box::from_raw(current) });
    }
}

impl<T, F: Flavor> std::fmt::Debug for Rcu<T, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rcu").finish_non_exhaustive()
    }
}
