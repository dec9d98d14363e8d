//! A memory allocator that reports to the test.

use std::alloc::{GlobalAlloc, Layout, System};

/// The system allocator, with functions that it calls before each allocation and each release.
pub struct Reporting {
    pub on_alloc: fn(Layout),
    pub on_free: fn(Layout),
}

// SAFETY: the system allocator does all the work. The functions allocate no memory.
unsafe impl GlobalAlloc for Reporting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        (self.on_alloc)(layout);
        // SAFETY: the caller guarantees the conditions.
        unsafe { System.alloc(layout) }
    }

    // The default implementation clears the memory itself, and writes to pages that are never used.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        (self.on_alloc)(layout);
        // SAFETY: the caller guarantees the conditions.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        (self.on_free)(layout);
        // SAFETY: the caller guarantees the conditions.
        unsafe { System.dealloc(place, layout) }
    }
}
