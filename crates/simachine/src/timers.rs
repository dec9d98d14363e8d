//! Timers, ordered by expiry time, and then by the order in which they were set.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::clock::NEVER;
use super::engine::Engine;
use super::task::State;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Alarm {
    Wake { task: usize, sleep_seq: u64 },
    Balance,
}

#[derive(Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(u64, u64, Alarm)>>,
    nr_set: u64,
}

impl Timers {
    pub fn set(&mut self, when: u64, alarm: Alarm) {
        self.nr_set += 1;
        self.heap.push(Reverse((when, self.nr_set, alarm)));
    }

    pub fn next(&self) -> u64 {
        self.heap.peek().map_or(NEVER, |timer| timer.0.0)
    }

    fn pop(&mut self, until: u64) -> Option<(u64, Alarm)> {
        if self.next() > until || self.heap.is_empty() {
            return None;
        }
        self.heap.pop().map(|Reverse((when, _, alarm))| (when, alarm))
    }
}

impl Engine {
    /// Sets a timer for the sleep that the current task has begun.
    pub fn set_alarm(&mut self, span: std::time::Duration) {
        let task = self.current();
        let ps = u64::try_from(span.as_nanos()).unwrap_or(NEVER).saturating_mul(1000);
        // A timer that is too far in the future never fires.
        let when = self.now().saturating_add(ps);
        if when < NEVER {
            let sleep_seq = self.tasks[task].sleep_seq;
            self.timers.set(when, Alarm::Wake { task, sleep_seq });
            self.set_timer_clock();
        }
    }

    /// Runs the timers that are due at `time`.
    pub fn ring(&mut self, time: u64) {
        while let Some((when, alarm)) = self.timers.pop(time) {
            match alarm {
                Alarm::Balance => self.balance(when),
                Alarm::Wake { task, sleep_seq } => {
                    let sleeper = &self.tasks[task];
                    if sleeper.state == State::Asleep && sleeper.sleep_seq == sleep_seq {
                        let word = sleeper.asleep_on as u64;
                        if let Some(bucket) = self.futexes.get_mut(&word) {
                            bucket.sleepers.retain(|&it| it != task);
                        }
                        self.wake(task, None, when + self.costs.timer_irq);
                    }
                }
            }
        }
        self.set_timer_clock();
    }
}
