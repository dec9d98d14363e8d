//! The names of `on.rs` in a build without events. They do nothing.

use std::fmt;

use super::Item;

/// Records nothing.
#[derive(Debug, Default)]
pub struct Noted;

impl Noted {
    #[inline(always)]
    pub fn activate<'a>(&mut self, _items: impl FnOnce() -> Vec<Item<'a>>) {}

    #[inline(always)]
    pub fn emit(self) {}
}

#[inline(always)]
pub fn queue_work<'a>(_item: impl FnOnce() -> Item<'a>) {}

#[inline(always)]
pub fn activate_work<'a>(_item: impl FnOnce() -> Item<'a>) {}

#[inline(always)]
pub fn execute_start<'a>(_item: impl FnOnce() -> Item<'a>) {}

#[inline(always)]
pub fn execute_end<'a>(_item: impl FnOnce() -> Item<'a>) {}

#[inline(always)]
pub fn mayday(_queue: &str, _pool: usize) {}

#[inline(always)]
pub fn rescue(_queue: &str, _pool: usize, _nr_items: usize) {}

#[inline(always)]
pub fn report(_kind: &'static str, _queue: &str, _text: &dyn fmt::Display) {}

#[inline(always)]
pub fn gp_start(_flavor: &'static str, _gp_seq: u64) {}

#[inline(always)]
pub fn gp_end(_flavor: &'static str, _gp_seq: u64) {}

#[inline(always)]
pub fn rcu_stall(_thread: u32, _text: &dyn fmt::Display) {}

#[inline(always)]
pub fn remember(_item: usize, _begun: impl FnOnce() -> bool) {}

#[inline(always)]
pub fn forget(_item: usize) {}

/// Enters no span.
#[must_use]
#[derive(Debug)]
pub struct Within;

#[inline(always)]
pub fn enter(_item: usize, _again: bool) -> Within {
    Within
}

/// A stay. Without `tracing` it keeps nothing.
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
