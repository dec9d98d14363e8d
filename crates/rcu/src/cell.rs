//! A cell whose value readers read without a lock while writers replace it.
//!
//! A cell points to a box. A writer swaps the pointer. The old box is freed after a grace period of
//! the cell's [flavor](Flavor), when every section that could have loaded it has ended.
//!
//! # Why safe code cannot keep a reference too long
//!
//! A reference from [`load`](Rcu::load) borrows the cell *and* the guard. The guard keeps the
//! section open, and an old box is freed only after it. Only the cell's drop frees the current box.
//! Domains are compared at each load, because a guard of another domain would protect nothing. A
//! [`qsbr::Reader`] that serves as a guard begins its next section only in methods that take `&mut
//! self`, so never while a reference borrows it.

use std::marker::PhantomData;

use sync::atomic::{AtomicPtr, Ordering};
use sync::twin;

use super::callback::Full;
use super::flavor::{Flavor, Global, Section};

/// Holds a value that readers read without a lock while writers replace it.
///
/// # Guarantees
///
/// - A reader sees exactly one version, and sees it completely.
/// - Each version is dropped once, on an arbitrary thread, after every section that could have seen
///   it has ended. The current version is dropped with the cell.
/// - Replaced versions are dropped even if the cell was dropped first.
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
/// A reference does not outlive its cell:
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
/// A global guard stays on its thread:
///
/// ```compile_fail,E0277
/// let guard = afterwork::rcu::read();
/// std::thread::spawn(move || drop(guard));
/// ```
///
/// A cell is sent and shared only if its value is `Send` and `Sync`:
///
/// ```compile_fail,E0277
/// # use afterwork::rcu::{Rcu, srcu::Domain};
/// let alone = Rcu::new_in(std::rc::Rc::new(1), Domain::new());
/// std::thread::spawn(move || drop(alone));
/// ```
pub struct Rcu<T, F: Flavor = Global> {
    /// A: the current version, which came from `Box::into_raw` and is never null.
    current: AtomicPtr<T>,
    flavor: F,
    owns: PhantomData<T>,
}

/// The error of [`Rcu::compare_exchange`]: the cell holds a different version than expected. It
/// contains the new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replaced<'a, T> {
    /// The version that the cell holds.
    pub current: &'a T,
    /// The value that was not stored.
    pub new: T,
}

// SAFETY: a cell that moves to another thread takes its current version with it (Send). Other
// threads may still read older versions (Sync).
unsafe impl<T: Send + Sync, F: Flavor + Send> Send for Rcu<T, F> {}
// SAFETY: several threads may read a version at the same time (Sync), and a version that one thread
// stored may be dropped by another (Send).
unsafe impl<T: Send + Sync, F: Flavor + Sync> Sync for Rcu<T, F> {}

impl<T> Rcu<T> {
    /// Creates a cell for the readers of the process.
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
    /// Creates a cell for the readers of `flavor`.
    pub fn new_in(value: T, flavor: F) -> Self {
        Self { current: AtomicPtr::new(Box::into_raw(Box::new(value))), flavor, owns: PhantomData }
    }

