//! Scopes under torture. All borrowing work has run once and ended when the caller continues.

use afterwork::workqueue::Workqueue;

use crate::support::*;

const NR_LENT: usize = 40;

/// The lent elements: the number of times that each has been processed.
type Lent<'a> = &'a mut [u32];

/// Lends elements to `queue` in a random way, and checks them afterwards.
pub fn torture(queue: &Workqueue, may_nest: bool, dice: &mut Dice) {
    let mut lent = vec![0; dice.below(NR_LENT)];
    let panics = dice.below(8) == 0 && !lent.is_empty();
    let depth = if may_nest { dice.below(3) } else { 0 };
    let mut own = Dice::new(dice.bits());
    let work = Work { queue, panics: panics.then(|| own.below(lent.len())), may_nest };
    let outcome = catch_unwind(AssertUnwindSafe(|| work.lend(0, &mut lent, depth, &mut own)));
    match outcome {
        Ok(()) => assert!(!panics, "a panic is lost"),
        Err(payload) if (panics || hostile::is_on()) && Planned::is(&*payload) => {
            // A range or a join may leave elements unprocessed after a panic.
            assert!(lent.iter().all(|&times| times <= 1), "{lent:?}");
            return;
        }
        Err(payload) => resume_unwind(payload),
    }
    assert!(lent.iter().all(|&times| times == 1), "{lent:?}");
}

struct Work<'a> {
    queue: &'a Workqueue,
    /// Index of the element that panics.
    panics: Option<usize>,
    /// Set if items may lend.
    may_nest: bool,
}

impl Work<'_> {
    /// Processes `lent`, whose first element has the index `first`.
    fn lend(&self, first: usize, lent: Lent, depth: usize, dice: &mut Dice) {
        let seed = dice.bits();
        match (dice.below(3), lent.len()) {
            (_, 0) => {}
            (0, _) => self.scope(first, lent, depth, seed),
            (1, 2..) if self.may_nest => self.join(first, lent, depth, seed),
            _ => self.range(first, lent),
        }
    }

    /// Processes a part of the lent elements, or lends it again.
    fn part(&self, first: usize, lent: Lent, depth: usize, seed: u64) {
        let mut dice = Dice::new(seed ^ first as u64);
        if let Some(depth) = depth.checked_sub(1) {
            return self.lend(first, lent, depth, &mut dice);
        }
        for (i, times) in lent.iter_mut().enumerate() {
            *times += 1;
            if dice.below(8) == 0 {
                thread::yield_now();
            }
            if self.panics == Some(first + i) {
                Planned::panic();
            }
        }
    }

    fn scope(&self, first: usize, lent: Lent, depth: usize, seed: u64) {
        let len = 1 + seed as usize % 7;
        self.queue.scope(|s| {
            for (i, part) in lent.chunks_mut(len).enumerate() {
                let first = first + i * len;
                if seed & 64 == 0 {
                    s.spawn(move || self.part(first, part, depth, seed));
                } else {
                    // A guest may run the item that spawns this one while the owner sleeps.
                    s.spawn(move || s.spawn(move || self.part(first, part, depth, seed)));
                }
            }
        });
    }

    fn join(&self, first: usize, lent: Lent, depth: usize, seed: u64) {
        let half = lent.len() / 2;
        let (left, right) = lent.split_at_mut(half);
        let side = |first, part: Lent| {
            if part.len() > 2 {
                self.join(first, part, depth, seed);
            } else {
                self.part(first, part, depth, seed);
            }
        };
        self.queue.join(|| side(first, left), || side(first + half, right));
    }

    fn range(&self, first: usize, lent: Lent) {
        let size = 1 + lent.len() / 7;
        self.queue.for_each_chunk_mut(lent, size, |number, part| {
            self.part(first + number * size, part, 0, 0);
        });
    }
}
