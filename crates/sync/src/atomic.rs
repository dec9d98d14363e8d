//! Atomic words and fences.

pub use core::sync::atomic::{Ordering, compiler_fence};

pub use crate::backend::sync::atomic::{
    AtomicBool, AtomicI32, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    AtomicUsize, fence,
};
