//! Divides a cache with many cores into shards, by a pure function of numbers.

/// The parameters by which the scope `cache_shard` divides a last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardParams {
    /// Maximum number of cores in a shard; 0 leaves caches whole. SMT siblings count as one core.
    pub cache_shard_size: usize,
}

impl ShardParams {
    /// The kernel's default, in cores. With larger shards, work spreads over more CPUs before it
    /// leaves its cache. With smaller ones, there is less contention on a pool's lock.
    pub const DEFAULT_CACHE_SHARD_SIZE: usize = 8;
}

impl Default for ShardParams {
    fn default() -> Self {
        Self { cache_shard_size: Self::DEFAULT_CACHE_SHARD_SIZE }
    }
}

/// Divides `nr_cores` into the fewest shards of at most `max` cores: level ones, the larger first.
pub(crate) fn shard_sizes(nr_cores: usize, max: usize) -> impl Iterator<Item = usize> {
    let nr_shards = match max {
        0 => nr_cores.min(1),
        max => nr_cores.div_ceil(max),
    };
    // Without cores there are no shards, and the divisor does not matter.
    let (small, nr_large) = (nr_cores / nr_shards.max(1), nr_cores % nr_shards.max(1));
    (0..nr_shards).map(move |shard| small + usize::from(shard < nr_large))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizes(nr_cores: usize, max: usize) -> Vec<usize> {
        shard_sizes(nr_cores, max).collect()
    }

    #[test]
    fn shards_are_few_and_level() {
        assert_eq!(sizes(72, 8), [8; 9]);
        assert_eq!(sizes(12, 8), [6, 6]);
        assert_eq!(sizes(17, 8), [6, 6, 5]);
        assert_eq!(sizes(8, 8), [8]);
        assert_eq!(sizes(1, 8), [1]);
        assert_eq!(sizes(5, 1), [1; 5]);
        assert_eq!(sizes(5, 0), [5]);
        assert_eq!(sizes(0, 8), [0; 0]);
        assert_eq!(sizes(0, 0), [0; 0]);
    }

    proptest! {
        #[test]
        fn shards_add_up_are_level_and_no_fewer_would_do(nr_cores in 0usize..3000, max in 1usize..100) {
            let sizes = sizes(nr_cores, max);
            prop_assert_eq!(sizes.iter().sum::<usize>(), nr_cores);
            prop_assert!(sizes.iter().all(|&size| 1 <= size && size <= max));
            prop_assert!(sizes.is_sorted_by(|a, b| a >= b));
            if let (Some(first), Some(last)) = (sizes.first(), sizes.last()) {
                prop_assert!(first - last <= 1);
                prop_assert!((sizes.len() - 1) * max < nr_cores);
            }
        }
    }
}
