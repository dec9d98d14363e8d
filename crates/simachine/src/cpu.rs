//! The scheduler, which is fair, like CFS. The task with the least virtual run time runs next, a
//! woken task preempts one that is far ahead of it, and an idle CPU pulls waiting tasks from
//! others.

use std::cmp::Reverse;

use super::engine::Engine;
use super::mask::Mask;
use super::placement::{Facts, place};
use super::task::State;
use super::timers::Alarm;

impl Engine {
    /// Charges the current task for its CPU time up to now.
    pub fn account(&mut self) {
        let (now, current) = (self.now(), self.current());
        let task = &mut self.tasks[current];
        let ran = now.saturating_sub(task.on_since);
        task.on_since = now;
        task.ran += ran;
        task.vruntime += ran;
        let mine = task.vruntime;
        let cpu = &mut self.cpus[self.cpu];
        let waiting = cpu.runq.iter().map(|&task| self.tasks[task].vruntime);
        cpu.min_vruntime = cpu.min_vruntime.max(waiting.fold(mine, u64::min));
    }

    pub fn cpu_time(&self, task: usize) -> u64 {
        let task = &self.tasks[task];
        let is_running = task.state == State::Running;
        let end = if is_running { self.cpus[task.cpu].now } else { task.on_since };
        task.ran + end.saturating_sub(task.on_since)
    }

    fn load(&self, cpu: usize) -> usize {
        self.cpus[cpu].runq.len() + usize::from(self.cpus[cpu].cur.is_some())
    }

    /// Moves the current task to its CPU's run queue. The CPU then has no current task.
    pub fn requeue_current(&mut self) {
        self.account();
        let current = self.current();
        self.tasks[current].state = State::Runnable;
        self.tasks[current].ready_at = self.now();
        let cpu = &mut self.cpus[self.cpu];
        cpu.runq.push(current);
        cpu.cur = None;
        self.nr_queued += 1;
    }

    /// Starts the next task on this CPU, which has no current task, or lets the CPU go idle.
    pub fn pick_next(&mut self) {
        let c = self.cpu;
        self.cpus[c].resched = false;
        if self.cpus[c].runq.is_empty() && self.nr_queued > 0 {
            self.pull();
        }
        let waiting = self.cpus[c].runq.iter().enumerate();
        let best = waiting.min_by_key(|&(at, &task)| (self.tasks[task].vruntime, at));
        if let Some((at, _)) = best {
            let next = self.cpus[c].runq.remove(at);
            self.nr_queued -= 1;
            let switch = self.around(self.costs.switch);
            // The task may have been queued by a CPU whose clock is ahead of this one.
            self.cpus[c].now = self.cpus[c].now.max(self.tasks[next].ready_at) + switch;
            self.counts.switches += 1;
            self.put_on(c, next);
        } else {
            let going = self.around(self.costs.go_idle);
            let cpu = &mut self.cpus[c];
            cpu.now += going;
            cpu.idle_since = cpu.now;
            cpu.cur = None;
            self.idle.insert(c);
        }
    }

    fn put_on(&mut self, c: usize, next: usize) {
        let cpu = &mut self.cpus[c];
        cpu.cur = Some(next);
        cpu.slice_end = cpu.now + self.costs.slice;
        let task = &mut self.tasks[next];
        task.state = State::Running;
        task.cpu = c;
        task.on_since = cpu.now;
    }

    /// Pulls a task from the longest run queue of this cache, of this node, or of the machine.
    fn pull(&mut self) {
        let c = self.cpu;
        let everywhere: Mask = (0..self.cpus.len()).collect();
        for domain in [self.llc_of[c], self.node_of[c], everywhere] {
            let may = |task: &usize| self.tasks[*task].allowed.has(c);
            let has_one = |&from: &usize| from != c && self.cpus[from].runq.iter().any(may);
            let longest = |&from: &usize| (self.cpus[from].runq.len(), Reverse(from));
            let Some(from) = domain.iter().filter(has_one).max_by_key(longest) else {
                continue;
            };
            let at = self.cpus[from].runq.iter().position(may).expect("found above");
            let task = self.cpus[from].runq.remove(at);
            self.counts.pulls += 1;
            self.cpus[c].now += self.costs.pull;
            let ahead = self.tasks[task].vruntime.saturating_sub(self.cpus[from].min_vruntime);
            self.tasks[task].vruntime = self.cpus[c].min_vruntime + ahead;
            self.cpus[c].runq.push(task);
            return;
        }
    }

