//! The CPU time of another thread of this process, and whether the thread is runnable.
//!
//! Together they distinguish a sleeping thread from one that waits for a CPU: neither uses CPU
//! time, but only the latter is runnable. Reading the time costs about 0.3 µs, and the state about
//! 8 µs, because it opens a file of procfs. Keeping a descriptor for each thread would cost more.

use std::fs::File;
use std::io::Read;
use std::str::{SplitAsciiWhitespace, from_utf8};

use crate::thread::{IS_REAL, ThreadId};

/// Returns the CPU time of `thread` of this process in nanoseconds, if it exists; 0 in a model.
pub fn cpu_ns(thread: ThreadId) -> Option<u64> {
    #[cfg(sim)]
    if crate::sim::is_running() {
        return crate::sim::cpu_ns(thread.0);
    }
    if !IS_REAL {
        return Some(0);
    }
    if thread.0 == 0 {
        // The kernel would interpret 0 as the caller.
        return None;
    }
    /// `CPUCLOCK_SCHED | CPUCLOCK_PERTHREAD_MASK`: a thread's number identifies its clock.
    const THREAD_CPU: libc::clockid_t = 2 | 4;
    let clock = (!(thread.0 as libc::clockid_t)) << 3 | THREAD_CPU;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes `time`, which outlives it.
    let refused = unsafe { libc::clock_gettime(clock, &mut time) };
    (refused == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns `true` if `thread` of this process is runnable, or `None` if procfs does not show it.
/// Always returns `false` in a model, where a thread that makes no progress is assumed to sleep.
pub fn is_runnable(thread: ThreadId) -> Option<bool> {
    #[cfg(sim)]
    if crate::sim::is_running() {
        return crate::sim::thread::described(thread.0).map(|it| it.1 == "running");
    }
    if !IS_REAL {
        return Some(false);
    }
    let mut line = [0; 128];
    let mut file = File::open(format!("/proc/self/task/{}/stat", thread.0)).ok()?;
    let len = file.read(&mut line).ok()?;
    after_name(line.get(..len)?)?.next().map(|state| state == "R")
}

/// Returns the fields of a `stat` file of procfs that follow the name, in which any byte is
/// allowed.
pub(crate) fn after_name(stat: &[u8]) -> Option<SplitAsciiWhitespace<'_>> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    Some(from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace())
}

#[cfg(all(test, not(any(loom, shuttle, miri, sim))))]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::thread;

    #[test]
    fn a_running_thread_is_runnable_and_its_time_moves() {
        let me = thread::current();
        let before = cpu_ns(me).unwrap();
        while cpu_ns(me).unwrap() == before {}
        assert_ne!(is_runnable(me), Some(false));
    }

    #[test]
    fn a_sleeping_thread_is_not_runnable() {
        let (sender, receiver) = mpsc::channel();
        let (stop, stopped) = mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            sender.send(thread::current()).unwrap();
            let _ = stopped.recv();
        });
        let sleeper_id = receiver.recv().unwrap();
        while is_runnable(sleeper_id) == Some(true) {
            std::thread::yield_now();
        }
        drop(stop);
        sleeper.join().unwrap();
    }

    #[test]
    fn exited_thread_has_no_time() {
        assert_eq!(cpu_ns(ThreadId(i32::MAX as u32 >> 4)), None);
    }
}
