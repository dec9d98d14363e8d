//! A cache of objects, like an allocator's cache for one CPU. The free list is a ring, so only
//! allocations are measured: an object is free again once all others have been allocated.

const PER_SLAB: usize = 4096 / size_of::<Object>();

const NONE: u32 = u32::MAX;

#[repr(align(64))]
struct Object {
    next: u32,
}

/// Returns all objects in the order of their allocation. They are shuffled within slabs, in the
/// same way in each run.
fn shuffled(len: usize) -> Vec<u32> {
    let mut random = fastrand::Rng::with_seed(64);
    let mut all: Vec<u32> = (0..len as u32).collect();
    all.chunks_mut(PER_SLAB).for_each(|slab| random.shuffle(slab));
    all
}

pub struct Cache {
    first: u32,
    objects: Box<[Object]>,
}

impl Cache {
    pub fn new(len: usize) -> Self {
        let order = shuffled(len);
        let new = || Object { next: NONE };
        let mut objects: Box<[Object]> = std::iter::repeat_with(new).take(len).collect();
        for (&object, &next) in order.iter().zip(order.iter().cycle().skip(1)) {
            objects[object as usize].next = next;
        }
        Self { first: order.first().copied().unwrap_or(NONE), objects }
    }

    /// Takes an object. The cache must not be empty.
    #[inline(always)]
    pub fn alloc(&mut self) -> u32 {
        let taken = self.first;
        self.first = self.objects[taken as usize].next;
        taken
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
}
