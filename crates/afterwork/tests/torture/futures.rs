//! Futures under torture. They store wakers that any thread fires, or wake themselves.

use afterwork::workqueue::{JoinError, Workqueue};

use crate::queues::judge;
use crate::support::*;

/// A future that waits `nr_waits` times, in random ways, and is then ready.
struct Weary {
    nr_waits: usize,
    dice: Dice,
    panics: bool,
    forlorn: bool,
    wakes: Wakes,
    /// `true` during a poll, to detect overlapping polls.
    inside: AtomicBool,
    limit: (Arc<AtomicUsize>, usize),
    life: Option<Life>,
}

impl Future for Weary {
    type Output = Life;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Life> {
        assert!(!self.inside.swap(true, Ordering::AcqRel), "two polls at once");
        let (nr_inside, limit) = self.limit.clone();
        let now = nr_inside.fetch_add(1, Ordering::AcqRel) + 1;
        assert!(now <= limit, "{now} at once, {limit} allowed at most");
        let outcome = self.as_mut().wait(context);
        nr_inside.fetch_sub(1, Ordering::AcqRel);
        self.inside.store(false, Ordering::Release);
        if outcome.is_ready() && self.panics {
            Planned::panic();
        }
        outcome
    }
}

impl Weary {
    fn wait(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Life> {
        if self.nr_waits == 0 {
            return Poll::Ready(self.life.take().expect("it ends once"));
        }
        self.nr_waits -= 1;
        if self.dice.below(3) == 0 {
            context.waker().wake_by_ref();
        } else {
            self.wakes.push(context.waker(), self.forlorn);
        }
        Poll::Pending
    }
}

/// Spawns a future and uses its handle without waiting for a stored waker.
pub fn spawn(
    queue: &Workqueue,
    limit: (&Arc<AtomicUsize>, usize),
    wakes: &Wakes,
    lives: &Arc<Lives>,
    dice: &mut Dice,
) {
    let fate = dice.below(4);
    let panics = dice.below(50) == 0;
    let mut handle = queue.spawn_async(Weary {
        nr_waits: dice.below(4),
        dice: Dice::new(dice.bits()),
        panics,
        forlorn: fate == 0,
        wakes: wakes.clone(),
        inside: AtomicBool::new(false),
        limit: (limit.0.clone(), limit.1),
        life: Some(Life::new(lives)),
    });
    match fate {
        0 | 1 => drop(handle),
        2 => {
            handle.cancel();
            match handle.join() {
                Err(JoinError::Cancelled) => {}
                outcome => judge(outcome, panics),
            }
        }
        _ => drop(handle.try_join().map(|outcome| judge(outcome, panics))),
    }
}
