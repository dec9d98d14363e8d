//! The operations that the torture of grace periods uses, for any flavor.

use afterwork::rcu::srcu::{Cookie, Domain, OwnedGuard};
use afterwork::rcu::{self, GpCookie, qsbr};

use crate::support::*;

pub trait Flavor: Clone + Send + Sync + 'static {
    type Guard<'a>;
    type Cookie;
    fn read(&self) -> Self::Guard<'_>;
    /// Returns a guard that another thread may drop, if the flavor has such guards.
    fn read_owned(&self) -> Option<OwnedGuard> {
        None
    }
    fn synchronize(&self);
    fn get_state(&self) -> Self::Cookie;
    fn poll_state(&self, cookie: &Self::Cookie) -> bool;
    fn cond_synchronize(&self, cookie: Self::Cookie);
    fn call(&self, callback: impl FnOnce() + Send + 'static);
    fn barrier(&self);
    /// Calls a slow `body` outside of sections.
    fn rest(&self, body: impl FnOnce()) {
        body();
    }
}

/// Implements all of a flavor except its readers, by functions of `rcu` or methods of a domain.
macro_rules! grace_periods {
    ($self:ident, $cookie:ty, $($of:tt)*) => {
        type Cookie = $cookie;
        fn synchronize(&$self) {
            $($of)* synchronize();
        }
        fn get_state(&$self) -> $cookie {
            $($of)* get_state()
        }
        fn poll_state(&$self, cookie: &$cookie) -> bool {
            $($of)* poll_state(*cookie)
        }
        fn cond_synchronize(&$self, cookie: $cookie) {
            $($of)* cond_synchronize(cookie);
        }
        fn call(&$self, callback: impl FnOnce() + Send + 'static) {
            $($of)* call(callback);
        }
        fn barrier(&$self) {
            $($of)* barrier();
        }
    };
}

#[derive(Clone)]
pub struct Tree;

impl Flavor for Tree {
    type Guard<'a> = rcu::Guard;
    fn read(&self) -> rcu::Guard {
        rcu::read()
    }
    grace_periods!(self, GpCookie, rcu::);
}

/// The readers of the process, which report at the end of a section.
#[derive(Clone)]
pub struct Qsbr;

thread_local! {
    static ONLINE: RefCell<Option<qsbr::Reader>> = const { RefCell::new(None) };
    static NR_OPEN: Cell<u32> = const { Cell::new(0) };
}

/// A round of an online reader. No quiescent state takes effect until it is dropped.
pub struct Round {
    /// The guard of a nested section. It prevents an early report from taking effect.
    inner: Option<rcu::Guard>,
}

sync::on_drop!(Round, this => {
    let is_inner = this.inner.take().is_some();
    NR_OPEN.set(NR_OPEN.get() - 1);
    if !is_inner || NR_OPEN.get() == 0 {
        ONLINE.with_borrow_mut(|online| online.as_mut().unwrap().quiescent());
    }
});

impl Flavor for Qsbr {
    type Guard<'a> = Round;
    fn read(&self) -> Round {
        ONLINE.with_borrow_mut(|online| _ = online.get_or_insert_default());
        let is_inner = NR_OPEN.replace(NR_OPEN.get() + 1) > 0;
        Round { inner: is_inner.then(rcu::read) }
    }
    grace_periods!(self, GpCookie, rcu::);
    fn rest(&self, body: impl FnOnce()) {
        ONLINE.with_borrow_mut(|online| match online {
            Some(reader) => reader.offline(body),
            None => body(),
        });
    }
}

#[derive(Clone)]
pub struct Srcu(pub Domain);

impl Flavor for Srcu {
    type Guard<'a> = rcu::srcu::Guard<'a>;
    fn read(&self) -> rcu::srcu::Guard<'_> {
        self.0.read()
    }
    fn read_owned(&self) -> Option<OwnedGuard> {
        Some(self.0.read_owned())
    }
    grace_periods!(self, Cookie, self.0.);
}
