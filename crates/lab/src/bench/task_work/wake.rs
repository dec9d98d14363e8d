//! Posts items at a steady pace to an owner that waits for them. Both are pinned to different CPUs
//! if there are two: the scheduler's choice would affect the result more than the path does.

use std::thread;
use std::time::Duration;

use sync::atomic::{AtomicBool, Ordering};
use sync::hint::spin_loop;
use sync::time::{cycles, cycles_per_us};
use top::exit::Stop;
use top::interrupt::Interrupt;
use topology::CpuId;

use crate::bench::workqueue::producers::{WARM_UP_SHARE, joined, spawn};
use crate::harness::latency::Latencies;
use crate::harness::switches::Usage;

/// The number of spins before a poster yields its CPU, which the owner may share.
const SPINS_PER_YIELD: u32 = 1024;

/// The poster's end of a path of items to a sleeping owner. The path ends when it is dropped. An
/// item is the value of the cycle counter just before the post, passed by value.
pub trait Post: Send {
    fn post(&mut self, item: u64);

    /// Posts an item that wakes the owner at once, even if it waits for more items.
    #[inline(always)]
    fn post_urgent(&mut self, item: u64) {
        self.post(item);
    }
}

pub trait Receive: Send {
    /// Sleeps until items arrive, and passes them to `take`. Returns `false` when the path ends.
    fn receive(&mut self, take: impl FnMut(u64)) -> bool;
}

#[derive(Clone, Debug)]
pub struct Wake {
    pub items: usize,
    pub burst: usize,
    pub gap: Duration,
    /// The CPUs of poster and owner, or `None` if they are not pinned.
    pub pins: Option<(CpuId, CpuId)>,
    pub interrupt: Interrupt,
}

pub struct Woken {
    pub owner: Usage,
    pub latencies: Latencies,
    pub post_cycles: u64,
    pub items: usize,
}

impl Wake {
    /// Posts all items and returns the results. Returns `None` if SIGINT interrupts the run.
    pub fn run(&self, (post, owner): (impl Post, impl Receive)) -> Result<Option<Woken>, Stop> {
        let warm_up = (self.items / WARM_UP_SHARE).max(1);
        // The owner sets this after it has read its counters.
        let is_warm = AtomicBool::new(false);
        let is_warm = &is_warm;
        let (post_cycles, received) = thread::scope(|scope| {
            let owner = spawn(scope, "owner", self.pins.map(|(_, cpu)| cpu), move || {
                self.receive_all(owner, warm_up, is_warm)
            });
            let poster = spawn(scope, "poster", self.pins.map(|(cpu, _)| cpu), move || {
                self.post_all(post, warm_up, is_warm)
            });
            (joined(poster), joined(owner))
        });
        let Some(post_cycles) = post_cycles else { return Ok(None) };
        let (owner, latencies) = received?;
        Ok(Some(Woken { owner, latencies, post_cycles, items: self.items }))
    }

    fn receive_all(
        &self,
        mut owner: impl Receive,
        warm_up: usize,
        is_warm: &AtomicBool,
    ) -> Result<(Usage, Latencies), Stop> {
        let mut latencies = Latencies::with_capacity_for(self.items);
        let (mut received, mut before) = (0, Usage::of_thread());
        while owner.receive(|posted| {
            let now = cycles();
            received += 1;
            if received > warm_up {
                latencies.push(posted, now);
            } else if received == warm_up {
                before = Usage::of_thread();
                is_warm.store(true, Ordering::Relaxed);
            }
        }) {}
        let after = Usage::of_thread();
        if received != warm_up + self.items && !self.interrupt.requested() {
            return Err(Stop::CouldNotRun(format!(
                "an owner received {received} of {} items",
                warm_up + self.items
            )));
        }
        Ok((after.since(before), latencies))
    }

    /// Posts the warm-up items and the timed items. Returns the cycles spent in timed posts.
    fn post_all(&self, mut post: impl Post, warm_up: usize, is_warm: &AtomicBool) -> Option<u64> {
        self.post_at_pace(warm_up - 1, &mut post)?;
        post.post_urgent(cycles());
        let mut spins = 0_u32;
        while !is_warm.load(Ordering::Relaxed) {
            spin_loop();
            spins += 1;
            if spins.is_multiple_of(SPINS_PER_YIELD) {
                if self.interrupt.requested() {
                    return None;
                }
                thread::yield_now();
            }
        }
        self.post_at_pace(self.items, &mut post)
    }

    fn post_at_pace(&self, items: usize, post: &mut impl Post) -> Option<u64> {
        let gap = self.gap.as_micros() as u64 * cycles_per_us();
        let (mut left, mut due, mut in_posts) = (items, cycles() + gap, 0);
        while left > 0 {
            if self.interrupt.requested() {
                return None;
            }
            while cycles() < due {
                spin_loop();
            }
            for _ in 0..self.burst.min(left) {
                let start = cycles();
                post.post(start);
                in_posts += cycles().saturating_sub(start);
            }
            left = left.saturating_sub(self.burst);
            due = next_due(due, gap, cycles());
        }
        Some(in_posts)
    }
}

/// Returns the time of the next burst. Catching up after a preemption would create a larger one.
fn next_due(due: u64, gap: u64, now: u64) -> u64 {
    let next = due + gap;
    if next < now { now + gap } else { next }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn wake(items: usize) -> Wake {
        Wake {
            items,
            burst: 1,
            gap: Duration::from_micros(10),
            pins: None,
            interrupt: Interrupt::default(),
        }
    }

    struct Lossy(mpsc::Sender<u64>, u32);

    impl Post for Lossy {
        fn post(&mut self, item: u64) {
            self.1 += 1;
            if !self.1.is_multiple_of(10) {
                self.0.post(item);
            }
        }

        fn post_urgent(&mut self, item: u64) {
            self.0.post(item);
        }
    }

    #[test]
    fn lost_item_is_reported() {
        let (sender, receiver) = mpsc::channel();
        // The last of the nine timed items is lost.
        let lossy = wake(9).run((Lossy(sender, 1), receiver));
        assert!(lossy.is_err());
    }

    #[test]
    fn an_interrupted_run_yields_nothing() {
        let wake = wake(100);
        wake.interrupt.request();
        assert!(wake.run(mpsc::channel()).unwrap().is_none());
    }

    #[test]
    fn a_late_poster_does_not_catch_up() {
        assert_eq!(next_due(100, 10, 105), 110);
        assert_eq!(next_due(100, 10, 110), 110);
        assert_eq!(next_due(100, 10, 500), 510);
    }
}
