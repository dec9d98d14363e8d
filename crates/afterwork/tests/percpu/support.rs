//! Shared helpers.

pub use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
pub use std::sync::atomic::*;
pub use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError, mpsc};
pub use std::thread;
pub use std::time::{Duration, Instant};

pub use afterwork::params::Params;
pub use afterwork::percpu::{
    self, AttachError, Builder, Escalate, NotRun, Owner, PerCpu, Qpw, SloppyCounter,
    set_online_cpus,
};
pub use afterwork::workqueue::{Registry, Workqueue};
pub use topology::{CpuId, CpuSet, Topology};

/// The CPUs of the slots' machine. The real one may have fewer, because an owner may run anywhere.
pub const NR_CPUS: u32 = 4;

/// Serializes tests that notify the process of absent CPUs, and tests that depend on that.
pub fn alone_in_hotplug() -> MutexGuard<'static, ()> {
    static HOTPLUG: Mutex<()> = Mutex::new(());
    HOTPLUG.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn cpu(number: u32) -> CpuId {
    CpuId::new(number)
}

pub fn cpus(numbers: &[u32]) -> CpuSet {
    numbers.iter().map(|&number| cpu(number)).collect()
}

pub fn machine() -> Topology {
    Topology::synthetic(&format!("{NR_CPUS} core")).unwrap()
}

pub fn builder(qpw: Qpw) -> Builder {
    PerCpu::builder().topology(machine()).qpw(qpw)
}

#[track_caller]
pub fn assert_panics<R>(body: impl FnOnce() -> R) {
    assert!(catch_unwind(AssertUnwindSafe(body)).is_err());
}

/// Runs `elsewhere` while another thread owns the slot of CPU 1 and polls.
pub fn while_owned<T: Send>(slots: &PerCpu<T>, elsewhere: impl FnOnce()) {
    let attached = Barrier::new(2);
    let (sender, receiver) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let attached = &attached;
        // `elsewhere` has ended, or has panicked, when the sender is dropped.
        let sender = sender;
        let owner = scope.spawn(move || {
            let mut owner = slots.attach(cpu(1)).unwrap();
            attached.wait();
            serve_until(&mut owner, &receiver);
        });
        attached.wait();
        elsewhere();
        drop(sender);
        owner.join().unwrap();
    });
}

/// Runs `elsewhere` while another thread owns the slot of CPU 1 and does not poll.
pub fn beside_owner<T: Send>(
    slots: &PerCpu<T>,
    before: impl FnOnce(&mut Owner<'_, T>) + Send,
    elsewhere: impl FnOnce(),
    after: impl FnOnce(&mut Owner<'_, T>) + Send,
) {
    let (attached, over) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut owner = slots.attach(cpu(1)).unwrap();
            before(&mut owner);
            attached.wait();
            over.wait();
            after(&mut owner);
        });
        attached.wait();
        elsewhere();
        over.wait();
    });
}

/// Polls until the sender is dropped.
pub fn serve_until<T>(owner: &mut Owner<'_, T>, receiver: &mpsc::Receiver<()>) {
    while receiver.try_recv() == Err(mpsc::TryRecvError::Empty) {
        owner.poll();
        thread::yield_now();
    }
}
