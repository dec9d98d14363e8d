//! Sections of an owner and of remote callers on one slot, in every mode, and their twins.
//!
//! Loom checks the data: a section that overlaps an earlier one, or is not ordered after it, races.

use crate::support::*;

const CPU: CpuId = CpuId::new(0);

type Slots = PerCpu<u32>;

fn slots(qpw: Qpw, escalate: Escalate) -> Arc<Slots> {
    static MACHINE: OnceLock<Topology> = OnceLock::new();
    let machine = MACHINE.get_or_init(|| Topology::synthetic("1 core").unwrap());
    let builder = PerCpu::builder().topology(machine.clone()).qpw(qpw);
    let builder = builder.escalate(escalate, Duration::ZERO);
    Arc::new(builder.build(|_| 0).unwrap())
}

fn add_one(slots: &Arc<Slots>) -> JoinHandle<()> {
    spawn_with(slots.clone(), |slots| slots.run_on(CPU, |data| *data += 1))
}

fn owner_and_remote(qpw: Qpw, escalate: Escalate, nr_ops: u32) {
    let slots = slots(qpw, escalate);
    let remote = add_one(&slots);
    let mut owner = slots.attach(CPU).unwrap();
    for _ in 0..nr_ops {
        owner.with(|data| *data += 1);
    }
    drop(owner);
    remote.join().unwrap();
    assert_eq!(slots.run_on(CPU, |data| *data), nr_ops + 1);
}

/// Two remote callers operate, and an owner parks between its two operations.
fn parked_between(qpw: Qpw) {
    let slots = slots(qpw, Escalate::Never);
    let remotes = [(); 2].map(|()| add_one(&slots));
    let mut owner = slots.attach(CPU).unwrap();
    owner.with(|data| *data += 1);
    let mut owner = owner.park().unpark();
    owner.with(|data| *data += 1);
    drop(owner);
    remotes.into_iter().for_each(|remote| remote.join().unwrap());
    assert_eq!(slots.run_on(CPU, |data| *data), 4, "{qpw:?}");
}

/// Two threads attach to a slot whose leaked owner's thread has exited. A new owner operates once.
fn two_take_over(qpw: Qpw) {
    let slots = slots(qpw, Escalate::Never);
    slots.attach(CPU).unwrap().leak_by_an_ended_thread();
    let operate = |slots: &Slots| match slots.attach(CPU) {
        Ok(mut owner) => {
            owner.with(|data| *data += 1);
            1
        }
        Err(_) => 0,
    };
    let other = spawn_with(slots.clone(), move |slots| operate(&slots));
    let nr_all = operate(&slots) + other.join().unwrap();
    assert!(nr_all > 0, "{qpw:?}: neither thread has taken over");
    assert_eq!(slots.run_on(CPU, |data| *data), nr_all, "{qpw:?}");
}

/// The owner stops operating while a remote caller breaks its bias and then uses the slot.
fn broken_bias() {
    let slots = slots(Qpw::OnDemand, Escalate::Interrupt);
    let owner = spawn_with(slots.clone(), |slots| {
        let mut owner = slots.attach(CPU).unwrap();
        for _ in 0..3 {
            owner.with(|data| *data += 1);
        }
        // The owner never returns to the slot.
        std::mem::forget(owner);
    });
    for _ in 0..2 {
        slots.run_on(CPU, |data| *data += 1);
    }
    owner.join().unwrap();
    assert_eq!(slots.run_on(CPU, |data| *data), 5);
}

fn queued_calls_and_a_dropped_owner() {
    let slots = slots(Qpw::Queue, Escalate::Never);
    let (count, done) = counter();
    let owner = slots.attach(CPU).unwrap();
    let poster = spawn_with(slots.clone(), |slots| slots.queue_percpu_work(CPU, move |_| count()));
    drop(owner);
    poster.join().unwrap();
    assert_eq!(done.load(Ordering::Relaxed), 1, "a queued call was left");
}

