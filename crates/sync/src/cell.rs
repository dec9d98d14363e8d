//! A cell that a model checks for races, and a cell for memory that another thread may free.

#[cfg(loom)]
pub use loom::cell::UnsafeCell;

/// Holds a value that several threads may access under their own protocol.
///
/// The closures of [`with`](Self::with) and [`with_mut`](Self::with_mut) get a raw pointer. Loom
/// checks that no write overlaps with another access.
#[cfg(not(loom))]
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T: ?Sized>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// Creates a cell with this value.
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

/// Holds a constant value in memory that another thread may free while a reference still exists.
///
/// An example is a method whose last step gives up its own object. A `&T` argument asserts that its
/// memory stays valid until the function returns, except for that of cells and atomics.
#[repr(transparent)]
pub struct Fixed<T>(core::cell::UnsafeCell<T>);

// SAFETY: shared access copies the value, which is never written.
unsafe impl<T: Sync> Sync for Fixed<T> {}

impl<T: Copy> Fixed<T> {
    /// Creates a cell with this value.
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Returns the value.
    #[inline(always)]
    pub fn get(&self) -> T {
        // SAFETY: the value is never written.
        unsafe { *self.0.get() }
    }
}

impl<T: Copy + core::fmt::Debug> core::fmt::Debug for Fixed<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.get().fmt(f)
    }
}
