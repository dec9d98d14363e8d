//! Allocates chunks, from which blocks are cut, and returns the memory of a burst to the system.
//!
//! A chunk in use has no counters, so allocating and freeing a block stays cheap. Instead, an
//! occasional *scan* collects all unused blocks of the caches and counts them per chunk. It returns
//! the pages of each chunk of which it has every block to the system, and puts the other blocks
//! back. The address range of such a chunk is kept and reused.
//!
//! ```text
//! scan:   request the unused blocks of each cache that has not run out since the last scan
//!         a barrier, during which the scanner sleeps
//!         take the blocks returned to the cache, and its local blocks unless its thread uses it
//!         count, discard, put the rest back
//! thread: uses its cache and finds the request: gives up its local blocks (`Biased`), and
//!         notifies the scanner
//! ```
//!
//! | state | transitions |
//! |---|---|
//! | no scan is due | chunk taken, or requested cache used or refilled → due after a pause |
//! | due | the manager of a registry reaches the due time → scanning |
//! | scanning | done → not due, or due again if a cache was in use |
//!
//! The request to a cache stays pending after the scan, so the next use of the cache schedules
//! another scan, and an idle program makes no scans. Scans start with the seventeenth chunk,
//! because there is little to gain below that.
//!
//! Scans that find little become rarer, down to one in 64 s, until a chunk is taken: a scan costs
//! 10 to 20 ns per unused block. A reaper makes the scans, because a manager must not block.

use std::{
    alloc::{self, Layout},
    mem,
    ptr::NonNull,
};

use base::internal::wake::Unparker;
use mpscq::{Chain, Taken};
use sync::{
    Mutex, asym,
    fork::{self, Handler},
    pages, time,
};

use super::memory::{
    SIZES,
    cache::{Cache, Free},
};

/// Size and alignment of a chunk, so that masking a block's address finds its chunk. At least a
/// page, because only whole pages can be returned.
const CHUNK: usize = if cfg!(miri) { 4 * 1024 } else { 32 * 1024 };
/// The number of chunks allocated at once, so that their alignment wastes little memory.
const NR_AT_ONCE: usize = if cfg!(miri) { 2 } else { 32 };
/// The number of chunks in use up to which there are no scans: half a megabyte.
const NR_KEPT: usize = if cfg!(miri) { 1 } else { 16 };
/// The pause between a use and a scan. It doubles while scans return less than an eighth of the
/// unused memory. With one second, memory is returned two seconds after its last use. A guess.
const PAUSE_NS: u64 = 1_000_000_000;
const MAX_PAUSE_NS: u64 = 64 * PAUSE_NS;

/// The header of a chunk, in the space of its first block.
#[repr(C)]
pub(super) struct Chunk {
    /// I: the cache that the blocks belong to.
    pub(super) owner: &'static Cache,
    /// I: the size class of the blocks.
    class: usize,
    /// The blocks that the current scan has found. Scanner only.
    found: Chain<Free>,
    /// The number of that scan. Scanner only.
    found_by: u64,
}

impl Chunk {
    /// Returns the chunk of a block, which stays in place as long as the block.
    #[inline(always)]
    pub(super) fn of(block: NonNull<Free>) -> *mut Self {
        let block = block.as_ptr().cast::<u8>();
        block.map_addr(|addr| addr & !(CHUNK - 1)).cast()
    }

    /// Returns the number of blocks in a chunk.
    pub(super) const fn nr_blocks(class: usize) -> usize {
        CHUNK / SIZES[class] - 1
    }
}

/// The memory of an unused chunk.
struct Spare(NonNull<u8>);

// SAFETY: memory is not tied to a thread.
unsafe impl Send for Spare {}

static HOME: Mutex<Home> = Mutex::new(Home {
    spare: Vec::new(),
    nr_in_use: 0,
    caches: Vec::new(),
    given: Vec::new(),
    due_ns: None,
    is_scanning: false,
    nr_scans: 0,
    is_used: false,
    pause_ns: PAUSE_NS,
    managers: Vec::new(),
});

