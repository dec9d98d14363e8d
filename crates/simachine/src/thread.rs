//! Threads of the simulated machine, with the interface of the standard library's threads.

use std::io;
pub use std::thread::panicking;

use super::engine::{engine, running, with};
use super::life;
pub use super::life::{sleep, yield_now};
use super::task::State;

/// A handle to a started thread.
#[derive(Debug)]
pub struct JoinHandle(usize);

pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle> {
    if running().is_none() {
        return Err(io::Error::other("threads are started inside a simulation"));
    }
    Ok(JoinHandle(life::spawn(name, Box::new(body))))
}

impl JoinHandle {
    pub fn is_finished(&self) -> bool {
        super::work_ns(0);
        with(|e| e.tasks[self.0].state == State::Done).unwrap_or(true)
    }

    pub fn join(self) -> std::thread::Result<()> {
        life::join(self.0).map_or(Ok(()), Err)
    }
}

/// Returns the running thread's number, which is never 0.
pub fn current() -> u32 {
    running().map_or(1, |task| task as u32 + 2)
}

/// Returns the task with the thread number `number`.
pub fn task_of(number: u32) -> Option<usize> {
    let task = (number as usize).checked_sub(2)?;
    with(|e| e.tasks.len()).filter(|&nr_tasks| task < nr_tasks).map(|_| task)
}

/// Returns the name of a thread and its state.
pub fn described(number: u32) -> Option<(String, &'static str)> {
    let task = task_of(number)?;
    engine(|e| {
        let task = &e.tasks[task];
        let doing = match task.state {
            State::Runnable | State::Running => "running",
            State::Asleep => "asleep",
            State::Done => return None,
        };
        Some((task.name.clone(), doing))
    })
}
