//! How the seats of a queue are shared out over NUMA nodes, as plain functions.
//!
//! A *share* is no reservation: a free seat goes to whoever comes, so one busy node may have them all. It says who is
//! served first when a seat is handed on: a pool of a node that has less than its share goes before one of a node that
//! has its share, and in each of the two groups they go by their turn. So a node that comes late gets up to its share
//! by as many hand-overs, and what it does not use moves to where items wait.

/// The least share of a node. The kernel's `WQ_DFL_MIN_ACTIVE`.
const MIN_ACTIVE: u32 = 8;

/// Returns the share of each node in `max` seats, in proportion to its CPUs that the queue uses.
pub(crate) fn shares(max: u32, nr_cpus: &[u32]) -> Vec<u32> {
    let all: u64 = nr_cpus.iter().map(|&nr| u64::from(nr)).sum();
    nr_cpus
        .iter()
        .map(|&nr| {
            let part = (u64::from(max) * u64::from(nr)).div_ceil(all.max(1));
            (part as u32).clamp(MIN_ACTIVE.min(max), max)
        })
        .collect()
}

/// Returns whose turn it is of those that stand in line, given whether the node of each has less than its share.
pub(crate) fn next_in_line(below_share: impl Iterator<Item = bool>) -> Option<usize> {
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
    fn shares_go_by_the_cpus_of_a_node() {
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
    fn who_has_less_than_his_share_goes_first_and_the_others_in_turn() {
        let next = |line: &[bool]| next_in_line(line.iter().copied());
        assert_eq!(next(&[]), None);
        assert_eq!(next(&[false, false]), Some(0));
        assert_eq!(next(&[false, true, true]), Some(1));
    }
}
