//! Which thread this is, for a comparison and nothing else.

use std::num::NonZeroU64;

crate::thread_local! {
    /// This thread's number; 0 before it was asked for.
    static MINE: std::cell::Cell<u64> = std::cell::Cell::new(0)
}

/// Returns a number that no other thread of this process has, had or will have.
///
/// Costs a load after the first call of a thread. [`thread::current`](crate::thread::current) names a thread to the
/// kernel, which gives that name to another one later.
#[inline]
pub fn mine() -> NonZeroU64 {
    MINE.with(|mine| NonZeroU64::new(mine.get()).unwrap_or_else(|| first(mine)))
}

#[cold]
fn first(mine: &std::cell::Cell<u64>) -> NonZeroU64 {
    // Not a model's: it counts on from run to run, and only equality is asked.
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    mine.set(number);
    NonZeroU64::new(number).expect("2^64 threads take centuries to start")
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_number_and_shares_it_with_none() {
        let here = mine();
        assert_eq!(mine(), here);
        let there = std::thread::spawn(mine).join().unwrap();
        assert_ne!(there, here);
        assert_ne!(std::thread::spawn(mine).join().unwrap(), there);
    }
}
