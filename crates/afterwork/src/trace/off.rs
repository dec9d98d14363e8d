//! No events: each name of `on.rs`, doing nothing.

use std::fmt;

use super::Item;

/// Notes nothing.
#[derive(Debug, Default)]
pub(crate) struct Noted;

impl Noted {
    #[inline(always)]
    pub(crate) fn activate<'a>(&mut self, _items: impl FnOnce() -> Vec<Item<'a>>) {}

    #[inline(always)]
    pub(crate) fn tell(self) {}
}

#[inline(always)]
pub(crate) fn queue_work<'a>(_item: impl FnOnce() -> Item<'a>) {}

#[inline(always)]
pub(crate) fn activate_work<'a>(_item: impl FnOnce() -> Item<'a>) {}

#[inline(always)]
pub(crate) fn execute_start<'a>(_item: impl FnOnce() -> Item<'a>) {}

#[inline(always)]
pub(crate) fn execute_end<'a>(_item: impl FnOnce() -> Item<'a>) {}

#[inline(always)]
pub(crate) fn mayday(_queue: &str, _pool: usize) {}

#[inline(always)]
pub(crate) fn rescue(_queue: &str, _pool: usize, _nr_items: usize) {}

#[inline(always)]
pub(crate) fn report(_kind: &'static str, _queue: &str, _text: &dyn fmt::Display) {}

#[inline(always)]
pub(crate) fn gp_start(_flavor: &'static str, _gp_seq: u64) {}

#[inline(always)]
pub(crate) fn gp_end(_flavor: &'static str, _gp_seq: u64) {}

#[inline(always)]
pub(crate) fn rcu_stall(_thread: u32, _text: &dyn fmt::Display) {}

#[inline(always)]
pub(crate) fn remember(_item: usize, _begun: impl FnOnce() -> bool) {}

#[inline(always)]
pub(crate) fn forget(_item: usize) {}

/// Nothing is entered.
#[must_use]
#[derive(Debug)]
pub(crate) struct Within;

#[inline(always)]
pub(crate) fn enter(_item: usize, _again: bool) -> Within {
    Within
}

/// A stay, which keeps nothing without `tracing`.
#[must_use]
#[derive(Debug)]
pub(crate) struct Held;

#[inline(always)]
pub(crate) fn hold() -> Held {
    Held
}

#[inline(always)]
pub(crate) fn hold_without_span() -> Held {
    Held
}

#[inline(always)]
pub(crate) fn is_telling() -> bool {
    false
}