fn queued_from_inside(qpw: Qpw) {
    let slots = slots(qpw, Escalate::Never);
    let remote = spawn_with(slots.clone(), move |theirs| {
        let (count, done) = counter();
        theirs.run_on(CPU, |data| {
            *data += 1;
            theirs.queue_percpu_work(CPU, move |data| {
                *data *= 10;
                count();
            });
            assert!(*data < 10, "{qpw:?}: work runs inside its section");
        });
        // In the queueing mode, the work has run or is left to the owner.
        let is_done = done.load(Ordering::Relaxed) == 1;
        assert!(is_done || qpw == Qpw::Queue, "{qpw:?}: work was left");
    });
    let mut owner = slots.attach(CPU).unwrap();
    owner.with(|data| *data += 1);
    drop(owner);
    remote.join().unwrap();
    let data = slots.run_on(CPU, |data| *data);
    assert!([11, 20].contains(&data), "{qpw:?}: {data}");
}

fn flushed() {
    let slots = slots(Qpw::Queue, Escalate::Never);
    let result = Arc::new(Plain::default());
    let owner = spawn_with(slots.clone(), |slots| slots.attach(CPU).unwrap().poll());
    let written = result.clone();
    slots.queue_percpu_work(CPU, move |_| written.set(7));
    slots.flush(CPU);
    assert_eq!(result.get(), 7);
    owner.join().unwrap();
}

/// A call is queued to an owner that polls twice. It runs, or the caller takes it back.
fn called_with_a_deadline() {
    let slots = slots(Qpw::Queue, Escalate::Never);
    let owner = spawn_with(slots.clone(), |slots| {
        let mut owner = slots.attach(CPU).unwrap();
        owner.poll();
        owner.poll();
    });
    let token = Box::new(1);
    let ran = slots.try_run_on(CPU, Duration::from_secs(1), |data| *data += *token);
    let nr_ran = u32::from(ran.is_ok());
    owner.join().unwrap();
    assert_eq!(slots.run_on(CPU, |data| *data), nr_ran);
}

fn announced_before_the_next_operation(qpw: Qpw) {
    let slots = slots(qpw, Escalate::Never);
    let mut owner = slots.attach(CPU).unwrap();
    let remote = owner.with(|_| announced_call(&slots));
    owner.with(|data| assert_eq!(*data, 1, "the owner was first"));
    remote.join().unwrap();
}

fn announced_before_a_later_call(qpw: Qpw) {
    let slots = slots(qpw, Escalate::Never);
    let mut owner = slots.attach(CPU).unwrap();
    let (remote, later) = owner.with(|_| {
        let remote = announced_call(&slots);
        let later = spawn_with(slots.clone(), |slots| {
            slots.run_on(CPU, |data| assert_eq!(*data, 1, "the later call was first"));
        });
        (remote, later)
    });
    drop(owner);
    remote.join().unwrap();
    later.join().unwrap();
}

fn announced_owner_before_a_later_call(qpw: Qpw) {
    let slots = slots(qpw, Escalate::Never);
    let mut owner = slots.attach(CPU).unwrap();
    let first = spawn_with(slots.clone(), |theirs| {
        let later = theirs.run_on(CPU, |data| {
            // If the owner was first, it does not wait.
            if *data > 0 {
                return None;
            }
            while !theirs.has_announced_caller(CPU) {
                sync::thread::yield_now();
            }
            let theirs = theirs.clone();
            Some(spawn(move || {
                theirs.run_on(CPU, |data| assert_eq!(*data, 1, "the call was first"));
            }))
        });
        later.into_iter().for_each(|later| later.join().unwrap());
    });
    owner.with(|data| *data += 1);
    drop(owner);
    first.join().unwrap();
}

