//! Injected faults: threads, `membarrier`, eventfds, mappings and sleeps fail at random.
//!
//! In a build with `--cfg torture`, these calls fail with the frequency that `set` specifies. In
//! other builds, [`fails`] is the constant `false`. Models inject failures of their own.

/// The calls that may fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// Starting a thread: `EAGAIN`.
    Thread,
    /// The registration for expedited membarriers, and each membarrier that is not expedited.
    Membarrier,
    /// Creating an eventfd: `EMFILE`.
    Eventfd,
    /// Creating a mapping: `ENOMEM`.
    Map,
    /// A sleep on a word: it returns at once, as after `EINTR`.
    Sleep,
}

/// Returns `true` if `point` must fail this time. Always returns `false` except in a torture build.
#[cfg(not(all(torture, not(any(loom, shuttle)))))]
#[inline(always)]
pub const fn fails(_point: Point) -> bool {
    false
}

/// Fails if `point` must fail this time.
///
/// # Errors
///
/// Returns the system's error `code`.
#[cfg(feature = "std")]
#[inline(always)]
pub fn check(point: Point, code: i32) -> std::io::Result<()> {
    match fails(point) {
        true => Err(std::io::Error::from_raw_os_error(code)),
        false => Ok(()),
    }
}

#[cfg(all(torture, not(any(loom, shuttle))))]
mod torture {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    use super::Point;

    const NR_POINTS: usize = Point::Sleep as usize + 1;

    /// The failure rate of each [`Point`]: one call in this number fails, or none if it is 0.
    static ONE_IN: [AtomicU32; NR_POINTS] = [const { AtomicU32::new(0) }; NR_POINTS];
    static SEED: AtomicU64 = AtomicU64::new(0);

    std::thread_local!(static DICE: Cell<u64> = const { Cell::new(0) });

    /// Makes one call to `point` in `one_in` fail from now on, or none if `one_in` is 0.
    pub fn set(point: Point, one_in: u32) {
        ONE_IN[point as usize].store(one_in, Ordering::Relaxed);
    }

    /// Sets the seed for threads that have not yet drawn a random number.
    pub fn seed(seed: u64) {
        SEED.store(seed, Ordering::Relaxed);
    }

    /// Returns `true` if `point` must fail this time.
    pub fn fails(point: Point) -> bool {
        is_drawn(ONE_IN[point as usize].load(Ordering::Relaxed))
    }

    /// Returns `true` at random, on average for one call in `one_in`. 0 means for none.
    pub(crate) fn is_drawn(one_in: u32) -> bool {
        one_in != 0 && throw().is_multiple_of(one_in)
    }

    /// Returns a random number of this thread: half of the result of one SplitMix64 step.
    fn throw() -> u32 {
        let step = 0x9e37_79b9_7f4a_7c15_u64;
        let before = DICE.try_with(Cell::get).unwrap_or(0);
        let state = if before == 0 { SEED.fetch_add(step, Ordering::Relaxed) } else { before };
        let state = state.wrapping_add(step).max(1);
        // This fails only if the thread is about to end and needs no further numbers.
        DICE.try_with(|dice| dice.set(state)).ok();
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)) >> 32) as u32
    }
}

#[cfg(all(torture, not(any(loom, shuttle))))]
pub(crate) use torture::is_drawn;
#[cfg(all(torture, not(any(loom, shuttle))))]
pub use torture::{fails, seed, set};

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn nothing_fails_without_a_request() {
        assert!((0..1000).all(|_| !fails(Point::Map)));
        check(Point::Map, 12).unwrap();
    }

    #[cfg(torture)]
    #[test]
    fn one_in_n_calls_fails_with_its_error() {
        set(Point::Eventfd, 4);
        let refused = |_: &u32| check(Point::Eventfd, 24).is_err();
        let nr_refused = (0..1000).filter(refused).count();
        set(Point::Eventfd, 0);
        assert!((150..350).contains(&nr_refused), "{nr_refused}");
        assert!(check(Point::Eventfd, 24).is_ok());
    }
}
