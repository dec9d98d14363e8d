//! Each NUMA node's share of a queue's seats, as pure functions.
//!
//! A *share* does not reserve seats: any thread can acquire a free seat, so one busy node may hold
//! them all. The share decides which waiter gets a seat that is transferred. Waiters of nodes below
//! their share are served first, in order of arrival, and then the other waiters. A node that
//! starts late therefore reaches its share after as many transfers as its share has seats. Seats
//! that it does not use go to other nodes.

/// The minimum share of a node: the kernel's `WQ_DFL_MIN_ACTIVE`.
const MIN_ACTIVE: u32 = 8;

/// Returns each node's share of `max` seats, in proportion to the CPUs that the queue uses there.
pub fn shares(max: u32, nr_cpus: &[u32]) -> Vec<u32> {
    let all: u64 = nr_cpus.iter().map(|&nr| u64::from(nr)).sum();
    nr_cpus
        .iter()
        .map(|&nr| {
            let part = (u64::from(max) * u64::from(nr)).div_ceil(all.max(1));
            (part as u32).clamp(MIN_ACTIVE.min(max), max)
        })
        .collect()
}

/// Returns the waiter to serve next. For each waiter, `below_share` yields `true` if the waiter's
/// node is below its share.
pub(crate) fn next_waiter(below_share: impl Iterator<Item = bool>) -> Option<usize> {
    let mut first = None;
    for (at, below) in below_share.enumerate() {
        if below {
            return Some(at);
        }
        first = first.or(Some(at));
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_proportional_to_the_cpus_of_a_node() {
        assert_eq!(shares(256, &[64, 64]), [128, 128]);
        assert_eq!(shares(256, &[96, 32]), [192, 64]);
        assert_eq!(shares(100, &[1, 2]), [34, 67], "rounded up");
        assert_eq!(shares(64, &[4]), [64]);
    }

    #[test]
    fn a_share_is_at_least_min_active_and_at_most_all() {
        assert_eq!(shares(256, &[127, 1]), [254, 8]);
        assert_eq!(shares(256, &[8, 0]), [256, 8], "a node without CPUs");
        assert_eq!(shares(3, &[8, 8]), [3, 3]);
        assert_eq!(shares(1, &[8, 8]), [1, 1]);
        assert_eq!(shares(512, &[]), [0; 0]);
    }

    #[test]
    fn node_below_its_share_is_served_first_and_others_in_turn() {
        let next = |waiters: &[bool]| next_waiter(waiters.iter().copied());
        assert_eq!(next(&[]), None);
        assert_eq!(next(&[false, false]), Some(0));
        assert_eq!(next(&[false, true, true]), Some(1));
    }
}
