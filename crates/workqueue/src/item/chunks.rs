//! Where blocks are cut from, and how the memory of a burst goes back to the system.
//!
//! A chunk that has been cut up counts nothing: what is done for each item stays as cheap as it is. Instead a *look* now and
//! then gathers all blocks that lie unused in caches, counts them chunk by chunk, gives the pages of those chunks back of which
//! it has every block, and puts the other blocks where they were. The address range stays, for the next that needs a chunk.
//!
//! ```text
//! look:   ask each cache that has not run out of blocks since the last look
//!         a barrier, for which the looker sleeps
//!         take what came back to the cache, and what its thread has at hand, if that thread is elsewhere
//!         count, discard, put the rest back
//! thread: uses its cache, finds that it is asked: gives what it has at hand (`biased.rs`), and tells the looker
//! ```
//!
//! | state | left when |
//! |---|---|
//! | no look is due | a chunk is taken, a cache that is asked is used, or gets blocks back → due after a pause |
//! | due | the manager of a registry comes to it → a look |
//! | a look | done → none is due, or the next one, if a cache was in use |
//!
//! A cache stays asked when the look is over, so the first who uses it afterwards has the next look made, and a program that
//! does nothing has none. Looks begin with the seventeenth chunk: below that there is nothing to be won.
//!
//! Looks that find little grow rare, up to one in 64 s, until a chunk is taken: each costs 10 to 20 ns for each block that lies
//! unused. They are made by a reaper, for a manager waits for nobody.

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

use super::{
    cache::{Cache, Free},
    slab::SIZES,
};

/// Chunks are as large as they are aligned, so that a block's chunk is found by masking. No smaller than a page, or its
/// pages do not go back.
const CHUNK: usize = if cfg!(miri) { 4 * 1024 } else { 32 * 1024 };
/// How many chunks are asked of the allocator at once, so that little is lost to their alignment.
const NR_AT_ONCE: usize = if cfg!(miri) { 2 } else { 32 };
/// How many chunks are in use before looks begin: half a megabyte.
const NR_KEPT: usize = if cfg!(miri) { 1 } else { 16 };
/// From a use to a look; doubled as long as looks find less than an eighth of what they count. With a second what came back
/// is gone after two. A guess.
const PAUSE_NS: u64 = 1_000_000_000;
const MAX_PAUSE_NS: u64 = 64 * PAUSE_NS;

/// What stands at the start of each chunk, in the place of a first block.
#[repr(C)]
pub(super) struct Chunk {
    /// I: whose blocks they are.
    pub(super) owner: &'static Cache,
    /// I: which class they are of.
    class: usize,
    /// Those that the looker has found. Its own.
    found: Chain<Free>,
    /// By which look. Its own.
    found_by: u64,
}

impl Chunk {
    /// Returns the chunk of a block, which is there as long as the block.
    #[inline(always)]
    pub(super) fn of(block: NonNull<Free>) -> *mut Self {
        let block = block.as_ptr().cast::<u8>();
        block.map_addr(|addr| addr & !(CHUNK - 1)).cast()
    }

    /// Returns how many blocks there are in a chunk.
    pub(super) const fn nr_blocks(class: usize) -> usize {
        CHUNK / SIZES[class] - 1
    }
}

/// Memory that nobody uses.
struct Spare(NonNull<u8>);

// SAFETY: it belongs to no thread.
unsafe impl Send for Spare {}

static HOME: Mutex<Home> = Mutex::new(Home {
    spare: Vec::new(),
    nr_in_use: 0,
    caches: Vec::new(),
    given: Vec::new(),
    due_ns: None,
    is_looking: false,
    nr_looks: 0,
    is_told: false,
    pause_ns: PAUSE_NS,
    lookers: Vec::new(),
});

struct Home {
    /// Chunks without content, most of them without pages.
    spare: Vec<Spare>,
    nr_in_use: usize,
    /// Every cache that there is.
    caches: Vec<&'static Cache>,
    /// What threads gave up that were asked by the look that goes on.
    given: Vec<Taken<Free>>,
    /// When to look, if ever.
    due_ns: Option<u64>,
    is_looking: bool,
    /// How many were begun, which names each.
    nr_looks: u64,
    /// Whether a cache was used during the look.
    is_told: bool,
    pause_ns: u64,
    /// Who has looks made: the managers of all registries.
    lookers: Vec<Unparker>,
}

/// No look is under way in a child: none has taken hold of a cache while the lock is held, and what it had in hand is lost.
static HANDLER: Handler = Handler {
    settle: || (),
    before: |held| held.lock(&HOME),
    child: || {
        let mut home = HOME.lock();
        home.is_looking = false;
        home.due_ns = None;
        home.lookers.clear();
    },
};

