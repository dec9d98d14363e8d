//! The names of `on.rs` in a build without events. They do nothing.

use super::Item;

#[derive(Debug, Default)]
pub struct Noted;

impl Noted {
    #[inline(always)]
    pub fn activate<'a>(&mut self, _items: impl FnOnce() -> Vec<Item<'a>>) {}

    #[inline(always)]
    pub fn emit(self) {}
}

macro_rules! events {
    (
        steps { $($(#[$of_step:meta])* $step:ident, $message:literal;)* }
        $($(#[$meta:meta])* $name:ident($($arg:ident: $type:ty),*), $($of_event:tt),*;)*
    ) => {
        $(#[inline(always)] pub fn $step<'a>(_item: impl FnOnce() -> Item<'a>) {})*
        $(#[inline(always)] pub fn $name($(_: $type),*) {})*
    };
}

#[inline(always)]
pub fn remember(_item: usize, _begun: impl FnOnce() -> bool) {}

#[inline(always)]
pub fn forget(_item: usize) {}

#[must_use]
#[derive(Debug)]
pub struct Within;

#[inline(always)]
pub fn enter(_item: usize, _again: bool) -> Within {
    Within
}

#[must_use]
#[derive(Debug)]
pub struct Held;

#[inline(always)]
pub fn hold() -> Held {
    Held
}

#[inline(always)]
pub fn hold_without_span() -> Held {
    Held
}

#[inline(always)]
pub fn is_emitting() -> bool {
    false
}
