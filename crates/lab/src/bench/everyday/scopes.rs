//! Work on borrowed data: sums of a slice, and empty items.

use std::hint::black_box;
use std::time::{Duration, Instant};

use afterwork::workqueue::Workqueue;
use rayon::ThreadPool;
use rayon::prelude::*;

/// The longest slice that is summed without splitting, which takes a few microseconds.
const SMALLEST: usize = 16 * 1024;

pub const TIMES: u32 = 3;

/// Calls `sum` several times and returns the mean time. Returns `None` if any result differs from
/// `wanted`.
pub fn timed(wanted: u64, sum: impl Fn() -> u64) -> Option<Duration> {
    let is_right = || black_box(sum()) == wanted;
    let is_right_warm = is_right();
    let begun = Instant::now();
    let are_right = (0..TIMES).all(|_| is_right());
    (is_right_warm && are_right).then(|| begun.elapsed() / TIMES)
}

pub fn by_chunks(queue: &Workqueue, numbers: &[u64]) -> u64 {
    let sum_of = |range: std::ops::Range<usize>| numbers[range].iter().sum();
    let sum = queue.map_reduce(0..numbers.len(), sum_of, |left: u64, right| left + right);
    sum.unwrap_or(0)
}

pub fn by_join(queue: &Workqueue, numbers: &[u64]) -> u64 {
    if numbers.len() <= SMALLEST {
        return numbers.iter().sum();
    }
    let (left, right) = numbers.split_at(numbers.len() / 2);
    let (left, right) = queue.join(|| by_join(queue, left), || by_join(queue, right));
    left + right
}

pub fn rayon_sum(pool: &ThreadPool, numbers: &[u64]) -> u64 {
    pool.install(|| numbers.par_iter().sum())
}

pub fn rayon_join(pool: &ThreadPool, numbers: &[u64]) -> u64 {
    fn sum(numbers: &[u64]) -> u64 {
        if numbers.len() <= SMALLEST {
            return numbers.iter().sum();
        }
        let (left, right) = numbers.split_at(numbers.len() / 2);
        let (left, right) = rayon::join(|| sum(left), || sum(right));
        left + right
    }
    pool.install(|| sum(numbers))
}

pub fn empty_items(queue: &Workqueue, count: u64) -> u64 {
    queue.scope(|scope| {
        for item in 0..count {
            scope.spawn(move || _ = black_box(item));
        }
    });
    count
}

pub fn empty_range(queue: &Workqueue, count: u64) -> u64 {
    queue.for_each_range(0..count as usize, |range| {
        range.for_each(|item| _ = black_box(item));
    });
    count
}

pub fn rayon_items(pool: &ThreadPool, count: u64) -> u64 {
    pool.scope(|scope| {
        for item in 0..count {
            scope.spawn(move |_| _ = black_box(item));
        }
    });
    count
}

pub fn rayon_range(pool: &ThreadPool, count: u64) -> u64 {
    pool.install(|| {
        (0..count).into_par_iter().for_each(|item| _ = black_box(item));
    });
    count
}