struct Home {
    /// Unused chunks, most of them without pages.
    spare: Vec<Spare>,
    nr_in_use: usize,
    /// All caches.
    caches: Vec<&'static Cache>,
    /// Blocks that threads gave up on request of the current scan.
    given: Vec<Taken<Free>>,
    /// The time of the next scan, if one is due.
    due_ns: Option<u64>,
    is_scanning: bool,
    /// The number of scans that were started; identifies each scan.
    nr_scans: u64,
    /// Set if a cache was used during the scan.
    is_used: bool,
    pause_ns: u64,
    /// The managers of all registries, which start the scans.
    managers: Vec<Unparker>,
}

/// No scan is under way in a child of `fork`. While this lock is held, no scan uses a cache. The
/// blocks that a scan of the parent held are lost in the child.
static HANDLER: Handler = Handler {
    settle: || (),
    before: |held| held.lock(&HOME),
    child: || {
        let mut home = HOME.lock();
        home.is_scanning = false;
        home.due_ns = None;
        home.managers.clear();
    },
};

/// Registers a new cache.
pub(super) fn add(cache: &'static Cache) {
    fork::register(&HANDLER);
    asym::init();
    HOME.lock().caches.push(cache);
}

/// Returns a chunk for blocks of one class.
#[cold]
pub(super) fn take(owner: &'static Cache, class: usize) -> NonNull<u8> {
    let spare = HOME.lock().spare.pop();
    let Spare(chunk) = spare.unwrap_or_else(allocate);
    let header = Chunk {
        owner,
        class,
        found: Chain::new(),
        found_by: 0,
    };
    // SAFETY: the chunk is unused, and large enough and aligned for its header.
    unsafe { chunk.cast::<Chunk>().write(header) };
    let mut home = HOME.lock();
    home.nr_in_use += 1;
    home.pause_ns = PAUSE_NS;
    notify(home.use_now());
    chunk
}

/// Allocates chunks; returns one and stores the others as spare chunks.
fn allocate() -> Spare {
    let layout = Layout::from_size_align(NR_AT_ONCE * CHUNK, CHUNK).expect("a constant layout");
    // SAFETY: the layout is not of size zero.
    let memory = unsafe { alloc::alloc(layout) };
    let Some(first) = NonNull::new(memory) else {
        alloc::handle_alloc_error(layout);
    };
    // SAFETY: (all of them) inside the memory that was just allocated.
    let others = (1..NR_AT_ONCE)
        .rev()
        .map(|i| unsafe { first.add(i * CHUNK) });
    HOME.lock().spare.extend(others.map(Spare));
    Spare(first)
}

/// Records that a requested cache was used or refilled, and takes the blocks that its thread gives
/// up.
#[cold]
pub(super) fn used(lists: Option<impl IntoIterator<Item = Taken<Free>>>) {
    let mut home = HOME.lock();
    if let (Some(lists), true) = (lists, home.is_scanning) {
        home.given.extend(lists);
    }
    notify(home.use_now());
}

fn notify(managers: Vec<Unparker>) {
    managers.iter().for_each(Unparker::unpark);
}

impl Home {
    fn begins(&mut self, wants: bool) -> bool {
        let begins = wants && !self.is_scanning;
        if begins {
            self.due_ns = None;
            self.is_scanning = true;
            self.nr_scans += 1;
            self.is_used = false;
        }
        begins
    }

    /// Returns the managers to notify that a scan is due.
    fn use_now(&mut self) -> Vec<Unparker> {
        self.is_used = true;
        if self.is_scanning || self.due_ns.is_some() || self.nr_in_use <= NR_KEPT {
            return Vec::new();
        }
        self.due_ns = Some(time::now_ns().saturating_add(self.pause_ns));
        self.managers.clone()
    }
}

