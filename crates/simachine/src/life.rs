//! The life of a task: its start, sleeps, yields, moves, end, and join.

use std::any::Any;
use std::time::Duration;

use corosensei::{Coroutine, Yielder};

use super::engine::{Engine, engine, suspend, sync, system_call};
use super::mask::Mask;
use super::task::{Stack, State, Task};

/// Starts a task, as if the running task called `clone`.
pub fn spawn(name: &str, body: Box<dyn FnOnce()>) -> usize {
    engine(|e| {
        e.counts.spawns += 1;
        let cost = e.around(e.costs.spawn);
        e.advance(cost);
        e.task().nr_idle = 0;
    });
    sync();
    make_task(name, body)
}

/// Creates a task. The first one runs at once, on CPU 0.
pub fn make_task(name: &str, body: Box<dyn FnOnce()>) -> usize {
    let number = engine(|e| e.tasks.len());
    let stack = Stack::new().expect("memory for a stack");
    let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
        engine(|e| e.tasks[number].yielder = Some(yielder));
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        super::tls::destroy_all();
        end(number, ended.err());
    });
    engine(|e| {
        let first = e.tasks.is_empty();
        let (allowed, vruntime) = match first {
            true => (Mask::from(e.machine.topology.allowed()), 0),
            false => (e.task().allowed, e.task().vruntime),
        };
        let cpu = if first { 0 } else { e.place_new(&allowed) };
        let (name, coroutine) = (name.to_owned(), Some(coroutine));
        e.tasks.push(Task { name, cpu, allowed, vruntime, coroutine, ..Task::default() });
        let waker = (!first).then_some(e.cpu);
        e.wake_on(cpu, number, waker, 0);
    });
    number
}

fn end(number: usize, panic: Option<Box<dyn Any + Send>>) {
    sync();
    engine(|e| {
        e.account();
        let task = &mut e.tasks[number];
        task.panic = panic;
        for joiner in std::mem::take(&mut task.joiners) {
            e.wake(joiner, Some(e.cpu), 0);
        }
        e.tasks[number].state = State::Done;
        e.cpus[e.cpu].cur = None;
        e.pick_next();
    });
}

/// Waits until a task has ended. Returns its panic payload, if it panicked.
pub fn join(number: usize) -> Option<Box<dyn Any + Send>> {
    sync();
    loop {
        let is_done = engine(|e| {
            if e.tasks[number].state == State::Done {
                return true;
            }
            let me = e.current();
            e.tasks[number].joiners.push(me);
            e.begin_sleep();
            e.fall_asleep();
            false
        });
        if is_done {
            return engine(|e| e.tasks[number].panic.take());
        }
        suspend();
    }
}

/// Replaces `std::thread::yield_now`.
pub fn yield_now() {
    let charge = |e: &mut Engine| {
        e.counts.yields += 1;
        e.advance(e.costs.syscall + e.costs.sched_yield);
        e.count_idle();
    };
    system_call(charge, |e| {
        let waiting = &e.cpus[e.cpu].runq;
        let Some(last) = waiting.iter().map(|&task| e.tasks[task].vruntime).max() else {
            return false;
        };
        e.account();
        let me = e.task();
        me.vruntime = me.vruntime.max(last + 1);
        e.requeue_current();
        e.pick_next();
        true
    });
}

/// Replaces `std::thread::sleep`.
pub fn sleep(span: Duration) {
    let charge = |e: &mut Engine| e.advance(e.costs.syscall);
    system_call(charge, |e| {
        e.begin_sleep();
        e.set_alarm(span);
        e.fall_asleep();
        true
    });
}

/// Sets the CPUs on which a task may run. `None` means the running task.
pub fn set_affinity(task: Option<usize>, allowed: Mask) {
    let charge = |e: &mut Engine| e.advance(e.costs.set_affinity);
    system_call(charge, |e| {
        let me = e.current();
        let at = task.unwrap_or(me);
        e.tasks[at].allowed = allowed;
        if at != me || allowed.has(e.cpu) {
            return false;
        }
        // The task loses its CPU and continues on one that it may use.
        e.account();
        e.tasks[me].state = State::Asleep;
        let at = e.now() + e.costs.ipi_busy + e.costs.switch;
        e.cpus[e.cpu].cur = None;
        e.pick_next();
        e.wake(me, None, at);
        true
    });
}
