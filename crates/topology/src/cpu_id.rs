//! The number of a CPU.

use std::fmt;

/// The kernel's number for a CPU.
///
/// The CPU need not exist: a [`Topology`](crate::Topology) returns `None` for a CPU that does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(u32);

impl CpuId {
    /// One more than the highest CPU number that this crate reads from a file or a string.
    ///
    /// The limit is twice that of Linux (8192). A typing error such as `0-4000000000` thus
    /// allocates no gigabytes.
    pub const LIMIT: u32 = 16_384;

    /// Creates the ID of the CPU with this number.
    #[must_use]
    pub const fn new(cpu: u32) -> Self {
        Self(cpu)
    }

    /// Returns the number as an index into an array with one slot per CPU.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the number.
    #[must_use]
    pub const fn as_u32(self) -> u32 {
        self.0
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<u32> for CpuId {
    fn from(cpu: u32) -> Self {
        Self(cpu)
    }
}
