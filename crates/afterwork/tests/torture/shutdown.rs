//! Shutdown under torture: bulk cancels while other threads use the queue, then a random end.

use afterwork::workqueue::{
    DelayedWork, DrainError, JoinError, JoinHandle, RcuWork, Registry, Work, Workqueue,
};

use crate::support::hostile::{Grenade, unpark};
use crate::support::*;

#[derive(Default)]
struct Tally {
    nr_queued: AtomicUsize,
    nr_ran: AtomicUsize,
    nr_cancelled: AtomicUsize,
}

/// Creates a queue, lets two threads queue and cancel in bulk, and shuts it down in a random way.
pub fn torture(registry: &Registry, lives: &Arc<Lives>, dice: &mut Dice) {
    let before = dice.clone();
    let queue = insist(|| {
        *dice = before.clone();
        let builder = Workqueue::builder("shut down").help(dice.below(2) == 0);
        let builder = match dice.below(4) {
            0 => Workqueue::builder("shut down").ordered(),
            1 => builder.max_active(1),
            _ => builder.max_active(1 + dice.below(4) as u32),
        };
        builder.build_in(registry)
    });
    let tally = Arc::<Tally>::default();
    if dice.below(3) == 0 {
        queue.pause();
    }
    let mut other = Dice::new(dice.bits());
    thread::scope(|scope| {
        scope.spawn(|| use_it(&queue, &tally, lives, &mut other));
        use_it(&queue, &tally, lives, dice);
    });
    queue.resume();
    finish(queue, dice);
    let [nr_queued, nr_ran, nr_cancelled] = [&tally.nr_queued, &tally.nr_ran, &tally.nr_cancelled]
        .map(|count| count.load(Ordering::Relaxed));
    assert!(nr_ran + nr_cancelled <= nr_queued, "{nr_ran} + {nr_cancelled} of {nr_queued}");
}

fn use_it(queue: &Workqueue, tally: &Arc<Tally>, lives: &Arc<Lives>, dice: &mut Dice) {
    let mut handles = Vec::new();
    let (life, ran) = (Life::new(lives), tally.clone());
    let work = Work::new(move || {
        let _ = &life;
        ran.nr_ran.fetch_add(1, Ordering::Relaxed);
    });
    let life = Life::new(lives);
    let delayed = DelayedWork::new(move || _ = &life);
    let rcu = RcuWork::new(|| ());
    for _ in 0..dice.below(20) {
        match dice.below(10) {
            0..4 => handles.push(spawn(queue, tally, lives, dice)),
            4 => {
                let queued = queue.enqueue(&work);
                tally.nr_queued.fetch_add(usize::from(queued), Ordering::Relaxed);
            }
            5 => {
                let delay = Duration::from_micros(dice.pick(&[0, 50, 1_000]));
                queue.enqueue_after(&delayed, delay);
            }
            6 => drop(queue.task().enqueue_rcu(&rcu)),
            7 => drop(work.cancel()),
            8 => {
                // The result also includes other threads' items, so the tally does not use it.
                queue.cancel_all();
                // Earlier items of this thread have started or are not pending.
                thread::yield_now();
            }
            _ => {
                if let Some(handle) = handles.pop() {
                    // Both threads may join here, and no other thread resumes the queue.
                    queue.resume();
                    judge(handle, tally, dice);
                }
            }
        }
    }
    if dice.below(2) == 0 {
        queue.cancel_all();
    }
    // Items of a paused queue cannot be joined.
    queue.resume();
    for handle in handles {
        judge(handle, tally, dice);
    }
}

/// Spawns an item that counts its run, and drops a life whether it runs or not.
fn spawn(
    queue: &Workqueue,
    tally: &Arc<Tally>,
    lives: &Arc<Lives>,
    dice: &mut Dice,
) -> JoinHandle<()> {
    let (life, ran) = (Life::new(lives), tally.clone());
    let grenade = hostile::is_on().then(|| Grenade::new(dice));
    tally.nr_queued.fetch_add(1, Ordering::Relaxed);
    let run = move || {
        ran.nr_ran.fetch_add(1, Ordering::Relaxed);
        drop((life, grenade));
    };
    if dice.below(4) == 0 { queue.spawn_async(async move { run() }) } else { queue.spawn(run) }
}

fn judge(handle: JoinHandle<()>, tally: &Tally, dice: &mut Dice) {
    if dice.below(4) == 0 {
        return;
    }
    match handle.join() {
        Ok(()) => {}
        // A captured value has panicked in its drop, and the payload may panic again.
        Err(JoinError::Panicked(payload)) => drop(hostile::contained(|| drop(payload))),
        Err(JoinError::Cancelled) => drop(tally.nr_cancelled.fetch_add(1, Ordering::Relaxed)),
        Err(error) => panic!("{error}"),
    }
}

fn finish(queue: Workqueue, dice: &mut Dice) {
    match dice.below(6) {
        0 => drop(queue),
        1 => queue.close_in_background(),
        2 => queue.shutdown_background(),
        3 => {
            let mut timeout = Duration::ZERO;
            while let Err(error) = queue.drain_timeout(timeout) {
                let DrainError::StillBusy(busy) = error else {
                    panic!("{error}");
                };
                assert_eq!(busy.nr_left, busy.left.iter().map(|it| it.count).sum(), "{busy}");
                timeout = Duration::from_millis(1);
            }
        }
        4 => {
            let waker = unpark();
            let mut context = Context::from_waker(&waker);
            let mut drain = pin!(queue.drain_async());
            let gives_up = dice.below(3) == 0;
            while drain.as_mut().poll(&mut context) == Poll::Pending && !gives_up {
                thread::park();
            }
        }
        _ => {
            let other = queue.clone();
            queue.shutdown_background();
            assert!(other.try_spawn(|| ()).is_err());
            other.close_in_background();
        }
    }
}
