//! Keeps the stacks of loom's threads from one run of a model to the next.
//!
//! Loom maps a stack for each thread of each run, and unmaps it at the end, which takes longer than
//! a short run. This program therefore defines `mmap` and `munmap`, which take precedence over
//! those of the C library: a stack that is unmapped is kept, and the next thread gets it.

use std::ffi::{c_int, c_void};
use std::ptr::with_exposed_provenance_mut;
use std::sync::Mutex;

/// The mapping of a thread: a stack of 32 KiB and a guard page. If another version of loom uses
/// another size, the models take longer.
const SIZE: usize = 0x8000 + 0x1000;

/// The addresses of the stacks. A running test uses at most `loom::MAX_THREADS`.
struct Stacks {
    used: Vec<usize>,
    free: Vec<usize>,
}

static STACKS: Mutex<Stacks> = Mutex::new(Stacks { used: Vec::new(), free: Vec::new() });

/// # Safety
///
/// 1. The same as for the C library's `mmap`.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    size: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    // SAFETY: (1), for the same arguments.
    let map = || unsafe {
        libc::syscall(libc::SYS_mmap, address, size, protection, flags, file, offset) as usize
    };
    if size != SIZE || flags & libc::MAP_STACK == 0 || !address.is_null() {
        return with_exposed_provenance_mut(map());
    }
    let mut stacks = STACKS.lock().unwrap();
    let stack = stacks.free.pop().unwrap_or_else(map);
    // A call that fails adds an address that no caller unmaps.
    stacks.used.push(stack);
    with_exposed_provenance_mut(stack)
}

/// # Safety
///
/// 1. The same as for the C library's `munmap`.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(address: *mut c_void, size: usize) -> c_int {
    if size == SIZE {
        let Stacks { used, free } = &mut *STACKS.lock().unwrap();
        let stack = address.expose_provenance();
        if let Some(at) = used.iter().position(|used| *used == stack) {
            free.push(used.swap_remove(at));
            return 0;
        }
    }
    // SAFETY: (1), for the same arguments.
    unsafe { libc::syscall(libc::SYS_munmap, address, size) as c_int }
}