/// Notes a new cache.
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
    // SAFETY: the chunk is ours, large enough and aligned for its header.
    unsafe { chunk.cast::<Chunk>().write(header) };
    let mut home = HOME.lock();
    home.nr_in_use += 1;
    home.pause_ns = PAUSE_NS;
    tell(home.use_now());
    chunk
}

/// Asks for memory; keeps what is not needed yet.
fn allocate() -> Spare {
    let layout = Layout::from_size_align(NR_AT_ONCE * CHUNK, CHUNK).expect("a constant layout");
    // SAFETY: the layout is not of size zero.
    let memory = unsafe { alloc::alloc(layout) };
    let Some(first) = NonNull::new(memory) else {
        alloc::handle_alloc_error(layout);
    };
    // SAFETY: (all of them) inside of what was just allocated.
    let others = (1..NR_AT_ONCE)
        .rev()
        .map(|i| unsafe { first.add(i * CHUNK) });
    HOME.lock().spare.extend(others.map(Spare));
    Spare(first)
}

/// Notes that a cache that was asked has been used, or got blocks back, and takes what its thread gives up.
#[cold]
pub(super) fn used(lists: Option<impl IntoIterator<Item = Taken<Free>>>) {
    let mut home = HOME.lock();
    if let (Some(lists), true) = (lists, home.is_looking) {
        home.given.extend(lists);
    }
    tell(home.use_now());
}

fn tell(lookers: Vec<Unparker>) {
    lookers.iter().for_each(Unparker::unpark);
}

impl Home {
    fn begins(&mut self, wants: bool) -> bool {
        let begins = wants && !self.is_looking;
        if begins {
            self.due_ns = None;
            self.is_looking = true;
            self.nr_looks += 1;
            self.is_told = false;
        }
        begins
    }

    /// Returns whom to tell that a look is due.
    fn use_now(&mut self) -> Vec<Unparker> {
        self.is_told = true;
        if self.is_looking || self.due_ns.is_some() || self.nr_in_use <= NR_KEPT {
            return Vec::new();
        }
        self.due_ns = Some(time::now_ns().saturating_add(self.pause_ns));
        self.lookers.clone()
    }
}

/// Has `looker` told when a look is due, or no longer.
pub(crate) fn attend(looker: &Unparker, attends: bool) {
    let mut home = HOME.lock();
    home.lookers.retain(|other| !other.same_as(looker));
    if attends {
        home.lookers.push(looker.clone());
    }
}

/// Returns when to look.
pub(crate) fn due_ns() -> Option<u64> {
    HOME.lock().due_ns
}

/// Returns `true` if the caller is to have a [`look`] made, as nobody else will.
pub(crate) fn begin_look(now_ns: u64) -> bool {
    let mut home = HOME.lock();
    let is_due = home.due_ns.is_some_and(|due_ns| due_ns <= now_ns);
    home.begins(is_due)
}

/// Looks without a need.
#[cfg(test)]
pub(super) fn look_now() {
    while !HOME.lock().begins(true) {
        std::thread::yield_now();
    }
    look();
}

/// Gives the pages of chunks back that nobody uses. After [`begin_look`].
///
/// # Blocking
///
/// For a barrier, which takes milliseconds, and for what it counts.
pub(crate) fn look() {
    let (caches, number) = {
        let home = HOME.lock();
        (home.caches.clone(), home.nr_looks)
    };
    let nr_caches = caches.len();
    let asked: Vec<_> = caches.into_iter().filter(|cache| cache.ask()).collect();
    let mut lists = Vec::new();
    // ORDER(biased): the looker's heavy end; see `Biased::with`. Quietly: it interrupts nobody, and a sandbox may refuse it.
    // Where no barrier is to be had that is free on the other end, that end is a full fence.
    //
    // ORDER(biased-bring): the looker's heavy end; see `Biased::note_brought`.
    let may_take = asym::heavy_quiet() || !asym::init();
    if may_take {
        for cache in &asked {
            // No fork while it is taken.
            let _home = HOME.lock();
            cache.take_unused(&mut lists);
        }
    }
    lists.append(&mut HOME.lock().given);
    let (nr_blocks, unused) = sort(lists, number);
    let found_little = !may_take || unused.len() * CHUNK * 8 < nr_blocks * SIZES[0];
    for Spare(chunk) in &unused {
        // SAFETY: every block of the chunk is ours, and with them the chunk.
        unsafe { pages::discard(*chunk, CHUNK) };
    }
    end_look(unused, found_little, asked.len() < nr_caches);
}

