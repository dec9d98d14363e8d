//! Futexes: words on which tasks sleep.

use std::time::Duration;

use super::engine::{Engine, engine, running, suspend, sync, system_call};
use super::memory::Access;

/// If the word is `expected`, sleeps until another task wakes this one, for at most `timeout`.
///
/// # Safety
///
/// 1. `word` is readable until the function returns.
#[track_caller]
pub unsafe fn wait(word: *const u32, expected: u32, timeout: Option<Duration>) {
    if running().is_none() {
        return;
    }
    let site = std::panic::Location::caller();
    engine(|e| {
        e.counts.futex_waits += 1;
        e.enter_call();
        e.task().nr_idle = 0;
        e.task().last_site = Some(site);
    });
    sync();
    engine(|e| e.lock_bucket(word as usize));
    super::memory::touch(word as usize, Access::Load, site);
    let sleeps = engine(|e| {
        // SAFETY: (1). No other task has a turn, so none writes the word.
        if unsafe { word.read_volatile() } != expected {
            return false;
        }
        let current = e.current();
        let task = &mut e.tasks[current];
        task.sleep_seq += 1;
        task.asleep_on = word as usize;
        if let Some(span) = timeout {
            e.set_alarm(span);
        }
        e.futexes.entry(word as u64).or_default().sleepers.push_back(current);
        e.fall_asleep();
        true
    });
    if sleeps {
        suspend();
        engine(|e| {
            if !e.task().is_kernel {
                e.advance(e.costs.syscall / 2);
            }
        });
        sync();
    }
}

/// Wakes up to `count` sleepers of a word, without accessing the word.
pub fn wake(word: *const u32, count: u32) {
    if running().is_none() {
        return;
    }
    let charge = |e: &mut Engine| {
        e.counts.futex_wakes += 1;
        e.enter_call();
        e.task().nr_idle = 0;
    };
    system_call(charge, |e| {
        let nr_asleep = e.futexes.get(&(word as u64)).map_or(0, |bucket| bucket.sleepers.len());
        if nr_asleep == 0 {
            e.counts.wakes_of_none += 1;
            return false;
        }
        e.lock_bucket(word as usize);
        for _ in 0..(count as usize).min(nr_asleep) {
            let bucket = e.futexes.get_mut(&(word as u64)).expect("has sleepers");
            let task = bucket.sleepers.pop_front().expect("counted above");
            e.wake(task, Some(e.cpu), 0);
        }
        false
    });
    sync();
}

impl Engine {
    /// Charges for the system call. A kernel thread makes no system call and uses no bucket.
    fn enter_call(&mut self) {
        if !self.task().is_kernel {
            self.advance(self.costs.syscall + self.costs.futex);
        }
    }

    fn lock_bucket(&mut self, word: usize) {
        if self.task().is_kernel {
            return;
        }
        let now = self.now();
        let hold = self.costs.futex / 2 + self.costs.llc_dirty / 2;
        let bucket = self.futexes.entry(word as u64).or_default();
        let free = bucket.free.max(now);
        bucket.free = free + hold;
        self.cpus[self.cpu].now = free;
    }
}
