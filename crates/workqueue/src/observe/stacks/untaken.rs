//! Without the feature `stacks`, and in models: no stack is ever taken.

use std::fmt::{Error, Formatter};

use crate::workqueue::observe::report::Report;

pub(crate) fn enable(signal: u32) -> Result<(), String> {
    match signal {
        0 => Ok(()),
        _ => Err("0: this build is without the feature \"stacks\"".into()),
    }
}

pub(crate) fn add(_: &mut [Report], _: u32) {}

pub(crate) fn write_place(
    f: &mut Formatter<'_>,
    nth: usize,
    address: usize,
) -> Result<bool, Error> {
    write!(f, "\n{nth:4}: {address:#x}").map(|()| false)
}
