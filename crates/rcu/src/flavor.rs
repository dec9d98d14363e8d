//! The two kinds of readers that a cell can have, and the interface that it needs from them.

use super::callback::{self, callbacks};
use super::{local, polled, qsbr, srcu};

/// The readers of a cell: [`Global`], or a [`srcu::Domain`].
///
/// The trait is sealed, because a flavor whose guards did not protect would make
/// [`Rcu::load`](super::Rcu::load) unsound.
pub trait Flavor: Sized + sealed::Sealed {
    /// A section that lasts until the guard is dropped.
    type Guard<'a>: Section<Self>
    where
        Self: 'a;

    /// Begins a section.
    fn read(&self) -> Self::Guard<'_>;

    /// Waits until every section that has already begun has ended.
    fn synchronize(&self);

    /// Runs `callback` after every section that has already begun has ended. If this function
    /// panics, `callback` is leaked. Blocks as [`rcu::call`](super::call) does.
    fn call(&self, callback: impl FnOnce() + Send + 'static);

    /// Runs `callback` as [`call`](Self::call) does, but never waits.
    #[doc(hidden)]
    fn call_at_once(&self, callback: impl FnOnce() + Send + 'static);

    /// Returns `true` if `try_call` must reject a callback.
    #[doc(hidden)]
    fn is_full(&self) -> bool;

    /// Panics if [`synchronize`](Self::synchronize) would, with a message that names `what`.
    #[doc(hidden)]
    fn assert_may_wait(&self, what: &str);

    /// Panics if [`call`](Self::call) would.
    #[doc(hidden)]
    fn assert_may_call(&self);

    /// Returns `true` if the callbacks of [`call`](Self::call) will run without a further call.
    /// Otherwise thread creation has failed, and this call has tried again.
    #[doc(hidden)]
    fn is_served(&self) -> bool;
}

/// Proof that a section of the flavor `F` is open: a guard or, for [`Global`], a [`qsbr::Reader`].
///
/// The trait is sealed, as [`Flavor`] is.
pub trait Section<F>: sealed::Sealed {
    /// Returns `true` if this is a section of `flavor`. All readers of [`Global`] are.
    #[inline(always)]
    fn is_of(&self, _flavor: &F) -> bool {
        true
    }
}

mod sealed {
    use std::borrow::Borrow;

    use super::{Global, local, qsbr, srcu};

    pub trait Sealed {}
    impl Sealed for Global {}
    impl Sealed for srcu::Domain {}
    impl Sealed for local::Guard {}
    impl Sealed for qsbr::Reader {}
    impl<D: Borrow<srcu::Domain>> Sealed for srcu::GuardOf<D> {}
}

/// The readers of the process: [`read`](super::read), [`synchronize`](super::synchronize).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Global;

impl Flavor for Global {
    type Guard<'a> = local::Guard;

    #[inline(always)]
    fn read(&self) -> local::Guard {
        local::read()
    }

    fn synchronize(&self) {
        polled::synchronize();
    }

    fn call(&self, callback: impl FnOnce() + Send + 'static) {
        callback::call(callback);
    }

    fn call_at_once(&self, callback: impl FnOnce() + Send + 'static) {
        callback::call_at_once(callback);
    }

    fn is_full(&self) -> bool {
        callbacks().is_full()
    }

    fn assert_may_wait(&self, what: &str) {
        local::outside_of_sections(what);
    }

    /// Never panics.
    #[inline(always)]
    fn assert_may_call(&self) {}

    fn is_served(&self) -> bool {
        callbacks().is_served()
    }
}

impl Section<Global> for local::Guard {}
impl Section<Global> for qsbr::Reader {}
