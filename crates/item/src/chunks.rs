//! Allocates slabs, and schedules the scans that return the memory of a burst to the system.
//!
//! | state | transitions |
//! |---|---|
//! | idle | more than half a megabyte is in use → wanted |
//! | wanted | the last block of a chunk is freed → due after a pause |
//! | due | the manager of a registry reaches the due time → scanning |
//! | scanning | done, little is in use → idle; a slab was used → due; otherwise → wanted |
//!
//! After a program has stopped queueing items, there are therefore at most two more scans: the
//! first finds that the chunks have been used, and the second discards them. A reaper performs the
//! scans, because a manager must not block.

use std::alloc::{self, Layout};
use std::ops::{Deref, Range};
use std::ptr::NonNull;

use base::internal::wake::Unparker;
use sync::fork::{self, Handler};
use sync::{Mutex, pages, time};

use super::slab::{SIZES, SLAB, Scanned, Slab, Wanted, chunk_size};

/// The number of slabs allocated at once, so that their alignment wastes little address space.
const NR_AT_ONCE: usize = if cfg!(miri) { 1 } else { 4 };
/// The amount of memory in use up to which there are no scans, because little could be gained.
const KEPT: usize = if cfg!(miri) { 0 } else { 512 << 10 };
/// The pause between a use and a scan. Memory is returned within twice this time after its last
/// use. The value is a guess.
const PAUSE_NS: u64 = 1_000_000_000;

/// A chunk of one class of blocks, by its address.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Chunk(NonNull<u8>);

impl Chunk {
    /// The value that represents no chunk. It points into no slab.
    pub(crate) const NONE: Self = Self(NonNull::dangling());

    #[inline(always)]
    pub(crate) fn of(block: NonNull<u8>, class: usize) -> (Self, u64) {
        let in_chunk = block.addr().get() & (chunk_size(class) - 1);
        // SAFETY: a chunk is aligned to its size.
        let start = unsafe { block.byte_sub(in_chunk) };
        (Self(start), 1 << (in_chunk / SIZES[class]))
    }

    pub(crate) fn in_slab(slab: Start, index: usize) -> Self {
        // SAFETY: the chunk is inside the slab.
        Self(unsafe { slab.0.cast().byte_add(index * chunk_size(slab.class)) })
    }

    /// Returns the address of a block.
    ///
    /// # Safety
    ///
    /// 1. This is a chunk, with more than `nth` blocks of `class`.
    #[inline(always)]
    pub(crate) unsafe fn block(self, nth: u32, class: usize) -> NonNull<u8> {
        // SAFETY: (1).
        unsafe { self.0.byte_add(nth as usize * SIZES[class]) }
    }

    /// Returns the slab, and the chunk's index in it.
    pub(crate) fn place(self) -> Option<(Start, usize)> {
        let in_slab = self.0.addr().get() & (SLAB - 1);
        let slab = self.0.as_ptr().wrapping_byte_sub(in_slab).cast();
        let slab = Start(NonNull::new(slab)?);
        Some((slab, in_slab / chunk_size(slab.class)))
    }

    pub(crate) fn free(self, blocks: u64) {
        if let Some((slab, index)) = self.place()
            && slab.free(index, blocks)
            && wanted().is_set()
        {
            let notified = home().lock().schedule();
            notified.iter().for_each(Unparker::unpark);
        }
    }
}

/// The start of a slab. Unlike a reference to the header, it gives access to the whole slab.
#[derive(Clone, Copy)]
pub(crate) struct Start(NonNull<Slab>);

// SAFETY: memory is not tied to a thread.
unsafe impl Send for Start {}

impl Deref for Start {
    type Target = Slab;

    #[inline(always)]
    fn deref(&self) -> &Slab {
        // SAFETY: `allocate` wrote the header, and a slab is never freed.
        unsafe { self.0.as_ref() }
    }
}

sync::process_wide! {
    fn wanted() -> Wanted = Wanted::new()
}

sync::process_wide! {
    /// The lock that is held during a scan, so that a fork waits until the scan has ended and the
    /// child loses no chunk.
    pub(crate) fn scanning() -> Mutex<()> = Mutex::new(())
}

sync::process_wide! {
    pub(crate) fn home() -> Mutex<Home> = Mutex::new(Home {
        slabs: Vec::new(),
        orphans: [const { Vec::new() }; SIZES.len()],
        nr_in_use: 0,
        due_ns: None,
        managers: Vec::new(),
    })
}

