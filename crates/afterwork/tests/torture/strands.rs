//! Strands under torture: order, mutual exclusion, and flushes that wait for closures.

use std::sync::Arc;
use std::sync::atomic::*;

use afterwork::workqueue::{Strand, Workqueue};

use crate::queues::judge;
use crate::support::{Dice, Life, Lives, Planned, hostile};

/// Maximum number of closures that one call spawns: more than a run of a strand takes at once.
const MAX_CLOSURES: usize = 40;

pub struct State {
    is_inside: AtomicBool,
    _life: Life,
}

pub fn strand(queue: &Workqueue, lives: &Arc<Lives>) -> Strand<State> {
    queue.strand(State { is_inside: AtomicBool::new(false), _life: Life::new(lives) })
}

/// Spawns closures on `shared` or on another strand. After a flush, all of them have ended.
pub fn torture(queue: &Workqueue, shared: &Strand<State>, lives: &Arc<Lives>, dice: &mut Dice) {
    let own = (dice.below(3) == 0).then(|| strand(queue, lives));
    let strand = own.as_ref().unwrap_or(shared);
    let last = Arc::new(AtomicUsize::new(0));
    for number in 1..=dice.below(MAX_CLOSURES) {
        let (last, life, result) = (last.clone(), Life::new(lives), Life::new(lives));
        let panics = dice.below(50) == 0;
        let mut dice_inside = hostile::is_on().then(|| Dice::new(dice.bits()));
        let nested = (dice.below(20) == 0).then(|| (strand.clone(), Life::new(lives)));
        let mut handle = strand.spawn(move |state| {
            let was_inside = state.is_inside.swap(true, Ordering::Relaxed);
            assert!(!was_inside, "two closures of a strand at once");
            assert!(last.swap(number, Ordering::Relaxed) < number, "out of order");
            if let Some((strand, life)) = nested {
                // A drain accepts it, because it comes from an item of the queue.
                strand.spawn_detached(move |_| drop(life)).unwrap();
            }
            drop((last, life));
            dice_inside.as_mut().map(hostile::misbehave_at_length);
            state.is_inside.store(false, Ordering::Relaxed);
            if panics {
                Planned::panic();
            }
            result
        });
        match dice.below(16) {
            0 if !handle.cancel() => judge(handle.join(), panics),
            1 => judge(handle.join(), panics),
            _ => {}
        }
    }
    drop(own);
    if dice.below(4) == 0 {
        queue.flush().unwrap();
        assert_eq!(Arc::strong_count(&last), 1, "a flush missed a closure");
    }
}
