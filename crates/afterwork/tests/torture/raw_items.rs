//! Items in user memory under torture: shared, freed by their thread, or freed by themselves.

use afterwork::workqueue::{CpuId, Workqueue};
use raw::{Modified, RawDelayed, RawWork};

use crate::queues::Place;
use crate::support::*;

const NR_SHARED: usize = 6;
/// Delays of timers, in microseconds. Only cancels and changes encounter the longest one.
const DELAYS_US: [u64; 4] = [0, 20, 300, 60_000_000];

#[repr(C)]
struct Job {
    /// The first field, so that the address of the item is that of the job.
    item: RawDelayed,
    inside: AtomicBool,
    nr_runs: AtomicU64,
    /// Number of enqueues minus number of cancels.
    balance: AtomicI64,
    /// Number of times that the item queues itself again.
    nr_again: AtomicU32,
    places: Arc<[Place]>,
    frees: bool,
    _life: Life,
}

/// A job's address, valid until its creator or the job itself frees it.
#[derive(Clone, Copy)]
struct There(NonNull<Job>);

// SAFETY: the parts of a job are atomic, or do not change.
unsafe impl Send for There {}
// SAFETY: as above.
unsafe impl Sync for There {}

pub struct Yard(Vec<There>);

unsafe extern "C-unwind" fn run(work: *mut RawWork) {
    let there = There(NonNull::new(work.cast()).expect("the address of an item"));
    let job = there.job();
    if job.inside.swap(true, Ordering::Relaxed) {
        fault("runs of a raw item overlap");
    }
    if job.nr_runs.fetch_add(1, Ordering::Relaxed) % 16 == 15 {
        thread::yield_now();
    }
    let again = |left: u32| left.checked_sub(1);
    if let Ok(left) = job.nr_again.fetch_update(Ordering::Relaxed, Ordering::Relaxed, again) {
        let place = &job.places[left as usize % job.places.len()];
        // The item may run again at once, on this queue or another.
        job.inside.store(false, Ordering::Relaxed);
        if there.queue(&place.queue, None) || !there.job().frees {
            return;
        }
    }
    job.inside.store(false, Ordering::Relaxed);
    if job.frees {
        there.free();
    }
}

impl There {
    fn new(places: &Arc<[Place]>, lives: &Arc<Lives>, frees: bool, nr_again: u32) -> Self {
        Self(NonNull::from(Box::leak(Box::new(Job {
            // SAFETY: `run` may be called on any thread.
            item: unsafe { RawDelayed::new(run) },
            inside: AtomicBool::new(false),
            nr_runs: AtomicU64::new(0),
            balance: AtomicI64::new(0),
            nr_again: AtomicU32::new(nr_again),
            places: places.clone(),
            frees,
            _life: Life::new(lives),
        }))))
    }

    fn job<'a>(self) -> &'a Job {
        // SAFETY: the job is valid until it is freed.
        unsafe { self.0.as_ref() }
    }

    fn work(self) -> NonNull<RawWork> {
        self.0.cast()
    }

    fn count(self, by: i64) {
        self.job().balance.fetch_add(by, Ordering::Relaxed);
    }

    fn queue(self, queue: &Workqueue, cpu: Option<CpuId>) -> bool {
        let frees = self.job().frees;
        // SAFETY: the job is valid until it has been cancelled, or runs.
        let queued = unsafe { RawWork::queue(self.work(), queue, cpu) }.unwrap();
        // An item that frees itself may already be freed.
        if queued && !frees {
            self.count(1);
        }
        queued
    }

    fn act(self, place: &Place, dice: &mut Dice) {
        let (this, queue) = (self.0.cast::<RawDelayed>(), &place.queue);
        let delay = Duration::from_micros(dice.pick(&DELAYS_US));
        // The creation of the timer thread may fail, which ends the process.
        let nr_acts = if hostile::is_on() { 6 } else { 10 };
        // SAFETY: the job and its queues are valid until the final cancel.
        unsafe {
            match dice.below(nr_acts) {
                0 | 1 => drop(self.queue(queue, None)),
                2 => drop(self.queue(queue, Some(CpuId::new(dice.below(4) as u32)))),
                3 => self.count(-i64::from(RawWork::cancel(self.work()).unwrap())),
                4 => drop(RawWork::flush(self.work()).unwrap()),
                5 => drop(RawWork::busy(self.work()).unwrap()),
                6 | 7 => {
                    let queued = RawDelayed::queue(this, queue, None, delay).unwrap();
                    self.count(i64::from(queued));
                }
                8 => match RawDelayed::modify(this, queue, None, delay).unwrap() {
                    Modified::WasIdle => self.count(1),
                    Modified::Cancelled => self.count(-1),
                    Modified::WasPending | Modified::Refused => {}
                },
                _ => self.count(-i64::from(RawDelayed::cancel(this).unwrap())),
            }
        }
    }

    /// Waits until the item is idle, checks its number of runs, and frees it.
    fn end(self, dice: &mut Dice) {
        let this = self.0.cast::<RawDelayed>();
        self.job().nr_again.store(0, Ordering::Relaxed);
        // SAFETY: the job is valid until `free`.
        unsafe {
            if dice.below(3) == 0 {
                // Waits if the item is queued, but not if it is armed.
                RawWork::flush(self.work()).unwrap();
            }
            let cancelled = RawDelayed::cancel_sync(this).unwrap();
            self.count(-i64::from(cancelled));
        }
        let job = self.job();
        let nr_runs = job.nr_runs.load(Ordering::Relaxed);
        let balance = job.balance.load(Ordering::Relaxed);
        if balance != nr_runs as i64 {
            fault(&format!("a raw item ran {nr_runs} times, and should have {balance} times"));
        }
        if job.inside.load(Ordering::Relaxed) {
            fault("a raw item runs after it was cancelled for good");
        }
        self.free();
    }

    /// Frees the job, and overwrites its memory so that no valid item remains there.
    fn free(self) {
        // SAFETY: `new` created the job, and no other thread uses it, as the test checks.
        unsafe {
            self.0.drop_in_place();
            self.0.cast::<u8>().write_bytes(0xa5, size_of::<Job>());
            std::alloc::dealloc(self.0.as_ptr().cast(), std::alloc::Layout::new::<Job>());
        }
    }
}

impl Yard {
    pub fn new(places: &Arc<[Place]>, lives: &Arc<Lives>) -> Self {
        Self((0..NR_SHARED).map(|_| There::new(places, lives, false, 0)).collect())
    }

    /// Performs an act on a shared item, or runs a private one from creation to free.
    pub fn torture(&self, places: &Arc<[Place]>, lives: &Arc<Lives>, dice: &mut Dice) {
        let place = |dice: &mut Dice| &places[dice.below(places.len())];
        match dice.below(8) {
            0..5 => self.0[dice.below(NR_SHARED)].act(place(dice), dice),
            5 => {
                let job = There::new(places, lives, true, dice.below(2) as u32);
                if !job.queue(&place(dice).queue, None) {
                    job.free();
                }
            }
            _ => {
                let job = There::new(places, lives, false, dice.below(4) as u32);
                (0..dice.below(6)).for_each(|_| job.act(place(dice), dice));
                job.end(dice);
            }
        }
    }

    pub fn end(self, dice: &mut Dice) {
        self.0.into_iter().for_each(|job| job.end(dice));
    }
}
