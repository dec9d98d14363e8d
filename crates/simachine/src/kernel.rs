//! Kernel operations that programs cannot use, for models of kernel code.
//!
//! Outside a simulation they do nothing.

use topology::CpuId;

use super::engine::{engine, sync, with};
use super::task::State;
use super::{Costs, memory};

/// Makes the running thread a kernel thread, which makes no system calls and locks run queues
/// itself.
pub fn enter() {
    with(|e| e.task().is_kernel = true);
}

/// Disables preemption of the running thread, which then must not sleep. Calls do not nest.
pub fn disable_preemption() {
    with(|e| {
        let cpu = &mut e.cpus[e.cpu];
        assert!(!cpu.is_kept, "preemption is disabled twice");
        cpu.is_kept = true;
        e.set_limit();
    });
}

/// Ends the effect of [`disable_preemption`]. The thread may lose its CPU here.
pub fn enable_preemption() {
    let is_simulated = with(|e| {
        e.cpus[e.cpu].is_kept = false;
        e.set_limit();
    });
    if is_simulated.is_some() {
        sync();
    }
}

/// Returns the CPU that [`set_wake_cpu`] has set for `thread`, or else its last one.
pub fn wake_cpu(thread: u32) -> Option<CpuId> {
    let task = super::thread::task_of(thread)?;
    with(|e| CpuId::new(e.tasks[task].cpu as u32))
}

/// If `thread` is asleep, sets the CPU from which the scheduler starts when it wakes the thread.
pub fn set_wake_cpu(thread: u32, cpu: CpuId) {
    let Some(task) = super::thread::task_of(thread) else {
        return;
    };
    with(|e| {
        if e.tasks[task].state == State::Asleep {
            e.tasks[task].cpu = cpu.index();
        }
    });
}

/// Charges the running thread for an operation.
pub fn spend(cost: impl Fn(&Costs) -> u64) {
    if let Some(ps) = with(|e| cost(&e.costs)) {
        memory::work(ps);
    }
}

/// Returns the simulated time in picoseconds. The call costs no simulated time.
pub fn now_ps() -> u64 {
    with(|e| e.now()).unwrap_or(0)
}

/// Records when a lock was requested, acquired and released. The report shows it as `name`.
pub fn note_lock(name: &'static str, [asked, got, freed]: [u64; 3], is_contended: bool) {
    if super::is_running() {
        engine(|e| {
            let stat = e.lock_stat(name);
            stat.note_taken(is_contended, got - asked);
            stat.held_ps += freed - got;
        });
    }
}
