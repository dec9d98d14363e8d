//! Timed operations under torture: tasks that sleep and time out, sets of items, and periodic work.

use afterwork::workqueue::{
    CancelHandle, MissedTickBehavior, Registry, TaskSet, Workqueue, block_on,
};

use crate::support::*;

fn span(dice: &mut Dice) -> Duration {
    Duration::from_micros(dice.pick(&[0, 1, 60, 70, 200, 1000]))
}

pub fn torture(registry: &Registry, queue: &Workqueue, lives: &Arc<Lives>, dice: &mut Dice) {
    match dice.below(4) {
        0 => sleep(registry, queue, lives, dice),
        1 => time_out(registry, dice),
        2 => set(registry, queue, lives, dice),
        _ => again(queue, lives, dice),
    }
}

/// Sleeps on this thread or in a task, and checks that the sleep is not too short.
fn sleep(registry: &Registry, queue: &Workqueue, lives: &Arc<Lives>, dice: &mut Dice) {
    let (span, start) = (span(dice), Instant::now());
    let slept = registry.sleep(span);
    if dice.below(2) == 0 {
        block_on(slept);
        assert!(start.elapsed() >= span, "too early");
        return;
    }
    let life = Life::new(lives);
    let mut canceller = CancelHandle::default();
    let mut handle = queue.task().cancel_handle(&mut canceller).spawn_async(async move {
        slept.await;
        drop(life);
        start.elapsed()
    });
    match dice.below(4) {
        0 => drop(canceller.cancel()),
        1 => drop(handle.cancel()),
        2 => return,
        _ => {}
    }
    if let Some(slept) = result_of(handle.join()) {
        assert!(slept >= span, "too early");
    }
}

/// Runs a timeout that ends one of two sleeps early.
fn time_out(registry: &Registry, dice: &mut Dice) {
    let (one, other) = (span(dice), span(dice));
    let start = Instant::now();
    let mut long = registry.sleep(NEVER);
    let outcome = block_on(registry.timeout(one, async {
        let short = registry.sleep(other);
        // The timer is armed, and disarmed when the future is dropped.
        let given_up = registry.timeout(Duration::ZERO, &mut long).await;
        assert!(given_up.is_err(), "an hour is over");
        short.await;
    }));
    assert!(start.elapsed() >= one.min(other), "too early");
    assert!(outcome.is_ok() || start.elapsed() >= one, "too early");
}

/// Adds closures and futures to a set. Each result is returned at most once.
fn set(registry: &Registry, queue: &Workqueue, lives: &Arc<Lives>, dice: &mut Dice) {
    let mut set = TaskSet::new(queue);
    let nr_items = dice.below(8);
    for number in 0..nr_items {
        let life = Life::new(lives);
        let (kind, slept) = (dice.below(4), registry.sleep(span(dice)));
        let end = move || {
            drop(life);
            number
        };
        match kind {
            0 => set.spawn(end),
            1 => set.spawn(move || {
                drop(end);
                Planned::panic()
            }),
            2 => set.add(queue.spawn(end)),
            _ => set.spawn_async(async move {
                slept.await;
                end()
            }),
        }
        if dice.below(8) == 0 {
            set.cancel_all();
        }
    }
    let nr_taken = match dice.below(4) {
        0 => dice.below(nr_items + 1),
        1 => {
            set.detach_all();
            return;
        }
        _ => nr_items,
    };
    let mut seen = [false; 8];
    for _ in 0..nr_taken {
        if let Some(number) = result_of(set.join_next_blocking().expect("as many as were added")) {
            assert!(!std::mem::replace(&mut seen[number], true), "twice");
        }
    }
    assert_eq!(set.len(), nr_items - nr_taken);
}

/// Runs periodic work. Its runs never overlap, and none starts after its end.
fn again(queue: &Workqueue, lives: &Arc<Lives>, dice: &mut Dice) {
    let period = Duration::from_micros(1 + dice.below(300) as u64);
    let (life, nr_runs) = (Life::new(lives), Arc::<AtomicUsize>::default());
    let (is_over, inside) = (Arc::<AtomicBool>::default(), AtomicBool::new(false));
    let (runs, over) = (nr_runs.clone(), is_over.clone());
    let panics = dice.below(8) == 0;
    let mut own = Dice::new(dice.bits());
    let work = queue.every(period, move || {
        let _life = &life;
        assert!(!inside.swap(true, Ordering::AcqRel), "runs overlap");
        assert!(!over.load(Ordering::Acquire), "after that");
        runs.fetch_add(1, Ordering::Relaxed);
        if own.below(4) == 0 {
            thread::yield_now();
        }
        inside.store(false, Ordering::Release);
        if panics {
            Planned::panic();
        }
    });
    use MissedTickBehavior::{Burst, Delay, Skip};
    let work = work.unwrap().with_missed_ticks(dice.pick(&[Burst, Delay, Skip]));
    thread::sleep(span(dice));
    match dice.below(2) {
        0 => drop(work),
        _ => {
            work.cancel_sync();
            is_over.store(true, Ordering::Release);
        }
    }
}

/// Starts periodic work on a queue that is about to end, until the queue is destroyed.
pub fn until_the_end(queue: &Workqueue, lives: &Arc<Lives>, dice: &mut Dice) {
    let life = Life::new(lives);
    let period = Duration::from_micros(1 + dice.below(100) as u64);
    queue.every(period, move || _ = &life).unwrap().detach();
}