    /// Begins a section of the cell's flavor.
    ///
    /// # Blocking
    ///
    /// Never blocks.
    #[doc(alias = "rcu_dereference")]
    #[inline(always)]
    pub fn read(&self) -> F::Guard<'_> {
        self.flavor.read()
    }

    /// Returns the current version. It may be used while both the guard and the cell exist.
    ///
    /// Costs one load, plus one comparison if the flavor is a domain.
    ///
    /// # Blocking
    ///
    /// Never blocks.
    ///
    /// # Panics
    ///
    /// Panics if the guard belongs to a different domain than the cell.
    #[doc(alias("rcu_dereference", "list_for_each_entry_rcu", "hlist_for_each_entry_rcu"))]
    #[inline(always)]
    pub fn load<'a>(&'a self, guard: &'a impl Section<F>) -> &'a T {
        assert!(guard.is_of(&self.flavor), "the guard belongs to another domain than the cell");
        // ORDER(cell): publish and consume, other end in `swap`.
        //   writer: the new value; current = new Release
        //   here:   current Acquire; the value
        // If the swap comes first, we read the new version with its contents. If our load comes
        // first, we read the old version, and the writer's grace period waits for our section.
        // Test: a_cells_reader_sees_one_version_whole
        let order = twin::order("rcu cell: relaxed load", Ordering::Acquire);
        let current = self.current.load(order);
        // SAFETY: the pointer came from `Box::into_raw`. `retire` frees it only after the section
        // of `guard`, which `'a` keeps open, and `drop` only after the borrow of `self`.
        unsafe { &*current }
    }

    /// Returns a mutable reference to the value, which no other thread can reach.
    pub fn get_mut(&mut self) -> &mut T {
        let current = self.current.load(Ordering::Relaxed);
        // SAFETY: the pointer came from `Box::into_raw`, and no reader borrows the cell.
        unsafe { &mut *current }
    }

    /// Stores `value`, waits for all sections that could see the old value, and returns the old
    /// value.
    ///
    /// # Blocking
    ///
    /// The same as the flavor's `synchronize`. It must not be called in a section of that flavor.
    ///
    /// # Panics
    ///
    /// Panics if the flavor's `synchronize` panics. In that case the cell has not changed.
    #[inline]
    pub fn replace_sync(&self, value: T) -> T {
        self.flavor.assert_may_wait("replace_sync");
        let old = self.swap(Box::into_raw(Box::new(value)));
        self.flavor.synchronize();
        // SAFETY: our swap removed this pointer, from `Box::into_raw`, from the cell, and every
        // section that could have loaded it has ended.
        *unsafe { Box::from_raw(old) }
    }

    fn swap(&self, new: *mut T) -> *mut T {
        // ORDER(cell): other end in `load`. Acquire is needed because we drop the old version,
        // which another thread may have stored.
        // Test: a_cells_reader_sees_one_version_whole
        let order = twin::order("rcu cell: relaxed swap", Ordering::AcqRel);
        self.current.swap(new, order)
    }
}