/// Starts a call on a slot that is not free, and returns when the caller has announced itself.
fn announced_call(slots: &Arc<Slots>) -> JoinHandle<()> {
    let remote = add_one(slots);
    while !slots.has_announced_caller(CPU) {
        sync::thread::yield_now();
    }
    remote
}

models! {
    fn announced_call_precedes_the_next_operation() =
        bounded(2, || announced_before_the_next_operation(Qpw::EveryOp))
            .detects(["percpu: the owner overtakes the eldest"]),
        bounded(2, || announced_before_the_next_operation(Qpw::OnDemand))
            .detects(["percpu: the owner overtakes the eldest"]);
    fn announced_call_precedes_a_later_call() =
        bounded(1, || announced_before_a_later_call(Qpw::EveryOp)),
        bounded(1, || announced_before_a_later_call(Qpw::OnDemand)),
        must_fail("percpu: a caller overtakes the eldest",
            || bounded(2, || announced_before_a_later_call(Qpw::EveryOp)));
    fn announced_owner_precedes_a_later_call() =
        bounded(1, || announced_owner_before_a_later_call(Qpw::EveryOp)),
        bounded(1, || announced_owner_before_a_later_call(Qpw::OnDemand)),
        must_fail("percpu: a caller overtakes the eldest",
            || bounded(2, || announced_owner_before_a_later_call(Qpw::EveryOp)));
    fn slot_of_a_parked_owner_is_reused() =
        bounded(1, || parked_between(Qpw::Queue)),
        bounded(1, || parked_between(Qpw::OnDemand)),
        bounded(1, || parked_between(Qpw::EveryOp)),
        must_fail("percpu: yields without marking it",
            || bounded(2, || parked_between(Qpw::OnDemand)));
    fn work_queued_from_inside_a_section_runs_after_it() =
        bounded(2, || queued_from_inside(Qpw::Queue)),
        bounded(2, || queued_from_inside(Qpw::OnDemand)),
        bounded(2, || queued_from_inside(Qpw::EveryOp)).detects(["percpu: leaves its own calls"]);
    fn one_thread_takes_over_from_a_leaked_owner() =
        bounded(3, || two_take_over(Qpw::Queue)).detects(["percpu: takes over without a claim"]),
        bounded(3, || two_take_over(Qpw::OnDemand));
    fn sections_of_owner_and_remotes_never_overlap() =
        bounded(3, || owner_and_remote(Qpw::EveryOp, Escalate::Never, 2))
            .detects(["percpu: relaxed take"]),
        bounded(3, || owner_and_remote(Qpw::OnDemand, Escalate::Never, 2))
            .detects(["percpu: relaxed release"]),
        bounded(3, || owner_and_remote(Qpw::Queue, Escalate::Never, 1));
    fn a_broken_bias_never_lets_two_inside() =
        bounded(2, broken_bias),
        bounded(2, || owner_and_remote(Qpw::OnDemand, Escalate::Quietly, 2)),
        must_fail("percpu: no light fence", || bounded(3, broken_bias)),
        must_fail("percpu: no heavy fence", || bounded(3, broken_bias)),
        must_fail("percpu: breaks without a check", || bounded(3, broken_bias)),
        must_fail("percpu: breaks without marking it", || bounded(3, broken_bias)),
        must_fail("percpu: keeps the slot before marking it", || bounded(3, broken_bias)),
        must_fail("percpu: relaxed exit", || bounded(3, broken_bias));
    fn no_queued_call_stays_in_a_free_slot() =
        bounded(3, queued_calls_and_a_dropped_owner).detects([
            "percpu: no fence when releasing",
            "percpu: no fence after posting",
            "percpu: releases and forgets the calls",
        ]);
    fn flush_sees_earlier_calls() = bounded(3, flushed).detects(["percpu: relaxed done"]);
    fn queued_call_returns_its_result() =
        bounded(3, called_with_a_deadline)
            .detects(["percpu: relaxed finish", "percpu: runs a recalled call"]);
}
