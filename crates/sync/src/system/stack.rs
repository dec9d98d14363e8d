//! Returns the unused stack of a thread to the system.

use std::ops::Range;
use std::ptr::NonNull;

use crate::pages::{self, page_size};

/// The stack in use below a frame, in bytes: the red zone, and the frames of called functions.
const IN_USE: usize = 16 << 10;

/// Returns the unused pages of this thread's stack, which is not the first one, to the system.
#[inline(never)]
pub(crate) fn discard() {
    let Some(stack) = this_stack() else {
        return;
    };
    let here = std::hint::black_box(&raw const stack).addr();
    let page = page_size();
    let lowest = stack.start.addr().next_multiple_of(page);
    if let Some(len) = unused(lowest..stack.end.addr(), here, page)
        && let Some(lowest) = NonNull::new(stack.start.with_addr(lowest))
    {
        // SAFETY: the pages are below all frames in use on this thread's stack. A signal handler
        // that uses them returns before this thread continues.
        unsafe { pages::discard(lowest, len) };
    }
}

/// Returns the unused bytes at the start of `stack`, in whole pages, if a local variable is at
/// `here`. A sanitizer may move local variables off the stack; the result is then `None`.
fn unused(stack: Range<usize>, here: usize, page: usize) -> Option<usize> {
    let end = here.saturating_sub(IN_USE) & !(page - 1);
    let len = end.checked_sub(stack.start).filter(|len| *len > 0);
    len.filter(|_| stack.contains(&here))
}

fn this_stack() -> Option<Range<*mut u8>> {
    if cfg!(miri) {
        return None;
    }
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut lowest, mut len) = (std::ptr::null_mut(), 0);
    // SAFETY: the first call initializes the attributes if it succeeds; the last one destroys them.
    let refused = unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let refused =
            libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut lowest, &raw mut len);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        refused
    };
    let lowest = lowest.cast::<u8>();
    (refused == 0).then(|| lowest..lowest.wrapping_add(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stack_below_an_own_local_is_unused() {
        let (page, stack) = (4096, 0x10_0000..0x30_0000);
        let unused = |here| unused(stack.clone(), here, page);
        assert_eq!(unused(0x2f_fff0), Some((0x1f_fff0 - IN_USE) & !(page - 1)));
        assert_eq!(unused(0x10_0000 + IN_USE), None, "all is in use");
        // A sanitizer may keep locals in its own memory, above the stack or below it.
        assert_eq!([0x30_0000, 0x290_0000, 0xf_0000].map(unused), [None; 3]);
    }

    /// Returns `true` if the page that contains `address`, on this thread's stack, is in memory.
    fn is_resident(address: usize) -> bool {
        let page = page_size();
        let (start, mut resident) = (address & !(page - 1), 0);
        let start = std::ptr::without_provenance_mut(start);
        // SAFETY: the call does not access the page.
        assert_eq!(unsafe { libc::mincore(start, page, &raw mut resident) }, 0);
        resident & 1 == 1
    }

    #[inline(never)]
    fn dig() -> usize {
        let deep = [1_u8; 512 << 10];
        std::hint::black_box(&deep).as_ptr().addr()
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no pages")]
    fn used_stack_pages_are_returned_and_can_be_used_again() {
        let body = || {
            let above = std::hint::black_box([7_u8; 64]);
            let deep = dig();
            assert!(is_resident(deep));
            crate::thread::give_stack_back();
            assert!(!is_resident(deep));
            assert!(above.iter().all(|byte| *byte == 7));
            assert!(is_resident(dig()));
        };
        crate::thread::spawn("dig", body).unwrap().join().unwrap();
    }
}