impl<T: Send + Sync + 'static, F: Flavor> Rcu<T, F> {
    /// Stores `value`. The old value is dropped after a grace period.
    ///
    /// # Blocking
    ///
    /// The same as the flavor's `call`. It may be called in a section.
    ///
    /// # Panics
    ///
    /// Panics if the flavor's `call` panics. In that case the cell has not changed.
    #[doc(alias("rcu_assign_pointer", "rcu_xchg_pointer", "rcu_replace_pointer"))]
    pub fn replace(&self, value: T) {
        self.flavor.assert_may_call();
        let old = self.swap(Box::into_raw(Box::new(value)));
        self.retire(old);
    }

    /// Stores `value` as [`replace`](Self::replace) does, unless [`try_call`](super::try_call)
    /// would reject another callback. Never blocks.
    ///
    /// # Errors
    ///
    /// Returns [`Full`] with `value`. The cell has not changed.
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`replace`](Self::replace).
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::rcu::{Full, Rcu};
    ///
    /// let routes = Rcu::new(vec![1]);
    /// if let Err(Full(value)) = routes.try_replace(vec![2]) {
    ///     routes.replace_sync(value); // waits for the readers
    /// }
    /// assert_eq!(*routes.load(&routes.read()), [2]);
    /// ```
    pub fn try_replace(&self, value: T) -> Result<(), Full<T>> {
        self.flavor.assert_may_call();
        if self.flavor.is_full() {
            return Err(Full(value));
        }
        let old = Old(self.swap(Box::into_raw(Box::new(value))));
        // FOREIGN(rcu-old-version): as in `retire`.
        self.flavor.call_at_once(move || drop(old));
        Ok(())
    }

    /// Stores `new` if the cell still holds `expected`, a version that was loaded from it.
    ///
    /// Versions are compared by address. While `expected` is borrowed, no other version can have
    /// its address.
    ///
    /// # Blocking
    ///
    /// The same as [`replace`](Self::replace).
    ///
    /// # Errors
    ///
    /// Returns [`Replaced`], with the current version and `new`, if the cell holds another version.
    ///
    /// # Panics
    ///
    /// Panics if the guard belongs to a different domain than the cell, or if
    /// [`replace`](Self::replace) panics.
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
    #[doc(alias = "rcu_cmpxchg_pointer")]
    pub fn compare_exchange<'a>(
        &'a self,
        expected: &T,
        new: T,
        guard: &'a impl Section<F>,
    ) -> Result<(), Replaced<'a, T>> {
        self.exchange(expected, Box::new(new), guard)
            .map(|old| self.retire(old))
            .map_err(|new| Replaced { current: self.load(guard), new: *new })
    }

    /// Replaces the value with the result of `change`. Calls `change` again if another writer has
    /// replaced the value in between.
    ///
    /// `change` returns a complete new value. If the entries of a map change one by one, split the
    /// map into several cells, so that each change copies only one part.
    ///
    /// # Blocking
    ///
    /// The same as [`replace`](Self::replace). `change` runs in a section. With many writers, a
    /// lock around [`replace`](Self::replace) creates fewer copies.
    ///
    /// # Panics
    ///
    /// Panics if `change` or [`replace`](Self::replace) panics. Then the cell has not changed.
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
    #[doc(alias("list_add_rcu", "list_del_rcu", "hlist_add_head_rcu", "hlist_del_rcu"))]
    pub fn update(&self, mut change: impl FnMut(&T) -> T) {
        let guard = self.read();
        loop {
            let seen = self.load(&guard);
            // FOREIGN(rcu-update): the caller's closure, on the calling thread, in a section. A
            // panic propagates to the caller, and the cell is unchanged.
            let new = Box::new(change(seen));
            if let Ok(old) = self.exchange(seen, new, &guard) {
                drop(guard);
                // `call` may block during a flood of updates, so the section has ended.
                return self.retire(old);
            }
        }
    }

    /// Stores `new` if the cell holds `expected`, and returns the old version, which the caller
    /// must retire. Otherwise returns `new`.
    fn exchange(
        &self,
        expected: &T,
        new: Box<T>,
        guard: &impl Section<F>,
    ) -> Result<*mut T, Box<T>> {
        assert!(guard.is_of(&self.flavor), "the guard belongs to another domain than the cell");
        self.flavor.assert_may_call();
        let expected = std::ptr::from_ref(expected).cast_mut();
        let new = Box::into_raw(new);
        // ORDER(cell): other end in `load`; a success acts like `swap`. If another writer comes
        // first, nothing is stored, and the caller loads again.
        match self.current.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(old) => Ok(old),
            // SAFETY: the pointer came from `into_raw` above, and was not stored in the cell.
            Err(_) => Err(unsafe { Box::from_raw(new) }),
        }
    }

    /// Drops a replaced version after a grace period. The caller has checked that `call` will not
    /// panic.
    fn retire(&self, old: *mut T) {
        let old = Old(old);
        // FOREIGN(rcu-old-version): the drop of a version, in a callback, which contains a panic.
        self.flavor.call(move || drop(old));
    }
}

/// A replaced version, which is freed when this is dropped.
struct Old<T>(*mut T);

// SAFETY: only the owner uses the pointer, and another thread may drop a `T`.
unsafe impl<T: Send> Send for Old<T> {}

impl<T> Drop for Old<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::into_raw` and was removed from the cell. The callback
        // drops it, or leaks it, after every section that could have loaded it has ended.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl<T, F: Flavor> Drop for Rcu<T, F> {
    fn drop(&mut self) {
        if twin::torn_down() {
            return;
        }
        let current = self.current.load(Ordering::Relaxed);
        // SAFETY: the pointer came from `Box::into_raw`, and no reader borrows the cell.
        drop(unsafe { Box::from_raw(current) });
    }
}
