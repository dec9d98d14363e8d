//! A queue with a capacity under torture, and items with a start deadline.

use afterwork::workqueue::{JoinError, Registry, Work, Workqueue};

use crate::support::*;

/// A queue with a small capacity that all threads compete for.
pub struct Crowded {
    queue: Workqueue,
    capacity: usize,
}

/// A waker that wakes no thread. The next poll finds the permit, or the permit is transferred.
struct Deaf;

impl Wake for Deaf {
    fn wake(self: Arc<Self>) {
        // A user's waker may panic; the thread that releases capacity must tolerate it.
        if hostile::is_on() {
            Planned::panic();
        }
    }
}

impl Crowded {
    pub fn new(registry: &Registry, dice: &mut Dice) -> Self {
        let (capacity, max_active) = (1 + dice.below(4), 1 + dice.below(3) as u32);
        let (ordered, help) = (dice.below(3) == 0, dice.below(2) == 0);
        let queue = insist(|| {
            let builder = Workqueue::builder("crowded").capacity(capacity);
            let builder =
                if ordered { builder.ordered() } else { builder.max_active(max_active).help(help) };
            builder.build_in(registry)
        });
        Self { queue, capacity }
    }

    pub fn torture(&self, lives: &Arc<Lives>, dice: &mut Dice) {
        let queue = &self.queue;
        let life = Life::new(lives);
        let item = move || drop(life);
        match dice.below(9) {
            0 => {
                if let Ok(mut handle) = queue.try_spawn(item)
                    && dice.below(2) == 0
                {
                    handle.cancel();
                }
            }
            1 => {
                let span = Duration::from_micros(dice.pick(&[0, 1, 50, 1000]));
                drop(queue.task().wait_for_capacity_until(Instant::now() + span).try_spawn(item));
            }
            2 => match queue.spawn(item).join() {
                Ok(()) | Err(JoinError::Full) => {}
                Err(error) => panic!("{error}"),
            },
            3 => {
                let work = Work::new(move || _ = &item);
                let queued = queue.try_enqueue(&work);
                assert_ne!(queued, Ok(false), "no other thread owns it");
                match dice.below(3) {
                    0 => drop(work.cancel()),
                    1 => drop(work.flush().unwrap()),
                    _ => {}
                }
            }
            4 | 5 => {
                let mut reserve = pin!(queue.task().reserve());
                let waker = Waker::from(Arc::new(Deaf));
                for _ in 0..=dice.below(3) {
                    let polled = reserve.as_mut().poll(&mut Context::from_waker(&waker));
                    if let std::task::Poll::Ready(permit) = polled {
                        if dice.below(2) == 0 {
                            drop(permit.spawn(item));
                        }
                        return;
                    }
                    thread::yield_now();
                }
            }
            6 => {
                queue.pause();
                drop(queue.spawn(item));
                assert!(queue.report().free_capacity.is_some_and(|room| room <= self.capacity));
                queue.resume();
            }
            7 => drop(queue.spawn_detached(item)),
            _ => drop(queue.spawn_async(async move { item() })),
        }
    }

    pub fn end(self) {
        self.queue.drain().unwrap();
        assert_eq!(self.queue.report().free_capacity, Some(self.capacity), "a permit is lost");
        self.queue.shutdown(Duration::MAX).unwrap();
        let refused = self.queue.task().wait_for_capacity().try_spawn(|| ());
        assert!(refused.is_err_and(|error| !error.is_full()));
    }
}

/// Spawns an item with a start deadline, and joins, cancels or drops it.
pub fn late(queue: &Workqueue, lives: &Arc<Lives>, dice: &mut Dice) {
    let has_run = Arc::new(AtomicBool::new(false));
    let (life, runs) = (Life::new(lives), has_run.clone());
    let span = Duration::from_micros(dice.pick(&[0, 1, 20, 100, 1000]));
    let mut handle = queue.task().deadline(Instant::now() + span).spawn(move || {
        drop(life);
        assert!(!runs.swap(true, Ordering::AcqRel), "it runs twice");
    });
    match dice.below(4) {
        0 => drop(handle),
        1 => {
            if handle.cancel() {
                let outcome = handle.join();
                assert!(matches!(outcome, Err(JoinError::Cancelled)), "{outcome:?}");
                assert!(!has_run.load(Ordering::Acquire), "it ran");
            }
        }
        2 => drop(handle.join_timeout(span / 2)),
        _ => match handle.join() {
            Ok(()) => assert!(has_run.load(Ordering::Acquire)),
            Err(JoinError::Expired | JoinError::Full | JoinError::Closed) => {
                assert!(!has_run.load(Ordering::Acquire), "it ran");
            }
            Err(error) => panic!("{error}"),
        },
    }
}
