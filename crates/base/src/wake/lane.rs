//! The two lanes of a workqueue or a mailbox, and the order in which they are served.
//!
//! Each lane has its own list. A pool takes the items of a pwq that has both lanes in the order of
//! [`Turns`] (`Pwq::in_lane`), and so does the owner of a mailbox (`crates/mailbox/src/inbox.rs`).

/// The lane in which an item waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lane {
    #[default]
    Ordinary,
    Urgent,
}

/// The number of urgent items taken in a row while an ordinary one waits, so that ordinary items
/// get a tenth of the turns.
const URGENT_IN_A_ROW: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 9 };

/// Selects the lane that is served next.
#[derive(Debug, Default)]
pub struct Turns {
    /// Urgent items taken in a row while an ordinary one waited.
    nr_urgent: u32,
}

impl Turns {
    /// Returns the lane of the next turn. Each argument is `true` if items wait in its lane.
    #[inline]
    pub fn take(&mut self, urgent_waits: bool, ordinary_waits: bool) -> Lane {
        let passes_over = urgent_waits && ordinary_waits;
        let is_over = self.nr_urgent >= URGENT_IN_A_ROW
            && !sync::twin::armed("lanes: ordinary items get no turn");
        if !urgent_waits || passes_over && is_over {
            self.nr_urgent = 0;
            return Lane::Ordinary;
        }
        self.nr_urgent = if passes_over { self.nr_urgent + 1 } else { 0 };
        Lane::Urgent
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn ordinary_items_get_a_tenth_of_the_turns_for_which_both_wait() {
        let mut turns = Turns::default();
        let taken: Vec<_> = (0..100).map(|_| turns.take(true, true)).collect();
        let ordinary = (0..100).filter(|&at| taken[at] == Lane::Ordinary);
        assert!(ordinary.eq((0..100).skip(9).step_by(10)));
    }

    #[test]
    fn lane_that_waits_alone_gets_every_turn() {
        let mut turns = Turns::default();
        assert!((0..100).all(|_| turns.take(false, true) == Lane::Ordinary));
        assert!((0..100).all(|_| turns.take(true, false) == Lane::Urgent));
    }

    #[test]
    fn turns_for_which_nothing_ordinary_waited_count_for_nothing() {
        let mut turns = Turns::default();
        for _ in 0..100 {
            turns.take(true, false);
        }
        assert!((0..9).all(|_| turns.take(true, true) == Lane::Urgent));
        assert_eq!(turns.take(true, true), Lane::Ordinary);
    }
}