/// Ends a look that gave the pages of `unused` back; has the next one made if it is `again` needed.
fn end_look(unused: Vec<Spare>, found_little: bool, again: bool) {
    let mut home = HOME.lock();
    home.nr_in_use -= unused.len();
    home.spare.extend(unused);
    home.is_looking = false;
    home.pause_ns = match found_little {
        true => (home.pause_ns * 2).min(MAX_PAUSE_NS),
        false => PAUSE_NS,
    };
    if home.is_told || again {
        tell(home.use_now());
    }
    let late = mem::take(&mut home.given);
    drop(home);
    // Not kept for the next look, of which there may be none.
    for given in late {
        // All of one cache's, and of one class.
        if let Some(first) = NonNull::new(given.peek().cast_mut()) {
            let chunk = Chunk::of(first);
            // SAFETY: (both) the chunk is there as long as the block, and these do not change meanwhile.
            let (owner, class) = unsafe { ((*chunk).owner, (*chunk).class) };
            owner.put_back(class, given.collect());
        }
    }
}

/// Counts blocks, keeps the chunks of which it gets all, and puts the other blocks back. It takes no memory for each block: that
/// would be of the very size that is to go back.
///
/// What an earlier look found in a chunk was in hand in a parent of this process, and is lost with the thread that had it.
fn sort(lists: Vec<Taken<Free>>, number: u64) -> (usize, Vec<Spare>) {
    let (mut nr_blocks, mut seen) = (0, Vec::new());
    for block in lists.into_iter().flatten() {
        let chunk = Chunk::of(block.0);
        // SAFETY: (both) the chunk is there as long as the block, and these are the looker's: one looks at a time.
        let (found, found_by) = unsafe { (&mut (*chunk).found, &mut (*chunk).found_by) };
        if mem::replace(found_by, number) != number {
            // Perhaps it was in the middle of a change.
            mem::forget(mem::take(found));
            seen.push(chunk);
        }
        found.push_back(block);
        nr_blocks += 1;
    }
    let mut unused = Vec::new();
    for chunk in seen {
        // SAFETY: as above; only here chunks go.
        let found = mem::take(unsafe { &mut (*chunk).found });
        // SAFETY: (both) these do not change while the chunk is in use.
        let (owner, class) = unsafe { ((*chunk).owner, (*chunk).class) };
        if found.len() == Chunk::nr_blocks(class) {
            // Its blocks go with it.
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

    use super::{super::cache, *};

    /// More than some caches have at hand that others left.
    const MANY: usize = if cfg!(miri) { 300 } else { 100_000 };

    fn blocks(nr: usize) -> Vec<NonNull<Free>> {
        (0..nr).map(|_| cache::alloc(2).cast()).collect()
    }

    fn free(blocks: impl IntoIterator<Item = NonNull<Free>>) {
        for block in blocks {
            // SAFETY: of `blocks`, and used no more.
            unsafe { cache::free(block.cast(), 2) };
        }
    }

    /// Waits until this thread can have all of `wanted`, which other tests' looks may have in hand; never `other`.
    fn has(wanted: &[NonNull<Free>], other: Option<NonNull<Free>>) -> bool {
        let end_ns = time::now_ns() + 20_000_000_000;
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        loop {
            let had = blocks(MANY);
            assert!(other.is_none_or(|it| !had.contains(&it)), "given twice");
            // Few are sorted, and many looked for among them: Miri runs this, too.
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
    fn what_a_look_of_the_parent_had_in_hand_keeps_no_other_block_of_its_chunk() {
        let thread = std::thread::spawn(|| {
            let mut all = blocks(2 * Chunk::nr_blocks(2));
            let (lost, chunk) = (all[0], Chunk::of(all[0]));
            begin();
            // As a looker leaves it that is not there in the child.
            // SAFETY: nobody else looks, and the one block that is put there is ours.
            unsafe { (*chunk).found.push_back(cache::Block(lost)) };
            end_look(Vec::new(), true, false);
            all.retain(|&block| block != lost);
            let is_beside = |it: &NonNull<Free>| Chunk::of(*it) == chunk;
            let beside: Vec<_> = all.iter().copied().filter(is_beside).collect();
            assert!(!beside.is_empty());
            free(all);
            // The first finds that blocks ran out, the second takes.
            look_now();
            look_now();
            assert!(has(&beside, Some(lost)), "lost, too");
        });
        thread.join().unwrap();
    }

    #[test]
    fn what_is_given_at_the_end_of_a_look_is_kept_by_none() {
        let all = blocks(10);
        begin();
        let mut given = Taken::new();
        for &block in &all {
            given.put_back(cache::Block(block));
        }
        used(Some([given]));
        end_look(Vec::new(), true, false);
        assert!(has(&all, None), "kept");
    }
}