/// Starts or stops notifying `manager` when a scan is due.
pub(crate) fn attend(manager: &Unparker, attends: bool) {
    let mut home = HOME.lock();
    home.managers.retain(|other| !other.same_as(manager));
    if attends {
        home.managers.push(manager.clone());
    }
}

/// Returns the time of the next scan.
pub(crate) fn due_ns() -> Option<u64> {
    HOME.lock().due_ns
}

/// Returns `true` if a scan is due; the caller must then arrange for a call of [`scan`], because no
/// other thread will.
pub(crate) fn begin_scan(now_ns: u64) -> bool {
    let mut home = HOME.lock();
    let is_due = home.due_ns.is_some_and(|due_ns| due_ns <= now_ns);
    home.begins(is_due)
}

/// Scans even if no scan is due.
#[cfg(test)]
pub(super) fn scan_now() {
    while !HOME.lock().begins(true) {
        std::thread::yield_now();
    }
    scan();
}

/// Returns the pages of unused chunks to the system. Call it after [`begin_scan`] returned `true`.
///
/// # Blocking
///
/// Blocks for a barrier, which takes milliseconds, and while it counts the blocks.
pub(crate) fn scan() {
    let (caches, number) = {
        let home = HOME.lock();
        (home.caches.clone(), home.nr_scans)
    };
    let nr_caches = caches.len();
    let asked: Vec<_> = caches.into_iter().filter(|cache| cache.ask()).collect();
    let mut lists = Vec::new();
    // ORDER(biased): the scanner's heavy end; see `Biased::with`. This barrier interrupts no other
    // thread, and a sandbox may forbid it. If no barrier is available that costs the other end
    // nothing, that end is a full fence.
    //
    // ORDER(biased-bring): the scanner's heavy end; see `Biased::note_brought`.
    let may_take = asym::heavy_quiet() || !asym::init();
    if may_take {
        for cache in &asked {
            // No fork while a cache is taken.
            let _home = HOME.lock();
            cache.take_unused(&mut lists);
        }
    }
    lists.append(&mut HOME.lock().given);
    let (nr_blocks, unused) = sort(lists, number);
    let found_little = !may_take || unused.len() * CHUNK * 8 < nr_blocks * SIZES[0];
    for Spare(chunk) in &unused {
        // SAFETY: we hold every block of the chunk, and therefore the chunk.
        unsafe { pages::discard(*chunk, CHUNK) };
    }
    end_scan(unused, found_little, asked.len() < nr_caches);
}

/// Ends a scan that returned the pages of `unused`. Schedules another one if `again` is set or a
/// cache was used during the scan.
fn end_scan(unused: Vec<Spare>, found_little: bool, again: bool) {
    let mut home = HOME.lock();
    home.nr_in_use -= unused.len();
    home.spare.extend(unused);
    home.is_scanning = false;
    home.pause_ns = match found_little {
        true => (home.pause_ns * 2).min(MAX_PAUSE_NS),
        false => PAUSE_NS,
    };
    if home.is_used || again {
        notify(home.use_now());
    }
    let late = mem::take(&mut home.given);
    drop(home);
    // Not kept for the next scan, because there may be none.
    for given in late {
        // All blocks of a list have one cache and one class.
        if let Some(first) = NonNull::new(given.peek().cast_mut()) {
            let chunk = Chunk::of(first);
            // SAFETY: (both) the chunk stays in place as long as the block, and these fields do not
            // change while it is in use.
            let (owner, class) = unsafe { ((*chunk).owner, (*chunk).class) };
            owner.put_back(class, given.collect());
        }
    }
}

