//! Local futures and dedicated workers under torture: remote wakers, cancels, and early ends.
//!
//! A future is polled and dropped on one thread. None may be lost while its owner runs, and every
//! value must be dropped at the end.

use afterwork::mailbox::{JoinError, JoinHandle, LocalSet, Mailbox, Woken, Worker, spawn_local};

use crate::support::hostile::{Act, Grenade, dares, misbehave};
use crate::support::*;

const NR_RINGERS: usize = 2;
const MAX_FUTURES: usize = 40;
const MAX_NUMBERS: u64 = 60;
const NR_USERS: usize = 2;
const MAX_SPAWNS: usize = 60;
/// The longest wait for an action that another thread may be slow to complete.
const NAP: Duration = Duration::from_micros(200);

pub fn torture(dice: &mut Dice) {
    let lives = Arc::new(Lives::default());
    let place = Place { wakes: Wakes::default(), lives: lives.clone() };
    match dice.below(2) {
        0 => own(&place, dice),
        _ => employ(&place, dice),
    }
    // A worker may end by itself.
    watched("the end of local futures", || {
        while Arc::strong_count(&lives) > 2 {
            place.wakes.ring(dice);
            thread::yield_now();
        }
    });
    lives.assert_none();
}

enum Mail {
    Number(u64),
    Woken(Woken),
}

impl From<Woken> for Mail {
    fn from(woken: Woken) -> Self {
        Self::Woken(woken)
    }
}

#[derive(Clone)]
struct Place {
    wakes: Wakes,
    lives: Arc<Lives>,
}

/// Fails if it is dropped on a thread other than its creator's.
struct Bound(thread::ThreadId, #[expect(dead_code, reason = "counts its drop")] Life);

sync::on_drop!(Bound, this => assert_eq!(this.0, thread::current().id(), "dropped elsewhere"));

/// A future that waits `nr_waits` times, in random ways, and is then ready.
struct Weary {
    nr_waits: usize,
    panics: bool,
    dice: Dice,
    place: Place,
    bound: Bound,
    grenade: Grenade,
}

impl Weary {
    fn new(place: &Place, dice: &mut Dice) -> Self {
        Self {
            nr_waits: dice.below(5),
            panics: dice.below(20) == 0,
            dice: Dice::new(dice.bits()),
            place: place.clone(),
            bound: Bound(thread::current().id(), Life::new(&place.lives)),
            grenade: Grenade::new(dice),
        }
    }
}

impl Future for Weary {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        assert_eq!(self.bound.0, thread::current().id(), "polled elsewhere");
        self.grenade.check();
        if hostile::is_on() {
            misbehave(&mut self.dice);
        }
        if dares(Act::Drop, &mut self.dice, 16) {
            hostile::hide(&mut self.dice, cx.waker().clone());
        }
        if self.nr_waits == 0 {
            if self.panics {
                Planned::panic();
            }
            return Poll::Ready(());
        }
        self.nr_waits -= 1;
        match self.dice.below(6) {
            0 => cx.waker().wake_by_ref(),
            1 => {
                let place = self.place.clone();
                let mut child = Self::new(&place, &mut self.dice);
                child.nr_waits = child.nr_waits.min(self.nr_waits);
                decide(spawn_local(child), self.dice.below(3));
                cx.waker().wake_by_ref();
            }
            _ => self.place.wakes.push(cx.waker(), false),
        }
        Poll::Pending
    }
}

/// Uses a handle in a way that does not wait.
fn decide(mut handle: JoinHandle<()>, fate: usize) {
    match fate {
        0 => drop(handle),
        1 => drop(handle.cancel_on_drop()),
        _ => {
            handle.cancel();
            handle.try_join().map(result_of);
        }
    }
}