pub(crate) struct Home {
    slabs: Vec<Start>,
    orphans: [Vec<Start>; SIZES.len()],
    nr_in_use: usize,
    /// The time of the next scan, if one is due. In that case `wanted` is not set.
    due_ns: Option<u64>,
    /// The managers of all registries, which start the scans.
    managers: Vec<Unparker>,
}

/// In a child of `fork`, the slabs of threads that do not exist there are not reused.
static HANDLER: Handler = Handler {
    settle: || (),
    before: |held| {
        held.lock(scanning());
        held.lock(home());
    },
    child: || {
        let mut home = home().lock();
        home.managers.clear();
        if home.due_ns.take().is_some() {
            wanted().set(true);
        }
    },
};

pub(crate) fn take_slab(class: usize) -> Start {
    fork::register(&HANDLER);
    let orphan = home().lock().orphans[class].pop();
    orphan.unwrap_or_else(|| allocate(class))
}

/// Allocates slabs; returns one, and adds the others to those without an owner.
fn allocate(class: usize) -> Start {
    let layout = Layout::from_size_align(NR_AT_ONCE * SLAB, SLAB).expect("a constant layout");
    // SAFETY: the layout is not of size zero.
    let Some(memory) = NonNull::new(unsafe { alloc::alloc(layout) }) else {
        alloc::handle_alloc_error(layout);
    };
    let slabs: [Start; NR_AT_ONCE] = std::array::from_fn(|nth| {
        // SAFETY: the address is inside the new memory.
        let slab = unsafe { memory.byte_add(nth * SLAB).cast() };
        // SAFETY: the memory is unused, and large enough and aligned for a header.
        unsafe { slab.write(Slab::new(class)) };
        Start(slab)
    });
    let mut home = home().lock();
    home.slabs.extend(slabs);
    home.orphans[class].extend(&slabs[1..]);
    slabs[0]
}

/// Adds the slabs of an owner that exits to those without an owner.
pub(crate) fn leave(class: usize, slabs: Vec<Start>) {
    home().lock().orphans[class].extend(slabs);
}

/// Records that the owner took blocks from a chunk without pages.
#[cold]
pub(crate) fn grow(class: usize) {
    let mut home = home().lock();
    home.nr_in_use += chunk_size(class);
    if home.nr_in_use > KEPT && home.due_ns.is_none() {
        wanted().set(true);
    }
}

impl Home {
    /// Makes a scan due if none is. Returns the managers that must be woken.
    #[must_use]
    fn schedule(&mut self) -> Vec<Unparker> {
        wanted().set(false);
        if self.due_ns.is_some() {
            return Vec::new();
        }
        self.due_ns = Some(time::now_ns().saturating_add(PAUSE_NS));
        self.managers.clone()
    }
}

/// Starts or stops notifying `manager` when a scan is due.
pub fn attend(manager: &Unparker, attends: bool) {
    let mut home = home().lock();
    home.managers.retain(|other| !other.same_as(manager));
    if attends {
        home.managers.push(manager.clone());
    }
}

pub fn due_ns() -> Option<u64> {
    home().lock().due_ns
}

/// Returns `true` if a scan is due; the caller must then arrange for a call to [`scan`], because no
/// other thread will.
pub fn begin_scan(now_ns: u64) -> bool {
    let due_ns = &mut home().lock().due_ns;
    due_ns.take_if(|due_ns| *due_ns <= now_ns).is_some()
}

/// Returns the pages of unused chunks to the system, and blocks while it takes them. Call it after
/// [`begin_scan`] returned `true`.
pub fn scan() {
    wanted().begin();
    let slabs = home().lock().slabs.clone();
    let lock = scanning().lock();
    let (mut is_used, mut nr_discarded) = (false, 0);
    for slab in slabs {
        let discard = |chunks: Range<usize>| {
            let Chunk(start) = Chunk::in_slab(slab, chunks.start);
            // SAFETY: the scan owns all blocks of these chunks.
            unsafe { pages::discard(start, chunks.len() * chunk_size(slab.class)) };
        };
        let scanned: Scanned = slab.scan(discard);
        is_used |= scanned.is_used;
        nr_discarded += scanned.nr_discarded * chunk_size(slab.class);
    }
    drop(lock);
    let mut home = home().lock();
    home.nr_in_use -= nr_discarded;
    let has_much = home.nr_in_use > KEPT;
    wanted().set(has_much && home.due_ns.is_none());
    if has_much && is_used {
        let notified = home.schedule();
        drop(home);
        notified.iter().for_each(Unparker::unpark);
    }
}