/// Counts the blocks per chunk. Returns the number of blocks and the chunks that are complete, and
/// puts the other blocks back. Allocates no memory per block, because that would use up the memory
/// that the scan frees.
///
/// In a child of `fork`, blocks that an earlier scan found in a chunk were held by a thread of the
/// parent, and are lost.
fn sort(lists: Vec<Taken<Free>>, number: u64) -> (usize, Vec<Spare>) {
    let (mut nr_blocks, mut seen) = (0, Vec::new());
    for block in lists.into_iter().flatten() {
        let chunk = Chunk::of(block.0);
        // SAFETY: (both) the chunk stays in place as long as the block, and only the scanner uses
        // these fields; one scan runs at a time.
        let (found, found_by) = unsafe { (&mut (*chunk).found, &mut (*chunk).found_by) };
        if mem::replace(found_by, number) != number {
            // The list may have been in the middle of a change when the process forked.
            mem::forget(mem::take(found));
            seen.push(chunk);
        }
        found.push_back(block);
        nr_blocks += 1;
    }
    let mut unused = Vec::new();
    for chunk in seen {
        // SAFETY: as above; chunks become unused only here.
        let found = mem::take(unsafe { &mut (*chunk).found });
        // SAFETY: (both) these fields do not change while the chunk is in use.
        let (owner, class) = unsafe { ((*chunk).owner, (*chunk).class) };
        if found.len() == Chunk::nr_blocks(class) {
            // The blocks become unused together with their chunk.
            mem::forget(found);
            unused.extend(NonNull::new(chunk.cast()).map(Spare));
        } else {
            owner.put_back(class, found);
        }
    }
    (nr_blocks, unused)
}

#[cfg(test)]
mod tests {
    use sync::time;

    use super::{super::memory::cache, *};

    /// More blocks than the caches of exited threads hold.
    const MANY: usize = if cfg!(miri) { 300 } else { 100_000 };

    fn blocks(nr: usize) -> Vec<NonNull<Free>> {
        (0..nr).map(|_| cache::alloc(2).cast()).collect()
    }

    fn free(blocks: impl IntoIterator<Item = NonNull<Free>>) {
        for block in blocks {
            // SAFETY: allocated by `blocks`, and not used any more.
            unsafe { cache::free(block.cast(), 2) };
        }
    }

    /// Waits until this thread can allocate all of `wanted`, which scans of other tests may hold,
    /// and asserts that it never gets `other`.
    fn has(wanted: &[NonNull<Free>], other: Option<NonNull<Free>>) -> bool {
        let end_ns = time::now_ns() + 20_000_000_000;
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        loop {
            let had = blocks(MANY);
            assert!(other.is_none_or(|it| !had.contains(&it)), "given twice");
            // Only the few wanted blocks are sorted, so that this is fast enough under Miri.
            let is_wanted = |it: &&NonNull<Free>| wanted.binary_search(it).is_ok();
            let all = had.iter().filter(is_wanted).count() == wanted.len();
            free(had);
            if all || time::now_ns() > end_ns {
                return all;
            }
        }
    }

    fn begin() {
        while !HOME.lock().begins(true) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn blocks_of_a_parents_scan_retain_no_others_of_the_chunk() {
        let thread = std::thread::spawn(|| {
            let mut all = blocks(2 * Chunk::nr_blocks(2));
            let (lost, chunk) = (all[0], Chunk::of(all[0]));
            begin();
            // The state that a scan of the parent leaves in the child.
            // SAFETY: no other scan runs, and the block that is added is ours.
            unsafe { (*chunk).found.push_back(cache::Block(lost)) };
            end_scan(Vec::new(), true, false);
            all.retain(|&block| block != lost);
            let is_beside = |it: &NonNull<Free>| Chunk::of(*it) == chunk;
            let beside: Vec<_> = all.iter().copied().filter(is_beside).collect();
            assert!(!beside.is_empty());
            free(all);
            // The first scan finds that blocks ran out; the second takes them.
            scan_now();
            scan_now();
            assert!(has(&beside, Some(lost)), "lost, too");
        });
        thread.join().unwrap();
    }

    #[test]
    fn blocks_released_at_the_end_of_a_scan_are_not_retained() {
        let all = blocks(10);
        begin();
        let mut given = Taken::new();
        for &block in &all {
            given.put_back(cache::Block(block));
        }
        used(Some([given]));
        end_scan(Vec::new(), true, false);
        assert!(has(&all, None), "kept");
    }
}