/// Runs a mailbox whose owner polls local futures. Other threads fire wakers, cancel and post.
fn own(place: &Place, dice: &mut Dice) {
    let mut builder = Mailbox::builder();
    if dice.below(3) == 0 {
        builder = builder.capacity(dice.pick(&[1, 7]));
    }
    let mut mailbox = builder.build();
    let poster = mailbox.poster();
    let is_over = AtomicBool::new(false);
    let (give, take) = mpsc::channel::<JoinHandle<()>>();
    let take = Mutex::new(take);
    let nr_futures = dice.below(MAX_FUTURES);
    // `None` means that the owner runs until the mailbox is disconnected.
    let ends_after = (dice.below(2) == 0).then(|| dice.below(4 * nr_futures + 1));
    thread::scope(|scope| {
        for _ in 0..NR_RINGERS {
            let mut dice = Dice::new(dice.bits());
            let (is_over, take) = (&is_over, &take);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    place.wakes.ring(&mut dice);
                    let handle = take.lock().unwrap().try_recv();
                    match (handle, dice.below(4)) {
                        (Ok(mut handle), 3) => drop(handle.join_timeout(NAP).map(result_of)),
                        (Ok(handle), fate) => decide(handle, fate),
                        (Err(_), _) => thread::yield_now(),
                    }
                }
            });
        }
        scope.spawn(move || {
            let mut numbers = 0..MAX_NUMBERS;
            _ = numbers.try_for_each(|number| poster.send_blocking(Mail::Number(number)));
        });
        let set = LocalSet::new(&mailbox);
        for _ in 0..nr_futures {
            let handle = set.spawn_local(Weary::new(place, dice));
            if dice.below(4) > 0 {
                give.send(handle).ok();
            }
        }
        let (mut next, mut nr_polls) = (0, 0);
        while ends_after.is_none_or(|nr| nr_polls < nr) && mailbox.wait(1).is_ok() {
            for mail in mailbox.drain(dice.pick(&[1, 5, 64])) {
                match mail {
                    Mail::Number(number) => {
                        assert_eq!(number, next, "lost, doubled or out of order");
                        next += 1;
                    }
                    Mail::Woken(woken) => nr_polls += usize::from(set.poll(woken)),
                }
            }
            if dice.below(100) == 0 {
                set.cancel_all();
            }
        }
        if ends_after.is_none() {
            assert!(set.is_empty(), "{} were forgotten", set.len());
            assert_eq!(next, MAX_NUMBERS);
        }
        match dice.below(2) {
            0 => drop((mailbox, set)),
            _ => drop((set, mailbox)),
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // Wakers fired now find no owner.
    (0..NR_RINGERS).for_each(|_| _ = place.wakes.ring(dice));
    take.into_inner().unwrap().try_iter().for_each(|mut handle| {
        result_of(handle.try_join().expect("its set is destroyed"));
    });
    place.wakes.clear();
}

/// Runs a dedicated worker, which ends with its last user, possibly one of its own items.
fn employ(place: &Place, dice: &mut Dice) {
    let worker = Arc::new(insist(|| Worker::builder("torture").build()));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let users: Vec<_> = (0..NR_USERS)
            .map(|_| {
                let (worker, mut dice) = (worker.clone(), Dice::new(dice.bits()));
                scope.spawn(move || {
                    for _ in 0..dice.below(MAX_SPAWNS) {
                        use_worker(&worker, place, &mut dice);
                    }
                    leave(worker, &mut dice);
                })
            })
            .collect();
        let mut its_dice = Dice::new(dice.bits());
        let is_over = &is_over;
        scope.spawn(move || place.wakes.ring_until(is_over, &mut its_dice));
        leave(worker, dice);
        for user in users {
            user.join().expect("a user failed");
        }
        is_over.store(true, Ordering::Release);
    });
}

fn use_worker(worker: &Arc<Worker>, place: &Place, dice: &mut Dice) {
    let life = Life::new(&place.lives);
    match dice.below(8) {
        0 => {
            let (grenade, mut its_dice) = (Grenade::new(dice), Dice::new(dice.bits()));
            worker.spawn_detached(move || {
                drop((life, grenade));
                misbehave(&mut its_dice);
            });
        }
        1 => {
            // This may be the last handle.
            let (its, mut dice) = (worker.clone(), Dice::new(dice.bits()));
            worker.spawn_detached(move || {
                drop(life);
                assert!(its.is_current());
                leave(its, &mut dice);
            });
        }
        2 => _ = result_of(worker.spawn(move || drop(life)).join()),
        3 => {
            let handle = worker.spawn(move || drop(life));
            let was_in_time = handle.cancel();
            let is_cancelled = matches!(handle.join(), Err(JoinError::Cancelled));
            assert_eq!(was_in_time, is_cancelled, "cancelled and run, or neither");
        }
        4 => drop(worker.spawn(move || drop(life)).cancel_on_drop()),
        5 => assert!(worker.flush().is_ok()),
        _ => {
            let (place, mut its_dice) = (place.clone(), Dice::new(dice.bits()));
            let mut handle = worker.spawn_local(move || {
                drop(life);
                if its_dice.below(30) == 0 {
                    Planned::panic();
                }
                Weary::new(&place, &mut its_dice)
            });
            match dice.below(5) {
                3 => _ = result_of(handle.join()),
                4 => drop(handle.join_timeout(NAP).map(result_of)),
                fate => decide(handle, fate),
            }
        }
    }
}

/// Drops a handle to a worker. The last one ends the worker in a random way.
fn leave(worker: Arc<Worker>, dice: &mut Dice) {
    if let Some(worker) = Arc::into_inner(worker) {
        match dice.below(3) {
            0 => worker.shutdown(),
            1 => worker.close_in_background(),
            _ => worker.shutdown_background(),
        }
    }
}
