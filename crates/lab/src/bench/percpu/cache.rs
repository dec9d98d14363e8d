//! A cache of objects, as an allocator keeps one for each CPU: a list of free ones, linked through the objects.

/// Objects of a slab of 4 KiB.
const PER_SLAB: usize = 4096 / size_of::<Object>();

/// The end of the list.
const NONE: u32 = u32::MAX;

/// What is handed out; while it is free, its first word says which is free next.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Object {
    next: u32,
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
            objects: vec![Object { next: NONE }; len].into_boxed_slice(),
        };
        // Always the same: runs are to be compared.
        let mut random = fastrand::Rng::with_seed(64);
        let mut all: Vec<u32> = (0..len as u32).collect();
        all.chunks_mut(PER_SLAB)
            .for_each(|slab| random.shuffle(slab));
        cache.free_all(&all);
        cache
    }

    /// Takes an object; the caller takes no more than there are.
    #[inline(always)]
    pub fn alloc(&mut self) -> u32 {
        let taken = self.first;
        self.first = self.objects[taken as usize].next;
        taken
    }

    /// Gives objects back so that they are taken again in this order.
    pub fn free_all(&mut self, taken: &[u32]) {
        for &object in taken.iter().rev() {
            self.objects[object as usize].next = self.first;
            self.first = object;
        }
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
}
