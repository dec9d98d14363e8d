//! The two kinds of readers that a cell can have, and the interface that it needs from them.

use sync::twin;

use super::{
    callback::{self, callbacks},
    local, polled, qsbr, srcu,
};

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

    /// Runs `callback` as [`call`](Self::call) does, but never waits, however many callbacks there
    /// are.
    #[doc(hidden)]
    fn call_at_once(&self, callback: impl FnOnce() + Send + 'static);

    /// Returns `true` if `try_call` must reject a callback.
    #[doc(hidden)]
    fn is_full(&self) -> bool;

    /// Calls `change`, then waits as [`synchronize`](Self::synchronize) does. If that would panic,
    /// this panics before `change`, with a message that names `what`.
    #[doc(hidden)]
    fn synchronize_after<R>(&self, what: &str, change: impl FnOnce() -> R) -> R;

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
    /// Returns `true` if this is a section of `flavor`.
    fn is_of(&self, flavor: &F) -> bool;
}

mod sealed {
    use super::{Global, local, qsbr, srcu};

    pub trait Sealed {}
    impl Sealed for Global {}
    impl Sealed for srcu::Domain {}
    impl Sealed for local::Guard {}
    impl Sealed for qsbr::Reader {}
    impl Sealed for srcu::Guard<'_> {}
    impl Sealed for srcu::OwnedGuard {}
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

    fn synchronize_after<R>(&self, what: &str, change: impl FnOnce() -> R) -> R {
        let me = local::outside_of_sections(what);
        let result = change();
        polled::synchronize_as(me);
        result
    }

    /// Never panics.
    #[inline(always)]
    fn assert_may_call(&self) {}

    fn is_served(&self) -> bool {
        callbacks().is_served()
    }
}

impl Flavor for srcu::Domain {
    type Guard<'a> = srcu::Guard<'a>;

    #[inline(always)]
    fn read(&self) -> srcu::Guard<'_> {
        Self::read(self)
    }

    fn synchronize(&self) {
        Self::synchronize(self);
    }

    fn call(&self, callback: impl FnOnce() + Send + 'static) {
        Self::call(self, callback);
    }

    fn call_at_once(&self, callback: impl FnOnce() + Send + 'static) {
        self.hand_over(callback);
    }

    fn is_full(&self) -> bool {
        Self::is_full(self)
    }

    fn synchronize_after<R>(&self, _what: &str, change: impl FnOnce() -> R) -> R {
        self.assert_may_wait();
        let result = change();
        self.synchronize();
        result
    }

    fn assert_may_call(&self) {
        // With this twin, `call` panics too late, after the old version has been removed from its
        // cell.
        if !twin::armed("srcu: a refused callback is dropped") {
            self.assert_own_process();
        }
    }

    fn is_served(&self) -> bool {
        Self::is_served(self)
    }
}

impl Section<Global> for local::Guard {
    /// Always returns `true`, because there is only one global flavor.
    #[inline(always)]
    fn is_of(&self, _flavor: &Global) -> bool {
        true
    }
}

impl Section<Global> for qsbr::Reader {
    #[inline(always)]
    fn is_of(&self, _flavor: &Global) -> bool {
        true
    }
}

impl Section<srcu::Domain> for srcu::Guard<'_> {
    #[inline(always)]
    fn is_of(&self, flavor: &srcu::Domain) -> bool {
        flavor.same_as(self.domain())
    }
}

impl Section<srcu::Domain> for srcu::OwnedGuard {
    #[inline(always)]
    fn is_of(&self, flavor: &srcu::Domain) -> bool {
        flavor.same_as(self.domain())
    }
}
