//! A cache of objects, as an allocator keeps one for each CPU: a list of free ones, linked through the objects.
//!
//! All caches of one size have the same memory, one after another: which pages it has decides how often they collide in
//! the CPU's caches, and that differs more from one piece of memory to another than one guard does from the next.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use sync::cpu;

/// Objects of a slab of 4 KiB.
const PER_SLAB: usize = 4096 / size_of::<Object>();

/// The end of the list.
const NONE: u32 = u32::MAX;

/// What is handed out; while it is free, its first word says which is free next.
#[derive(Debug)]
#[repr(align(64))]
struct Object {
    /// Atomic for `Shards` alone.
    next: AtomicU32,
}

/// Memory that no cache has at the moment.
static SPARE: Mutex<Vec<Box<[Object]>>> = Mutex::new(Vec::new());

/// Returns `len` objects, all linked to none.
fn objects(len: usize) -> Box<[Object]> {
    let mut spare = SPARE.lock().expect("nothing panics inside");
    let at = spare.iter().position(|objects| objects.len() == len);
    let made = || {
        let new = || Object {
            next: AtomicU32::new(NONE),
        };
        std::iter::repeat_with(new).take(len).collect()
    };
    at.map_or_else(made, |at| spare.swap_remove(at))
}

/// Returns all objects in the order in which they are to be handed out: shuffled within their slabs, always the same
/// way, for runs are to be compared.
fn shuffled(len: usize) -> Vec<u32> {
    let mut random = fastrand::Rng::with_seed(64);
    let mut all: Vec<u32> = (0..len as u32).collect();
    all.chunks_mut(PER_SLAB)
        .for_each(|slab| random.shuffle(slab));
    all
}

/// The free objects of one CPU.
pub struct Cache {
    first: u32,
    objects: Box<[Object]>,
}

impl Cache {
    /// Makes a cache of `len` free objects, shuffled within their slabs.
    pub fn new(len: usize) -> Self {
        let mut cache = Self {
            first: NONE,
            objects: objects(len),
        };
        cache.free_all(&shuffled(len));
        cache
    }

    /// Takes an object; the caller takes no more than there are.
    #[inline(always)]
    pub fn alloc(&mut self) -> u32 {
        let taken = self.first;
        self.first = *self.objects[taken as usize].next.get_mut();
        taken
    }

    /// Gives objects back so that they are taken again in this order.
    pub fn free_all(&mut self, taken: &[u32]) {
        for &object in taken.iter().rev() {
            *self.objects[object as usize].next.get_mut() = self.first;
            self.first = object;
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let objects = std::mem::take(&mut self.objects);
        if !objects.is_empty() {
            let mut spare = SPARE.lock().expect("nothing panics inside");
            spare.push(objects);
        }
    }
}

/// The same list without an owner: a head for each CPU, of which the one of the CPU at hand is changed by a
/// compare-exchange, with a number in it that tells one change from the next.
pub struct Shards {
    /// bits 0..32 the first object | bits 32..64 how often it changed
    heads: Vec<CachePadded<AtomicU64>>,
    /// The one that has all objects.
    home: usize,
    list: Cache,
}

impl Shards {
    /// Makes `len` free objects, all of them on the CPU at hand.
    pub fn new(len: usize) -> Self {
        let home = cpu::current().index();
        let head = || CachePadded::new(AtomicU64::new(u64::from(NONE)));
        let shards = Self {
            heads: std::iter::repeat_with(head).take(home + 1).collect(),
            home,
            list: Cache::new(len),
        };
        shards.fill();
        shards
    }

    fn fill(&self) {
        self.heads[self.home].store(u64::from(self.list.first), Ordering::Release);
    }

    /// Takes an object; the caller takes no more than there are.
    #[inline(always)]
    pub fn alloc(&self) -> u32 {
        let here = self.heads.get(cpu::current().index());
        here.and_then(|head| self.take(head))
            .unwrap_or_else(|| self.alloc_at_home())
    }

    #[cold]
    fn alloc_at_home(&self) -> u32 {
        self.take(&self.heads[self.home])
            .expect("the caller takes no more than there are")
    }

    #[inline(always)]
    fn take(&self, list: &AtomicU64) -> Option<u32> {
        let mut head = list.load(Ordering::Acquire);
        while head as u32 != NONE {
            let taken = head as u32;
            let next = &self.list.objects[taken as usize].next;
            let next = u64::from(next.load(Ordering::Relaxed));
            let changed = ((head >> 32) + 1) << 32 | next;
            match list.compare_exchange_weak(head, changed, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(taken),
                Err(now) => head = now,
            }
        }
        None
    }

    /// Gives objects back so that they are taken again in this order.
    pub fn free_all(&mut self, taken: &[u32]) {
        self.list.first = NONE;
        self.list.free_all(taken);
        self.fill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_is_handed_out_once_and_again_in_the_same_order() {
        let mut cache = Cache::new(1024);
        let mut rounds = [(); 2].map(|()| {
            let taken: Vec<u32> = (0..1024).map(|_| cache.alloc()).collect();
            cache.free_all(&taken);
            taken
        });
        assert_eq!(rounds[0], rounds[1]);
        rounds[0].sort_unstable();
        assert!(rounds[0].iter().copied().eq(0..1024));
    }

    #[test]
    fn shards_hand_out_in_the_same_order_and_caches_have_the_same_memory() {
        let cache = Cache::new(192);
        let memory = cache.objects.as_ptr();
        drop(cache);
        let mut cache = Cache::new(192);
        assert_eq!(cache.objects.as_ptr(), memory);
        let one: Vec<u32> = (0..192).map(|_| cache.alloc()).collect();
        drop(cache);
        let mut shards = Shards::new(192);
        for _ in 0..2 {
            let other: Vec<u32> = (0..192).map(|_| shards.alloc()).collect();
            assert_eq!(other, one);
            shards.free_all(&other);
        }
    }
}
