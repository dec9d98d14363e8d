//! Returns pages to the system.

use std::ptr::NonNull;

pub(crate) fn page_size() -> usize {
    // SAFETY: the call only returns a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Returns to the system all whole pages within the `len` bytes at `start`, if they are private
/// pages of the process. Later reads return zero or the old contents. Returns `true` on success.
///
/// # Safety
///
/// 1. The caller may write to all of the memory, and no other thread uses it.
pub unsafe fn discard(start: NonNull<u8>, len: usize) -> bool {
    // Miri does not support madvise.
    if cfg!(miri) {
        return false;
    }
    let page = page_size();
    let before = start.addr().get().wrapping_neg() % page;
    let len = len.saturating_sub(before) / page * page;
    let first = start.as_ptr().wrapping_add(before).cast();
    // SAFETY: (1), and the range consists of whole pages.
    len != 0 && unsafe { libc::madvise(first, len, libc::MADV_DONTNEED) == 0 }
}

#[cfg(test)]
mod tests {
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    use super::*;

    #[test]
    fn whole_pages_are_returned_and_can_be_used_again() {
        let layout = Layout::from_size_align(1 << 18, 1 << 16).unwrap();
        // SAFETY: the layout does not have size zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        // SAFETY: all calls are inside the allocation, which no other thread uses.
        unsafe {
            start.write_bytes(7, layout.size());
            let page = page_size();
            assert!(!discard(start.add(1), 2 * page - 2), "no whole page");
            assert!(!discard(start, page - 1), "no whole page");
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