    /// Gives the next sleep of the current task a number.
    pub fn begin_sleep(&mut self) {
        let task = self.task();
        task.sleep_seq += 1;
        task.nr_idle = 0;
    }

    /// Puts the current task to sleep. The caller suspends afterwards.
    pub fn fall_asleep(&mut self) {
        debug_assert!(!self.cpus[self.cpu].is_kept, "a sleep without preemption");
        self.account();
        let current = self.current();
        self.tasks[current].state = State::Asleep;
        self.cpus[self.cpu].cur = None;
        self.pick_next();
    }

    /// Wakes a sleeping task and charges the CPU `waker` for it, or wakes it at the time `at`.
    pub fn wake(&mut self, task: usize, waker: Option<usize>, at: u64) {
        if self.tasks[task].state != State::Asleep {
            return;
        }
        self.counts.wakes += 1;
        self.tasks[task].sleep_seq += 1;
        self.tasks[task].asleep_on = 0;
        if let Some(me) = waker {
            let cost = self.around(self.costs.ttwu);
            self.cpus[me].now += cost;
        }
        let prev = self.tasks[task].cpu;
        if waker == Some(prev) && self.is_bound_kernel_thread_alone() {
            return self.wake_on(prev, task, waker, at);
        }
        let c = place(Facts {
            prev,
            waker,
            allowed: &self.tasks[task].allowed,
            idle: &self.idle,
            core_of: &self.core_of,
            llc_of: &self.llc_of,
            load: &|cpu| self.load(cpu),
        });
        self.wake_on(c, task, waker, at);
    }

    /// Returns `true` if the waker is a kernel thread that is bound to this CPU and is its only
    /// runnable task. A task that it wakes stays here if it last ran here.
    fn is_bound_kernel_thread_alone(&mut self) -> bool {
        let is_alone = self.cpus[self.cpu].runq.is_empty();
        let task = self.task();
        is_alone && task.is_kernel && task.allowed.len() == 1
    }

    /// Makes a sleeping task runnable on CPU `c`.
    pub fn wake_on(&mut self, c: usize, task: usize, waker: Option<usize>, at: u64) {
        // The sleep earns the task a credit of at most half a slice.
        let floor = self.cpus[c].min_vruntime.saturating_sub(self.costs.slice / 2);
        let moved = self.tasks[task].cpu != c;
        let had = self.tasks[task].vruntime;
        self.tasks[task].vruntime = if moved { floor } else { had.max(floor) };
        if self.idle.has(c) {
            self.wake_idle(c, task, waker, at);
        } else {
            self.wake_busy(c, task, waker, at);
        }
        if waker.is_some() {
            self.set_limit();
        }
    }

    fn wake_idle(&mut self, c: usize, task: usize, waker: Option<usize>, at: u64) {
        self.idle.remove(c);
        let now = waker.map_or(at, |me| self.cpus[me].now);
        let idle_for = now.saturating_sub(self.cpus[c].idle_since);
        let (send, exit) = if idle_for < self.costs.poll_for {
            self.counts.wakes_polling += 1;
            (self.costs.poll_send, self.costs.poll_exit)
        } else {
            self.counts.wakes_idle += 1;
            let is_deep = idle_for > self.costs.deep_after;
            let exit = if is_deep { self.costs.deep_exit } else { self.costs.idle_exit };
            (self.around(self.costs.ipi_send), exit)
        };
        if let Some(me) = waker {
            if self.task().is_kernel {
                self.lock_runq(c, me);
            }
            self.cpus[me].now += send;
        }
        let now = waker.map_or(at, |me| self.cpus[me].now);
        let exit = self.around(exit);
        // The CPU may still be going idle.
        let start = (now + exit).max(self.cpus[c].now);
        self.cpus[c].now = start;
        self.counts.switches += 1;
        self.put_on(c, task);
        self.clock.set(c, start);
    }

