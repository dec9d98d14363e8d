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

/// What the frames at and above a call may reach below their own: the red zone, and what the call itself takes.
#[cfg(not(any(loom, shuttle, sim)))]
const IN_USE: usize = 16 << 10;

/// Gives the pages of this thread's stack that no call uses back to the system. Not for a process's first thread, whose stack grows.
#[cfg(not(any(loom, shuttle, sim)))]
#[inline(never)]
pub(crate) fn discard_stack() {
    let Some(lowest) = lowest_of_stack() else {
        return;
    };
    let page = rustix::param::page_size();
    let here = std::hint::black_box(&raw const lowest).addr();
    let end = here.saturating_sub(IN_USE) & !(page - 1);
    let Some(len) = end.checked_sub(lowest.addr().get()).filter(|len| *len > 0) else {
        return;
    };
    // SAFETY: of this thread's stack, below all that is in use; a signal that comes has returned before this goes on.
    unsafe { discard(lowest, len) };
}

/// Returns where this thread's stack ends downwards, at a whole page.
#[cfg(not(any(loom, shuttle, sim)))]
fn lowest_of_stack() -> Option<NonNull<u8>> {
    if cfg!(miri) {
        return None;
    }
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut lowest, mut len) = (std::ptr::null_mut(), 0);
    // SAFETY: filled in by the first call, if that says so, and given back by the last.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let told = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut lowest, &raw mut len);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        if told != 0 {
            return None;
        }
    }
    let page = rustix::param::page_size();
    let above = lowest.addr().next_multiple_of(page) - lowest.addr();
    NonNull::new(lowest.cast::<u8>().wrapping_add(above))
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

    /// Returns whether the page is in memory that holds `address`, of this thread's stack.
    #[cfg(not(any(loom, shuttle, sim)))]
    fn is_resident(address: usize) -> bool {
        let page = rustix::param::page_size();
        let (start, mut resident) = (address & !(page - 1), 0);
        let start = std::ptr::without_provenance_mut(start);
        // SAFETY: nothing is read or written there.
        assert_eq!(unsafe { libc::mincore(start, page, &raw mut resident) }, 0);
        resident & 1 == 1
    }

    /// Uses half a mebibyte of stack, and returns an address near its end.
    #[cfg(not(any(loom, shuttle, sim)))]
    #[inline(never)]
    fn dig() -> usize {
        let deep = [1_u8; 512 << 10];
        std::hint::black_box(&deep).as_ptr().addr()
    }

    #[cfg(not(any(loom, shuttle, sim)))]
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no pages")]
    fn what_a_thread_used_of_its_stack_once_goes_back_and_can_be_used_again() {
        let body = || {
            let above = std::hint::black_box([7_u8; 64]);
            let deep = dig();
            assert!(is_resident(deep));
            crate::thread::give_stack_back();
            assert!(!is_resident(deep));
            assert!(above.iter().all(|byte| *byte == 7));
            assert!(is_resident(dig()));
        };
        let (tell, told) = std::sync::mpsc::channel();
        let thread = crate::thread::spawn("dig", move || {
            tell.send(std::panic::catch_unwind(body).is_ok()).unwrap();
        });
        assert!(told.recv().unwrap());
        thread.unwrap().join().unwrap();
    }
}
