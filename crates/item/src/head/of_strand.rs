//! The mark by which a closure finds its strand, and detects bulk cancels since it was spawned.

use super::Head;

/// The mark of a closure of a strand.
#[derive(Clone, Copy, Debug)]
pub struct OfStrand {
    /// The item of the strand. It must only be compared, because it may be freed once the closure
    /// has ended.
    pub item: *const Head,
    /// The number of bulk cancels of the queue when the closure was spawned.
    pub nr_cancels: u32,
}

// SAFETY: the pointer is only compared.
unsafe impl Send for OfStrand {}
