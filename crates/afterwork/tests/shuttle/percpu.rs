//! Three slots, owners that attach, park and leave, and all remote callers, in every mode.

use base::internal::wake::hotplug::{notify_aside, watch};
use topology::CpuSet;

use crate::*;

const NR_CPUS: u32 = 3;

fn sum_is_exact(qpw: Qpw, escalate: Escalate) {
    static MACHINE: OnceLock<Topology> = OnceLock::new();
    let machine = MACHINE.get_or_init(|| Topology::synthetic("3 core").unwrap());
    let builder = PerCpu::builder().topology(machine.clone()).qpw(qpw);
    let builder = builder.escalate(escalate, Duration::ZERO);
    let slots = Arc::new(builder.build(|_| 0u64).unwrap());
    let expected = Arc::new(AtomicU64::new(0));
    let (theirs, added) = (slots.clone(), expected.clone());
    let owners = spawn_each(NR_CPUS as usize - 1, move |cpu| {
        let mut owner = theirs.attach(CpuId::new(cpu as u32)).unwrap();
        for _ in 0..3 {
            owner.with(|data| *data += 1);
            added.fetch_add(1, Ordering::Relaxed);
            match thread_rng().gen_range(0..4) {
                0 => owner.poll(),
                1 => owner = owner.park().unpark(),
                2 => owner.while_parked(|| theirs.drain_all(|_, data| *data += 1)),
                _ => continue,
            }
        }
    });
    let (theirs, added) = (slots.clone(), expected.clone());
    let callers = spawn_each(3, move |_| {
        for _ in 0..2 {
            let cpu = CpuId::new(thread_rng().gen_range(0..NR_CPUS));
            let add = |data: &mut u64| *data += 1;
            let mut is_added = true;
            match thread_rng().gen_range(0..4) {
                0 => theirs.run_on(cpu, add),
                1 => {
                    theirs.queue_percpu_work(cpu, add);
                    theirs.flush(cpu);
                }
                2 => is_added = theirs.try_run_on(cpu, Duration::from_secs(1), add).is_ok(),
                _ => theirs.queue_percpu_work(cpu, add),
            }
            added.fetch_add(is_added.into(), Ordering::Relaxed);
        }
    });
    join_all(owners);
    join_all(callers);
    let sum = slots.sum_over(|data| *data);
    let before = expected.load(Ordering::Relaxed);
    // A drain adds one to each slot.
    assert!(sum >= before && (sum - before).is_multiple_of(u64::from(NR_CPUS)), "{sum}, {before}");
}

/// A drain announced to the busy owner of CPU 1 gets the slot of CPU 0, which waits for it.
fn drain_that_waits_for_an_owner() {
    let machine = Topology::synthetic("2 core").unwrap();
    let builder = PerCpu::builder().topology(machine).qpw(Qpw::EveryOp);
    let slots = Arc::new(builder.build(|_| ()).unwrap());
    let [is_held, is_announced, is_over] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
    let holder = thread::spawn({
        let (slots, is_held, is_announced) = (slots.clone(), is_held.clone(), is_announced.clone());
        move || {
            slots.run_on(CpuId::new(0), |()| {
                is_held.store(true, Ordering::Relaxed);
                wait_for(&is_announced);
            });
        }
    });
    wait_for(&is_held);
    let mut owner = slots.attach(CpuId::new(1)).unwrap();
    let drainer = owner.with(|()| {
        let (theirs, is_over) = (slots.clone(), is_over.clone());
        let drainer = thread::spawn(move || {
            theirs.drain_all(|cpu, ()| {
                if cpu.index() == 0 {
                    wait_for(&is_over);
                }
            });
        });
        until(|| slots.has_announced_caller(CpuId::new(1)));
        drainer
    });
    is_announced.store(true, Ordering::Relaxed);
    owner.with(|()| ());
    is_over.store(true, Ordering::Relaxed);
    drop(owner);
    holder.join().unwrap();
    drainer.join().unwrap();
}

fn callers_asleep_next_to_an_owner(qpw: Qpw) {
    let machine = Topology::synthetic("1 core").unwrap();
    let builder = PerCpu::builder().topology(machine).qpw(qpw);
    let slots = Arc::new(builder.build(|_| 0).unwrap());
    let cpu = CpuId::new(0);
    let mut owner = slots.attach(cpu).unwrap();
    let callers = owner.with(|_| {
        let call = |_| {
            let slots = slots.clone();
            thread::spawn(move || slots.run_on(cpu, |data| *data += 1))
        };
        let callers = [0, 1].map(call);
        until(|| qpw == Qpw::Queue || slots.has_announced_caller(cpu));
        callers
    });
    for _ in 0..2 {
        owner.with(|data| *data += 1);
        owner.poll();
    }
    drop(owner);
    callers.into_iter().for_each(|it| it.join().unwrap());
    assert_eq!(slots.run_on(cpu, |data| *data), 4);
}

fn each_watcher_sees_each_change() {
    let all = [0, 1].map(CpuId::new);
    let watchers = [(); 2].map(|()| {
        let absent = Arc::new(AtomicU32::new(0));
        let theirs = absent.clone();
        let watch = watch(sync::unmodelled::Arc::new(move |online: &CpuSet| {
            let absent = all.iter().filter(|cpu| !online.contains(**cpu));
            absent.for_each(|cpu| _ = theirs.fetch_or(1 << cpu.as_u32(), Ordering::Relaxed));
        }));
        (absent, watch)
    });
    join_all(spawn_each(2, move |online| assert!(notify_aside(&CpuSet::from_iter([all[online]])))));
    for (absent, _watch) in watchers {
        until(|| absent.load(Ordering::Relaxed) == 0b11);
    }
}

fn wait_for(condition: &AtomicBool) {
    until(|| condition.load(Ordering::Relaxed));
}

models! {
    fn callers_asleep_next_to_an_owner_are_woken() =
        explore(1_000, || callers_asleep_next_to_an_owner(Qpw::Queue))
            .detects(["percpu: hands over to no thread"]),
        explore(1_000, || callers_asleep_next_to_an_owner(Qpw::OnDemand))
            .detects(["percpu: hands over to no thread"]),
        explore(1_000, || callers_asleep_next_to_an_owner(Qpw::EveryOp))
            .detects(["percpu: hands over to no thread"]);
    fn a_drain_whose_call_waits_for_an_owner_does_not_stop_it() =
        explore(500, drain_that_waits_for_an_owner)
            .detects(["percpu: a drain stays announced inside a call"]);
    fn changes_that_arrive_during_a_call_are_seen() =
        explore(1_000, each_watcher_sees_each_change)
            .detects(["hotplug: a call takes the changes that arrive during it"]);
    fn no_addition_is_lost_in_any_mode() =
        explore(2_000, || sum_is_exact(Qpw::Queue, Escalate::Never)),
        explore(2_000, || sum_is_exact(Qpw::OnDemand, Escalate::Never)),
        explore(2_000, || sum_is_exact(Qpw::OnDemand, Escalate::Quietly)),
        explore(2_000, || sum_is_exact(Qpw::EveryOp, Escalate::Never));
}
