//! A cell whose accesses a model checks for races, and a cell for memory that another thread may free.

#[cfg(loom)]
pub use loom::cell::UnsafeCell;

/// Holds a value that several threads may reach under a protocol of their own.
///
/// The closures of [`with`](Self::with) and [`with_mut`](Self::with_mut) get a raw pointer; loom checks
/// that no two of them overlap in time when one writes.
#[cfg(not(loom))]
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T: ?Sized>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// Makes a cell that holds `value`.
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

#[cfg(not(loom))]
impl<T: ?Sized> UnsafeCell<T> {
    /// Calls `f` with a pointer through which it may read.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Calls `f` with a pointer through which it may write.
    #[inline(always)]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Holds a value that never changes, in memory that another thread may free while this thread still has a reference to it.
///
/// For example a method whose last step gives up the object on which it was called. A `&T` argument claims that its memory
/// stays valid until the function returns. That claim does not include cells, and atomics are cells.
#[repr(transparent)]
pub struct Fixed<T>(core::cell::UnsafeCell<T>);

// SAFETY: shared access copies the value, which nobody writes.
unsafe impl<T: Sync> Sync for Fixed<T> {}

impl<T: Copy> Fixed<T> {
    /// Makes a cell that holds `value`.
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Returns the value.
    #[inline(always)]
    pub fn get(&self) -> T {
        // SAFETY: nobody writes it.
        unsafe { *self.0.get() }
    }
}

impl<T: Copy + core::fmt::Debug> core::fmt::Debug for Fixed<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.get().fmt(f)
    }
}