    /// Locks the run queue of CPU `c` while CPU `me` adds a thread to it.
    fn lock_runq(&mut self, c: usize, me: usize) {
        let free = self.cpus[c].rq_free.max(self.cpus[me].now) + self.costs.rq_lock;
        self.cpus[c].rq_free = free;
        self.cpus[me].now = free;
    }

    fn wake_busy(&mut self, c: usize, task: usize, waker: Option<usize>, at: u64) {
        self.counts.wakes_busy += 1;
        if let Some(me) = waker.filter(|&me| me != c) {
            self.lock_runq(c, me);
        }
        let now = waker.map_or(at, |me| self.cpus[me].now);
        self.tasks[task].state = State::Runnable;
        self.tasks[task].ready_at = now;
        self.tasks[task].cpu = c;
        self.cpus[c].runq.push(task);
        self.nr_queued += 1;
        self.keep_balance(now);
        let Some(current) = self.cpus[c].cur else {
            return;
        };
        let turn = self.cpus[c].now.saturating_sub(self.tasks[current].on_since);
        let its = self.tasks[current].vruntime + turn;
        if its > self.tasks[task].vruntime + self.costs.wakeup_gran {
            self.cpus[c].resched = true;
            if waker != Some(c) {
                let send = waker.map_or(0, |_| self.costs.ipi_send);
                waker.inspect(|&me| self.cpus[me].now += send);
                self.interrupt(c, now + send + self.costs.ipi_busy);
            }
        }
    }

    /// Interrupts CPU `c`. This delays it until at least `when`.
    pub fn interrupt(&mut self, c: usize, when: u64) {
        let cpu = &mut self.cpus[c];
        cpu.now = cpu.now.max(when);
        if cpu.parked.is_none() && cpu.cur.is_some() {
            let now = cpu.now;
            self.clock.set(c, now);
        }
    }

    /// Starts the timer that makes idle CPUs check for waiting tasks, if it is not running.
    fn keep_balance(&mut self, now: u64) {
        if !self.is_balancing && self.costs.balance > 0 {
            self.is_balancing = true;
            self.timers.set(now + self.costs.balance, Alarm::Balance);
            self.set_timer_clock();
        }
    }

    /// Lets each idle CPU pull a task.
    pub fn balance(&mut self, at: u64) {
        self.is_balancing = false;
        let turn = self.cpu;
        let idle = self.idle;
        for c in idle.iter() {
            if self.nr_queued == 0 {
                break;
            }
            let before = self.cpus[c].now;
            self.cpu = c;
            self.cpus[c].now = before.max(at);
            self.pull();
            if self.cpus[c].runq.is_empty() {
                self.cpus[c].now = before;
                continue;
            }
            self.idle.remove(c);
            self.pick_next();
            let now = self.cpus[c].now;
            self.clock.set(c, now);
        }
        self.cpu = turn;
        if self.nr_queued > 0 {
            self.keep_balance(at);
        }
    }

    /// Returns the CPU for a new task: the least loaded one, preferably near the current task.
    pub fn place_new(&self, allowed: &Mask) -> usize {
        let (me, nr_cpus) = (self.cpu, self.cpus.len());
        let key = |cpu: usize| {
            let is_far = !self.llc_of[me].has(cpu);
            (self.load(cpu), is_far, (cpu + nr_cpus - me) % nr_cpus)
        };
        allowed.iter().min_by_key(|&cpu| key(cpu)).unwrap_or(me)
    }
}
