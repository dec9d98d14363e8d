//! Giving pages back to the system.

use std::ptr::NonNull;

/// Gives the pages of `len` bytes from `start` on back to the system, if they are whole pages of the process's own; what is
/// read there afterwards is zero, or what was there. Returns `true` if it did.
///
/// # Safety
///
/// 1. The caller may write to all of it, and nobody else uses it.
pub unsafe fn discard(start: NonNull<u8>, len: usize) -> bool {
    // Miri knows no madvise.
    if cfg!(miri) {
        return false;
    }
    let page = rustix::param::page_size();
    // The kernel rounds the length up.
    if !(start.addr().get() | len).is_multiple_of(page) {
        return false;
    }
    // SAFETY: (1), and it is whole pages.
    unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTNEED) == 0 }
}

#[cfg(test)]
mod tests {
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    use super::*;

    #[test]
    fn whole_pages_go_back_and_can_be_used_again() {
        let layout = Layout::from_size_align(1 << 18, 1 << 16).unwrap();
        // SAFETY: not of size zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        // SAFETY: (all of them) inside of what was allocated, which nobody else uses.
        unsafe {
            start.write_bytes(7, layout.size());
            assert!(!discard(start.add(1), 1 << 16), "no whole page");
            assert!(!discard(start, 1), "no whole page");
            assert_eq!(*start.as_ptr(), 7);
            assert_eq!(discard(start, 1 << 17), !cfg!(miri));
            let is_there = if cfg!(miri) { 7 } else { 0 };
            assert_eq!(*start.add((1 << 17) - 1).as_ptr(), is_there);
            assert_eq!(*start.add(1 << 17).as_ptr(), 7);
            start.write_bytes(1, layout.size());
            dealloc(start.as_ptr(), layout);
        }
    }
}
