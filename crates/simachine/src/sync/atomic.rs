//! Atomic words. An access costs what its cache line costs. All accesses have one total order.

// The methods are documented in core.
#![allow(missing_docs)]

use core::sync::atomic as real;
pub use core::sync::atomic::Ordering;
use std::panic::Location;

use crate::memory::{Access, changed, touch};

pub fn fence(_order: Ordering) {
    crate::memory::fence();
}

/// Returns the access that a store makes. A `SeqCst` store is, or costs as much as, an exchange.
fn store_access(order: Ordering) -> Access {
    if order == Ordering::SeqCst { Access::Rmw } else { Access::Store }
}

// The words themselves are accessed with `Relaxed`, because one OS thread runs all tasks.
const ORDER: Ordering = Ordering::Relaxed;

macro_rules! word {
    ($name:ident $(<$param:ident>)?, $type:ty) => {
        #[doc = concat!("Stands for `core::sync::atomic::", stringify!($name), "`.")]
        #[repr(transparent)]
        pub struct $name$(<$param>)?(real::$name$(<$param>)?);

        impl$(<$param>)? $name$(<$param>)? {
            pub const fn new(value: $type) -> Self {
                Self(real::$name::new(value))
            }
            #[inline]
            #[track_caller]
            fn pay(&self, access: Access) {
                touch((&raw const self.0).addr(), access, Location::caller());
            }
            #[inline]
            #[track_caller]
            pub fn load(&self, _order: Ordering) -> $type {
                self.pay(Access::Load);
                self.0.load(ORDER)
            }
            #[inline]
            #[track_caller]
            pub fn store(&self, value: $type, order: Ordering) {
                self.pay(store_access(order));
                self.0.store(value, ORDER);
            }
            #[inline]
            #[track_caller]
            pub fn swap(&self, value: $type, _order: Ordering) -> $type {
                self.pay(Access::Rmw);
                self.0.swap(value, ORDER)
            }
            #[inline]
            #[track_caller]
            pub fn compare_exchange(&self, seen: $type, value: $type, _done: Ordering, _failed: Ordering) -> Result<$type, $type> {
                self.pay(Access::Cas);
                let result = self.0.compare_exchange(seen, value, ORDER, ORDER);
                if result.is_ok() {
                    changed();
                }
                result
            }
            #[inline]
            #[track_caller]
            pub fn compare_exchange_weak(&self, seen: $type, value: $type, done: Ordering, failed: Ordering) -> Result<$type, $type> {
                self.compare_exchange(seen, value, done, failed)
            }
            #[track_caller]
            pub fn fetch_update(&self, done: Ordering, failed: Ordering, mut next: impl FnMut($type) -> Option<$type>) -> Result<$type, $type> {
                let mut seen = self.load(failed);
                while let Some(value) = next(seen) {
                    match self.compare_exchange_weak(seen, value, done, failed) {
                        Ok(seen) => return Ok(seen),
                        Err(now) => seen = now,
                    }
                }
                Err(seen)
            }
            pub fn get_mut(&mut self) -> &mut $type {
                self.0.get_mut()
            }
            pub fn into_inner(self) -> $type {
                self.0.into_inner()
            }
            pub const fn as_ptr(&self) -> *mut $type {
                self.0.as_ptr()
            }
        }
        impl$(<$param>)? core::fmt::Debug for $name$(<$param>)? {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! steps {
    ($name:ident, $type:ty: $($step:ident)*) => {
        impl $name {
            $(#[inline]
            #[track_caller]
            pub fn $step(&self, value: $type, _order: Ordering) -> $type {
                self.pay(Access::Rmw);
                self.0.$step(value, ORDER)
            })*
        }
        impl Default for $name {
            fn default() -> Self {
                Self::new(<$type>::default())
            }
        }
    };
}

macro_rules! integers {
    ($($name:ident: $type:ty),*) => {$(
        word!($name, $type);
        steps!($name, $type: fetch_add fetch_sub fetch_and fetch_or fetch_xor fetch_max fetch_min);
    )*};
}

integers!(AtomicU8: u8, AtomicU16: u16, AtomicU32: u32, AtomicU64: u64, AtomicUsize: usize, AtomicI32: i32, AtomicIsize: isize);
word!(AtomicBool, bool);
steps!(AtomicBool, bool: fetch_and fetch_or fetch_xor);
word!(AtomicPtr<T>, *mut T);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(core::ptr::null_mut())
    }
}
