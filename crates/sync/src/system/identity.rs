//! Numbers of threads: one for comparisons, which is never reused, and a small one for tables.

use std::cell::Cell;
use std::num::{NonZeroU32, NonZeroU64};

/// The value of [`SEAT`] while this thread's thread-locals are being destroyed.
const GONE: u32 = u32::MAX;

crate::thread_local! {
    /// This thread's number, or 0 before the first request.
    static MINE: Cell<u64> = Cell::new(0);
    /// This thread's index in tables, or 0 before the first request.
    static SEAT: Cell<u32> = Cell::new(0)
}

/// Returns a number that no other thread of this process has, had or will have, unlike
/// [`thread::current`](crate::thread::current). Costs a load after the thread's first call.
#[inline]
pub fn mine() -> NonZeroU64 {
    MINE.with(|mine| NonZeroU64::new(mine.get()).unwrap_or_else(|| first(mine)))
}

#[cold]
fn first(mine: &Cell<u64>) -> NonZeroU64 {
    // Not a model's atomic, because the numbers continue from run to run and are only compared.
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    mine.set(number);
    NonZeroU64::new(number).expect("2^64 threads take centuries to start")
}

/// Returns a small number from 1 that no other living thread has, or `None` in thread-local
/// destructors.
///
/// The numbers are dense: a thread gets the lowest free one, and releases it when it ends. Writes
/// of a thread are visible to the next thread with its number. Costs a load after the thread's
/// first call. In a model no number is reused.
#[inline]
pub fn seat() -> Option<NonZeroU32> {
    let seat = SEAT.try_with(Cell::get).unwrap_or(GONE);
    if seat.wrapping_sub(1) < GONE - 1 {
        return NonZeroU32::new(seat);
    }
    take_seat(seat)
}

#[cold]
fn take_seat(seat: u32) -> Option<NonZeroU32> {
    if seat == GONE {
        return None;
    }
    let seat = seats::take();
    SEAT.with(|mine| mine.set(seat));
    NonZeroU32::new(seat).filter(|seat| seat.get() != GONE)
}

#[cfg(not(any(loom, shuttle)))]
mod seats {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    use std::sync::{Mutex, MutexGuard};

    pub struct Seats {
        free: BinaryHeap<Reverse<u32>>,
        nr_given: u32,
    }

    static SEATS: Mutex<Seats> = Mutex::new(Seats { free: BinaryHeap::new(), nr_given: 0 });

    /// Releases the number when the thread's thread-locals are destroyed.
    struct Held(std::cell::Cell<u32>);

    crate::thread_local! { static HELD: Held = Held(std::cell::Cell::new(0)) }

    impl Drop for Held {
        fn drop(&mut self) {
            super::SEAT.with(|seat| seat.set(super::GONE));
            if self.0.get() != 0 {
                hold().free.push(Reverse(self.0.get()));
            }
        }
    }

    /// Prevents threads from acquiring or releasing numbers until the guard is dropped.
    pub fn hold() -> MutexGuard<'static, Seats> {
        SEATS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn take() -> u32 {
        // Registers the fork handlers, so that a thread that forks waits for the lock.
        crate::fork::Process::this();
        let take = |held: &Held| {
            let mut seats = hold();
            let free = seats.free.pop().map(|Reverse(seat)| seat);
            let seat = free.unwrap_or_else(|| {
                seats.nr_given += 1;
                seats.nr_given
            });
            held.0.set(seat);
            seat
        };
        HELD.try_with(take).unwrap_or(super::GONE)
    }
}

pub(crate) use seats::hold;

#[cfg(any(loom, shuttle))]
mod seats {
    /// Does nothing, because a model does not fork.
    pub fn hold() -> impl Sized {}

    /// Returns a number derived from the model's thread ID, which starts at 0 in each run.
    pub fn take() -> u32 {
        let id = format!("{:?}", crate::backend::thread::current().id());
        let digits: String = id.chars().filter(char::is_ascii_digit).collect();
        let number: u32 = digits.parse().expect("a thread's id shows its number");
        number + 1
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn cached_seat_is_exclusive_and_granted_again() {
        let here = seat();
        assert!(here.is_some());
        assert_eq!(seat(), here);
        let all_sit = std::sync::Barrier::new(4);
        let sit = || {
            let mine = seat();
            all_sit.wait();
            mine
        };
        let mut seats = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(sit));
            threads.map(|thread| thread.join().unwrap()).to_vec()
        });
        seats.push(here);
        seats.sort();
        seats.dedup();
        assert_eq!(seats.len(), 5);
        // A hundred threads that run one after another do not need a hundred numbers.
        let next = || std::thread::spawn(seat).join().unwrap().unwrap().get();
        let highest = (0..100).map(|_| next()).max();
        assert!(highest < Some(50), "seats are not given again: {highest:?}");
    }

    #[test]
    fn a_thread_keeps_its_number_and_shares_it_with_none() {
        let here = mine();
        assert_eq!(mine(), here);
        let there = std::thread::spawn(mine).join().unwrap();
        assert_ne!(there, here);
        assert_ne!(std::thread::spawn(mine).join().unwrap(), there);
    }
}
