//! A cache of objects, as an allocator keeps one for each CPU: a list of free ones, linked through the objects.
//!
//! The list is closed to a ring: what was taken is free again when all others have been. So only taking costs anything.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use sync::cpu;

/// Objects of a slab of 4 KiB.
const PER_SLAB: usize = 4096 / size_of::<Object>();

/// The first object of a cache that has none.
const NONE: u32 = u32::MAX;

/// What is handed out; its first word says which is free next.
#[derive(Debug)]
#[repr(align(64))]
struct Object {
    /// Atomic for `Shards` alone.
    next: AtomicU32,
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
        let order = shuffled(len);
        let new = || Object {
            next: AtomicU32::new(NONE),
        };
        let mut objects: Box<[Object]> = std::iter::repeat_with(new).take(len).collect();
        for (&object, &next) in order.iter().zip(order.iter().cycle().skip(1)) {
            *objects[object as usize].next.get_mut() = next;
        }
        Self {
            first: order.first().copied().unwrap_or(NONE),
            objects,
        }
    }

    /// Takes an object; there must be one.
    #[inline(always)]
    pub fn alloc(&mut self) -> u32 {
        let taken = self.first;
        self.first = *self.objects[taken as usize].next.get_mut();
        taken
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
    /// Makes one without objects.
    pub fn new() -> Self {
        let home = cpu::current().index();
        let head = || CachePadded::new(AtomicU64::new(u64::from(NONE)));
        Self {
            heads: std::iter::repeat_with(head).take(home + 1).collect(),
            home,
            list: Cache::new(0),
        }
    }

    /// Exchanges all objects with those of a cache.
    pub fn swap(&mut self, cache: &mut Cache) {
        let first = self.heads[self.home].get_mut();
        self.list.first = *first as u32;
        std::mem::swap(&mut self.list, cache);
        *first = u64::from(self.list.first);
    }

    /// Takes an object; there must be one.
    #[inline(always)]
    pub fn alloc(&self) -> u32 {
        let here = self.heads.get(cpu::current().index());
        here.and_then(|head| self.take(head))
            .unwrap_or_else(|| self.alloc_at_home())
    }

    #[cold]
    fn alloc_at_home(&self) -> u32 {
        self.take(&self.heads[self.home])
            .expect("there must be one")
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_is_handed_out_once_and_again_in_the_same_order() {
        let mut cache = Cache::new(1024);
        let mut rounds = [(); 2].map(|()| (0..1024).map(|_| cache.alloc()).collect::<Vec<u32>>());
        assert_eq!(rounds[0], rounds[1]);
        rounds[0].sort_unstable();
        assert!(rounds[0].iter().copied().eq(0..1024));
    }

    #[test]
    fn shards_hand_out_in_the_same_order_and_give_back_where_they_are() {
        let (mut one, mut other) = (Cache::new(192), Cache::new(192));
        let mut shards = Shards::new();
        for len in [7, 200] {
            shards.swap(&mut other);
            (0..len).for_each(|_| assert_eq!(shards.alloc(), one.alloc()));
            shards.swap(&mut other);
            (0..len).for_each(|_| assert_eq!(other.alloc(), one.alloc()));
        }
    }
}
