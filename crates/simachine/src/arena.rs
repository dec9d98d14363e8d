//! An allocator whose addresses depend on the program alone, so that equal seeds give equal runs.
//!
//! Each task allocates from its own chunks and frees to its own lists, as in the C library.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

const HEAP_AT: usize = 0x1000_0000_0000;
/// The size of the reserved address space. The host provides its pages on first use.
const HEAP_BYTES: usize = 64 << 30;
/// The number of owners of lists. Tasks with higher numbers share lists with earlier ones.
const NR_OWNERS: usize = 4096;
/// The amount of memory that a task reserves at a time for small blocks.
const CHUNK_BYTES: usize = 16 << 10;
/// The number of classes in steps of 16 bytes. Above them, there is one for each power of two.
const NR_SMALL: usize = 64;
const NR_CLASSES: usize = NR_SMALL + 1 + 30;

/// A global allocator for a program that runs a simulation.
#[derive(Debug)]
pub struct Arena {
    is_held: AtomicBool,
    state: std::cell::UnsafeCell<*mut State>,
}

/// Returns `true` if an address is in the arena.
pub fn holds(addr: usize) -> bool {
    (HEAP_AT..HEAP_AT + HEAP_BYTES).contains(&addr)
}

/// Maps fresh memory at an address range of the simulation. Returns `false` if that fails.
pub fn map(start: usize, bytes: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let flags = flags | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the call replaces no other mapping.
    unsafe { libc::mmap(start as *mut _, bytes, access, flags, -1, 0) as usize == start }
}

struct State {
    next: usize,
    owners: [Owner; NR_OWNERS],
}

struct Owner {
    chunk: (usize, usize),
    free: [*mut u8; NR_CLASSES],
}

// SAFETY: only the holder of the lock accesses the state.
unsafe impl Sync for Arena {}

impl Arena {
    /// Creates the allocator. A process may have only one.
    pub const fn new() -> Self {
        Self { is_held: AtomicBool::new(false), state: std::cell::UnsafeCell::new(null_mut()) }
    }

    fn with<R>(&self, step: impl FnOnce(&mut State) -> R) -> R {
        // Acquire pairs with the Release below.
        while self.is_held.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: we hold the lock.
        let state = unsafe { &mut *self.state.get() };
        if state.is_null() {
            if !map(HEAP_AT, HEAP_BYTES) {
                // Do not panic here, because a panic would call this allocator.
                eprintln!("afterwork: the simulation's addresses are taken");
                std::process::abort();
            }
            // Fresh memory is zero, which means that no owner has any blocks.
            *state = HEAP_AT as *mut State;
        }
        // SAFETY: the memory is mapped, zero is a valid state, and we hold the lock.
        let state = unsafe { &mut **state };
        if state.next == 0 {
            state.next = (HEAP_AT + size_of::<State>()).next_multiple_of(1 << 20);
        }
        let result = step(state);
        self.is_held.store(false, Ordering::Release);
        result
    }
}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

/// Replaces the C library's function, so that hash tables have the same order in each run.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(to: *mut u8, bytes: usize, _flags: u32) -> isize {
    // SAFETY: the caller passes a buffer of `bytes` bytes.
    unsafe { ptr::write_bytes(to, 0x5a, bytes) };
    bytes as isize
}

/// Returns the class of a layout, and the size and alignment of its blocks.
fn class_of(layout: Layout) -> (usize, usize, usize) {
    let size = layout.size().max(1);
    if layout.align() <= 16 && size <= 16 * NR_SMALL {
        let steps = size.div_ceil(16);
        (steps - 1, steps * 16, 16)
    } else {
        let size = size.max(layout.align()).next_power_of_two();
        (NR_SMALL + size.trailing_zeros() as usize - 4, size, size.min(4096).max(layout.align()))
    }
}

impl State {
    fn owner(&mut self) -> &mut Owner {
        let task = super::engine::running().map_or(0, |task| task + 1);
        &mut self.owners[task % NR_OWNERS]
    }

    fn take(&mut self, layout: Layout) -> *mut u8 {
        let (class, size, align) = class_of(layout);
        let owner = self.owner();
        let block = owner.free[class];
        if !block.is_null() {
            // SAFETY: the first word of a free block points to the next one.
            owner.free[class] = unsafe { block.cast::<*mut u8>().read() };
            return block;
        }
        if size > CHUNK_BYTES / 4 {
            return self.grow(size, align);
        }
        let at = owner.chunk.0.next_multiple_of(align);
        if at != 0 && at + size <= owner.chunk.1 {
            owner.chunk.0 = at + size;
            return at as *mut u8;
        }
        let chunk = self.grow(CHUNK_BYTES, 4096) as usize;
        if chunk == 0 {
            return null_mut();
        }
        self.owner().chunk = (chunk + size, chunk + CHUNK_BYTES);
        chunk as *mut u8
    }

    fn grow(&mut self, size: usize, align: usize) -> *mut u8 {
        let at = self.next.next_multiple_of(align);
        if at + size > HEAP_AT + HEAP_BYTES {
            return null_mut();
        }
        self.next = at + size;
        at as *mut u8
    }
}

// SAFETY: blocks of a class are at least as large and aligned as the layouts of the class require.
// No block is allocated twice: it comes from unused memory or from a list of freed blocks.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.with(|state| state.take(layout))
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.with(|state| {
            let class = class_of(layout).0;
            let owner = state.owner();
            // SAFETY: the caller no longer uses the block, and every block can hold a pointer.
            unsafe { block.cast::<*mut u8>().write(owner.free[class]) };
            owner.free[class] = block;
        });
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let wanted =
            Layout::from_size_align(size, layout.align()).expect("the caller keeps it in range");
        if class_of(wanted).0 == class_of(layout).0 {
            return block;
        }
        // SAFETY: both blocks are at least as large as the smaller of the two layouts.
        unsafe {
            let other = self.alloc(wanted);
            if !other.is_null() {
                ptr::copy_nonoverlapping(block, other, size.min(layout.size()));
                self.dealloc(block, layout);
            }
            other
        }
    }
}
