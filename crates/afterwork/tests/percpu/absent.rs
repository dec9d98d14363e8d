//! CPUs that go offline, on a synthetic machine.

use crate::support::*;

/// Returns slots with ten times the CPU's number, the sum of drained values, and drained CPUs.
fn watched(qpw: Qpw) -> (Arc<PerCpu<u64>>, impl Sized, Arc<AtomicU64>, mpsc::Receiver<CpuId>) {
    let slots = Arc::new(builder(qpw).build(|cpu| u64::from(cpu.as_u32()) * 10).unwrap());
    let saved = Arc::new(AtomicU64::new(0));
    let (sender, receiver) = mpsc::channel();
    let theirs = saved.clone();
    let watch = slots.drain_when_absent(move |cpu, data| {
        theirs.fetch_add(std::mem::take(data), Ordering::Relaxed);
        sender.send(cpu).ok();
    });
    (slots, watch, saved, receiver)
}

fn without(absent: u32) -> CpuSet {
    (0..NR_CPUS).filter(|&number| number != absent).map(cpu).collect()
}

#[test]
fn registry_drains_the_slots_of_absent_cpus() {
    let _alone = alone_in_hotplug();
    for qpw in Qpw::ALL {
        let (change, changed) = mpsc::channel();
        let after = move || changed.try_recv().ok();
        let registry = Registry::watching(machine(), Params::default(), after).unwrap();
        let (slots, _watch, saved, receiver) = watched(qpw);
        change.send(Topology::flat(&without(3)).unwrap()).unwrap();
        // The registry also refreshes the topology by itself, and may have done so first.
        registry.refresh_topology();
        while receiver.recv().unwrap() != cpu(3) {}
        assert_eq!(slots.run_on(cpu(3), |data| *data), 0);
        let left = slots.sum_over(|data| *data);
        assert_eq!(left + saved.load(Ordering::Relaxed), 60, "{qpw}");
    }
}

#[test]
fn slot_whose_owner_moved_is_drained_like_any_other() {
    let _alone = alone_in_hotplug();
    for qpw in Qpw::ALL {
        let registry = Registry::new(machine(), Params::default()).unwrap();
        let (slots, _watch, saved, receiver) = watched(qpw);
        while_owned(&slots, || {
            registry.set_topology(Topology::flat(&without(1)).unwrap());
            while receiver.recv().unwrap() != cpu(1) {}
        });
        assert!(saved.load(Ordering::Relaxed) >= 10);
        // A value that arrives later is drained at the next notification.
        slots.run_on(cpu(1), |data| *data = 7);
        set_online_cpus(&without(1));
        assert_eq!(slots.run_on(cpu(1), |data| *data), 0);
        let left = slots.sum_over(|data| *data);
        assert_eq!(left + saved.load(Ordering::Relaxed), 67, "{qpw}");
    }
}

#[test]
fn an_owner_that_reports_a_change_drains_all_slots_but_its_own() {
    let _alone = alone_in_hotplug();
    for qpw in Qpw::ALL {
        let (slots, _watch, saved, _receiver) = watched(qpw);
        let mut owner = slots.attach(cpu(3)).unwrap();
        set_online_cpus(&cpus(&[0, 1]));
        assert_eq!(saved.load(Ordering::Relaxed), 20, "{qpw}");
        owner.while_parked(|| set_online_cpus(&cpus(&[0, 1])));
        assert_eq!(saved.load(Ordering::Relaxed), 50, "{qpw}");
        owner.with(|data| *data = 1);
        slots.run_on(cpu(2), |data| {
            *data = 1;
            set_online_cpus(&cpus(&[0, 1]));
        });
        assert_eq!(
            saved.load(Ordering::Relaxed),
            50,
            "{qpw}: the caller is inside one slot and owns the other"
        );
    }
}

#[test]
fn nothing_is_drained_after_the_watch_is_dropped() {
    let _alone = alone_in_hotplug();
    let (slots, watch, _, receiver) = watched(Qpw::EveryOp);
    drop(watch);
    while receiver.try_recv().is_ok() {}
    let before = slots.sum_over(|data| *data);
    set_online_cpus(&without(2));
    assert_eq!(slots.sum_over(|data| *data), before);
}

/// The drain of one set of slots waits for the test, in CPU 1's slot.
#[test]
fn a_drain_that_waits_delays_no_other_and_holds_one_thread() {
    let _alone = alone_in_hotplug();
    let registry = Registry::new(machine(), Params::default()).unwrap();
    let change = |absent| registry.set_topology(Topology::flat(&without(absent)).unwrap());
    let slow = Arc::new(builder(Qpw::EveryOp).build(|_| ()).unwrap());
    let (sender, entered) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let _slow = slow.drain_when_absent(move |cpu, ()| {
        sender.send(cpu).unwrap();
        released.lock().unwrap().recv().unwrap_err();
    });
    let (_slots, _watch, _, drained) = watched(Qpw::EveryOp);
    change(1);
    assert_eq!((entered.recv().unwrap(), drained.recv().unwrap()), (cpu(1), cpu(1)));
    for absent in (1..NR_CPUS).cycle().take(99) {
        change(absent);
        while drained.recv().unwrap() != cpu(absent) {}
    }
    // Threads that have returned may take a while to end.
    let since = Instant::now();
    while threads_named("aw/hotplug") > 2 {
        assert!(since.elapsed() < Duration::from_secs(60), "threads pile up");
        std::thread::yield_now();
    }

    // The slow drain then covers all later changes.
    drop(release);
    let mut unseen: CpuSet = (1..NR_CPUS).map(cpu).collect();
    while !unseen.is_empty() {
        unseen.remove(entered.recv().unwrap());
    }
}

fn threads_named(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.flat_map(|task| std::fs::read_to_string(task.path().join("comm")));
    names.filter(|it| it.trim_end() == name).count()
}
